"""Dead letters given back on a real Kafka: once, whoever asks, how often, and whoever dies in the
middle.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.headers import headers_of
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.ops.letters import letter_replayer
from edgewake.cloud.ops.letters.letter_replay import FirstKept, Replay, prepare
from edgewake.cloud.ops.letters.letter_replayer import Letter, LetterReplayer
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.device_partition import up_partition
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import FRAME_TYPE, encode
from edgewake.protocol.frames.record import LATE_HEADER
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.ops.builders import frame
from tests.ops.conftest import T0, Writer


@pytest.fixture
async def replayers(
    kafka_config: KafkaConfig,
) -> AsyncIterator[tuple[LetterReplayer, LetterReplayer]]:
    """Of two operations servers."""
    both = LetterReplayer(kafka_config, SystemClock()), LetterReplayer(kafka_config, SystemClock())
    yield both
    for one in both:
        await one.close()


def replay_of(device: str, stream: str, number: int = 1) -> Replay:
    origin = DeadLetter(
        reason="field_type",
        detail="",
        topic=topics.up(device, stream),
        part="b",
        received_at=T0,
        content_type=FRAME_TYPE,
    )
    row = Stream(name=stream, fields={"v": FieldInfo(type=FieldType.NUMBER)})
    return prepare(origin, encode(frame(number)), row, now_ms=T0)


_offsets = itertools.count(1)


def new_letter() -> Letter:
    """One that no other test gave back."""
    return Letter(next(_offsets), T0, T0, FirstKept(0, T0))


def on_stream(config: KafkaConfig, stream: str) -> list[Message]:
    """All committed records of a stream, once every transaction on it has ended."""
    topic = topics.stream_topic(stream)
    # Who reads what is committed is told the end before the first open transaction; one may be for
    # a moment after its commit was confirmed.
    all_ends = clients.consumer(config, "test-ends", **{"isolation.level": "read_uncommitted"})
    consumer = clients.consumer(config, "test-replayed", **{"enable.partition.eof": True})
    try:
        ends = [watermarks(all_ends, topic, partition)[1] for partition in range(config.partitions)]
        return [
            message
            for partition, end in enumerate(ends)
            for message in _partition(consumer, topic, partition, end)
        ]
    finally:
        consumer.close()
        all_ends.close()


def _partition(consumer: Consumer, topic: str, partition: int, end: int) -> list[Message]:
    found = []
    consumer.assign([TopicPartition(topic, partition, 0)])
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            found.append(message)
        elif message.offset() >= end:
            return found


async def test_a_letter_is_on_its_stream_once_however_often_and_of_whom_it_is_asked(
    replayers: tuple[LetterReplayer, LetterReplayer], writer: Writer, unique: Callable[[str], str]
) -> None:
    device, stream = unique("dev"), unique("s")
    replay = replay_of(device, stream)
    letter, copy = new_letter(), new_letter()
    first, was_replayed = await replayers[0].replay(replay, letter, holder="ann")
    again = [
        await one.replay(replay, asked, holder="bob")
        for one in (*replayers, *replayers)
        for asked in (letter, copy)
    ]
    assert (was_replayed, first.holder) == (False, "ann")
    assert again == [(first, True)] * 8
    (found,) = on_stream(writer.config, stream)
    assert (found.partition(), found.offset(), found.value()) == (
        first.partition,
        first.offset,
        replay.value,
    )
    assert headers_of(found) == {LATE_HEADER: b"1", "dead": b"%d" % letter.offset}


async def test_a_device_stays_on_the_partition_that_the_sequencer_gives_it(
    replayers: tuple[LetterReplayer, LetterReplayer], writer: Writer, unique: Callable[[str], str]
) -> None:
    device, stream = unique("dev"), unique("s")
    token = writer.received(device, stream, 1)
    assert up_partition(device) == token.partition
    row, _ = await replayers[0].replay(replay_of(device, stream, 2), new_letter(), holder="ann")
    assert row.partition == writer.stream_partition(token)


class Frozen:
    """A producer that stops just before its commit until somebody else has done the same work."""

    def __init__(self, producer: Any, meanwhile: Callable[[], None]) -> None:
        self._producer, self._meanwhile = producer, meanwhile
        self.failures: list[KafkaException] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, timeout_s: float) -> None:
        self._meanwhile()
        try:
            self._producer.commit_transaction(timeout_s)
        except KafkaException as error:
            self.failures.append(error)
            raise


@pytest.mark.parametrize("is_fenced", [True, False], ids=["fenced", "control"])
async def test_a_server_that_froze_before_its_commit_commits_nothing_when_another_did(
    replayers: tuple[LetterReplayer, LetterReplayer],
    writer: Writer,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    is_fenced: bool,
) -> None:
    frozen, other = replayers
    stream = unique("s")
    replay = replay_of(unique("dev"), stream)
    await other.replay(replay_of(unique("dev"), unique("s")), new_letter(), holder="bob")
    if not is_fenced:
        monkeypatch.setattr(letter_replayer, "TRANSACTIONAL_ID", unique("alone"))
    await frozen.replay(replay_of(unique("dev"), unique("s")), new_letter(), holder="ann")
    monkeypatch.undo()
    assert frozen._writer is not None
    letter = new_letter()
    by_other: list[Any] = []
    producer = Frozen(
        frozen._writer.producer, lambda: by_other.append(other._replay(replay, letter, "bob"))
    )
    frozen._writer.producer = producer  # type: ignore[assignment]
    found = await frozen.replay(replay, letter, holder="ann")
    assert [was_replayed for _, was_replayed in by_other] == [False]
    assert len(on_stream(writer.config, stream)) == (1 if is_fenced else 2)
    assert (len(producer.failures), found[1]) == ((1, True) if is_fenced else (0, False))


async def test_what_a_server_left_open_when_it_died_is_not_there_and_the_next_does_it(
    replayers: tuple[LetterReplayer, LetterReplayer], writer: Writer, unique: Callable[[str], str]
) -> None:
    died, other = replayers
    stream = unique("s")
    replay = replay_of(unique("dev"), stream)
    letter, left = new_letter(), asyncio.Event()

    def die() -> None:
        left.set()
        raise SystemError("dies here")

    died._thread.submit(died._begin).result()
    assert died._writer is not None
    died._writer.producer = Frozen(died._writer.producer, die)  # type: ignore[assignment]
    with pytest.raises(SystemError):
        await died.replay(replay, letter, holder="ann")
    assert left.is_set()
    _, was_replayed = await other.replay(replay, letter, holder="bob")
    assert (was_replayed, len(on_stream(writer.config, stream))) == (False, 1)
