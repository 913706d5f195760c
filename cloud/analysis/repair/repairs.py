"""Runs repairs one at a time, in a thread beside the lanes.

Each step is one Kafka transaction, which holds the repair's own record. It is a batch without state
over a range of the stream's log, one Spark task that shares the cores fairly with the lanes. What a
crash interrupts is done again, and emits nothing twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.checkpoints.log_reader import (
    Overtaken,
    emitted_rows,
    kept_from,
    log_range,
)
from edgewake.cloud.analysis.jobs.aggregate_job import AggregateJob
from edgewake.cloud.analysis.jobs.kinds import job_of
from edgewake.cloud.analysis.lanes.batch_range import records
from edgewake.cloud.analysis.lanes.failure_causes import cause_of, fault_of
from edgewake.cloud.analysis.lanes.failures import Fault
from edgewake.cloud.analysis.plan.combined_records import numbered_of
from edgewake.cloud.analysis.plan.decode import decode
from edgewake.cloud.analysis.repair import past
from edgewake.cloud.analysis.repair.rebuild import Rebuilder
from edgewake.cloud.analysis.repair.refold import Impossible, Span, TooMany, refolded
from edgewake.cloud.analysis.repair.repair import (
    Changes,
    Compute,
    Done,
    Refuse,
    Replace,
    Standing,
    Step,
    Wait,
    changes,
    reads_from,
    step,
)
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.transaction import LaneTransactions
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.explain import streams_of
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock, moment
from edgewake.protocol.errors import EdgewakeError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.ops import result
from edgewake.protocol.ops.repair import Repair, RepairState

log = logging.getLogger("edgewake.analysis")

ROWS_MAX: Final = 50_000
"""Rows (partials) of a step, some 50 MB in the driver; where there are more, the step takes half of
the windows."""
AGAIN_S: Final = 5.0
"""Seconds after a fault until a repair is tried again."""
TRIES_MAX: Final = 3
"""How often readings that cannot be computed are tried before the repair is refused."""
CLOSE_S: Final = 1.0
STANDS_STILL: Final = "its lane is paused while its state is recomputed"
POOL: Final = "repairs"
Readings: TypeAlias = Mapping[bytes, int]
"""How many readings a row has, by key, where it is known."""
Made: TypeAlias = tuple[list[emit.Output], Readings]
_FAULTS: Final = (
    EdgewakeError,
    KafkaException,
    OSError,
    PySparkException,
    Py4JError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
)


class Repairs:
    """All repairs that were asked for. `on_row` and `turn` belong to one thread."""

    def __init__(
        self,
        session: SparkSession,
        kafka: KafkaConfig,
        clock: Clock,
        checkpoints: Path,
        lake: Path | None = None,
    ) -> None:
        """`checkpoints`: of the lanes; `lake`: the folder of the lake, if there is one."""
        self._session, self._kafka, self._clock, self._lake = session, kafka, clock, lake
        self._rows: dict[str, Repair] = {}
        self._lock = threading.Lock()
        self._not_before_s: dict[str, float] = {}
        self._tries: dict[str, int] = {}
        self._spans: dict[str, int] = {}
        """Repair → ms of windows that were no more than ROWS_MAX rows the last time; the next step
        tries twice as many."""
        self._rebuilder = Rebuilder(session, kafka, clock, checkpoints)
        self._worker: threading.Thread | None = None
        self._transactions: LaneTransactions | None = None

    def on_row(self, key: str, value: bytes | None) -> None:
        """A record of `ew.repairs`; ValueError where it cannot be read."""
        with self._lock:
            if value is None:
                self._rows.pop(key, None)
                return
            row = Repair.model_validate_json(value)
            if key not in self._rows or self._rows[key].revision < row.revision:
                self._rows[key] = row

    @property
    def is_working(self) -> bool:
        """Is a step under way?"""
        return self._worker is not None and self._worker.is_alive()

    @property
    def is_idle(self) -> bool:
        """Is there nothing to begin: none waits, or one is under way?"""
        if self.is_working:
            return True
        with self._lock:
            return not any(row.state.is_open for row in self._rows.values())

    def turn(
        self,
        registered_at: Mapping[str, int],
        standings: Mapping[str, Standing],
        hold: Callable[[tuple[str, str]], None] = lambda _: None,
    ) -> None:
        """Begin the next step that is due.

        `registered_at`: of all queries; `standings`: of those that run.

        `hold` stops a lane (stream, kind), which is to stand still until no step `is_working`.
        """
        if self.is_idle:
            return
        with self._lock:
            open_ones = sorted(
                (row for row in self._rows.values() if row.state.is_open),
                key=lambda row: (row.asked_at, row.id),
            )
        for repair in open_ones:
            standing = standings.get(repair.query)
            what = step(repair, registered_at.get(repair.query), standing)
            # One that waits, for something or for its next try, holds up none of those behind it.
            is_said = isinstance(what, Wait) and what.detail == repair.detail
            if is_said or self._clock.monotonic_s() < self._not_before_s.get(repair.id, 0.0):
                continue
            if isinstance(what, Replace) and standing is not None:
                hold(standing.lane)
                self._begin(
                    self._replace, self._of_lane(open_ones, standing.lane, registered_at, standings)
                )
            else:
                self._begin(self._do, repair, what, standing)
            return

    def _begin(self, do: Callable[..., None], *arguments: object) -> None:
        self._worker = threading.Thread(target=do, args=arguments, name="repair", daemon=True)
        self._worker.start()

    @staticmethod
    def _of_lane(
        repairs: Sequence[Repair],
        lane: tuple[str, str],
        registered_at: Mapping[str, int],
        standings: Mapping[str, Standing],
    ) -> list[tuple[Repair, Standing]]:
        """All rebuilds of a lane that wait: it stands still once for all of them."""
        found = [
            (repair, standings[repair.query]) for repair in repairs if repair.query in standings
        ]
        return [
            (repair, standing)
            for repair, standing in found
            if standing.lane == lane
            and isinstance(step(repair, registered_at.get(repair.query), standing), Replace)
        ]

    def _replace(self, asked: Sequence[tuple[Repair, Standing]]) -> None:
        try:
            self._session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
            running = [
                (self._write(repair, state=RepairState.RUNNING, detail=STANDS_STILL), standing)
                for repair, standing in asked
            ]
            for after in self._rebuilder.replace(running):
                with self._lock:
                    self._rows[after.id] = after
                log.info(
                    "state of %s: %s",
                    after.query,
                    after.detail or "recomputed",
                    extra={"event": "repair.replaced"},
                )
        except _FAULTS as error:
            for repair, _ in asked:
                self._on_fault(repair, error)

    def close(self) -> None:
        """Leave; a step under way is done again by the next process."""
        if self._worker is not None:
            self._worker.join(CLOSE_S)
        if self._transactions is not None and (self._worker is None or not self._worker.is_alive()):
            self._transactions.close()

    def _do(self, repair: Repair, what: Step, standing: Standing | None) -> None:
        try:
            match what:
                case Wait(detail):
                    self._write(repair, state=RepairState.WAITING, detail=detail)
                case Refuse(detail):
                    self._write(repair, state=RepairState.REFUSED, detail=detail)
                case Done(detail):
                    self._write(repair, state=RepairState.DONE, detail=detail)
                case Compute():
                    assert standing is not None
                    self._compute(
                        self._write(repair, state=RepairState.RUNNING, detail=""), what, standing
                    )
        except (Overtaken, Impossible) as error:
            self._end_of(repair, str(error))
        except _FAULTS as error:
            self._on_fault(repair, error)

    def _on_fault(self, repair: Repair, error: Exception) -> None:
        """Wait for services that are away; try readings that cannot be computed TRIES_MAX times."""
        self._not_before_s[repair.id] = self._clock.monotonic_s() + AGAIN_S
        if self._transactions is not None:  # after an error its producer is of no use any more
            self._transactions.close()
            self._transactions = None
        cause, fault = cause_of(error), fault_of(error)
        log.warning(
            "repair %s of %s failed: %s",
            repair.id,
            repair.query,
            cause[:500],
            extra={"event": "repair.failed", "fault": fault},
        )
        if fault is Fault.SUSPECT:
            self._tries[repair.id] = self._tries.get(repair.id, 0) + 1
            if self._tries[repair.id] >= TRIES_MAX:
                self._end_of(repair, f"it cannot be computed: {cause}")

    def _end_of(self, repair: Repair, why: str) -> None:
        with suppress(*_FAULTS):  # tried again with the repair
            self._write(repair, state=RepairState.REFUSED, detail=why)

    def _write(self, repair: Repair, news: Changes | None = None, /, **update: Any) -> Repair:
        """Write the repair's next revision, with the rows that changed, in one transaction."""
        with self._lock:
            latest = self._rows.get(repair.id, repair)
        more = {"revision": latest.revision + 1, "updated_at": self._clock.now_ms()}
        after = latest.model_copy(update=more | update)
        if self._transactions is None:
            self._transactions = LaneTransactions(self._kafka, POOL)
        outputs = [] if news is None else news.outputs
        row = emit.Output(topics.REPAIRS, after.id.encode(), after.model_dump_json().encode())
        self._transactions.write(
            [*(emit.bounded(output, now_ms=after.updated_at) for output in outputs), row]
        )
        with self._lock:
            self._rows[after.id] = after
        if not after.state.is_open:
            for memory in (self._tries, self._spans, self._not_before_s):
                memory.pop(after.id, None)
        return after

    def _compute(self, repair: Repair, what: Compute, standing: Standing) -> None:
        registered = standing.registered
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        is_folded = standing.job.is_driven
        made = self._folded if is_folded else self._windowed
        computed, readings, stop = self._halved(repair.id, what, partial(made, standing))
        before = emitted_rows(self._kafka, registered.topic, what.start, stop)
        revision = standing.record.revision + 1
        found = changes(
            registered,
            before,
            computed,
            readings,
            revision=revision,
            is_whole=is_folded,
        )
        self._write(
            repair,
            found,
            state=RepairState.DONE if stop >= what.end else RepairState.WAITING,
            done_to=stop,
            end=what.end,
            added=repair.added + found.added,
            changed=repair.changed + found.changed,
            withdrawn=repair.withdrawn + found.withdrawn,
            unchanged=repair.unchanged + found.unchanged,
            unknown=repair.unknown + found.unknown,
        )
        log.info(
            "repair %s of %s: %d rows added, %d changed, %d withdrawn",
            repair.id,
            repair.query,
            found.added,
            found.changed,
            found.withdrawn,
            extra={"event": "repair.step", "start": what.start, "stop": stop},
        )

    def _halved(
        self, repair_id: str, what: Compute, made: Callable[[int, int], Made | None]
    ) -> tuple[list[emit.Output], Readings, int]:
        """The rows of the windows that begin in [start, stop).

        `stop` is lowered until they are at most ROWS_MAX.
        """
        stop = min(what.stop, what.start + 2 * self._spans.get(repair_id, what.stop - what.start))
        while (found := made(what.start, stop)) is None:
            if (half := what.start + (stop - what.start) // 2) == what.start:
                raise ValueError(
                    f"the window that begins at {what.start} has more than {ROWS_MAX} rows"
                )
            stop = half
        self._spans[repair_id] = stop - what.start
        return *found, stop

    def _windowed(self, standing: Standing, start: int, stop: int) -> Made | None:
        """Compute windows whose state Spark has; None where they are too many."""
        record = standing.record
        job = job_of(AggregateJob, standing.registered, standing.types)
        rows = self._partials(job, start, stop).limit(ROWS_MAX + 1).toArrow()
        if rows.num_rows > ROWS_MAX:
            return None
        batch = emit.Batch(revision=record.revision + 1, top_before=None, top=record.top)
        broken: emit.Broken = {}
        computed = list(emit.results_of(standing.registered, job.outputs(rows, batch, broken)))
        for why in broken.values():
            raise ValueError(why)
        return computed, _readings(rows)

    def _folded(self, standing: Standing, start: int, stop: int) -> Made | None:
        """Compute readings that the driver completes with partners, rows or earlier readings.

        None where they are too many.
        """
        query = standing.registered.query
        read = list(map(topics.stream_topic, streams_of(query)))
        for table in standing.job.tables_of(query):
            self._check_whole(table)
        logs = {
            topic: log_range(
                self._kafka, topic, 0 if standing.job.needs_all(query) else reads_from(query, start)
            )
            for topic in read
        }
        if not any(one.end for one in logs.values()):
            raise Overtaken(f"{', '.join(logs)} have no records of that time")
        starts, ends = (
            {topic: one.start for topic, one in logs.items()},
            {topic: one.end for topic, one in logs.items()},
        )
        span = Span(start=starts, end=ends, first=start, stop=stop)
        try:
            made = refolded(
                self._session,
                self._kafka,
                standing.registered,
                standing.types,
                standing.record,
                span,
            )
        except TooMany:
            return None
        return list(made.rows.values()), {}

    def _check_whole(self, table: str) -> None:
        """Raises Overtaken where rows are gone that readings were joined with."""
        if (at := kept_from(self._kafka, table, now_ms=self._clock.now_ms())) is not None:
            raise Overtaken(
                f"retention deleted rows of {table} from before {moment(at)}, so it is not known "
                "any more what readings were joined with"
            )

    def _partials(self, job: AggregateJob, start: int, stop: int) -> DataFrame:
        names = [topics.stream_topic(stream) for stream in job.sources]
        frames_of = {topic: self._frames(topic, dict(job.fields), start) for topic in names}
        found = {topic: one for topic, one in frames_of.items() if one is not None}
        if not found:
            raise Overtaken(f"{', '.join(names)} have no records of that time")
        frames = [
            numbered_of(one, job.sources, names.index(topic)) for topic, (one, _) in found.items()
        ]
        partitions = len(names) * max(count for _, count in found.values())
        begins = F.col("window_start")
        return job.graph_of(reduce(DataFrame.unionByName, frames), partitions).where(
            (begins >= start) & (begins < stop)
        )

    def _frames(
        self, topic: str, fields: Mapping[str, FieldType], start: int
    ) -> tuple[DataFrame, int] | None:
        """All frames that windows beginning at `start` or later may need, and the partition count.

        None where the topic has no records. They are read from the log, and from the lake where the
        log does not reach far enough back.
        """
        try:
            found = log_range(self._kafka, topic, start)
        except Overtaken:
            if self._lake is None:
                raise
            return past.joined(self._session, self._kafka, self._lake, topic, fields, start)
        if not found.end:
            return None
        read = records(self._session, self._kafka, {topic: found.start}, {topic: found.end})
        return decode(read, fields), max(found.end) + 1


def _readings(rows: pa.Table) -> dict[bytes, int]:
    columns = [rows[name].to_pylist() for name in ("window_start", "window_end", "key", "readings")]
    return {
        result.result_key(start, end, key): count
        for start, end, key, count in zip(*columns, strict=True)
    }
