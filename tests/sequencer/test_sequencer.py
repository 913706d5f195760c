"""The sequencer on a real Kafka: whatever dies in the middle, each frame passes once and in order,
and each loss is said.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.protocol import topics
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.frame import Gap
from edgewake.protocol.frames.record import (
    LATE_HEADER,
    ORIGIN_HEADER,
    PLACEMENT_HEADER,
    Discipline,
    Mode,
    Placement,
)
from edgewake.protocol.ops.device import DeviceSeen
from tests.bridge.running import World, frame, numbers, read, read_some, sequenced, start
from tests.services import Kafka, Process, part, wait_until


def now_ms() -> int:
    """Records are of this moment: Kafka would delete an old one at once, and its clock would be
    believed rather than the record's.
    """
    return time.time_ns() // 1_000_000


class Up:
    """Writes to `ew.up` what bridges would."""

    def __init__(self, world: World, device: str, stream: str) -> None:
        self.world, self.device, self.stream = world, device, stream
        topic_admin.ensure_topics(world.config, [topics.UP])
        self.last = (-1, -1)
        self.partition = -1
        """Of `ew.up`; -1: by the device's name, as bridges do it."""
        self._producer: Producer = clients.producer(world.config, "test-up")

    def put(self, *frame_numbers: int, sent_at: int | None = None) -> None:
        """Records of these frames, in this order."""
        for number in frame_numbers:
            self._put_frame(number, sent_at)
        self._producer.flush()

    def put_one(self, number: int, *, flush: bool = True) -> tuple[int, int]:
        """One record; its partition and offset once it is flushed."""
        self._put_frame(number, None)
        if flush:
            self._producer.flush()
        return self.last

    def flush(self) -> None:
        """Wait until Kafka has all."""
        self._producer.flush()

    def _put_frame(self, number: int, sent_at: int | None) -> None:
        placement = Placement(
            Discipline.ORDERED, self.stream, 1, number, number, (number - 1) * 2 + 1, 2
        )
        value = record.encode(
            device=self.device,
            stream=self.stream,
            mode=Mode.ACK,
            sent_at=sent_at,
            received_at=now_ms(),
            frame_bytes=frame(number),
        )
        self._put(value, [(PLACEMENT_HEADER, placement.encode())])

    def foreign(self, value: bytes) -> None:
        """A record that no bridge wrote."""
        self._put(value, [])
        self._producer.flush()

    def _stored(self, error: object, message: Message) -> None:
        assert error is None, error
        self.last = (message.partition(), message.offset())

    def _put(self, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        while True:
            try:
                self._producer.produce(
                    topics.UP,
                    value,
                    self.device,
                    self.partition,
                    headers=headers,
                    timestamp=now_ms(),
                    on_delivery=self._stored,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


class Ends:
    """Where a stream ends, transactions in progress included; quick to ask, so that a fault falls
    into what was just seen.
    """

    def __init__(self, here: World, stream: str) -> None:
        self._reader = clients.consumer(
            here.config, "test-end", **{"isolation.level": "read_uncommitted"}
        )
        self._stable = clients.consumer(here.config, "test-stable-end")
        self._places = [
            TopicPartition(topics.stream_topic(stream), partition)
            for partition in range(here.config.partitions)
        ]
        self._seen = 0

    def sum(self) -> int:
        """Records and markers of all partitions."""
        return self._sum(self._reader)

    def is_open(self) -> bool:
        """Does a transaction that nobody ended hide records?"""
        return self.stable_sum() < self.sum()

    def stable_sum(self) -> int:
        """Records and markers of all partitions up to the first open transaction of each."""
        return self._sum(self._stable)

    def _sum(self, reader: Consumer) -> int:
        try:
            return sum(reader.get_watermark_offsets(place, timeout=10)[1] for place in self._places)
        except KafkaException:  # a topic just made has no leader yet
            return 0

    def wait_for_more(self) -> None:
        """Return as soon as there is more than when it last did; at first, as soon as there is
        anything.
        """
        wait_until(lambda: self.sum() > self._seen, "it goes on")
        self._seen = self.sum()

    def close(self) -> None:
        """Leave."""
        self._reader.close()
        self._stable.close()


@contextlib.contextmanager
def ends(here: World, stream: str) -> Iterator[Ends]:
    made = Ends(here, stream)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.long
async def test_repeats_and_disorder_come_out_once_and_in_order(here: World) -> None:
    Up(here, "order-1", "order").put(1, 3, 2, 2, 1, 5, 4, 3, 6)
    here.sequencer()
    assert await sequenced(here, "order", "order-1", 6) == [1, 2, 3, 4, 5, 6]


async def test_a_record_keeps_its_bytes_key_time_and_partition_and_says_where_it_came_from(
    here: World,
) -> None:
    Up(here, "keep-1", "keep").put(1)
    here.sequencer()
    await sequenced(here, "keep", "keep-1", 1)
    (before,), (after,) = (
        read(here.config, topics.UP, device="keep-1"),
        read(here.config, "ew.s.keep", device="keep-1"),
    )
    assert (after.value(), after.timestamp()[1]) == (before.value(), before.timestamp()[1])
    assert after.partition() == before.partition() % here.config.partitions
    assert dict(after.headers()) == {
        ORIGIN_HEADER: b"%d:%d" % (before.partition(), before.offset())
    }


async def test_a_frame_that_does_not_come_leaves_an_open_hole_and_passes_marked_when_it_comes(
    here: World,
) -> None:
    up = Up(here, "gap-1", "gap")
    up.put(1, 4)
    here.sequencer(hold_s=0.5)
    assert await sequenced(here, "gap", "gap-1", 3) == [1, 3, 4]
    up.put(2)
    assert await sequenced(here, "gap", "gap-1", 4) == [1, 3, 4, 2]
    _, gap, _, late = read(here.config, "ew.s.gap", device="gap-1")
    stated = record.decode(gap.value())
    assert (stated.device, stated.stream, stated.frame.gap) == ("gap-1", "gap", Gap("open", 0))
    assert (stated.frame.first_frame, stated.frame.frame, stated.frame.seq) == (2, 3, 3)
    assert dict(late.headers())[LATE_HEADER] == b"1"


async def test_held_frames_survive_a_kill(here: World) -> None:
    """The committed offset stays at the oldest held frame, so it is read again; what had passed
    does not pass again.
    """
    up = Up(here, "held-1", "held")
    up.put(1, 2, 5, 4)
    process = here.sequencer()
    await sequenced(here, "held", "held-1", 2)
    wait_until(
        lambda: here.metric("sequencer-1", "edgewake_sequencer_held_frames") == 2,
        "two frames are held",
    )
    process.kill()
    start(process)
    up.put(3, 6)
    assert await sequenced(here, "held", "held-1", 6) == [1, 2, 3, 4, 5, 6]


async def test_killed_in_the_middle_of_transactions_it_repeats_and_loses_nothing(
    here: World,
) -> None:
    """Control: some kill left an open transaction, and a reader of uncommitted records does see
    repeats.
    """
    count, more, stream = 30_000, 15_000, "txn"  # many transactions more than kills, and long ones
    up = Up(here, "txn-1", stream)
    up.put(*range(1, count + 1))
    process = here.sequencer(batch_records=3000)
    kills = torn = 0
    with ends(here, stream) as end:
        while torn < 2:
            assert kills < 12, "no kill fell into a transaction: the test shows nothing"
            assert count < 1_000_000, "no transaction was seen open: the test shows nothing"
            # A slow machine looks too seldom: then it needs more transactions to look at.
            if end.stable_sum() > count - more:
                up.put(*range(count + 1, count + more + 1))
                count += more
            end.wait_for_more()
            process.freeze()
            if not end.is_open():
                process.thaw()
                continue
            process.kill()
            kills += 1
            torn += end.is_open()  # its last request may have ended it
            start(process)
    assert await sequenced(here, stream, "txn-1", count) == list(range(1, count + 1))
    uncommitted = numbers(
        read(here.config, topics.stream_topic(stream), committed=False, device="txn-1")
    )
    assert len(uncommitted) > count


@pytest.mark.long
async def test_a_restart_under_the_same_name_ends_the_dead_ones_transaction_at_once(
    here: World,
) -> None:
    """Readers need not wait for the transaction's time-out: here none times out."""
    up = Up(here, "fast-1", "fast")
    process = here.sequencer()
    up.put(*range(1, 20_001))
    with ends(here, "fast") as end:
        end.wait_for_more()
    process.kill()
    start(process)
    assert await sequenced(here, "fast", "fast-1", 20_000) == list(range(1, 20_001))


@pytest.mark.long
async def test_two_sequencers_share_the_partitions_and_one_takes_over_from_the_other(
    here: World,
) -> None:
    first, _ = here.sequencer("seq-a"), here.sequencer("seq-b")
    wait_until(
        lambda: all(
            here.metric(name, "edgewake_sequencer_shards") == 8 for name in ("seq-a", "seq-b")
        ),
        "each serves half",
    )
    ups = [Up(here, f"two-{i}", "two") for i in range(8)]
    for up in ups:
        up.put(1, 2, 3)
    for i in range(8):
        assert await sequenced(here, "two", f"two-{i}", 3) == [1, 2, 3]
    first.kill()
    for up in ups:
        up.put(3, 4, 5)
    for i in range(8):
        assert await sequenced(here, "two", f"two-{i}", 5) == [1, 2, 3, 4, 5]


@pytest.mark.long
async def test_a_second_process_of_the_same_name_ends_the_first(here: World) -> None:
    first = here.sequencer("twin")
    second = part("sequencer", here.folder / "twin.toml", here.folder / "twin-2.log")
    (here.folder / "twin.toml").write_text(
        f'name = "twin"\n[kafka]\nbootstrap = "{here.node.bootstrap}"\n'
    )
    here.parts.append(second)
    start(second)
    up = Up(here, "twin-1", "twin")
    up.put(1, 2)
    assert await sequenced(here, "twin", "twin-1", 2) == [1, 2]
    wait_until(lambda: not first.is_running(), "the first one ended")
    assert first.stop() == 1
    assert "another process runs under our name" in first.output()
    assert second.is_running()


@pytest.mark.long
async def test_kafka_killed_and_restarted_the_sequencer_goes_on(
    here: World, own_kafka: Kafka
) -> None:
    up = Up(here, "back-1", "back")
    process = here.sequencer()
    up.put(*range(1, 5001))
    with ends(here, "back") as end:
        end.wait_for_more()
    own_kafka.process.kill()
    own_kafka.start()
    up.put(*range(4990, 5011))
    assert await sequenced(here, "back", "back-1", 5010) == list(range(1, 5011))
    assert process.is_running()
    lost = [
        json.loads(line)
        for line in process.output().splitlines()
        if '"event":"sequencer.session_lost"' in line
    ]
    assert {one["level"] for one in lost} <= {"warning"}, (
        "a failure that comes again is no debug message"
    )


async def test_a_record_that_no_bridge_wrote_becomes_a_dead_letter(here: World) -> None:
    up = Up(here, "strange-1", "strange")
    up.foreign(b"what?")
    up.put(1)
    here.sequencer()
    assert await sequenced(here, "strange", "strange-1", 1) == [1]
    (letter,) = await read_some(here.config, topics.DEAD, "strange-1")
    assert (letter.value(), DeadLetter.from_headers(letter.headers()).reason) == (b"what?", "shape")


async def test_when_a_device_was_seen_is_reported_with_its_smallest_skew(here: World) -> None:
    sent_at = now_ms() - 300
    Up(here, "seen-1", "seen").put(1, 2, sent_at=sent_at)
    first_ms, last_ms = (
        one.timestamp()[1] for one in read(here.config, topics.UP, device="seen-1")
    )
    here.sequencer()

    def rows() -> list[DeviceSeen]:
        return [
            DeviceSeen.from_json(one.value())
            for one in read(here.config, topics.DEVICES, device="seen-1|seen")
        ]

    wait_until(rows, "the device is reported")
    assert rows() == [
        DeviceSeen(
            device="seen-1",
            last_seen=last_ms,
            skew_ms=first_ms - sent_at,
            streams={"seen": 2},
            readings={"seen": 4},
            records=2,
        )
    ]


@pytest.mark.long
async def test_a_lone_record_waits_for_no_other(here: World) -> None:
    here.sequencer()
    up = Up(here, "lone-1", "lone")
    up.put(1)
    await sequenced(here, "lone", "lone-1", 1)
    reader = clients.consumer(here.config, "test-lone", **{"auto.offset.reset": "earliest"})
    topic = topics.stream_topic("lone")
    reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(2)])
    try:
        assert reader.poll(60) is not None
        for number in range(2, 22):
            up.put(number)
            assert numbers([reader.poll(60)]) == [number]
    finally:
        reader.close()


@pytest.mark.long
async def test_sigterm_ends_it_cleanly_and_the_next_one_goes_on(here: World) -> None:
    up = Up(here, "term-1", "term")
    process: Process = here.sequencer()
    up.put(1, 2, 4)
    await sequenced(here, "term", "term-1", 2)
    assert process.stop() == 0
    up.put(3, 5)
    start(process)
    assert await sequenced(here, "term", "term-1", 5) == [1, 2, 3, 4, 5]


def test_the_gap_record_reads_like_an_agents_gap_frame() -> None:
    """Downstream needs one way of reading a gap."""
    said = frames.decode(
        frames.encode(frames.Frame(1, 3, 3, (), {}, gap=Gap("missing", 4), first_frame=2))
    )
    assert (said.gap, said.first_frame, said.frame) == (Gap("missing", 4), 2, 3)
