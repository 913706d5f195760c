"""One partition of `ew.up`: its records are placed, and what passes is written in one Kafka transaction with what is known after it.

    records ─ place ─┬─ ew.s.<stream>   the record, or a gap statement, on the same partition
                     ├─ ew.sequence     what is known per (device, epoch, stream), and where to go on reading
                     └─ ew.devices      when each device was last seen

A process that dies leaves either all or nothing of a batch. The transactional id is the partition's, so whoever serves a partition
shuts out whoever served it before: an open transaction is ended at once, and a process that slept and wakes cannot write (KIP-98).

The position stands on `ew.sequence` and not among the group's offsets: it belongs to the state, it costs a batch no second coordinator,
and librdkafka 2.16 waits for ever in `send_offsets_to_transaction` when the group's coordinator was restarted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from confluent_kafka import OFFSET_BEGINNING, Message, Producer

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.sequencer.place import Bounds, Emission, Item, Missing, Placer, State, decode_key, encode_key
from edgewake.cloud.sequencer.seen import Seen
from edgewake.protocol import frame as frames
from edgewake.protocol import record, topics
from edgewake.protocol.dead_letter import DeadLetter
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frame import Frame, Gap
from edgewake.protocol.record import LATE_HEADER, ORIGIN_HEADER, PLACEMENT_HEADER, Mode, Placement

log = logging.getLogger("edgewake.sequencer")

MISSING: Final = "missing"
"""Reason of a gap record of the sequencer's own."""
POSITION_KEY: Final = "position"
"""Row of `ew.sequence` that says where its partition is read from next."""
KAFKA_S: Final = 10.0
"""Seconds for one step of a transaction; as long as the broker keeps it open."""
FULL_S: Final = 0.1
"""Seconds between attempts to hand a record to Kafka's client when its queue is full."""
SWEEP_S: Final = 60.0
"""Seconds between sweeps of old states."""


@dataclass(frozen=True, slots=True)
class Position:
    """From where a partition is read again, and up to which offset all was placed already: between the two only held frames matter."""

    resume: int = OFFSET_BEGINNING
    done: int = 0

    def encode(self) -> bytes:
        """The row of POSITION_KEY."""
        return orjson.dumps({"resume": self.resume, "done": self.done})

    @classmethod
    def decode(cls, value: bytes) -> Position:
        """Read the row; raises ValueError."""
        try:
            row = orjson.loads(value)
            return cls(int(row["resume"]), int(row["done"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a position: {value[:80]!r}") from error


class Partition:
    """A partition that this process serves; `serve` makes one. One thread at a time."""

    def __init__(self, number: int, *, part: str, producer: Producer, bounds: Bounds, ensure_streams: Callable[[set[str]], None]) -> None:
        self.number = number
        self.start = OFFSET_BEGINNING
        """Offset to read from first."""
        self.placer = Placer(bounds)
        self._part = part
        self._producer = producer
        self._ensure_streams = ensure_streams
        self._done = 0
        self._seen = Seen()
        self._swept_s: float | None = None

    @classmethod
    def serve(cls, number: int, config: KafkaConfig, *, part: str, bounds: Bounds, ensure_streams: Callable[[set[str]], None]) -> Partition:
        """Take the partition over: shut out who served it, then read what that one knew. Raises KafkaException or Unavailable."""
        producer = clients.transactional_producer(config, f"sequencer-{number}")
        producer.init_transactions(KAFKA_S)
        partition = cls(number, part=part, producer=producer, bounds=bounds, ensure_streams=ensure_streams)
        table = TableReader(config, f"{part}-state", topics.SEQUENCE, on_change=partition._on_row, partition=number)
        try:
            table.read_all()
        finally:
            table.close()
        return partition

    def _on_row(self, key: str, value: bytes | None) -> None:
        if key == POSITION_KEY:
            position = Position() if value is None else Position.decode(value)
            self.start, self._done, self.placer.done = position.resume, position.done, position.done
        elif value is None:
            self.placer.forget(decode_key(key))
        else:
            self.placer.restore(decode_key(key), State.decode(value))

    def check_start(self, low: int, high: int) -> None:
        """`ew.up` has offsets `low` to `high`: say it where others are wanted, and begin with what there is."""
        if self.start == OFFSET_BEGINNING or low <= self.start <= high:
            return
        log.error(
            "partition %d: offset %d is to be read next, but %d to %d are there", self.number, self.start, low, high,
            extra={"event": "sequencer.overtaken", "lost_records_max": max(0, low - self.start)},
        )  # fmt: skip
        if self.start > high:  # the topic was made anew
            self._done = self.placer.done = 0
        self.start = low

    def close(self) -> None:
        """Let go of what was not committed."""
        self._producer.purge()

    def take(self, batch: Sequence[Message], *, due: bool, now_s: float, now_ms: int) -> Counter[str]:
        """Place the records, commit, and say what became of them (SequencerMetrics.outcomes). `due`: look at what is due by time, too.

        Raises KafkaException or Unavailable; then nothing in memory is true any more.
        """
        out: list[Emission] = []
        foreign: list[Message] = []
        for message in batch:
            item = _item(message)
            if item is None:
                foreign.append(message)
            else:
                out += self.placer.place(item, now_s=now_s, now_ms=now_ms)
        if batch:
            self._done = batch[-1].offset() + 1
        if due:
            out += self.placer.expire(now_s=now_s, now_ms=now_ms)
            self._sweep(now_s, now_ms)
        if batch or out or (due and (self._seen.has_unreported or self.placer.dirty)):
            self._commit(out, foreign, due, now_s, now_ms)
        outcomes = self.placer.outcomes.copy()
        outcomes["foreign"] += len(foreign)
        self.placer.outcomes.clear()
        return outcomes

    def _sweep(self, now_s: float, now_ms: int) -> None:
        if self._swept_s is None:
            self._swept_s = now_s
        elif now_s - self._swept_s >= SWEEP_S:
            self._swept_s = now_s
            self._seen.forget_quiet(now_s)
            self.placer.sweep(now_ms=now_ms)

    # The transaction

    def _commit(self, out: Sequence[Emission], foreign: Sequence[Message], due: bool, now_s: float, now_ms: int) -> None:
        self._ensure_streams({one.placement.stream if isinstance(one, Item) else one.stream for one in out})
        self._producer.begin_transaction()
        for emission in out:
            if isinstance(emission, Item):
                self._pass_on(emission.payload, emission)
            else:
                self._say_missing(emission, now_ms)
        for message in foreign:
            self._bury(message, now_ms)
        for key, state in self.placer.dirty.items():
            self._produce(topics.SEQUENCE, None if state is None else state.encode(), encode_key(key), self.number, now_ms)
        self.placer.dirty.clear()
        if due:
            for seen in self._seen.due(now_s):
                self._produce(topics.DEVICES, seen.model_dump_json().encode(), f"{seen.device}|seen", 0, now_ms)
        position = Position(self.placer.resume_offset(self._done), self._done)
        self._produce(topics.SEQUENCE, position.encode(), POSITION_KEY, self.number, now_ms)
        self._producer.commit_transaction(KAFKA_S)

    def _pass_on(self, message: Message, item: Item) -> None:
        stream, received_at, value = item.placement.stream, message.timestamp()[1], message.value()
        headers = [(ORIGIN_HEADER, record.origin(self.number, item.offset))]
        if item.late:
            headers.append((LATE_HEADER, b"1"))
        self._produce(topics.stream_topic(stream), value, item.device, self.number, received_at, headers)
        self._seen.note(item.device, stream, received_at=received_at, sent_at=record.sent_at_of(value))

    def _say_missing(self, gap: Missing, now_ms: int) -> None:
        frame = Frame(gap.epoch, gap.last, gap.seq, (), {}, gap=Gap(MISSING, gap.count), first_frame=gap.first)
        value = record.encode(
            device=gap.device, stream=gap.stream, mode=Mode.ACK, sent_at=None, received_at=now_ms, frame_bytes=frames.encode(frame)
        )
        self._produce(topics.stream_topic(gap.stream), value, gap.device, self.number, now_ms)

    def _bury(self, message: Message, now_ms: int) -> None:
        """Somebody else wrote to our topic."""
        origin = f"{topics.UP} {self.number}:{message.offset()}"
        letter = DeadLetter(
            reason=RejectReason.SHAPE, detail="no placement header of a bridge", topic=origin, part=self._part, received_at=now_ms
        )
        self._produce(topics.DEAD, message.value(), message.key(), 0, now_ms, letter.headers())

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: str | bytes | None,
        partition: int,
        timestamp: int,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
            except BufferError:
                self._producer.poll(FULL_S)
            else:
                return


def _item(message: Message) -> Item | None:
    """A record of a bridge; None for what is none."""
    key = message.key()
    for name, value in message.headers() or ():
        if name == PLACEMENT_HEADER and key is not None:
            try:
                placement = Placement.decode(value)
                record.sent_at_of(message.value())
                return Item(message.offset(), key.decode(), placement, len(message.value()), message)
            except (ValueError, TypeError):
                return None
    return None
