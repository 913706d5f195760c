"""Replays dead letters to their streams: record and row are written in one Kafka transaction.

So neither exists without the other. All operations servers share one transactional id. A server
that begins fences the others and reads the rows again, so a server that froze in the middle can
write nothing when it continues, and one that died leaves nothing half done: readers of the stream
wait for it at most TIMEOUT_MS.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.delivery_reports import DeliveryReports
from edgewake.cloud.kafka.table_reader import read_once
from edgewake.cloud.ops.letters.letter_replay import REPLAYS_MAX, FirstKept, Replay, Replays
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Rejected, RejectReason, Unavailable
from edgewake.protocol.frames.device_partition import up_partition
from edgewake.protocol.frames.record import LATE_HEADER
from edgewake.protocol.ops.replay_row import ReplayRow, letter_key

log = logging.getLogger("edgewake.ops")

TRANSACTIONAL_ID: Final = "edgewake-ops-replays"
TIMEOUT_MS: Final = 3_000
"""How long Kafka may take for a record, and how long readers of the stream wait for a server that
died in a transaction."""
KAFKA_S: Final = 10.0
"""Seconds for one step of a transaction."""
WAITING_MAX: Final = 20
"""The most replays in progress or waiting; one more is answered 503."""
LETTER_HEADER: Final = "dead"
"""A header of the record: the offset of the letter on `ew.dead`."""


class Letter(NamedTuple):
    """What a replay needs of a record on `ew.dead`."""

    offset: int
    letter_at: int
    """Its Kafka timestamp, ms."""
    received_at: int
    """When a bridge received its message, ms."""
    first_kept: FirstKept


class LetterReplayer:
    """Runs one replay at a time in its own thread. Connects to Kafka at the first replay."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._thread = ThreadPoolExecutor(1, "ops-replays")
        self._waiting = 0
        self._writer: _Writer | None = None
        """The producer, unless it was fenced; while it is set, `_replays` is up to date."""
        self._replays = Replays()

    async def replay(
        self, replay: Replay, letter: Letter, *, holder: str
    ) -> tuple[ReplayRow, bool]:
        """Replays a letter. Returns its row, and whether it had been replayed before.

        Raises Rejected (too large) or Unavailable. After Unavailable it is done completely or not
        at all, and trying again is safe.
        """
        if self._waiting >= WAITING_MAX:
            raise Unavailable(f"{WAITING_MAX} replays are in progress, the most at once")
        self._waiting += 1
        future = self._thread.submit(self._replay, replay, letter, holder)
        # Not when the caller disconnects: the thread is busy until the replay ends.
        wrapped = asyncio.wrap_future(future)
        wrapped.add_done_callback(self._ended)
        return await asyncio.shield(wrapped)

    def _ended(self, done: asyncio.Future[tuple[ReplayRow, bool]]) -> None:
        self._waiting -= 1
        if not done.cancelled():
            done.exception()  # If the caller left, nobody else retrieves it.

    def _replay(self, replay: Replay, letter: Letter, holder: str) -> tuple[ReplayRow, bool]:
        try:
            return self._once(replay, letter, holder)
        except KafkaException as error:
            self._writer = None
            if not clients.is_fenced(error.args[0]):
                raise _named(error) from error
        except Unavailable:
            self._writer = None
            raise
        try:  # Another server replayed meanwhile.
            return self._once(replay, letter, holder)
        except KafkaException as error:
            self._writer = None
            raise _named(error) from error

    def _once(self, replay: Replay, letter: Letter, holder: str) -> tuple[ReplayRow, bool]:
        writer = self._writer or self._begin()
        found = self._replays.find(
            letter.offset, letter.letter_at, received_at=letter.received_at, replay=replay
        )
        if found is not None:
            return found, True
        if len(self._replays) >= REPLAYS_MAX:
            raise Unavailable(
                f"{REPLAYS_MAX} replays are remembered, the most that are: wait until letters "
                "expire"
            )
        topic, now_ms = topics.stream_topic(replay.stream), self._clock.now_ms()
        partition = writer.stream_partition(topic, replay.device)
        headers = [(LATE_HEADER, b"1"), (LETTER_HEADER, b"%d" % letter.offset)]
        writer.producer.begin_transaction()
        offset = writer.produce(topic, replay.device, replay.value, partition, now_ms, headers)
        row = _row(
            replay, letter, partition=partition, offset=offset, replayed_at=now_ms, holder=holder
        )
        changes: dict[str, bytes | None] = {
            one.key: None for one in self._replays.outlived(letter.first_kept)
        }
        changes[row.key] = row.model_dump_json().encode()
        for key, value in changes.items():
            writer.producer.produce(topics.REPLAYS, value, key, 0)
        with clients.fatal_errors():
            writer.producer.commit_transaction(KAFKA_S)
        for key, value in changes.items():
            self._replays.change(key, value)
        log.info(
            "dead letter %d of %s is on stream %s now", letter.offset, replay.device, replay.stream,
            extra={"event": "ops.replayed", "letter": letter.offset, "holder": holder},
        )  # fmt: skip
        return row, False

    def _begin(self) -> _Writer:
        """Fences the previous writer and reads the rows. Raises KafkaException or Unavailable."""
        topic_admin.ensure_topics(self._config, [topics.REPLAYS])
        writer = _Writer(self._config)
        clients.fence(writer.producer, KAFKA_S)
        self._replays = Replays()
        read_once(
            self._config, "ops-replays", {topics.REPLAYS: self._replays.change}, idle_s=KAFKA_S
        )
        self._writer = writer
        return writer

    async def close(self) -> None:
        """Waits for the replay in progress."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)


class _Writer:
    """A transactional producer, with what it needs to know of topics."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._admin = clients.admin(config)
        self.producer: Producer = clients.transactional_producer(
            config, TRANSACTIONAL_ID, timeout_ms=TIMEOUT_MS
        )

    def stream_partition(self, topic: str, device: str) -> int:
        """Returns the partition of a device's records. Raises Unavailable or LocalError."""
        topic_admin.ensure_topics(self._config, [topic], client=self._admin)
        # A topic that was just created may not be listed yet.
        count = metadata.partition_count(self._admin, topic) or self._config.partitions
        return topics.stream_partition(up_partition(device), count)

    def produce(
        self,
        topic: str,
        key: str,
        value: bytes,
        partition: int,
        timestamp: int,
        headers: list[tuple[str, bytes]],
    ) -> int:
        """Writes one record in the transaction and waits for its offset.

        Raises KafkaException or Unavailable.
        """
        reports = DeliveryReports()
        self.producer.produce(
            topic,
            value,
            key,
            partition,
            timestamp=timestamp,
            headers=headers,
            on_delivery=reports,
        )
        with clients.fatal_errors():
            self.producer.flush(KAFKA_S)
        if not reports.are_in():
            raise Unavailable(f"topic {topic}: Kafka did not confirm the record in time")
        if reports.errors:
            raise KafkaException(reports.errors[0])
        return reports.offsets[0]


def _row(
    replay: Replay, letter: Letter, *, partition: int, offset: int, replayed_at: int, holder: str
) -> ReplayRow:
    return ReplayRow(
        letter=letter.offset,
        letter_at=letter.letter_at,
        received_at=letter.received_at,
        same=replay.same or letter_key(letter.offset, letter.letter_at),
        device=replay.device,
        stream=replay.stream,
        partition=partition,
        offset=offset,
        replayed_at=replayed_at,
        holder=holder,
    )


def _named(error: KafkaException) -> Rejected | Unavailable:
    why: KafkaError = error.args[0]
    if why.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return Rejected(RejectReason.OVERSIZE, why.str())
    return Unavailable(f"Kafka: {why.str()}")
