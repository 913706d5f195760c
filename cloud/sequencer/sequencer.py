"""The sequencer: `ew.up` in, `ew.s.<stream>` out, each frame once and in order per device.

Its processes share the partitions of `ew.up` as a group; `edgewake.cloud.sequencer.partition` handles the records of one. After any
failure nothing in memory is trusted: the session ends, and the next one reads state and positions as Kafka has them. A process that
finds another one under its own name ends (LocalError).
"""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S
from edgewake.cloud.retry import Backoff
from edgewake.cloud.sequencer.config import SequencerConfig
from edgewake.cloud.sequencer.metrics import SequencerMetrics
from edgewake.cloud.sequencer.partition import Partition
from edgewake.cloud.sequencer.place import Bounds
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError, Unavailable

log = logging.getLogger("edgewake.sequencer")

GROUP: Final = "sequencer"
POLL_S: Final = 0.1
"""Seconds to wait for a record before looking at what has been held too long."""
TICK_S: Final = 1.0
"""Seconds between looks at what is due by time."""
FENCED_S: Final = 3.0
"""Seconds in which the group tells whether a process of our name joined it: three heartbeats."""
AT_ONCE_MAX: Final = 8
"""Partitions whose transactions run side by side; more wait their turn."""
_CONSUMER: Final[dict[str, Any]] = {
    "session.timeout.ms": 10_000,  # how long the partitions of a sequencer that died for good stay unserved
    "heartbeat.interval.ms": 1_000,
    "partition.assignment.strategy": "range",
}


class Sequencer:
    """Runs sessions until it is told to stop."""

    def __init__(
        self,
        config: SequencerConfig,
        *,
        clock: Clock,
        rng: random.Random,
        stop: threading.Event,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_turn` is called whenever the loop turns: a sign of life."""
        self._on_turn = on_turn
        self._config = config
        self._clock = clock
        self._stop = stop
        self._backoff = Backoff(rng)
        self.metrics = SequencerMetrics()
        self.ready = False

    def run(self) -> None:
        """Serve until stopped. Raises LocalError when another process took our name."""
        away = False
        while not self._stop.is_set():
            self._on_turn()
            session: Session | None = None
            try:
                session = Session(self._config, clock=self._clock, metrics=self.metrics, on_assigned=self._on_assigned)
                while not self._stop.is_set():
                    self._on_turn()
                    session.step()
                    away = away and not session.is_assigned
            except (KafkaException, Unavailable) as error:
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


class Session:
    """One membership of the group: from joining to the first failure."""

    def __init__(
        self, config: SequencerConfig, *, clock: Clock, metrics: SequencerMetrics, on_assigned: Callable[[Sequence[int]], None]
    ) -> None:
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._on_assigned = on_assigned
        self._partitions: dict[int, Partition] = {}
        self._assignments = 0
        self._ticked_s = clock.monotonic_s()
        self._bounds = Bounds(
            hold_s=config.hold_s,
            frames=config.hold_frames_max,
            bytes=config.hold_bytes_max,
            bytes_total=config.hold_bytes_total,
            states=config.states_max,
        )
        self._admin = clients.admin(config.kafka)
        topic_admin.ensure_topics(config.kafka, [topics.UP], client=self._admin)
        self._width = metadata.partition_count(self._admin, topics.UP)
        topic_admin.ensure_partitions(config.kafka, [topics.SEQUENCE], self._width, client=self._admin)
        topic_admin.ensure_topics(config.kafka, [topics.DEVICES, topics.DEAD], client=self._admin)
        self._topics = {name for name, count in metadata.partition_counts(self._admin).items() if count >= self._width}
        self._pool = ThreadPoolExecutor(AT_ONCE_MAX, "partition")
        self._consumer = clients.consumer(config.kafka, config.name, group=GROUP, **{"group.instance.id": config.name}, **_CONSUMER)
        self._consumer.subscribe([topics.UP], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        self.is_assigned = False

    def close(self) -> None:
        """Leave; what was not committed is read again."""
        self._consumer.close()  # which revokes what is assigned
        self._pool.shutdown()

    # The group

    def _assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._assignments += 1

        def serve(place: TopicPartition) -> Partition:
            return Partition.serve(
                place.partition, self._config.kafka, part=self._config.name, bounds=self._bounds, ensure_streams=self._ensure_streams
            )

        for partition in self._pool.map(serve, places):
            low, high = consumer.get_watermark_offsets(TopicPartition(topics.UP, partition.number), timeout=METADATA_TIMEOUT_S)
            partition.check_start(low, high)
            self._partitions[partition.number] = partition
        consumer.assign([TopicPartition(topics.UP, place.partition, self._partitions[place.partition].start) for place in places])
        self.is_assigned = True
        self._metrics.partitions = len(self._partitions)
        self._on_assigned(sorted(self._partitions))

    def _revoke(self, consumer: Consumer, _places: list[TopicPartition]) -> None:
        """Give partitions back. No transaction is open here: one is begun and ended between two polls."""
        self._assignments += 1
        for partition in self._partitions.values():
            partition.close()
        self._partitions.clear()
        self._metrics.partitions = 0
        consumer.unassign()

    # One turn

    def step(self) -> None:
        """Take what is there, place it, and commit. Raises KafkaException, Unavailable or LocalError; then this session is over."""
        batches: dict[int, list[Message]] = defaultdict(list)
        for message in self._batch():
            batches[message.partition()].append(message)
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        due = now_s - self._ticked_s >= TICK_S
        if due:
            self._ticked_s = now_s
        busy = [partition for number, partition in self._partitions.items() if due or number in batches]

        taken = [self._pool.submit(one.take, batches.get(one.number, ()), due=due, now_s=now_s, now_ms=now_ms) for one in busy]
        wait(taken)
        try:
            for outcomes in taken:
                self._metrics.outcomes.update(outcomes.result())
        except KafkaException as error:
            if clients.is_fenced(error.args[0]):
                self._ask_the_group()
            raise
        if batches:
            self._metrics.transactions["committed"] += len(batches)
            oldest_ms = min(message.timestamp()[1] for batch in batches.values() for message in batch)
            self._metrics.latency.add((self._clock.now_ms() - oldest_ms) / 1000)
        if due:
            self._count_held()

    def _batch(self) -> list[Message]:
        """What is there now. A rebalance between two records of one batch would mix two readings of a partition: begin again then."""
        first = self._consumer.poll(POLL_S)
        if first is None:
            return []
        before = self._assignments
        rest = self._consumer.consume(self._config.batch_records - 1, 0)
        if self._assignments != before:
            raise Unavailable("the group gave partitions away in the middle of a batch")
        return [message for message in (first, *rest) if not _is_event(message)]

    def _ask_the_group(self) -> None:
        """Another process serves a partition of ours. Did the group give it away, or is there one of our own name? Then LocalError."""
        until_s = self._clock.monotonic_s() + FENCED_S
        while self._clock.monotonic_s() < until_s:
            message = self._consumer.poll(POLL_S)
            if message is not None:
                _is_event(message)

    def _count_held(self) -> None:
        placers = [partition.placer for partition in self._partitions.values()]
        self._metrics.held = sum(placer.held for placer in placers)
        self._metrics.held_bytes = sum(placer.held_bytes for placer in placers)
        self._metrics.states = sum(len(placer.states()) for placer in placers)

    def _ensure_streams(self, streams: set[str]) -> None:
        """Make the topics of new streams, before the transaction begins: its time is short."""
        new = {topics.stream_topic(stream) for stream in streams} - self._topics
        if new:
            topic_admin.ensure_partitions(self._config.kafka, new, self._width, client=self._admin)
            self._topics |= new


def _is_event(message: Message) -> bool:
    """Is it an event of the consumer and no record? Most pass by themselves, the rest end the session (KafkaException).

    The only fatal one is that another member took our group instance id (LocalError); to join again would throw that one out in turn,
    for ever.
    """
    error = message.error()
    if error is None:
        return False
    if error.fatal() or error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID):
        raise LocalError(f"another process runs under our name: {error.str()}")
    if not (error.retriable() or error.code() == KafkaError._PARTITION_EOF):
        raise KafkaException(error)
    return True
