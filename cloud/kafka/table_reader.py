"""Compacted topics as dicts that follow them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from edgewake.cloud.kafka.clients import FOLLOWER_WAIT_MS, ONCE_WAIT_MS, consumer
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.kafka")

PROGRESS_S: Final = 5.0
"""Seconds between two lines of the log while long tables are read."""
TABLE_BATCH: Final = 500
"""Records that one `poll` passes on at most."""
_TABLE_CONSUMER: Final[dict[str, Any]] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
}
_END_CONSUMER: Final[dict[str, Any]] = {"isolation.level": "read_uncommitted"}


def read_once(
    config: KafkaConfig,
    client_id: str,
    tables: Mapping[str, Callable[[str, bytes | None], None]],
    *,
    idle_s: float = 30.0,
) -> None:
    """Read tables to their current ends, and no further; see TableReader. Raises Unavailable."""
    reader = TableReader(config, client_id, tables, wait_ms=ONCE_WAIT_MS)
    try:
        reader.read_all(idle_s=idle_s)
    finally:
        reader.close()


class TableReader:
    """Follows a partition of compacted topics as dicts: `read_all` once, then `poll`.

    One consumer for all: Kafka holds one fetch of it, however many tables do not change. `tables`:
    topic → what gets key and value (None: deleted) of its records; what that raises as ValueError
    is logged and skipped: a record we cannot read stops nobody. Not for several threads.
    """

    def __init__(
        self,
        config: KafkaConfig,
        client_id: str,
        tables: Mapping[str, Callable[[str, bytes | None], None]],
        *,
        partition: int = 0,
        wait_ms: int = FOLLOWER_WAIT_MS,
    ) -> None:
        """`wait_ms`: see FOLLOWER_WAIT_MS; ONCE_WAIT_MS where it is closed after `read_all`."""
        self._tables, self._partition = dict(tables), partition
        # Transactions end in markers that take an offset and are no record, so a count of records
        # never reaches the end; only the consumer's own end-of-partition event says where it
        # stands.
        self._consumer = consumer(
            config, client_id, **_TABLE_CONSUMER | {"fetch.wait.max.ms": wait_ms}
        )
        self._uncommitted = consumer(config, client_id, **_END_CONSUMER)
        self._positions = dict.fromkeys(tables, 0)
        """Offset of each table's next record."""
        self._is_assigned = False
        self.unreadable = 0
        """Records that were skipped; the first one is logged."""

    def read_all(
        self, *, idle_s: float = 30.0, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Read to the current ends, waiting for open transactions, for as long as records come.

        Logs its progress every PROGRESS_S. Raises Unavailable after `idle_s` without a record, or
        when it is not wanted any more.
        """
        # The end is after the last record, also of those that an open transaction still hides.
        self._read_to_end_of(self._uncommitted, idle_s, is_wanted)

    def read_committed(
        self, *, idle_s: float = 30.0, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Read to the end, or to the first transaction that is open."""
        self._read_to_end_of(self._consumer, idle_s, is_wanted)

    def _read_to_end_of(
        self, asked: Consumer, idle_s: float, is_wanted: Callable[[], bool]
    ) -> None:
        """To the end as this consumer sees it."""
        ends = {
            topic: watermarks(asked, topic, self._partition, patience_s=idle_s)[1]
            for topic in self._tables
        }
        if not self._is_assigned:
            self._assign(idle_s)
        came_s = logged_s = time.monotonic()
        while unread := [topic for topic, end in ends.items() if self._positions[topic] < end]:
            before = sum(self._positions.values())
            self.poll(0.1)
            now_s = time.monotonic()
            if sum(self._positions.values()) > before:
                came_s = now_s
            elif now_s - came_s > idle_s:
                raise Unavailable(
                    f"{self._standing(unread, ends)}, and no record for {idle_s:.0f} s; "
                    f"`edgewake doctor` says whether a transaction there does not end"
                )
            if not is_wanted():
                raise Unavailable(f"{self._standing(unread, ends)}: it is not wanted any more")
            if now_s - logged_s >= PROGRESS_S:
                logged_s = now_s
                log.info("%s", self._standing(unread, ends), extra={"event": "kafka.table_read"})

    def _assign(self, patience_s: float) -> None:
        # By its number: librdkafka would look for the beginning itself, and look again after half a
        # second, because it is not connected yet. Who asks for the number is.
        first = {
            topic: watermarks(self._consumer, topic, self._partition, patience_s=patience_s)[0]
            for topic in self._tables
        }
        self._consumer.assign(
            [TopicPartition(topic, self._partition, offset) for topic, offset in first.items()]
        )
        self._is_assigned = True

    def _standing(self, unread: list[str], ends: Mapping[str, int]) -> str:
        return f"partition {self._partition}: " + ", ".join(
            f"{topic} is read to {self._positions[topic]} of {ends[topic]}" for topic in unread
        )

    def poll(self, timeout_s: float) -> int:
        """Pass on what is new; the number of records. Waits `timeout_s` for the first one."""
        count = 0
        # `consume` waits for its whole number; so one is waited for, and what else is there is
        # taken without waiting.
        first = self._consumer.poll(timeout_s)
        for message in [] if first is None else [first, *self._consumer.consume(TABLE_BATCH, 0)]:
            topic, offset = str(message.topic()), int(message.offset() or 0)
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._positions[topic] = max(self._positions[topic], offset)
                continue
            count += 1
            self._positions[topic] = offset + 1
            self._pass_on(topic, message)
        return count

    def _pass_on(self, topic: str, message: Message) -> None:
        key = message.key()
        try:
            self._tables[topic](
                "" if key is None else key.decode("utf-8", "replace"), message.value()
            )
        except ValueError as problem:
            self.unreadable += 1
            level = logging.WARNING if self.unreadable == 1 else logging.DEBUG
            log.log(
                level,
                "topic %s, offset %d: %s",
                topic,
                message.offset(),
                problem,
                extra={"event": "kafka.unreadable_row"},
            )

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
        self._uncommitted.close()
