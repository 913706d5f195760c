"""A lane's state replaced while the lane stands still: the first step of `query rebuild` (the windows that are closed follow as a repair).

Sums and sketches  The checkpoint goes, and Spark fills a new one from the log's beginning, telling nothing that was told. What of the
                   windows that are open differs from what was told last is found by a batch over the log, up to the very offsets that the
                   lane has reached.
Sessions, windows  The driver keeps their states on `ew.windows`. The whole log is folded anew, a range of offsets at a time, and rows and
by count, patterns states take the places of the old ones.

Everything is one Kafka transaction under the lane's own id, with the lane's record and the repairs' own: it happens once or not at all.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis import emit, sequences
from edgewake.cloud.analysis.batch_range import records
from edgewake.cloud.analysis.clock_correction import corrected
from edgewake.cloud.analysis.decode import decode
from edgewake.cloud.analysis.lane_kind import LaneKind
from edgewake.cloud.analysis.lane_record import LaneRecord
from edgewake.cloud.analysis.pipeline import QueryJob, jobs_of
from edgewake.cloud.analysis.query_plan import Query
from edgewake.cloud.analysis.repair import Changes, Standing, begin_of_the_next, changes, first_begin, first_from
from edgewake.cloud.analysis.repair_log import iso, kept_from, starts, told
from edgewake.cloud.analysis.sequence_queries import Fold, SequenceJob, States
from edgewake.cloud.analysis.state_rows import kept_rows
from edgewake.cloud.analysis.transaction import Transactions, read_lane_record
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import result, topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.repair import Repair, RepairState

FRAMES_AT_ONCE: Final = 20_000
"""Records that are folded at once: as many as a micro-batch has."""
ROWS_MAX: Final = 50_000
"""Rows of a query that are compared, some 50 MB; where there are more, a rebuild of its state is refused."""
FOREVER_MS: Final = 1 << 62


class Impossible(ValueError):
    """It cannot be done; the text says why, and what can."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known before anything is replaced."""

    record: LaneRecord
    topic: str
    kept_from: int | None

    @property
    def end(self) -> Mapping[int, int]:
        """Partition → offset up to which the lane has computed."""
        return self.record.offsets.get(self.topic, {})


def check(plan: Plan, repair: Repair, standing: Standing) -> None:
    """May the state be removed? Raises Impossible where that would lose what the log has no more."""
    if plan.kept_from is None or repair.lossy:
        return
    took = f"retention took readings of before {iso(plan.kept_from)}"
    if standing.registered.query.window.is_sequence:
        raise Impossible(f"{took}, and what is open may have begun then; --lossy begins with what is left")
    losing = [one.query.name for one in standing.beside if _first_open(one.query, plan.record) < plan.kept_from]
    if losing:
        raise Impossible(f"{took} that are in open windows of {', '.join(losing)}; --lossy computes them from what is left")


def _first_open(query: Query, record: LaneRecord) -> int:
    """Windows that begin before it are closed."""
    closed = emit.closed(query, record.top)
    return 0 if closed is None else begin_of_the_next(query.window, closed)


def ranges(start: Mapping[int, int], end: Mapping[int, int], count: int) -> Iterator[tuple[dict[int, int], dict[int, int]]]:
    """Cut a range of offsets into ranges of about `count` records, each with its share of every partition. Pure."""
    total = sum(end[partition] - first for partition, first in start.items())
    steps = max(1, -(-total // count))
    edges = [{p: first + (end[p] - first) * step // steps for p, first in start.items()} for step in range(steps + 1)]
    for before, after in itertools.pairwise(edges):
        moved = [partition for partition in start if after[partition] > before[partition]]
        if moved:
            yield {p: before[p] for p in moved}, {p: after[p] for p in moved}


class Rebuilder:
    """Replaces states; for the thread that does repairs."""

    def __init__(self, session: SparkSession, kafka: KafkaConfig, clock: Clock, checkpoints: Path) -> None:
        """`checkpoints`: <stream>/<kind> of each lane."""
        self._session, self._kafka, self._clock, self._checkpoints = session, kafka, clock, checkpoints

    def replace(self, asked: Sequence[tuple[Repair, Standing]]) -> list[Repair]:
        """Do the first step of rebuilds of one lane, which stands still. Returns the repairs as they were written.

        Raises KafkaException, Unavailable, or what Spark says.
        """
        stream, kind = asked[0][1].lane
        transactions = Transactions(self._kafka, f"{stream}-{kind}")
        try:
            new = LaneRecord(stream=stream, lane=kind)
            record = read_lane_record(self._kafka, new.key) or new
            topic = topics.stream_topic(stream)
            plan = Plan(record, topic, kept_from(self._kafka, topic, now_ms=self._clock.now_ms()))
            found: list[Repair] = []
            outputs: list[emit.Output] = []
            for repair, standing in asked:
                after, news = self._one(plan, repair, standing)
                found.append(after)
                outputs += news
            done = {f"{one.query}@{one.registered_at}" for one in found if one.state is not RepairState.REFUSED}
            outputs.append(_record_after(plan, done))
            if done and kind != LaneKind.SEQUENCE:
                shutil.rmtree(self._checkpoints / stream / kind, ignore_errors=True)
            now_ms = self._clock.now_ms()
            outputs += [emit.Output(topics.REPAIRS, one.id.encode(), one.model_dump_json().encode()) for one in found]
            transactions.write(emit.bounded(output, now_ms=now_ms) for output in outputs)
            return found
        finally:
            transactions.close()

    def _one(self, plan: Plan, repair: Repair, standing: Standing) -> tuple[Repair, list[emit.Output]]:
        query = standing.registered.query
        now_ms = self._clock.now_ms()
        update: dict[str, Any] = {"revision": repair.revision + 1, "updated_at": now_ms, "kept_from": plan.kept_from}
        try:
            check(plan, repair, standing)
            news, states = self._sequence(plan, standing) if query.window.is_sequence else (self._open(plan, standing), [])
        except Impossible as error:
            return repair.model_copy(update=update | {"state": RepairState.REFUSED, "detail": str(error)}), []
        update |= {"added": news.added, "changed": news.changed, "withdrawn": news.withdrawn, "unchanged": news.unchanged}
        update |= {"unknown": news.unknown, "removed_at": now_ms, "detail": "", "state": RepairState.DONE}
        if query.window.ends and not query.window.is_sequence:
            end = _first_open(query, plan.record)
            update |= {"state": RepairState.WAITING, "end": end, "done_to": min(end, self._begin(plan, repair, query))}
        return repair.model_copy(update=update), [*news.outputs, *states]

    def _begin(self, plan: Plan, repair: Repair, query: Query) -> int:
        """The first closed window to compute: the first that the log has whole, or may have a reading of."""
        oldest = self._oldest(plan)
        asked = first_begin(query.window, repair.begin) if repair.begin else 0
        first = FOREVER_MS if oldest is None else max(asked, first_begin(query.window, oldest))
        return first if plan.kept_from is None else max(first, first_from(query.window, plan.kept_from))

    def _oldest(self, plan: Plan) -> int | None:
        """Event time, ms, of the log's oldest reading."""
        first = starts(self._kafka, plan.topic, 0, plan.end)
        if not first:
            return None
        frames = decode(self._records(plan, first, plan.end), {})
        (row,) = frames.agg(F.min(corrected(F.array_min("t"))).alias("oldest")).collect()
        return None if row["oldest"] is None else int(row["oldest"])

    def _records(self, plan: Plan, start: Mapping[int, int], end: Mapping[int, int]) -> DataFrame:
        return records(self._session, self._kafka, {plan.topic: start}, {plan.topic: {partition: end[partition] for partition in start}})

    def _open(self, plan: Plan, standing: Standing) -> Changes:
        """What of a query's open windows differs from what was told."""
        registered, query = standing.registered, standing.registered.query
        first = _first_open(query, plan.record)
        if plan.kept_from is not None:
            first = max(first, 0 if query.window.is_all else first_from(query.window, plan.kept_from))
        start = starts(self._kafka, plan.topic, first, plan.end)
        if not start:
            return Changes()
        (job,) = jobs_of([registered], {query.stream: standing.types}).values()
        assert isinstance(job, QueryJob)
        frames = self._records(plan, start, plan.end)
        rows = job.graph(frames, len(plan.end)).where(F.col("window_start") >= first).limit(ROWS_MAX + 1).toArrow()
        if rows.num_rows > ROWS_MAX:
            raise Impossible(f"its open windows have more than {ROWS_MAX} rows")
        batch = emit.Batch(revision=plan.record.revision + 1, top_before=plan.record.top, top=plan.record.top)
        computed = _results(partial(job.outputs, rows, batch))
        before = told(self._kafka, registered.topic, first, FOREVER_MS)
        return changes(registered, before, computed, {}, revision=batch.revision, is_whole=plan.kept_from is None)

    def _sequence(self, plan: Plan, standing: Standing) -> tuple[Changes, list[emit.Output]]:
        """Rows of sessions, windows by count or a pattern that differ, and the states that take the places of the old ones."""
        registered = standing.registered
        states: dict[str, sequences.KeyState] = {}
        latest = self._folded(plan, standing, states)
        first = 0 if plan.kept_from is None else plan.kept_from
        computed = [one for one in latest.values() if orjson.loads(one.key)[0] >= first and b'"withdrawn":true' not in (one.value or b"")]
        before = told(self._kafka, registered.topic, first, FOREVER_MS)
        news = changes(registered, before, computed, {}, revision=plan.record.revision + 1, is_whole=plan.kept_from is None)
        place = f"{standing.registered.query.stream}|{registered.label}|"
        kept = {f"{place}{key}": orjson.dumps(sequences.dump(state)) for key, state in states.items()}
        gone = [key for key in kept_rows(self._kafka, registered.query.stream) if key.startswith(place) and key not in kept]
        rows = [emit.Output(topics.WINDOWS, key.encode(), value) for key, value in kept.items()]
        return news, [*rows, *(emit.Output(topics.WINDOWS, key.encode(), None) for key in gone)]

    def _folded(self, plan: Plan, standing: Standing, states: dict[str, sequences.KeyState]) -> dict[bytes, emit.Output]:
        """All rows as they are in the end; fills `states`."""
        registered, query = standing.registered, standing.registered.query
        (job,) = jobs_of([registered], {query.stream: standing.types}).values()
        assert isinstance(job, SequenceJob)
        held = States({registered.label: states})
        # Nothing is late while the log is folded: what was late then is in its windows now.
        batch = emit.Batch(revision=plan.record.revision + 1, top_before=None, top=None, states=held)
        latest: dict[bytes, emit.Output] = {}
        for start, end in ranges(starts(self._kafka, plan.topic, 0, plan.end), plan.end, FRAMES_AT_ONCE):
            rows = job.graph(self._records(plan, start, end), len(plan.end)).toArrow()
            latest |= {one.key: one for one in _results(partial(job.outputs, rows, batch))}
            if len(latest) > ROWS_MAX:
                raise Impossible(f"it has more than {ROWS_MAX} rows")
        last = emit.Batch(revision=batch.revision, top_before=None, top=plan.record.top, states=held)
        latest |= {one.key: one for one in _results(partial(Fold(query.stream, registered, states, last).outputs, ()))}
        passed = emit.watermark(query, plan.record.top)
        return {key: _final(one, passed) for key, one in latest.items()}


def _final(output: emit.Output, passed: int | None) -> emit.Output:
    value = orjson.loads(output.value or b"{}")
    if passed is None or value.get("withdrawn") or value["window_end"] > passed:
        return output
    return output._replace(value=orjson.dumps(value | {"final": True}))


def _results(outputs: Callable[[emit.Broken], Iterator[emit.Output]]) -> list[emit.Output]:
    broken: emit.Broken = {}
    found = [one for one in outputs(broken) if one.headers.get(result.KIND_HEADER) == result.KIND_RESULT]
    for why in broken.values():
        raise ValueError(why)
    return found


def _record_after(plan: Plan, done: set[str]) -> emit.Output:
    """The lane's record: these queries (label) were computed from all that the log has."""
    record = plan.record
    complete_from = {label: at for label, at in record.complete_from.items() if label not in done}
    if plan.kept_from is not None:
        complete_from |= dict.fromkeys(done, plan.kept_from)
    asked_from = record.asked_from | {label: {} for label in done if label in record.asked_from}
    after = record.model_copy(update={"revision": record.revision + 1, "complete_from": complete_from, "asked_from": asked_from})
    return emit.Output(topics.LANES, after.key, after.model_dump_json().encode())
