"""Queries that join two streams within a time.

Spark reads both streams as one source; the driver pairs their readings.

    records of both ─ correct ─ observe ─ frames ─→ readings ─ folds/stream_join.py ─ pairs ─→
    WHERE, keys, windows

The lane's plan has no state. The readings that may still find a partner, and the windows that are
open, stand on `ew.windows`, written in the transaction that holds the batch's results and the
lane's record: a batch that is computed again finds its offsets in the record and changes nothing.
Event time is that of both streams together; a reading is late when event time, less what the query
waits, has passed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.folds.enriched import CompletedReading, Computed
from edgewake.cloud.analysis.folds.stream_join import LEFT, RIGHT, Kept, Partners, Place, Side
from edgewake.cloud.analysis.folds.table_versions import key_text
from edgewake.cloud.analysis.jobs.job import NO_DIALS, Dials, Job, States
from edgewake.cloud.analysis.jobs.placed_rows import new_in_order
from edgewake.cloud.analysis.jobs.row_results import rows_told
from edgewake.cloud.analysis.jobs.window_fold import Fold, OpenWindows, dumped, loaded
from edgewake.cloud.analysis.plan import late
from edgewake.cloud.analysis.plan.clock_correction import correct, corrected
from edgewake.cloud.analysis.plan.combined_records import numbered
from edgewake.cloud.analysis.plan.combined_topics import CombinedTopics
from edgewake.cloud.analysis.plan.decode import decode
from edgewake.cloud.analysis.plan.late import LateWindow
from edgewake.cloud.analysis.plan.table_rows import rows_of, typed
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.query import Join, Query, Registered
from edgewake.cloud.queries.terms.evaluate import evaluated
from edgewake.cloud.queries.terms.expressions import READING, TIMES
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType

KEPT: Final = "kept."
"""Begins the name of a record of readings on `ew.windows`, where those of windows are JSON."""


def passed(query: Query, top: int | None) -> int | None:
    """Readings up to this time are late with event time at `top`."""
    return None if top is None else top - query.waits_ms


def _join(query: Query) -> tuple[Join, Any]:
    assert query.join is not None
    assert query.join.within is not None
    return query.join, query.join.within


class Arrived(NamedTuple):
    """A reading as it comes, with what the catalogue calls fields."""

    number: int
    """Number of its partition (plan/combined_topics.py)."""
    place: Place
    columns: Mapping[str, Any]


class _Frame(NamedTuple):
    """The readings of a frame, and the earliest event time of the frames that follow in the batch.

    That time is in ms; None after the last frame.
    """

    readings: Iterator[Arrived]
    to_come: int | None


class StreamJoinJob(Job):
    """All queries that join one stream with one other within a time.

    Fields are of `stream`; what is read of the other one every query says itself.
    """

    is_driven = True
    waits_for_partners = True

    @classmethod
    def tables_of(cls, query: Query) -> tuple[str, ...]:  # noqa: ARG003  (partners are no table)
        return ()

    def graph(self, records: DataFrame, partitions: int = 1, dials: Dials = NO_DIALS) -> DataFrame:
        """See Job. One row for each frame.

        The columns: partition (its number), offset, oldest (event time, ms) and value.
        """
        frames = correct(decode(numbered(records, self.sources), {}, ("value",)))
        oldest = corrected(F.array_min("t")).alias("oldest")
        return late.observe(frames, partitions).select("partition", "offset", oldest, "value")

    def near(self, records: DataFrame, first: int, stop: int) -> DataFrame:
        """See Job: only frames that may have such readings."""
        t = F.col("t")
        is_near = (corrected(F.array_max(t)) >= first) & (corrected(F.array_min(t)) < stop)
        return (
            decode(records, {}, ("topic", "value"))
            .where(is_near)
            .select("topic", "partition", "offset", "value")
        )

    def new_states(self) -> StreamJoinStates:
        return StreamJoinStates(self)

    def restored(self, rows: Mapping[str, bytes], record: LaneRecord) -> StreamJoinStates:
        found = self.new_states()
        kept: dict[str, dict[str, bytes]] = {label: {} for label in found.of}
        for key, value in rows.items():
            _, label, rest = key.split("|", 2)
            if label not in found.of:  # paused, or failed
                continue
            if rest.startswith(KEPT):
                kept[label][rest.removeprefix(KEPT)] = value
            else:
                found.of[label][rest] = loaded(value)
        for registered in self.queries:
            found.partners[registered.label].load(
                kept[registered.label], passed(registered.query, record.top)
            )
        return found

    def late(
        self,
        rows: pa.Table,
        batch: emit.Batch,
        oldest: int | None,
        frames: Callable[[], Iterable[bytes | None]],
    ) -> list[LateWindow]:
        """See Job; the frames are in the rows already."""
        found: list[LateWindow] = []
        for place, registered in enumerate(self.queries):
            closed = passed(registered.query, batch.top_before)
            if closed is None or oldest is None or oldest > closed:
                continue
            pairing = _Pairing(registered, self.fields, self.source_topics)
            of_stream: dict[str, _Gathered] = {}
            of_log = self.frames(new_in_order(rows, self.source_topics.flat(batch.emitted)))
            for one in (reading for frame in of_log for reading in frame.readings):
                t, stream = one.columns["event_time"], self.sources[one.number % len(self.sources)]
                if t <= closed and pairing.sides(one):
                    of_stream.setdefault(stream, _Gathered(stream)).add(t, one.columns)
            found += [gathered.window(place) for gathered in of_stream.values()]
        return found

    def frames(self, rows: pa.Table | None) -> Iterator[_Frame]:
        """Order frames by age, the oldest first.

        So of a large batch, too, no more readings wait for a partner than must.
        """
        if rows is None:
            return
        rows = rows.sort_by([(name, "ascending") for name in ("oldest", "partition", "offset")])
        oldest = rows["oldest"].to_pylist()
        columns = [rows[name].to_pylist() for name in ("partition", "offset", "value")]
        for number, offset, value, to_come in zip(*columns, [*oldest, None][1:], strict=True):
            topic, partition = self.source_topics.place(number)
            readings = (
                Arrived(number, (partition, offset, i), row.columns)
                for i, row in enumerate(rows_of(topic, None, value))
            )
            yield _Frame(readings, to_come)


class StreamJoinStates(States):
    """States of a lane's queries by label: open windows and readings that wait for a partner."""

    def __init__(self, job: StreamJoinJob) -> None:
        self._job = job
        self.of: dict[str, OpenWindows] = {one.label: {} for one in job.queries}
        self.partners = {one.label: Partners(_join(one.query)[1]) for one in job.queries}

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        rows = new_in_order(rows, self._job.source_topics.flat(batch.emitted))
        yield from self._made(rows, batch, broken)
        yield from emit.watermarks(
            [registered for registered in self._job.queries if registered.label not in broken],
            batch,
        )

    def is_due(self, top: int | None) -> bool:
        """See States: of a LEFT JOIN, is there a reading whose partner can come no more?"""
        return any(
            self.partners[one.label].is_due(passed(one.query, top))
            for one in self._job.queries
            if _join(one.query)[0].is_left
        )

    def in_silence(self, batch: emit.Batch, broken: emit.Broken) -> Iterator[emit.Output]:
        """Readings whose partner can come no more, though no reading came."""
        yield from self._made(None, batch, broken)

    def whole(self, label: str, revision: int) -> dict[str, bytes]:
        partners = self.partners[label].whole(revision)
        return dumped(self.of[label]) | {f"{KEPT}{name}": value for name, value in partners.items()}

    def _made(
        self, rows: pa.Table | None, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        for registered in self._job.queries:
            try:
                yield from batch.meter.of(
                    registered.label, self._outputs_of(registered, rows, batch, broken)
                )
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                broken[registered.label] = f"{type(error).__name__}: {error}"

    def _outputs_of(
        self, registered: Registered, rows: pa.Table | None, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        job, place = self._job, self._job.state_place
        partners = self.partners[registered.label]
        pairing = _Pairing(registered, job.fields, job.source_topics)
        made = pairing.pairs(job.frames(rows), partners, batch)
        if registered.query.is_rows:
            yield from rows_told(registered, made, batch.revision)
        else:
            values = ((one.t, one.group, one.numbers) for one in made)
            yield from Fold(place, registered, self.of[registered.label], batch).outputs(
                values, broken
            )
        for name, value in partners.dump(
            batch.revision, passed(registered.query, batch.top)
        ).items():
            yield emit.Output(
                topics.WINDOWS, f"{place}|{registered.label}|{KEPT}{name}".encode(), value
            )
        let_go = [
            gathered.window(job.queries.index(registered))
            for gathered in pairing.let_go
            if gathered.readings
        ]
        yield from emit.late_outputs(let_go, job.queries, batch)


class _Pairing:
    """One query's share of a batch."""

    def __init__(
        self,
        registered: Registered,
        fields: Sequence[tuple[str, FieldType]],
        sources: CombinedTopics,
    ) -> None:
        query = registered.query
        self._registered, self._sources = registered, sources
        self._join, self._within = _join(query)
        self._names = names = (*READING, *(name for name, _ in fields))
        self.let_go = [_Gathered(query.stream), _Gathered(self._join.table)]
        """What was let go of both streams because too much was kept."""
        self._fields, self._columns = fields, self._join.columns
        self._where = (
            None
            if query.where is None
            else evaluated(query.where, {name: i for i, name in enumerate(names)})
        )
        self._computed = Computed(
            query, (*names, *(f"{self._join.table}.{name}" for name, _ in self._columns))
        )
        kinds = dict(self._columns)
        self._keys = [(ours, theirs, kinds[theirs]) for ours, theirs in self._join.keys]

    def sides(self, one: Arrived) -> list[Side]:
        """The sides of the JOIN that the reading is on."""
        all_sides: tuple[Side, ...] = (LEFT, RIGHT)
        found = [
            side for side in all_sides if len(self._sources.topics) == 1 or one.number % 2 == side
        ]
        if (
            LEFT in found
            and self._where is not None
            and self._where(self._left(one.columns)) is not True
        ):
            found.remove(LEFT)
        return found

    def pairs(
        self, frames: Iterator[_Frame], partners: Partners, batch: emit.Batch
    ) -> Iterator[CompletedReading]:
        """Yield the readings of a batch that found a partner.

        A LEFT JOIN also yields readings that can no longer find one.
        """
        closed, over = (
            passed(self._registered.query, top) for top in (batch.top_before, batch.top)
        )
        for frame in frames:
            for one in frame.readings:
                if closed is None or one.columns["event_time"] > closed:
                    yield from self._put(one, partners, batch)
            if over is not None and frame.to_come is not None:
                yield from self._alone(
                    partners.over(min(over, frame.to_come - 1)), batch, is_known=True
                )
        yield from self._alone(partners.over(over), batch, is_known=True)

    def _put(
        self, one: Arrived, partners: Partners, batch: emit.Batch
    ) -> Iterator[CompletedReading]:
        for side in self.sides(one):
            kept = Kept(
                one.columns["event_time"],
                one.place,
                self._left(one.columns) if side == LEFT else self._right(one.columns),
            )
            key = key_text(
                [
                    typed(one.columns.get((ours, theirs)[side]), kind)
                    for ours, theirs, kind in self._keys
                ]
            )
            if key is None:  # null equals nothing
                yield from self._alone([kept] if side == LEFT else [], batch, is_known=True)
                continue
            found, gone = partners.put(side, key, kept)
            for other in found:
                yield from self._row(*((kept, other) if side == LEFT else (other, kept)))
            for of_side, other in gone:
                names = self._names if of_side == LEFT else [name for name, _ in self._columns]
                self.let_go[of_side].add(other.t, dict(zip(names, other.values, strict=True)))
            yield from self._alone(
                [left for of_side, left in gone if of_side == LEFT and not left.is_paired],
                batch,
                is_known=False,
            )

    def _left(self, columns: Mapping[str, Any]) -> list[Any]:
        values = [typed(columns.get(name), kind) for name, kind in self._fields]
        return [columns["device"], *(columns[name] for name in TIMES), *values]

    def _right(self, columns: Mapping[str, Any]) -> list[Any]:
        return [typed(columns.get(name), kind) for name, kind in self._columns]

    def _alone(
        self, lefts: Sequence[Kept], batch: emit.Batch, *, is_known: bool
    ) -> Iterator[CompletedReading]:
        """Rows of readings without a partner.

        `is_known`: that they have none; else it is not known any more.
        """
        complete_from = batch.complete_from.get(self._registered.label)
        for left in lefts if self._join.is_left else ():
            is_complete = is_known and (
                complete_from is None or left.t + self._within.earliest_ms >= complete_from
            )
            yield from (row._replace(is_complete=is_complete) for row in self._row(left, None))

    def _row(self, left: Kept, right: Kept | None) -> Iterator[CompletedReading]:
        values = [None] * len(self._columns) if right is None else right.values
        identity = {
            "device": left.values[0],
            "reading": _text(left.place),
            "partner": None if right is None else _text(right.place),
        }
        if (found := self._computed.of([*left.values, *values], identity)) is not None:
            yield found


def _text(place: Place) -> str:
    return ":".join(map(str, place))


@dataclass
class _Gathered:
    """Late readings of a stream, reported as one window from the first to the last."""

    stream: str
    readings: int = 0
    first: int = 0
    last: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, t: int, columns: Mapping[str, Any]) -> None:
        """Count a late reading, and keep it as an example where there is room."""
        self.first, self.last = (min(t, self.first), max(t, self.last)) if self.readings else (t, t)
        self.readings += 1
        if len(self.examples) < late.EXAMPLES_MAX:
            self.examples.append(orjson.dumps(columns).decode())

    def window(self, place: int) -> LateWindow:
        """`place`: of the query among its lane's."""
        return LateWindow(
            place, self.first, self.last + 1, self.readings, tuple(self.examples), self.stream
        )
