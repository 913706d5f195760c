"""A compacted topic's partition as a dict that follows it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, Message, TopicPartition

from edgewake.cloud.kafka.clients import FOLLOWER_WAIT_MS, consumer
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.kafka")

PROGRESS_S: Final = 5.0
"""Seconds between two lines of the log while a long table is read."""
TABLE_BATCH: Final = 500
"""Records that one `poll` of a table passes on at most."""
_TABLE_CONSUMER: Final[dict[str, Any]] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
}
_END_CONSUMER: Final[dict[str, Any]] = {"isolation.level": "read_uncommitted"}


class TableReader:
    """A compacted topic's partition as a dict that follows it: `read_all` once, then `poll` now and then.

    `on_change` gets key and value (None: deleted); what it raises as ValueError is logged and skipped: a record we cannot read stops
    nobody. Not for several threads.
    """

    def __init__(
        self,
        config: KafkaConfig,
        client_id: str,
        topic: str,
        *,
        on_change: Callable[[str, bytes | None], None],
        partition: int = 0,
        wait_ms: int = FOLLOWER_WAIT_MS,
    ) -> None:
        """`wait_ms`: see FOLLOWER_WAIT_MS; ONCE_WAIT_MS where it is closed after `read_all`."""
        self._topic, self._partition = topic, partition
        self._on_change = on_change
        # Transactions end in markers that take an offset and are no record, so a count of records never reaches the end; only the
        # consumer's own end-of-partition event says where it stands.
        self._consumer = consumer(config, client_id, **_TABLE_CONSUMER | {"fetch.wait.max.ms": wait_ms})
        self._uncommitted = consumer(config, client_id, **_END_CONSUMER)
        self._position = 0
        self._is_assigned = False
        self.unreadable = 0
        """Records that were skipped; the first one is logged."""

    def read_all(self, *, idle_s: float = 30.0, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Read to the end as it is now, waiting for transactions that are open there, for as long as records come.

        Logs every PROGRESS_S how far it is. Raises Unavailable after `idle_s` without a record, or when it is no longer wanted.
        """
        end = self._end(idle_s)
        if not self._is_assigned:
            # By its number: librdkafka would look for the beginning itself, and look again after half a second, because it is not connected
            # yet. Who asks for the number is.
            first, _ = watermarks(self._consumer, self._topic, self._partition, patience_s=idle_s)
            self._consumer.assign([TopicPartition(self._topic, self._partition, first)])
            self._is_assigned = True
        came_s = logged_s = time.monotonic()
        while self._position < end:
            before = self._position
            self.poll(0.1)
            now_s = time.monotonic()
            if self._position > before:
                came_s = now_s
            elif now_s - came_s > idle_s:
                raise Unavailable(
                    f"topic {self._topic}, partition {self._partition}: read to {self._position} of {end}, "
                    f"and no record for {idle_s:.0f} s; `edgewake doctor` says whether a transaction there does not end"
                )
            if not is_wanted():
                raise Unavailable(f"topic {self._topic}: reading ended at {self._position} of {end}, it is not wanted any more")
            if now_s - logged_s >= PROGRESS_S:
                logged_s = now_s
                log.info(
                    "topic %s, partition %d: read to %d of %d", self._topic, self._partition, self._position, end,
                    extra={"event": "kafka.table_read"},
                )  # fmt: skip

    def _end(self, timeout_s: float) -> int:
        """Offset after the last record, also of those that an open transaction still hides."""
        return watermarks(self._uncommitted, self._topic, self._partition, patience_s=timeout_s)[1]

    def position(self) -> int:
        """Offset of the next record."""
        return self._position

    def poll(self, timeout_s: float) -> int:
        """Pass on what is new; the number of records. Waits `timeout_s` for the first one."""
        count = 0
        # `consume` waits for its whole number; so one is waited for, and what else is there is taken without waiting.
        first = self._consumer.poll(timeout_s)
        for message in [] if first is None else [first, *self._consumer.consume(TABLE_BATCH, 0)]:
            if (error := message.error()) is not None:
                self._on_event(message, error)
                continue
            count += 1
            self._position = message.offset() + 1
            key = message.key()
            try:
                self._on_change("" if key is None else key.decode("utf-8", "replace"), message.value())
            except ValueError as problem:
                self.unreadable += 1
                level = logging.WARNING if self.unreadable == 1 else logging.DEBUG
                log.log(level, "topic %s, offset %d: %s", self._topic, message.offset(), problem, extra={"event": "kafka.unreadable_row"})
        return count

    def _on_event(self, message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._position = max(self._position, message.offset())

    def close(self) -> None:
        """Leave."""
        self._consumer.close()
        self._uncommitted.close()
