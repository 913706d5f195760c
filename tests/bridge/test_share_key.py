"""A bridge that gets a key, or another one: its session leaves the group of before, so no message
comes to it twice.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from edgewake.cloud.bridge.mqtt.subscriptions import group
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from tests.bridge.fleet import until
from tests.bridge.running import Device, World, read, read_some

READINGS = 20


async def test_a_new_key_takes_the_session_into_another_group_and_out_of_the_old_one(
    here: World, tmp_path: Path
) -> None:
    """Plain readings without numbers: nobody would remove a second one."""
    device = Device(here, "keyed", "keyed")
    file = tmp_path / "share.key"
    keys = ["", "11" * 32, "22" * 32]
    for round_, key in enumerate(keys):
        known = [one for one in reversed(keys[: round_ + 1]) if one]
        file.write_text("\n".join(known))
        bridge = here.bridge("bridge-1", mqtt=f'share_key_file = "{file}"' if known else "")
        await device.connected()
        for i in range(READINGS):
            device.publish(
                b'{"n":%d}' % (round_ * READINGS + i),
                packet_id=round_ * READINGS + i + 1,
                response_topic=None,
            )
        expected = (round_ + 1) * READINGS
        await until(
            lambda expected=expected: len(device.confirmed) == expected, "the broker has them"
        )
        await read_some(here.config, topics.UP, device.name, expected)
        assert group("edgewake", bytes.fromhex(key) if key else None) not in bridge.output(), (
            "the name is no matter of logs"
        )
        assert bridge.stop() == 0
    found = Counter(
        record.decode(one.value()).frame.fields["n"][0]
        for one in read(here.config, topics.UP, device=device.name)
    )
    assert found == Counter(range(len(keys) * READINGS))
