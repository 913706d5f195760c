"""Computes a query's rows by reading its streams' logs again in the driver.

It does so for sessions, windows by count, patterns, joins and look-backs.

logs ─ ranges of offsets ─ the lane's plan ─→ the lane's own folds ─→ rows, and states to go on from

No reading is late: those that were, are in their rows now. With two joined streams event time
advances with the log all the same, before the oldest reading that is still to come; so readings
that wait for a partner, and windows that are open, are forgotten as soon as nothing in the log
needs them. Where a device sent readings that are much older than those around them, more is kept
meanwhile, as much as a lane keeps (folds/stream_join.py); beyond it is Impossible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.jobs.job import Job, States, TooManyRows
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes.batch_range import ranges, records
from edgewake.cloud.analysis.plan.clock_correction import corrected
from edgewake.cloud.analysis.plan.decode import decode
from edgewake.cloud.analysis.repair.repair import reads_from, reads_to
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.batch_commit import Offsets
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.query import Query, Registered
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.ops import result

FRAMES_AT_ONCE: Final = 20_000
"""Records that are folded at once: as many as a micro-batch has."""
ROWS_MAX: Final = 50_000
"""Rows of a query that are compared, some 50 MB."""
TABLE_ROWS_MAX: Final = 200_000
"""Rows of a joined table that are read once more, some 300 bytes each. A lane keeps fewer of a key:
it needs those of now."""
FOREVER_MS: Final = 1 << 62


class Impossible(ValueError):
    """It cannot be done; the text says why, and what can."""


class TooMany(Impossible):
    """It would be more than ROWS_MAX rows."""


@dataclass
class Refolded:
    """The rows that a query would emit, and the state that it would have."""

    place: str
    """Begins the keys of `states`."""
    rows: dict[bytes, emit.Output]
    """The rows by key, in their last form; withdrawn ones are left out."""
    states: dict[str, bytes]
    """Rows of `ew.windows`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What is read of the logs, and which rows are wanted."""

    start: Offsets
    end: Offsets
    first: int = 0
    stop: int = FOREVER_MS
    """Rows of windows that begin in [first, stop), ms."""


class Refold:
    """One query, from the oldest of its readings to the latest.

    Pure but for the states of its job.
    """

    def __init__(self, job: Job, states: States, record: LaneRecord, first: int, stop: int) -> None:
        (self._registered,) = job.queries
        self._job, self._states, self._record, self._first, self._stop = (
            job,
            states,
            record,
            first,
            stop,
        )
        self._top: int | None = None
        self._emitted_rows: dict[str, EmittedRows] = {}
        self._none: pa.Table | None = None
        self._rows: dict[bytes, emit.Output] = {}

    def add(self, rows: pa.Table, top: int | None) -> None:
        """The next range; after it event time is at `top` (tops).

        Raises Impossible, ValueError where a row cannot be made.
        """
        self._none = rows.slice(0, 0)
        revision = self._record.revision + 1
        batch = emit.Batch(
            revision=revision, top_before=self._top, top=top, emitted_rows=self._emitted_rows
        )
        broken: emit.Broken = {}
        for output in emit.each(self._states.outputs(rows, batch, broken)):
            self._take(output)
        for why in broken.values():
            raise ValueError(why)
        self._top = top

    def end(self) -> Refolded:
        """Advance event time to the lane's."""
        if self._none is not None:
            self.add(self._none, self._record.top)
        query = self._registered.query
        passed = emit.watermark(query, self._record.top)
        rows = {
            key: final(one, passed)
            for key, one in self._rows.items()
            if b'"withdrawn":true' not in (one.value or b"")
        }
        place, label = self._job.state_place, self._registered.label
        kept = self._states.whole(label, self._record.revision + 1)
        return Refolded(
            place, rows, {f"{place}|{label}|{key}": value for key, value in kept.items()}
        )

    def _take(self, output: emit.Output) -> None:
        if output.topic == topics.LATE:
            raise Impossible(
                "too many of its readings wait for a partner at once, because some came much "
                "later than others of their time;"
                " `query repair --from … --to …` computes a part"
            )
        is_result = output.topic == self._registered.topic and not result.is_watermark(output.key)
        if not is_result or not self._first <= orjson.loads(output.key)[0] < self._stop:
            return
        self._rows[output.key] = output
        if len(self._rows) > ROWS_MAX:
            raise TooMany(f"it has more than {ROWS_MAX} rows")


def final(output: emit.Output, passed: int | None) -> emit.Output:
    """The row of a window that event time has `passed`."""
    value = orjson.loads(output.value or b"{}")
    if passed is None or value["window_end"] > passed or value["final"]:
        return output
    return output._replace(value=orjson.dumps(value | {"final": True}))


def tops(query: Query, oldest: Sequence[int | None], last: int | None) -> list[int | None]:
    """Event time after each range, so that nothing of those to come is late.

    `oldest`: the earliest one in each; `last`: of the lane.
    """
    if query.window.is_sequence or last is None:
        return [None] * len(oldest)
    found: list[int | None] = []
    to_come = last + 1
    for earliest in reversed(oldest):
        found.append(min(last, to_come - 1 + query.waits_ms))
        to_come = to_come if earliest is None else min(to_come, earliest)
    return found[::-1]


def refolded(
    session: SparkSession,
    kafka: KafkaConfig,
    registered: Registered,
    types: Mapping[str, Mapping[str, FieldType]],
    record: LaneRecord,
    span: Span,
) -> Refolded:
    """Fold the logs once more. `types`: see jobs_of; `record`: where the lane stands.

    Raises Impossible, Unavailable, ValueError where a row cannot be made, or what Spark says.
    """
    query = registered.query
    (job,) = jobs_of([registered], types).values()
    states = job.new_states()
    _read_tables(kafka, states)
    sources = job.source_topics
    fold = Refold(job, states, record, span.first, span.stop)
    if job.is_of_tables:
        fold.add(pa.table({}), None)
        return fold.end()

    def frames() -> Iterator[DataFrame]:
        for start, end in ranges(sources.flat(span.start), sources.flat(span.end), FRAMES_AT_ONCE):
            read = records(session, kafka, sources.by_topic(start), sources.by_topic(end))
            yield job.near(read, reads_from(query, span.first), reads_to(query, span.stop))

    steps = sum(1 for _ in ranges(sources.flat(span.start), sources.flat(span.end), FRAMES_AT_ONCE))
    # To know the oldest of each range the log is read twice. One range alone has none after it,
    # whose readings could be late.
    earliest = (
        [oldest(one) for one in frames()]
        if steps > 1 and not query.window.is_sequence
        else [None] * steps
    )
    for one, top in zip(frames(), tops(query, earliest, record.top), strict=True):
        fold.add(job.graph(one, len(sources.flat(span.end))).toArrow(), top)
    return fold.end()


def _read_tables(kafka: KafkaConfig, states: States) -> None:
    """All rows that the tables' streams keep. Raises Impossible, Unavailable."""
    follower = states.follower(kafka)
    if follower is None:
        return
    states.keep_versions(TABLE_ROWS_MAX)
    with closing(follower):
        try:
            for _ in states.catch_up(follower, {}, Meter()):
                pass
        except TooManyRows as error:
            raise Impossible(str(error)) from error


def oldest(read: DataFrame) -> int | None:
    """The earliest event time (ms) of frames as Kafka's records."""
    (row,) = decode(read, {}).agg(F.min(corrected(F.array_min("t"))).alias("oldest")).collect()
    return None if row["oldest"] is None else int(row["oldest"])
