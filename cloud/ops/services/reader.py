"""Reads all tables with one consumer in a thread and hands changes to the event loop in batches.

Tables are read from their beginning, dead letters from their end, part states from a little before
their end. `ready` is set when every table was read to the end that it had at the start.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from edgewake.cloud.health import Health
from edgewake.cloud.kafka import clients, metadata, offsets, topic_admin
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S, KafkaConfig
from edgewake.cloud.kafka.mortal import Admin
from edgewake.cloud.kafka.up_places import UpPlaces
from edgewake.cloud.ops.letters.dead_letters import DeadLetterIndex
from edgewake.cloud.ops.tables import audit_ring, past
from edgewake.cloud.ops.tables.tables import (
    ANSWERS_TOPIC,
    REQUESTS_TOPIC,
    Change,
    TopicOffsets,
)
from edgewake.protocol import topics
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases import lease_record

log = logging.getLogger("edgewake.ops")

TABLES: Final = (
    topics.STREAMS,
    topics.DEVICES,
    topics.NOTES,
    topics.QUERIES,
    topics.PROGRESS,
    topics.REPAIRS,
    topics.PREVIEWS,
    topics.BOARDS,
    topics.SETS,
    topics.PUBLICATIONS,
    topics.MAPS,
    topics.ERASURES,
    topics.ALERT_RULES,
    topics.ALERTS,
    topics.DOWN,
    topics.REQUESTS,
    topics.LEASES,
    topics.ENDINGS,
    topics.PROBLEMS,
)
BATCH_MAX: Final = 200
"""The most changes that the event loop applies at once; 200 devices take some 5 ms."""
AWAITED: Final = {
    topics.PARTS: 5_000,
    ANSWERS_TOPIC: 1_000_000,
    REQUESTS_TOPIC: 1_000_000,
    topics.HISTORY: past.ENTRIES_MAX,
    topics.AUDIT: audit_ring.ENTRIES_MAX,
}
"""Streams that exist once somebody has published on them → how many records of each partition are
read at the start. For part states that is ten minutes of a supervisor, and an hour of seven parts
that tell of themselves; for devices' answers and requests nearly all,
because some came while no server ran."""
LOOK_EVERY_S: Final = 5.0
"""Seconds between checks for new topics and their offsets."""
RETRY_S: Final = (0.2, 5.0)
"""The first and the longest wait between attempts to reach Kafka, in seconds."""


class Reader:
    """Reads the tables; `on_changes` and `on_offsets` are called on the event loop.

    `on_changes` gets changes, and whether they are news: not so while tables are read from their
    beginning, at the start or again after Kafka was away.
    `on_offsets` gets the offsets of all topics, and the sequencers' offsets in each partition of
    `ew.up`; None: Kafka did not tell them.
    """

    def __init__(
        self,
        config: KafkaConfig,
        *,
        letters: DeadLetterIndex,
        on_changes: Callable[[list[Change], bool], None],
        on_offsets: Callable[[dict[str, TopicOffsets], Mapping[int, int] | None], None],
        rng: random.Random,
        ready: asyncio.Event,
    ) -> None:
        """`ready` is set when the tables are loaded."""
        self._config = config
        self._letters = letters
        self._on_changes = on_changes
        self._on_offsets = on_offsets
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._unread: set[tuple[str, int]] = {(topic, 0) for topic in TABLES}
        self._assigned: list[TopicPartition] = []
        self.ready = ready
        self.health = Health(time.monotonic)

    async def run(self) -> None:
        """Reads until cancelled."""
        executor = ThreadPoolExecutor(2, "ops-reader")
        threads = [
            self._loop.run_in_executor(executor, self._retrying, work)
            for work in (self._read, self._look)
        ]
        try:
            await asyncio.shield(asyncio.gather(*threads))
        finally:
            self._stop.set()
            await asyncio.gather(*threads, return_exceptions=True)
            executor.shutdown()

    def _retrying(self, work: Callable[[], None]) -> None:
        wait = RETRY_S[0]
        while not self._stop.is_set():
            try:
                work()
            except (Unavailable, KafkaException) as error:
                log.warning("waiting for Kafka: %s", error, extra={"event": "kafka.away"})
                self.health.note("kafka", f"Kafka does not answer: {error}")
                self._stop.wait(wait * (0.5 + self._rng.random()))
                wait = min(wait * 2, RETRY_S[1])

    def _read(self) -> None:
        # Leases come first: created among the others they would get another number of partitions,
        # which would have to grow once Kafka lists them.
        topic_admin.ensure_partitions(self._config, [topics.LEASES], lease_record.PARTITIONS)
        topic_admin.ensure_topics(
            self._config,
            [
                *(topic for topic in TABLES if topic != topics.LEASES),
                topics.DEAD,
                topics.UP,
                topics.CLIENTS,
                topics.HISTORY,
                topics.AUDIT,
                topics.ATTRIBUTES,
            ],
        )
        settings: dict[str, Any] = {
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 2048,
            "fetch.wait.max.ms": clients.FOLLOWER_WAIT_MS,
        }
        consumer = clients.consumer(self._config, "ops-tables", **settings)
        # On the other consumer a request would be answered only after its pending fetch.
        asker = clients.consumer(self._config, "ops-asker")
        try:
            counts = {
                topic: lease_record.PARTITIONS if topic == topics.LEASES else 1 for topic in TABLES
            }
            _check_partitions(metadata.partition_counts(consumer), counts)
            self._assigned = [
                TopicPartition(topic, p, OFFSET_BEGINNING)
                for topic, count in counts.items()
                for p in range(count)
            ]
            self._unread = {(place.topic, place.partition) for place in self._assigned}
            self._assigned += [
                TopicPartition(topic, 0, OFFSET_END) for topic in (topics.DEAD, topics.CLIENTS)
            ]
            consumer.assign(self._assigned)
            looked_at = float("-inf")
            awaited = dict(AWAITED)
            while not self._stop.is_set():
                if awaited and not self._unread and time.monotonic() - looked_at > LOOK_EVERY_S:
                    awaited = {
                        topic: behind
                        for topic, behind in awaited.items()
                        if not self._find(consumer, asker, topic, behind)
                    }
                    looked_at = time.monotonic()
                self._hand_over(self._batch(consumer))
        finally:
            consumer.close()
            asker.close()

    def _batch(self, consumer: Consumer) -> list[Message]:
        # `consume` waits until it has as many records as asked for. So this waits for one record
        # and takes the others without waiting.
        first = consumer.poll(0.2)
        return [] if first is None else [first, *consumer.consume(BATCH_MAX - 1, 0)]

    def _find(self, consumer: Consumer, asker: Consumer, topic: str, behind: int) -> bool:
        """Follows a stream once its topic exists, from `behind` records before its end."""
        count = metadata.partition_count(asker, topic)
        for partition in range(count):
            low, high = offsets.watermarks(asker, topic, partition)
            consumer.incremental_assign([TopicPartition(topic, partition, max(low, high - behind))])
        return count > 0

    def _hand_over(self, messages: list[Message]) -> None:
        """Raises KafkaException where a partition is read no further."""
        changes = []
        is_news = not self._unread
        for message in messages:
            error = message.error()
            if error is None:
                changes.append(self._change(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._unread.discard((message.topic(), message.partition()))
            elif error.code() in offsets.GONE:
                raise KafkaException(error)
        if changes:
            self._apply(changes, is_news)
        if not self._unread and not self.ready.is_set():
            self._tell(self.ready.set)

    def _look(self) -> None:
        client = clients.admin(self._config)
        with closing(UpPlaces(self._config, "ops-sequencers")) as places:
            while not self._stop.is_set():
                # In this order: what was passed on before the ends were asked for never waits.
                found = offsets_of_all(client)
                self.health.note("kafka", None)
                if found:
                    self._tell(self._on_offsets, found, _sequenced(places))
                self._stop.wait(LOOK_EVERY_S)

    def _change(self, message: Message) -> Change:
        key = (message.key() or b"").decode("utf-8", "replace")
        if message.topic() == topics.DEAD:  # The payload may be a MiB and is not needed here.
            self._letters.add(message)
            return Change(
                topics.DEAD,
                key,
                None,
                message.headers() or (),
                message.offset(),
                message.partition(),
            )
        return Change(
            message.topic(), key, message.value(), (), message.offset(), message.partition()
        )

    def _apply(self, changes: list[Change], is_news: bool) -> None:
        """Waits until the event loop has applied the changes.

        A table of 100,000 rows is applied in batches, between which other tasks run.
        """
        applied = threading.Event()

        def apply() -> None:
            try:
                self._on_changes(changes, is_news)
            finally:
                applied.set()

        self._tell(apply)
        while not applied.wait(0.5) and not self._stop.is_set():
            pass

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *arguments)


def _check_partitions(found: Mapping[str, int], wanted: Mapping[str, int]) -> None:
    """Raises Unavailable unless the consumer knows every partition.

    It would notice a partition that was just created only minutes after its assignment.
    """
    missing = [topic for topic, count in wanted.items() if found.get(topic, 0) < count]
    if missing:
        raise Unavailable(f"{', '.join(missing)}: is being made")


def _sequenced(places: UpPlaces) -> Mapping[int, int] | None:
    try:
        return places.sequenced()
    except KafkaException as error:  # the group's coordinator may be away while topics are not
        log.debug("unknown how far the sequencers are: %s", error)
        return None


def offsets_of_all(client: Admin) -> dict[str, TopicOffsets]:
    """Returns the offsets of all topics of streams and queries, of `ew.up` and `ew.dead`.

    Raises KafkaException.
    """
    found = client.list_topics(timeout=METADATA_TIMEOUT_S).topics
    prefixes = (topics.STREAM_PREFIX, topics.QUERY_PREFIX)
    wanted = {
        name: len(t.partitions)
        for name, t in found.items()
        if name.startswith(prefixes) or name in (topics.UP, topics.DEAD)
    }
    return {
        name: TopicOffsets(
            tuple(low for low, _ in ranges.values()), tuple(high for _, high in ranges.values())
        )
        for name, ranges in offsets.ranges(client, wanted).items()
    }
