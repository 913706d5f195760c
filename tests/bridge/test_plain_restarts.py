"""A plain device that restarts within a minute, over bridge and sequencer: nothing lost, true
repeats removed.
"""

from __future__ import annotations

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from tests.bridge.running import Device, World, read_some

BEFORE = [b'{"seq":%d,"v":%d}' % (n, n) for n in (1, 2, 3)]
AFTER = [b'{"seq":%d,"v":%d}' % (n, 10 * n) for n in (1, 2, 3, 4)]


async def test_what_it_sends_under_numbers_of_before_is_kept(here: World) -> None:
    here.bridge("bridge-1")
    here.sequencer()
    device = Device(here, "reborn", "reborn")
    await device.connected()
    # The last of each run comes twice, as the broker or the device may send it again.
    for number, payload in enumerate(
        [*BEFORE, BEFORE[-1], *AFTER, AFTER[0], AFTER[-1], b'{"seq":5,"v":50}'], 1
    ):
        device.publish(payload, correlation=b"%d" % number, packet_id=number)
        await device.answered(number)
    found = [
        record.decode(one.value()).frame
        for one in await read_some(here.config, topics.stream_topic("reborn"), device.name, 9)
    ]
    assert [one.fields["v"][0] if one.gap is None else one.gap.reason for one in found] == [
        1,
        2,
        3,
        "restarted",
        10,
        20,
        30,
        40,
        50,
    ]
