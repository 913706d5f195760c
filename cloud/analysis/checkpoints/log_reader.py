"""Reads logs in Kafka once more: for late readings and traces of a lane, and for repairs.

It finds where the log has the readings of windows, and which rows of them were emitted last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from edgewake.cloud.analysis.results.lane_record import CLOCKS_APART_MS
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S, KafkaConfig
from edgewake.cloud.kafka.headers import headers_of
from edgewake.cloud.kafka.metadata import partition_count
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol.clock import moment
from edgewake.protocol.errors import EdgewakeError, Unavailable
from edgewake.protocol.frames.corrected_time import AHEAD_MS_MAX
from edgewake.protocol.ops import result

READINGS_HEADER: Final = "readings"
"""Header of a row that a repair emitted: its number of readings. The log only grows, so an equal
number means the same readings; their sketches may differ all the same, because quantiles are
estimated with chance."""


LOG_BEFORE_MS: Final = AHEAD_MS_MAX + CLOCKS_APART_MS
"""How long before a window's begin Kafka may have its first readings: clocks of devices may be
ahead, and those of parts apart."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it was last emitted."""

    value: Mapping[str, Any]
    readings: int | None = None
    """Only where a repair emitted it."""


SILENT_S: Final = 30.0
"""How long a read waits for the next record before Kafka counts as away."""
MESSAGES_AT_ONCE: Final = 1000
_WITH_ENDS: Final[dict[str, Any]] = {"enable.partition.eof": True}
"""Transactions end in markers that are no records: only the end of a partition says that nothing
more comes."""


class Overtaken(EdgewakeError):
    """Retention deleted records that a window may have readings in."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Partition → first offset and the one after the last."""

    start: Mapping[int, int]
    end: Mapping[int, int]


class LogReader:
    """Reads parts of logs once more, for as long as it is not closed. Not for several threads."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self._consumer: Consumer | None = None

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
        """Committed records from `start` to before `end`. Raises Unavailable."""
        if self._consumer is None:  # most need none
            self._consumer = clients.consumer(self._kafka, "analysis-log", **_WITH_ENDS)
        yield from _records(self._consumer, topic, partition, start, end)
        self._consumer.unassign()

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()


def log_range(kafka: KafkaConfig, topic: str, first_begin_ms: int) -> LogRange:
    """Return where the readings of windows that begin at `first_begin_ms` or later are.

    The ranges go to the present end; partitions that have none are left out.

    Raises Overtaken where retention may have taken some, Unavailable.
    """
    with closing(clients.consumer(kafka, "analysis-repair", **_WITH_ENDS)) as consumer:
        start, end = {}, {}
        for partition in range(partition_count(consumer, topic)):
            low, high = watermarks(consumer, topic, partition)
            found = _at_time(kafka, consumer, topic, partition, first_begin_ms - LOG_BEFORE_MS)
            if low > 0 and (found is None or found <= low):
                _check_kept(consumer, topic, partition, (low, high), first_begin_ms)
            if found is not None and found < high:
                start[partition], end[partition] = found, high
        return LogRange(start, end)


def _check_kept(
    consumer: Consumer, topic: str, partition: int, kept: tuple[int, int], first_begin_ms: int
) -> None:
    kept_from = _kept_from(consumer, topic, partition, kept)
    if kept_from is None or kept_from > first_begin_ms:
        since = (
            ""
            if kept_from is None
            else f"; windows that begin at {moment(kept_from)} or later can be computed from it"
        )
        raise Overtaken(
            f"retention deleted readings of {topic}[{partition}] that windows from "
            f"{moment(first_begin_ms)} on may need{since}"
        )


def _kept_from(consumer: Consumer, topic: str, partition: int, kept: tuple[int, int]) -> int | None:
    """The event time (ms) from which on windows have all their readings; None: none has."""
    first = _first_record(consumer, topic, partition, *kept)
    return None if first is None else first.timestamp()[1] + LOG_BEFORE_MS


def kept_from(kafka: KafkaConfig, topic: str, *, now_ms: int) -> int | None:
    """Return the event time, ms, from which the log has windows whole; None: all of them.

    Raises Unavailable.
    """
    with closing(clients.consumer(kafka, "analysis-repair", **_WITH_ENDS)) as consumer:
        found: list[int] = []
        for partition in range(partition_count(consumer, topic)):
            low, high = watermarks(consumer, topic, partition)
            if low > 0:
                since = _kept_from(consumer, topic, partition, (low, high))
                found.append(now_ms + CLOCKS_APART_MS if since is None else since)
        return max(found, default=None)


def starts(
    kafka: KafkaConfig, topic: str, first_begin_ms: int, end: Mapping[int, int]
) -> dict[int, int]:
    """Return partition → first retained offset with readings of windows from that time on.

    Offsets are before `end`. Raises Unavailable.
    """
    with closing(clients.consumer(kafka, "analysis-repair", **_WITH_ENDS)) as consumer:
        found = {}
        for partition, stop in end.items():
            low, _ = watermarks(consumer, topic, partition)
            at = _at_time(kafka, consumer, topic, partition, first_begin_ms - LOG_BEFORE_MS)
            if at is not None and max(low, at) < stop:
                found[partition] = max(low, at)
        return found


def _at_time(
    kafka: KafkaConfig, consumer: Consumer, topic: str, partition: int, time_ms: int
) -> int | None:
    """Offset of the first record of that time or later; None where no such record exists."""
    try:
        (found,) = consumer.offsets_for_times(
            [TopicPartition(topic, partition, max(0, time_ms))], timeout=METADATA_TIMEOUT_S
        )
    except KafkaException as error:
        raise clients.away(kafka, error.args[0]) from error
    return int(found.offset) if found.offset >= 0 else None


def _first_record(
    consumer: Consumer, topic: str, partition: int, low: int, high: int
) -> Message | None:
    return next(_records(consumer, topic, partition, low, high), None)


def _records(
    consumer: Consumer, topic: str, partition: int, start: int, end: int
) -> Iterator[Message]:
    """Committed records from `start` to before `end`. Raises Unavailable."""
    if start >= end:
        return
    consumer.assign([TopicPartition(topic, partition, start)])
    while True:
        first = consumer.poll(SILENT_S)  # `consume` would wait for its whole number
        if first is None:
            raise Unavailable(
                f"topic {topic}: no record for {SILENT_S:.0f} s, expected some up to {end}"
            )
        for message in [first, *consumer.consume(MESSAGES_AT_ONCE, 0)]:
            error = message.error()
            if error is None:
                yield message
            elif error.code() != KafkaError._PARTITION_EOF:
                raise Unavailable(f"topic {topic}: {error.str()}")
            if message.offset() >= end - 1:
                return


def emitted_rows(kafka: KafkaConfig, topic: str, start: int, stop: int) -> dict[bytes, Row]:
    """The latest row of each window that begins in [start, stop), by key. Raises Unavailable."""
    found: dict[bytes, Row] = {}
    with closing(clients.consumer(kafka, "analysis-repair", **_WITH_ENDS)) as consumer:
        first = _at_time(kafka, consumer, topic, 0, start - LOG_BEFORE_MS)
        if first is None:
            return found
        for message in _records(consumer, topic, 0, first, watermarks(consumer, topic, 0)[1]):
            headers, key = headers_of(message), message.key()
            if (
                key is not None
                and not result.is_watermark(key)
                and start <= orjson.loads(key)[0] < stop
            ):
                _keep(found, key, message, headers)
    return found


def _keep(
    found: dict[bytes, Row], key: bytes, message: Message, headers: Mapping[str, bytes]
) -> None:
    value = orjson.loads(message.value())
    if key not in found or found[key].value["revision"] <= value["revision"]:
        readings = headers.get(READINGS_HEADER)
        found[key] = Row(value, None if readings is None else int(readings))
