"""One Kafka transaction for each micro-batch.

Results, progress and the lane's record are committed together or not at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from pydantic import ValidationError

from edgewake.cloud.analysis.plan.combined_topics import CombinedTopics
from edgewake.cloud.analysis.results.emit import Output, Outputs
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import partition_count
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.kafka.table_reader import read_once
from edgewake.cloud.traces.tracer import Carried
from edgewake.protocol import topics
from edgewake.protocol.errors import LocalError, Unavailable
from edgewake.protocol.ops.result import is_watermark

log = logging.getLogger("edgewake.analysis")

COMMIT_TIMEOUT_S: Final = 30.0
"""How long a commit may take before the lane is started again and checks whether it happened."""
OPEN_MS: Final = 10_000
"""How long Kafka keeps a transaction open, ms, so that readers do not wait longer for a driver that
died and is not replaced."""
OPEN_MS_MAX: Final = 640_000
"""The timeout of a lane with longer batches, below the largest that Kafka allows by default (15
minutes)."""
GROWTH: Final = 4
POLL_EVERY: Final = 128
"""Records between two calls of the client's callbacks, which seldom have anything to do: the next
record or the commit reports a failure, too."""
_open_ms: Final[dict[str, int]] = {}
"""Lane → how long its transactions may be open, where one was not done within OPEN_MS. A batch that
is read again after a restart makes as many results as before, so without more time it would
always fail: a thousand readings of one key that are joined with one another are a million rows."""


class Overlong(KafkaException):  # type: ignore[misc]  # it has no types
    """The results of one batch took longer than Kafka lets a transaction be open.

    The lane's next one may take longer.
    """


class LaneTransactions:
    """The producer of one lane.

    A later process with the same lane fences this one: two drivers can never both emit.
    """

    def __init__(self, config: KafkaConfig, lane: str) -> None:
        self._lane, self._open_ms = lane, _open_ms.get(lane, OPEN_MS)
        self._trace: Carried = ()
        """The headers of the current transaction's results."""
        # That records were written the commit says of all of them.
        errors_only = {"delivery.report.only.error": True}
        self._producer = clients.transactional_producer(
            config, f"edgewake-analysis-{lane}", timeout_ms=self._open_ms, **errors_only
        )
        try:
            clients.fence(self._producer, COMMIT_TIMEOUT_S)
        except KafkaException as error:
            raise clients.away(config, error.args[0]) from error

    def write(self, outputs: Iterable[Output | Outputs], trace: Carried = ()) -> None:
        """Write all records or none, while they are made. `trace`: headers of results.

        Raises KafkaException (Overlong), after which this object is of no use any more.
        """
        began_s = last_s = time.monotonic()
        longest_s = 0.0
        self._trace = trace
        self._producer.begin_transaction()
        try:
            for number, some in enumerate(_pieces(outputs)):
                self._produce(some)
                if number % POLL_EVERY == 0 or isinstance(some, Outputs):
                    self._producer.poll(0)
                now_s = time.monotonic()
                longest_s, last_s = max(longest_s, now_s - last_s), now_s
            self._producer.commit_transaction(COMMIT_TIMEOUT_S)
        except KafkaException as error:
            now_s = time.monotonic()
            # One that stood still for so long was fenced by another process, or waited for Kafka:
            # it gets no more time.
            stood_still_s = max(longest_s, now_s - last_s)
            if (now_s - began_s) * 1000 < self._open_ms or stood_still_s * 2000 > self._open_ms:
                raise
            _open_ms[self._lane] = more = min(OPEN_MS_MAX, GROWTH * self._open_ms)
            why = (
                f"Kafka ends a transaction after {self._open_ms // 1000} s, and the results of "
                "one batch took longer"
            )
            raise Overlong(
                KafkaError(KafkaError._TIMED_OUT, f"{why}: the next one has {more // 1000} s")
            ) from error

    def close(self) -> None:
        """Close the producer; uncommitted records were never written."""
        # The client's close of a fenced producer ends so; it is closed nevertheless.
        with suppress(KafkaException, SystemError):
            self._producer.purge()
            self._producer.close()

    def _produce(self, some: Output | Outputs) -> None:
        if isinstance(some, Output):
            self._produce_one(some)
            return
        topic, produce = some.topic, self._producer.produce
        if self._trace:
            for key, value in zip(some.keys, some.values, strict=True):
                self._produce_one(Output(topic, key, value))
            return
        for key, value in zip(some.keys, some.values, strict=True):
            try:
                produce(topic, value, key)
            except BufferError:
                self._produce_one(Output(topic, key, value))

    def _produce_one(self, output: Output) -> None:
        headers = dict(output.headers) or None
        if (
            self._trace
            and output.topic.startswith(topics.QUERY_PREFIX)
            and not is_watermark(output.key)
        ):
            headers = {**dict(output.headers), **dict(self._trace)}
        while True:
            try:
                self._producer.produce(output.topic, output.value, output.key, headers=headers)
                return
            except BufferError:  # librdkafka's queue is full: wait for the broker
                self._producer.poll(0.1)


def _pieces(outputs: Iterable[Output | Outputs]) -> Iterator[Output | Outputs]:
    """The outputs, where those with many records are cut into pieces of POLL_EVERY."""
    for output in outputs:
        if isinstance(output, Output):
            yield output
            continue
        for at in range(0, len(output.keys), POLL_EVERY):
            yield Outputs(
                output.topic, output.keys[at : at + POLL_EVERY], output.values[at : at + POLL_EVERY]
            )


def lane_rows(config: KafkaConfig, is_wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The last records of `ew.lanes` by key.

    Call after `LaneTransactions` is made: it ends what a dead predecessor left open.

    Raises Unavailable.
    """
    found: dict[str, bytes] = {}

    def keep(name: str, value: bytes | None) -> None:
        if value is None:
            found.pop(name, None)
        elif is_wanted(name):
            found[name] = value

    read_once(config, "analysis-lanes", {topics.LANES: keep})
    return found


def read_lane_record(config: KafkaConfig, key: bytes) -> LaneRecord | None:
    """A lane's last record; see lane_rows. Raises Unavailable, LocalError."""
    rows = lane_rows(config, lambda name: name.encode() == key)
    try:
        return None if not rows else LaneRecord.model_validate_json(rows[key.decode()])
    except ValidationError as error:
        raise other_version(key.decode()) from error


def other_version(key: str) -> LocalError:
    """A record of `ew.lanes` cannot be read."""
    return LocalError(
        f"topic {topics.LANES}: the record of {key} is of another version: with the analysis "
        "stopped delete this topic and"
        " `checkpoints` in its data_dir, and register the queries again"
    )


LEFT_S: Final = 2.0
"""Seconds to wait for a partition's end: batches wait for it."""


class Ends:
    """The ends of a lane's topics, from which its lag is computed.

    Partitions are numbered as in `CombinedTopics`.
    """

    def __init__(self, config: KafkaConfig, sources: CombinedTopics) -> None:
        self._asker = clients.asked_consumer(config, "analysis-ends")
        self._sources = sources

    def kept(self) -> dict[int, tuple[int, int]]:
        """Partition → first offset that is still kept, and the next one to be written.

        Raises Unavailable.
        """
        with self._asker.asked() as consumer:
            found = {
                topic: {
                    p: watermarks(consumer, topic, p)
                    for p in range(partition_count(consumer, topic))
                }
                for topic in self._sources.topics
            }
        return self._sources.flat(found)

    def firsts(self) -> dict[str, dict[int, int]]:
        """Topic → partition → first offset that is still kept. Raises Unavailable."""
        return self._sources.by_topic({number: first for number, (first, _) in self.kept().items()})

    def partitions(self) -> int:
        """The number of partitions; of two topics twice the larger one's. Raises Unavailable."""
        with self._asker.asked() as consumer:
            return len(self._sources.topics) * max(
                partition_count(consumer, topic) for topic in self._sources.topics
            )

    def left(self, offsets: Mapping[int, int]) -> dict[int, int] | None:
        """Partition → records from `offsets` to its end; None where Kafka does not say."""
        try:
            with self._asker.asked() as consumer:
                ends = {
                    number: watermarks(
                        consumer, *self._sources.place(number), patience_s=0, answer_s=LEFT_S
                    )[1]
                    for number in offsets
                }
        except Unavailable:
            return None
        return {number: max(0, end - offsets[number]) for number, end in ends.items()}

    def close(self) -> None:
        """Close the client that asks Kafka."""
        self._asker.end()
