"""The thread that keeps the store: follows `ew.summaries.*` and devices' sketches.

It also writes the roll-ups.

Order: what it makes of others' records is in Kafka before their place is in the store. A crash
repeats work, and repeating changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.delivery_reports import DeliveryReports
from edgewake.cloud.kafka.metadata import partition_counts
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.summaries.intake import taken
from edgewake.cloud.summaries.rollup import rolled_up
from edgewake.cloud.summaries.store import SERIES_MAX, Reads, Store, remove
from edgewake.cloud.summaries.summary import Record, Series, Step
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Rejected, Unavailable
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.sketches import sketch

log = logging.getLogger("edgewake.summaries")

DEVICE_TOPIC: Final = topics.stream_topic(sketch.STREAM)
BATCH_MAX: Final = 500
"""Records in one transaction of the store."""
ROLL_UP_EVERY_S: Final = 15.0
PRUNE_EVERY_S: Final = 3600.0
FLUSH_S: Final = 30.0
RETRY_S: Final = (0.5, 15.0)
"""First and longest wait between attempts to reach Kafka."""
_Key: TypeAlias = tuple[Step, Series, int, str]
_STEPS: Final = {topics.SUMMARIES_PREFIX + step: step for step in Step}


class Follower:
    """Runs until cancelled."""

    def __init__(self, config: KafkaConfig, path: Path, clock: Clock, rng: random.Random) -> None:
        self._config = config
        self._path = path
        self._clock = clock
        self._rng = rng
        self._stop = threading.Event()
        self._reports = DeliveryReports()
        self.refused = 0
        """Records and device sketches that could not be read."""

    async def run(self) -> None:
        """Follow until cancelled. Raises LocalError where the store cannot be used."""
        executor = ThreadPoolExecutor(1, "summaries")
        thread = asyncio.get_running_loop().run_in_executor(executor, self._retrying)
        try:
            await asyncio.shield(thread)
        finally:
            self._stop.set()
            await asyncio.gather(thread, return_exceptions=True)
            executor.shutdown()

    def _retrying(self) -> None:
        wait = RETRY_S[0]
        while not self._stop.is_set():
            try:
                self._follow()
                wait = RETRY_S[0]
            except (Unavailable, KafkaException, sqlite3.OperationalError) as error:
                log.warning("summaries wait: %s", error, extra={"event": "summaries.wait"})
                self._stop.wait(wait * (0.5 + self._rng.random()))
                wait = min(wait * 2, RETRY_S[1])
            except sqlite3.DatabaseError as error:
                log.error(
                    "%s is damaged and rebuilt: %s",
                    self._path,
                    error,
                    extra={"event": "summaries.damaged"},
                )
                remove(self._path)

    def _follow(self) -> None:
        topic_admin.ensure_topics(self._config, [*topics.SUMMARIES, DEVICE_TOPIC])
        store = Store(self._path)
        settings: dict[str, Any] = {"fetch.wait.max.ms": 500, "queued.max.messages.kbytes": 8_192}
        consumer = clients.consumer(self._config, "summaries", **settings)
        producer = clients.producer(self._config, "summaries")
        try:
            consumer.assign(_places(consumer, store))
            self._turns(store, consumer, producer)
        finally:
            producer.purge()
            consumer.close()
            store.close()

    def _turns(self, store: Store, consumer: Consumer, producer: Producer) -> None:
        roll_up_at = prune_at = self._clock.monotonic_s()
        while not self._stop.is_set():
            first = consumer.poll(0.5)
            if first is not None:
                self._take(store, [first, *consumer.consume(BATCH_MAX - 1, 0)], producer)
            now_s = self._clock.monotonic_s()
            if now_s >= roll_up_at:
                self._roll_up(store, producer)
                roll_up_at = now_s + ROLL_UP_EVERY_S
            if now_s >= prune_at:
                store.prune(self._clock.now_ms())
                prune_at = now_s + PRUNE_EVERY_S

    def _take(self, store: Store, messages: list[Message], producer: Producer) -> None:
        kept: list[tuple[Step, Record]] = []
        gone: list[_Key] = []
        places: dict[tuple[str, int], int] = {}
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            topic = message.topic()
            places[topic, message.partition()] = message.offset() + 1
            if topic == DEVICE_TOPIC:
                for step, record in self._made_by_device(message, producer):
                    self._produce(
                        producer, topics.SUMMARIES_PREFIX + step, record.encode(), record.key
                    )
            elif message.value() is not None:
                kept += self._read(_STEPS[topic], message)
            else:
                removed = self._removed(_STEPS[topic], message)
                gone += removed
                kept = [one for one in kept if _key_of(*one) not in removed]
        self._flush(producer)
        before = store.refused
        if gone:
            store.forget(gone)
        store.keep(kept, places, now_ms=self._clock.now_ms())
        if store.refused > before:
            log.warning(
                "more than %d series: %d summaries are left out",
                SERIES_MAX,
                store.refused,
                extra={"event": "summaries.full"},
            )

    def _read(self, step: Step, message: Message) -> Iterator[tuple[Step, Record]]:
        try:
            yield step, Record.decode(message.value())
        except Rejected as error:
            self.refused += 1
            log.debug("%s offset %d: %s", message.topic(), message.offset(), error)

    def _removed(self, step: Step, message: Message) -> list[_Key]:
        try:
            return [(step, *Record.parse_key(message.key() or b""))]
        except Rejected as error:
            self.refused += 1
            log.debug("%s offset %d: %s", message.topic(), message.offset(), error)
            return []

    def _made_by_device(
        self, message: Message, producer: Producer
    ) -> Iterator[tuple[Step, Record]]:
        try:
            readings = list(records.readings(records.decode(message.value())))
        except (KeyError, orjson.JSONDecodeError):
            self.refused += 1
            return
        for reading in readings:
            try:
                yield from taken(reading)
            except Rejected as error:
                self.refused += 1
                letter = DeadLetter(
                    reason=error.reason,
                    detail=str(error)[:500],
                    topic=DEVICE_TOPIC,
                    part="summaries",
                    received_at=self._clock.now_ms(),
                )
                self._produce(
                    producer,
                    topics.DEAD,
                    orjson.dumps(reading),
                    str(reading["device"]),
                    letter.headers(),
                )

    def _roll_up(self, store: Store, producer: Producer) -> None:
        now_ms = self._clock.now_ms()
        found = Reads(self._path).with_view(
            lambda view: list(rolled_up(store, view, now_ms=now_ms))
        )
        made = [(step, record) for step, _, _, record in found if record is not None]
        for step, record in made:
            self._produce(producer, topics.SUMMARIES_PREFIX + step, record.encode(), record.key)
        self._flush(producer)
        # At once in the store too, so that nobody is told of an hour that is neither dirty nor
        # there.
        store.keep(made, {}, now_ms=now_ms)
        for step in (Step.HOUR, Step.DAY):
            store.clean(step, [(series, start) for of, series, start, _ in found if of is step])

    def _produce(
        self,
        producer: Producer,
        topic: str,
        value: bytes,
        key: bytes | str,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        producer.produce(topic, value, key, headers=headers or [], on_delivery=self._reports)
        producer.poll(0)

    def _flush(self, producer: Producer) -> None:
        """Wait until all is in Kafka.

        Raises Unavailable, after which nothing of it counts as done.
        """
        left, reports = producer.flush(FLUSH_S), self._reports
        self._reports = DeliveryReports()
        if left or reports.errors:
            raise Unavailable(f"Kafka takes no summaries: {reports.why('no answer')}")


def _key_of(step: Step, record: Record) -> _Key:
    return step, record.series, record.start_ms, record.maker


def _places(consumer: Consumer, store: Store) -> list[TopicPartition]:
    """The offsets to continue from: behind the store's, or where retention or a new topic begins.

    Raises Unavailable.
    """
    known, counts = store.places(), partition_counts(consumer)
    found = []
    for topic in (*topics.SUMMARIES, DEVICE_TOPIC):
        if not counts.get(topic):
            raise Unavailable(f"{topic}: is being made")
        for partition in range(counts[topic]):
            low, high = watermarks(consumer, topic, partition)
            at = known.get((topic, partition), low)
            found.append(TopicPartition(topic, partition, at if low <= at <= high else low))
    return found
