"""Summarizes all streams once in `summary_interval_s`.

A turn is one Spark job over the new records, one Kafka transaction, then the lake.

Exactly once: summaries and the offsets up to which streams are summarized (summary_record) are in
one transaction. What is known of open minutes is in memory alone, and is computed again from the
log at the start; then the lake gets them once more, and the late parts of the last transaction,
because nobody knows whether the last process came so far. After a failure nothing in memory is
trusted, and the job starts again from the record.

A stream that Spark cannot compute is found by trying each alone. It is left out for a while and
tried again; the others go on.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pydantic import ValidationError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.lanes.batch_range import records
from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.analysis.lanes.failure_causes import cause_of, fault_of
from edgewake.cloud.analysis.lanes.failures import Fault
from edgewake.cloud.analysis.minutes import minute_sums, open_minutes, retained
from edgewake.cloud.analysis.minutes.minute_sums import Found, Wanted, summarised
from edgewake.cloud.analysis.minutes.open_minutes import OpenMinutes
from edgewake.cloud.analysis.minutes.set_aside import SetAside
from edgewake.cloud.analysis.minutes.summary_record import (
    KEY,
    Range,
    StreamPlace,
    SummaryRecord,
    again,
    kept_places,
    lost,
    moved,
    next_ranges,
    pieces,
)
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.transaction import LaneTransactions, lane_rows, other_version
from edgewake.cloud.analysis.schedule import schedule
from edgewake.cloud.analysis.schedule.piece_size import PieceSize
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.metadata import partition_counts
from edgewake.cloud.kafka.mortal import Admin
from edgewake.cloud.kafka.offsets import ranges as offset_ranges
from edgewake.cloud.summaries import late_part
from edgewake.cloud.summaries.summary import Record, Step
from edgewake.protocol import topics
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import EdgewakeError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.sketches.bloom import Bloom

log = logging.getLogger("edgewake.analysis")

GROUP: Final = "edgewake-summaries"
"""Spark keeps the consumers of one job for the next under this name; it joins no group."""
POOL: Final = "summaries"
ROWS: Final = 5_000
"""Summaries that one job may give, of 1 KiB (few readings) to 100 KiB each, and each half a
millisecond of a processor (piece_size)."""
Keep: TypeAlias = Callable[[str, pa.Table, int], None]
"""Puts (stream, rows, revision) into the lake; the same revision again replaces what it wrote
before."""
_FAULTS: Final = (EdgewakeError, KafkaException, OSError, PySparkException, Py4JError)


class MinuteJob:
    """`run` in a thread of its own; `streams` is set, and the rest read, from any."""

    def __init__(
        self,
        session: SparkSession,
        config: AnalysisConfig,
        clock: Clock,
        rng: random.Random,
        keep: Keep,
    ) -> None:
        self.session, self.config, self.clock, self.keep = session, config, clock, keep
        self._rng = rng
        self._aside = SetAside(clock, rng)
        self.streams: Mapping[str, Mapping[str, FieldType]] = {}
        """The catalogue's streams and fields, in its order."""
        self.record = SummaryRecord()
        """Where it stands, as committed."""
        self.counters = Counters()
        self.fenced: str | None = None
        """Why it ended: another process sums up."""

    def wanted(self) -> Wanted:
        """What the next batch sums up."""
        return Wanted(
            summarised(self.streams, self.record.streams),
            tuple(sorted(self.config.summary_devices.items())),
            {
                (stream, name): Bloom.of((), capacity=values.capacity, error=values.error)
                for stream, fields in self.config.summary_values.items()
                for name, values in fields.items()
            },
        )

    @property
    def left_out(self) -> Mapping[str, str]:
        """Stream → why it cannot be summed up."""
        return self._aside.causes

    def run(self, stop: threading.Event) -> None:
        """Until it is stopped or fenced."""
        backoff = Backoff(self._rng, first_s=0.5, max_s=30)
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        while not stop.is_set():
            try:
                self._serve(stop, backoff)
            except _FAULTS as error:
                if stop.is_set():
                    return
                if fault_of(error) is Fault.FENCED:
                    self.fenced = cause_of(error)
                    return
                log.warning(
                    "summaries failed: %s",
                    cause_of(error)[:500],
                    extra={"event": "summaries.failed"},
                )
                stop.wait(backoff.next_s())

    def _serve(self, stop: threading.Event, backoff: Backoff) -> None:
        turns = _Turns(self, self._aside)
        try:
            while not stop.is_set():
                next_ms = turns.turn()
                backoff.reset()
                # No longer than ever, however far the clock is set back meanwhile.
                stop.wait(
                    max(
                        0, min(next_ms - self.clock.now_ms(), self.config.summary_interval_s * 1000)
                    )
                    / 1000
                )
        finally:
            turns.close()


@dataclass(slots=True)
class _Batch:
    """What one job is to read."""

    kept: Mapping[str, Range]
    places: Mapping[str, StreamPlace]
    now_ms: int
    ranges: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def starts(self) -> dict[str, dict[int, int]]:
        """Stream → partition → where the batch begins."""
        return {
            name: {
                p: self.places[name].offsets.get(p, low) for p, (low, _) in self.kept[name].items()
            }
            for name in self.ranges
        }

    def closed(self) -> dict[str, int | None]:
        """Stream → event time by which minutes are closed."""
        return {name: place.top for name, place in self.places.items()}

    def oldest(self) -> dict[str, dict[Step, int]]:
        """Stream → step → begin of the first that takes late readings."""
        days = {
            name: retained.noted(place.days, place.top, self.now_ms)
            for name, place in self.places.items()
        }
        return {
            name: retained.oldest(days[name], place.top, self.now_ms)
            for name, place in self.places.items()
        }

    def since(self) -> dict[str, int]:
        """Stream → begin of the first day that does."""
        return {name: steps[Step.DAY] for name, steps in self.oldest().items()}


class _Turns:
    """The turns from a start to the first failure."""

    def __init__(self, owner: MinuteJob, aside: SetAside) -> None:
        """Read where it stands. Raises _FAULTS."""
        self._owner, self._aside = owner, aside
        self._config, self._clock = owner.config, owner.clock
        self._minutes = OpenMinutes()
        self._restored: set[str] = set()
        self._size = PieceSize()
        self._tried = 0
        """Records of the last job."""
        self._began_ms = 0
        """When the last turn did."""
        self._admin: Admin = clients.admin(self._config.kafka)
        self._transactions = LaneTransactions(self._config.kafka, POOL)
        try:
            self._record = owner.record = self._read_record()
        except BaseException:
            self._transactions.close()
            raise

    def turn(self) -> int:
        """One batch; when the next one is to be, ms. Raises _FAULTS."""
        began_ms = self._clock.now_ms()
        wanted = self._owner.wanted()
        for gone in self._restored - wanted.streams.keys():
            self._minutes.forget(gone)
        self._restored &= wanted.streams.keys()
        names = self._aside.chosen(list(wanted.streams))
        # It was left out: one record shows whether it can be computed by now.
        if self._aside.causes.keys() & names:
            self._size = PieceSize(1)
        batch = self._next(names)
        try:
            self._restore(batch, wanted)
            found = self._computed(batch.ranges, wanted, batch.since()) if batch.ranges else None
        except (PySparkException, Py4JError) as error:
            if fault_of(error) is not Fault.SUSPECT:
                raise
            self._aside.failed(names, cause_of(error), records=self._tried)
            if len(names) == 1:
                self._size = self._size.after_failure(self._tried)
            return began_ms
        if found is not None:
            self._commit(batch, found, wanted)
        is_to_be_tried = self._aside.worked(names)
        in_ms, self._began_ms = began_ms - self._began_ms, began_ms
        is_behind = any(
            end < batch.kept[name][p][1]
            for name, ranges in batch.ranges.items()
            for p, (_, end) in ranges.items()
        )
        if is_behind or is_to_be_tried:
            return began_ms
        values = 0 if found is None else sum(record.summary.readings for record in found.records)
        return schedule.next_summary_ms(
            began_ms, self._config.summary_interval_s * 1000, values=values, in_ms=in_ms
        )

    def close(self) -> None:
        """Close the producer of transactions."""
        self._transactions.close()

    def _read_record(self) -> SummaryRecord:
        rows = lane_rows(self._config.kafka, lambda key: key.endswith(KEY))
        try:
            if KEY in rows:
                return SummaryRecord.model_validate_json(rows[KEY])
            # Each stream had a lane of its own before: the files of the lake must go on after
            # theirs.
            return SummaryRecord(
                revision=max(
                    (SummaryRecord.model_validate_json(row).revision for row in rows.values()),
                    default=-1,
                )
            )
        except ValidationError as error:
            raise other_version(KEY) from error

    def _next(self, streams: Collection[str]) -> _Batch:
        counts = partition_counts(self._admin)
        topic_of = {name: topics.stream_topic(name) for name in streams}
        ranges = offset_ranges(
            self._admin, {topic: counts[topic] for topic in topic_of.values() if counts.get(topic)}
        )
        kept = {name: ranges[topic] for name, topic in topic_of.items() if topic in ranges}
        places = kept_places(self._record, streams, kept)
        batch = _Batch(
            kept, places, self._clock.now_ms(), next_ranges(places, kept, self._records_max())
        )
        for name in batch.ranges:
            if gone := lost(places[name], kept[name]):
                log.warning(
                    "stream %s: retention deleted readings before they were summed up: %s",
                    name,
                    gone,
                    extra={"event": "stream.lost"},
                )
        return batch

    def _records_max(self) -> int:
        return min(self._size.records, self._config.batch_records_max)

    def _computed(
        self, ranges: Mapping[str, Range], wanted: Wanted, since: Mapping[str, int]
    ) -> Found:
        start, end = (
            {
                topics.stream_topic(name): {p: of_both[i] for p, of_both in found.items()}
                for name, found in ranges.items()
            }
            for i in (0, 1)
        )
        frames = records(self._owner.session, self._config.kafka, start, end, group=GROUP)
        self._tried = sum(high - low for one in ranges.values() for low, high in one.values())
        rows = minute_sums.graph(frames, wanted, since).toArrow()
        found = minute_sums.found_in(rows, wanted.values)
        self._size = self._size.after(self._tried, len(found.records) / ROWS)
        return found

    def _restore(self, batch: _Batch, wanted: Wanted) -> None:
        """Compute open minutes again from the log, and repeat what the lake may have missed.

        The last process may have written to Kafka without reaching the lake.
        """
        for name, place in batch.places.items():
            if not place.offsets:  # nothing of it was summed up, or its topic was recreated
                self._minutes.forget(name)
        new = batch.places.keys() - self._restored
        places = {name: batch.places[name] for name in new}
        ranges = {
            name: again(place, place.open_from, batch.kept[name]) for name, place in places.items()
        }
        left = {name: found for name, found in ranges.items() if found}
        for name in left:
            self._minutes.forget(name)
        since = {name: open_minutes.open_from(places[name].closed) for name in left}
        for piece in pieces(left, self._records_max):
            self._minutes.add(
                self._computed(piece, wanted, since).records,
                {name: places[name].open_from for name in left},
            )
        late = self._late_again(batch, places, wanted)
        self._restored |= new
        self._keep_in_lake([*late, *(record for name in left for record in self._minutes.of(name))])
        if left:
            log.info(
                "summaries of %d streams go on with %d open minutes", len(left), len(self._minutes),
                extra={"event": "summaries.restored"},
            )  # fmt: skip

    def _late_again(
        self, batch: _Batch, places: Mapping[str, StreamPlace], wanted: Wanted
    ) -> list[Record]:
        """The late parts of minutes in the last transaction: the lake may lack them."""
        found = {
            name: again(place, place.late_from, batch.kept[name]) for name, place in places.items()
        }
        ranges = {name: offsets for name, offsets in found.items() if offsets}
        closed = {name: place.closed for name, place in places.items()}
        late: list[Record] = []
        for piece in pieces(ranges, self._records_max):
            late += open_minutes.parted(
                self._computed(piece, wanted, batch.since()).records, closed
            )[1]
        return late_part.parts(late, Step.MINUTE, late_part.maker(self._record.revision))

    def _commit(self, batch: _Batch, found: Found, wanted: Wanted) -> None:
        closed = batch.closed()
        for name, top in closed.items():
            self._minutes.close(name, top)
        revision = self._record.revision + 1
        in_time, late = open_minutes.parted(found.records, closed)
        changed = self._minutes.add(in_time, batch.starts())
        parts = late_part.parts(late, Step.MINUTE, late_part.maker(revision))
        late_from = {part.series.stream: batch.starts()[part.series.stream] for part in parts}
        places = {
            name: place.model_copy(update={"late_from": {}})
            for name, place in self._record.streams.items()
            if name in wanted.streams
        } | {
            name: self._after(batch, found, name, late_from.get(name, {})) for name in batch.ranges
        }
        for name, at in self._minutes.over_bound().items():
            place = places[name]
            places[name] = place.model_copy(
                update={"top": at if place.top is None else max(at, place.top)}
            )
            log.warning(
                "stream %s: its oldest open minutes are closed, there are too many",
                name,
                extra={"event": "summaries.bound"},
            )
        record = SummaryRecord(revision=revision, streams=places)
        emitted = [(Step.MINUTE, one) for one in changed] + list(
            late_part.filed(parts, batch.oldest())
        )
        outputs = (
            emit.Output(topics.SUMMARIES_PREFIX + step, one.key, one.encode())
            for step, one in emitted
        )
        own = emit.Output(topics.LANES, KEY.encode(), record.model_dump_json().encode())
        self._transactions.write(
            chain((emit.bounded(output, now_ms=batch.now_ms) for output in outputs), [own])
        )
        self._record = self._owner.record = record
        self._count(emitted, parts)
        self._keep_in_lake([*changed, *parts])

    def _count(self, emitted: Collection[tuple[Step, Record]], parts: Iterable[Record]) -> None:
        counters = self._owner.counters
        counters.batches += 1
        counters.results += len(emitted)
        counters.late += sum(part.summary.readings for part in parts if not part.series.devices)

    def _after(
        self, batch: _Batch, found: Found, name: str, late_from: Mapping[int, int]
    ) -> StreamPlace:
        tops, received_at = found.tops.get(name, {}), found.received_at.get(name, {})
        place = moved(
            batch.places[name],
            batch.ranges[name],
            batch.kept[name],
            tops,
            received_at,
            now_ms=self._clock.now_ms(),
        )
        return place.model_copy(
            update={
                "open_from": self._minutes.open_from(name, place.offsets),
                "late_from": late_from,
            }
        )

    def _keep_in_lake(self, changed: Iterable[Record]) -> None:
        """Only what Kafka has, so that a driver that was fenced leaves nothing there.

        Raises OSError.
        """
        of_streams: dict[str, list[Record]] = defaultdict(list)
        for record in changed:
            of_streams[record.series.stream].append(record)
        for name, ones in of_streams.items():
            self._owner.keep(name, minute_sums.lake_rows(ones), self._record.revision)
