"""The sequencer: `ew.up` in, `ew.s.<stream>` out, each frame once and in order per device.

    ew.up ─ place ─┬─ ew.s.<stream>   the record, or a gap statement, on the same partition
                   ├─ ew.sequence     what is known per (device, epoch, stream) after it
                   ├─ ew.devices      when each device was last seen
                   └─ offsets of ew.up, never past the oldest frame that is held

All four in one Kafka transaction per batch, so a process that dies leaves either all or nothing of a batch. After any failure
nothing in memory is trusted: the session ends, and the next one reads state and offsets as Kafka has them. A process that finds
itself replaced by another of its name ends (LocalError).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cloud import kafka
from cloud.retry import Backoff
from cloud.sequencer.config import SequencerConfig
from cloud.sequencer.metrics import SequencerMetrics
from cloud.sequencer.place import Bounds, Emission, Item, Missing, Placer, State, decode_key, encode_key
from cloud.sequencer.seen import Seen
from cloud.watchdog import Watchdog
from protocol import frame as frames
from protocol import record, topics
from protocol.clock import Clock
from protocol.dead_letter import DeadLetter
from protocol.errors import LocalError, RejectReason, Unavailable
from protocol.frame import Frame, Gap
from protocol.record import LATE_HEADER, ORIGIN_HEADER, PLACEMENT_HEADER, Mode, Placement

log = logging.getLogger("edgewake.sequencer")

GROUP: Final = "sequencer"
MISSING: Final = "missing"
"""Reason of a gap record of the sequencer's own."""
POLL_S: Final = 0.1
"""Seconds to wait for a record before looking at what has been held too long."""
TICK_S: Final = 1.0
"""Seconds between looks at what is due by time."""
SWEEP_S: Final = 60.0
"""Seconds between sweeps of old states."""
KAFKA_S: Final = 10.0
"""Seconds for one step of a transaction; as long as the broker keeps it open."""
STUCK_S: Final = 60.0
"""Seconds without a turn after which the process ends: more than all waits of one turn or of a new session together."""
_CONSUMER: Final[dict[str, Any]] = {
    "session.timeout.ms": 10_000,  # how long the partitions of a sequencer that died for good stay unserved
    "heartbeat.interval.ms": 1_000,
    "fetch.queue.backoff.ms": 5,
    "partition.assignment.strategy": "range",
}


class Sequencer:
    """Runs sessions until it is told to stop."""

    def __init__(self, config: SequencerConfig, *, clock: Clock, rng: random.Random, stop: threading.Event) -> None:
        self._config = config
        self._clock = clock
        self._stop = stop
        self._watchdog = Watchdog(clock, what=config.name, limit_s=STUCK_S)
        self._backoff = Backoff(rng)
        self.metrics = SequencerMetrics()
        self.ready = False

    def run(self) -> None:
        """Serve until stopped. Raises LocalError when another process took our name."""
        away = False
        self._watchdog.watch(self._stop)
        while not self._stop.is_set():
            self._watchdog.beat()
            session: Session | None = None
            try:
                session = Session(self._config, clock=self._clock, metrics=self.metrics, on_assigned=self._on_assigned)
                while not self._stop.is_set():
                    self._watchdog.beat()
                    session.step()
                    away = away and not session.is_assigned
            except (KafkaException, Unavailable) as error:
                _raise_fenced(error)
                self.metrics.transactions["failed"] += 1
                level = logging.DEBUG if away else logging.WARNING
                log.log(level, "begins again: %s", _text(error), extra={"event": "sequencer.session_lost"})
                away = True
                self._stop.wait(self._backoff.next_s())
            finally:
                if session is not None:
                    session.close()

    def _on_assigned(self, partitions: Sequence[int]) -> None:
        self._backoff.reset()
        log.info("serves partitions %s", list(partitions), extra={"event": "sequencer.assigned"})
        if not self.ready:
            self.ready = True
            log.info("%s serves", self._config.name, extra={"event": "part.ready"})


def _text(error: Exception) -> str:
    return str(error.args[0].str() if isinstance(error, KafkaException) else error)


def _raise_fenced(error: Exception) -> None:
    if isinstance(error, KafkaException) and kafka.is_fenced(error.args[0]):
        raise LocalError(f"another process runs under our name: {error.args[0].str()}") from error


class Session:
    """One membership of the group with one producer: from reading the state to the first failure."""

    def __init__(
        self, config: SequencerConfig, *, clock: Clock, metrics: SequencerMetrics, on_assigned: Callable[[Sequence[int]], None]
    ) -> None:
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._on_assigned = on_assigned
        self._placers: dict[int, Placer] = {}
        self._positions: dict[int, int] = {}
        self._assignments = 0
        self._seen = Seen()
        self._ticked_s = self._swept_s = clock.monotonic_s()
        self._bounds = Bounds(
            hold_s=config.hold_s,
            frames=config.hold_frames_max,
            bytes=config.hold_bytes_max,
            bytes_total=config.hold_bytes_total,
            states=config.states_max,
        )
        self._admin = kafka.admin(config.kafka)
        kafka.ensure_topics(config.kafka, [topics.UP], client=self._admin)
        self._partitions = kafka.partition_count(self._admin, topics.UP)
        kafka.ensure_partitions(config.kafka, [topics.SEQUENCE], self._partitions, client=self._admin)
        kafka.ensure_topics(config.kafka, [topics.DEVICES, topics.DEAD], client=self._admin)
        self._topics = {name for name, count in kafka.partition_counts(self._admin).items() if count >= self._partitions}
        self._producer = kafka.transactional_producer(config.kafka, config.name)
        self._producer.init_transactions(KAFKA_S)
        self._consumer = kafka.consumer(config.kafka, config.name, group=GROUP, **{"group.instance.id": config.name}, **_CONSUMER)
        self._consumer.subscribe([topics.UP], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        self.is_assigned = False

    def close(self) -> None:
        """Leave; what was not committed is read again."""
        self._consumer.close()
        self._producer.purge()

    # The group

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Take partitions: first the offsets (Kafka waits for open transactions here), then the state that belongs to them."""
        self._assignments += 1
        starts = []
        for place in consumer.committed(partitions, timeout=KAFKA_S) if partitions else []:
            start = place.offset if place.offset >= 0 else OFFSET_BEGINNING
            done = int(place.metadata or 0)
            self._check_not_overtaken(place.partition, start)
            self._placers[place.partition] = self._restored(place.partition, done)
            starts.append(TopicPartition(topics.UP, place.partition, start))
        consumer.assign(starts)
        self.is_assigned = True
        self._metrics.partitions = len(self._placers)
        self._on_assigned(sorted(self._placers))

    def _revoke(self, consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """Give partitions back. No transaction is open here: one is begun and ended between two polls."""
        self._assignments += 1
        self._placers.clear()
        self._positions.clear()
        self._metrics.partitions = 0
        consumer.unassign()

    def _restored(self, partition: int, done: int) -> Placer:
        placer = Placer(self._bounds, done=done)

        def on_row(key: str, value: bytes | None) -> None:
            if value is None:
                placer.forget(decode_key(key))
            else:
                placer.restore(decode_key(key), State.decode(value))

        table = kafka.TableReader(self._config.kafka, f"{self._config.name}-state", topics.SEQUENCE, on_change=on_row, partition=partition)
        try:
            table.read_all()
        finally:
            table.close()
        return placer

    def _check_not_overtaken(self, partition: int, start: int) -> None:
        low, _high = self._consumer.get_watermark_offsets(TopicPartition(topics.UP, partition), timeout=kafka.METADATA_TIMEOUT_S)
        if 0 <= start < low:
            log.error(
                "partition %d: offsets %d to %d are no longer kept", partition, start, low - 1,
                extra={"event": "sequencer.overtaken", "lost_records_max": low - start},
            )  # fmt: skip

    # One turn

    def step(self) -> None:
        """Take what is there, place it, and commit. Raises KafkaException or Unavailable; then this session is over."""
        batch = self._batch()
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        out: list[tuple[int, Emission]] = []
        foreign: list[Message] = []
        oldest_ms = now_ms
        for message in batch:
            if (error := message.error()) is not None:
                _check(error)
                continue
            partition = message.partition()
            self._positions[partition] = message.offset() + 1
            oldest_ms = min(oldest_ms, message.timestamp()[1])
            item = _item(message)
            if item is None:
                foreign.append(message)
                continue
            for emission in self._placers[partition].place(item, now_s=now_s, now_ms=now_ms):
                out.append((partition, emission))
        due = now_s - self._ticked_s >= TICK_S
        if due:
            self._ticked_s = now_s
            self._tick(out, now_s, now_ms)
        if batch or out or (due and self._is_dirty()):
            self._commit(out, foreign, due, now_s, now_ms)
            if batch:
                self._metrics.latency.add((self._clock.now_ms() - oldest_ms) / 1000)

    def _batch(self) -> list[Message]:
        """What is there now. A rebalance between two records of one batch would mix two readings of a partition: begin again then."""
        first = self._consumer.poll(POLL_S)
        if first is None:
            return []
        before = self._assignments
        rest = self._consumer.consume(self._config.batch_records - 1, 0)
        if self._assignments != before:
            raise Unavailable("the group gave partitions away in the middle of a batch")
        return [first, *rest]

    def _tick(self, out: list[tuple[int, Emission]], now_s: float, now_ms: int) -> None:
        for partition, placer in self._placers.items():
            out += [(partition, emission) for emission in placer.expire(now_s=now_s, now_ms=now_ms)]
        if now_s - self._swept_s >= SWEEP_S:
            self._swept_s = now_s
            self._seen.forget_quiet(now_s)
            for placer in self._placers.values():
                placer.sweep(now_ms=now_ms)
        self._metrics.held = sum(placer.held for placer in self._placers.values())
        self._metrics.held_bytes = sum(placer.held_bytes for placer in self._placers.values())
        self._metrics.states = sum(len(placer.states()) for placer in self._placers.values())

    def _is_dirty(self) -> bool:
        return self._seen.has_unreported or any(placer.dirty for placer in self._placers.values())

    # The transaction

    def _commit(self, out: Sequence[tuple[int, Emission]], foreign: Sequence[Message], due: bool, now_s: float, now_ms: int) -> None:
        self._ensure_topics(out)
        self._producer.begin_transaction()
        for partition, emission in out:
            if isinstance(emission, Item):
                self._pass_on(emission.payload, emission)
            else:
                self._say_missing(partition, emission, now_ms)
        for message in foreign:
            self._bury(message, now_ms)
        for partition, placer in self._placers.items():
            for key, state in placer.dirty.items():
                self._produce(topics.SEQUENCE, None if state is None else state.encode(), encode_key(key), partition, now_ms)
            placer.dirty.clear()
        if due:
            for seen in self._seen.due(now_s):
                self._produce(topics.DEVICES, seen.model_dump_json().encode(), f"{seen.device}|seen", 0, now_ms)
        offsets = [
            TopicPartition(topics.UP, partition, self._placers[partition].resume_offset(position), metadata=str(position))
            for partition, position in self._positions.items()
        ]
        if offsets:
            self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), KAFKA_S)
        self._producer.commit_transaction(KAFKA_S)
        self._metrics.transactions["committed"] += 1
        for placer in self._placers.values():
            self._metrics.outcomes.update(placer.outcomes)
            placer.outcomes.clear()

    def _pass_on(self, message: Message, item: Item) -> None:
        stream, received_at, value = item.placement.stream, message.timestamp()[1], message.value()
        headers = [(ORIGIN_HEADER, record.origin(message.partition(), item.offset))]
        if item.late:
            headers.append((LATE_HEADER, b"1"))
        self._produce(topics.stream_topic(stream), value, item.device, message.partition(), received_at, headers)
        self._seen.note(item.device, stream, received_at=received_at, sent_at=record.sent_at_of(value))

    def _say_missing(self, partition: int, gap: Missing, now_ms: int) -> None:
        frame = Frame(gap.epoch, gap.last, gap.seq, (), {}, gap=Gap(MISSING, gap.count), first_frame=gap.first)
        value = record.encode(
            device=gap.device, stream=gap.stream, mode=Mode.ACK, sent_at=None, received_at=now_ms, frame_bytes=frames.encode(frame)
        )
        self._produce(topics.stream_topic(gap.stream), value, gap.device, partition, now_ms)

    def _bury(self, message: Message, now_ms: int) -> None:
        """Somebody else wrote to our topic."""
        self._metrics.outcomes["foreign"] += 1
        origin = f"{topics.UP} {message.partition()}:{message.offset()}"
        letter = DeadLetter(
            reason=RejectReason.SHAPE, detail="no placement header of a bridge", topic=origin, part=self._config.name, received_at=now_ms
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
                self._producer.poll(POLL_S)  # Kafka's client is full: wait until it has sent some
            else:
                return

    def _ensure_topics(self, out: Sequence[tuple[int, Emission]]) -> None:
        """Make the topics of new streams, before the transaction begins: its time is short."""
        streams = {one.placement.stream if isinstance(one, Item) else one.stream for _, one in out}
        new = {topics.stream_topic(stream) for stream in streams} - self._topics
        if new:
            kafka.ensure_partitions(self._config.kafka, new, self._partitions, client=self._admin)
            self._topics |= new


def _check(error: KafkaError) -> None:
    """An event of the consumer that is no record: most pass by themselves, the rest end the session.

    The only fatal one is that another member took our group instance id; to join again would throw that one out in turn, for ever.
    """
    if error.fatal() or error.code() == KafkaError._FATAL or kafka.is_fenced(error):
        raise LocalError(f"another process runs under our name: {error.str()}")
    if not (error.retriable() or error.code() == KafkaError._PARTITION_EOF):
        raise KafkaException(error)


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
