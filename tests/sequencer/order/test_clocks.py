"""A device's clock is judged over time, on a real broker and a real Kafka: what waited for a bridge
does not look like a wrong clock.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.sequencer.order.clocks import SHIFT_MS_MIN
from edgewake.cloud.sequencer.output_writer import BRIDGE_APART_MS
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.frame import FRAME_TYPE
from edgewake.protocol.frames.record import PLACEMENT_HEADER, Discipline, Mode, Placement, Record
from tests.bridge.running import Device, World, frame, read, sequenced, start

HOUR_MS = 3_600_000
QUEUED_MS = SHIFT_MS_MIN + 5_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def send(device: Device, number: int, *, sent_at: int) -> None:
    """A frame with what the device's clock says; returns when the broker has it."""
    await device.connected()
    device.confirmed.discard(number)
    device.publish(
        frame(number),
        content_type=FRAME_TYPE,
        correlation=b"%d" % number,
        packet_id=number,
        user_properties=[("sent_at", str(sent_at))],
    )
    await device.confirms(number)


def records(here: World, stream: str, device: str) -> dict[int, Record]:
    """Number of the frame → its record on the stream."""
    found = [
        record.decode(one.value())
        for one in read(here.config, topics.stream_topic(stream), device=device)
    ]
    return {one.frame.frame or 0: one for one in found}


@pytest.mark.long
async def test_a_bridge_that_was_away_moves_no_right_clock(here: World) -> None:
    """Control: of a device that nothing was known of, the same wait is taken for its clock."""
    here.sequencer()
    bridge = here.bridge("away-1")
    known, unknown, ahead = (
        Device(here, f"away-{name}", "away") for name in ("known", "unknown", "ahead")
    )
    await send(known, 1, sent_at=now_ms())
    await send(ahead, 1, sent_at=now_ms() + HOUR_MS)
    await sequenced(here, "away", known.name, 1)
    await sequenced(here, "away", ahead.name, 1)
    assert bridge.stop() == 0
    # The broker keeps them for the bridge; they say that this was fifteen seconds ago.
    await send(known, 2, sent_at=now_ms() - QUEUED_MS)
    await send(ahead, 2, sent_at=now_ms() - QUEUED_MS + HOUR_MS)
    await send(unknown, 1, sent_at=now_ms() - QUEUED_MS)
    start(bridge)
    await send(known, 3, sent_at=now_ms())
    for device, count in ((known, 3), (ahead, 2), (unknown, 1)):
        await sequenced(here, "away", device.name, count)
    assert records(here, "away", unknown.name)[1].shift > SHIFT_MS_MIN, "nothing waited"
    assert {number: one.shift for number, one in records(here, "away", known.name).items()} == {
        1: 0,
        2: 0,
        3: 0,
    }
    shifts = [one.shift for one in records(here, "away", ahead.name).values()]
    assert all(-HOUR_MS <= shift < -HOUR_MS + SHIFT_MS_MIN for shift in shifts)
    assert shifts[0] == shifts[1]


async def test_a_bridge_with_a_wrong_clock_shifts_no_device_and_its_time_is_replaced_by_kafka_s(
    here: World,
) -> None:
    topic_admin.ensure_topics(here.config, [topics.UP])
    producer: Producer = clients.producer(here.config, "test-clocks")
    sent = {"bridge-right": 0, "bridge-ahead": HOUR_MS, "bridge-behind": -HOUR_MS}
    before = now_ms()
    for device, apart in sent.items():
        placement = Placement(Discipline.ORDERED, "apart", 1, 1, 1, 1, 2)
        value = record.encode(
            device=device,
            stream="apart",
            mode=Mode.ACK,
            sent_at=now_ms(),
            received_at=now_ms() + apart,
            frame_bytes=frame(1),
        )
        producer.produce(
            topics.UP,
            value,
            device,
            headers=[(PLACEMENT_HEADER, placement.encode())],
            timestamp=now_ms() + apart,
        )
    assert producer.flush(10) == 0
    here.sequencer()
    for device, apart in sent.items():
        await sequenced(here, "apart", device, 1)
        one = records(here, "apart", device)[1]
        assert one.shift == 0
        if apart:
            assert one.kept_at is not None
            assert before <= one.kept_at <= now_ms()
            assert abs(one.received_at - one.kept_at) > BRIDGE_APART_MS
        else:
            assert one.kept_at is None
