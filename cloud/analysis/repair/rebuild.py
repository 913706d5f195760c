"""Replaces a lane's state while the lane stands still: the first step of `query rebuild`.

The closed windows follow as a repair.

Sums and sketches: the checkpoint is removed, and Spark fills a new one from the log's beginning,
emitting nothing that was emitted. A batch over the log, up to the very offsets that the lane has
reached, finds what of the open windows differs from what was emitted last.

Sessions, windows by count, patterns, JOIN with tables, look-backs: the driver keeps their states on
`ew.windows`. The whole log is folded again (refold.py), and rows and states replace the old ones.

JOIN of streams: the same, over the part of the logs that what is open needs.

Everything is one Kafka transaction under the lane's own id, with the lane's record and the repairs'
own: it happens once or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.checkpoints import state_parts
from edgewake.cloud.analysis.checkpoints.log_reader import emitted_rows, kept_from, starts
from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows, withheld_rows
from edgewake.cloud.analysis.jobs.aggregate_job import AggregateJob
from edgewake.cloud.analysis.jobs.kinds import KINDS, job_of, job_type
from edgewake.cloud.analysis.lanes.batch_range import records
from edgewake.cloud.analysis.repair.refold import (
    FOREVER_MS,
    ROWS_MAX,
    Impossible,
    Span,
    oldest,
    refolded,
)
from edgewake.cloud.analysis.repair.repair import (
    Changes,
    Standing,
    changes,
    first_begin,
    first_from,
    first_open,
    reads_from,
)
from edgewake.cloud.analysis.results import emit, withheld
from edgewake.cloud.analysis.results.batch_commit import Offsets
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.transaction import LaneTransactions, read_lane_record
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.explain import streams_of
from edgewake.cloud.queries.lane_kind import KIND_NAMED
from edgewake.cloud.queries.query import Query, Registered
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock, moment
from edgewake.protocol.ops.repair import Repair, RepairState


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known before anything is replaced."""

    record: LaneRecord
    topics: tuple[str, ...]
    """Topics of the streams that the lane reads, those of FROM first."""
    of_from: int
    """How many of them FROM has."""
    kept_from: int | None
    """Event time, ms, from which on these logs, and those of tables, have all; None where retention
    took nothing."""

    @property
    def end(self) -> Offsets:
        """The offsets up to which the lane has computed the streams of FROM."""
        return {topic: self.record.offsets.get(topic, {}) for topic in self.topics[: self.of_from]}

    def complete_from(self, query: Query) -> int | None:
        """Return the event time, ms, from which the logs hold all that windows need.

        None: they always did.
        """
        return None if self.kept_from is None else self.kept_from - reads_from(query, 0)


def check(plan: Plan, repair: Repair, standing: Standing) -> None:
    """Raises Impossible where a rebuild would lose readings that the log lacks."""
    if plan.kept_from is None or repair.lossy:
        return
    query, job = standing.registered.query, standing.job
    took = f"retention deleted readings from before {moment(plan.kept_from)}"
    if job.needs_all(query):
        raise Impossible(
            f"{took}, when open windows or remembered values may have begun; use --lossy to "
            "rebuild from the remaining readings"
        )
    # Where Spark has the state, it goes for the whole lane.
    beside = standing.beside if job.has_spark_state else (standing.registered,)
    losing = [
        one.query.name
        for one in beside
        if reads_from(one.query, first_open(one.query, plan.record)) < plan.kept_from
    ]
    if losing:
        raise Impossible(
            f"{took} that belong to open windows of {', '.join(losing)}; use --lossy to rebuild "
            "these from the remaining readings"
        )


class Rebuilder:
    """Replaces states; for the thread that does repairs."""

    def __init__(
        self, session: SparkSession, kafka: KafkaConfig, clock: Clock, checkpoints: Path
    ) -> None:
        """`checkpoints`: <stream>/<kind> of each lane."""
        self._session, self._kafka, self._clock, self._checkpoints = (
            session,
            kafka,
            clock,
            checkpoints,
        )

    def replace(self, asked: Sequence[tuple[Repair, Standing]]) -> list[Repair]:
        """Do the first step of rebuilds of one lane, which stands still.

        Returns the repairs as they were written.

        Raises KafkaException, Unavailable, or what Spark says.
        """
        stream, kind = asked[0][1].lane
        transactions = LaneTransactions(self._kafka, f"{stream}-{kind}")
        try:
            new = LaneRecord(stream=stream, lane=kind)
            record = read_lane_record(self._kafka, new.key) or new
            found: list[Repair] = []
            outputs: list[emit.Output] = []
            done: dict[str, int | None] = {}
            for repair, standing in asked:
                plan = self._plan(record, standing.registered.query)
                after, news = self._one(plan, repair, standing)
                found.append(after)
                outputs += news
                if after.state is not RepairState.REFUSED:
                    done[standing.registered.label] = plan.complete_from(standing.registered.query)
            outputs.append(_record_after(record, done))
            if done and not KINDS[KIND_NAMED[kind]].job.is_driven:
                shutil.rmtree(self._checkpoints / stream / kind, ignore_errors=True)
            now_ms = self._clock.now_ms()
            outputs += [
                emit.Output(topics.REPAIRS, one.id.encode(), one.model_dump_json().encode())
                for one in found
            ]
            transactions.write(emit.bounded(output, now_ms=now_ms) for output in outputs)
            return found
        finally:
            transactions.close()

    def _plan(self, record: LaneRecord, query: Query) -> Plan:
        """Raises Unavailable."""
        read = tuple(map(topics.stream_topic, streams_of(query)))
        tables = job_type(query).tables_of(query)
        kept = [
            kept_from(self._kafka, topic, now_ms=self._clock.now_ms()) for topic in (*read, *tables)
        ]
        return Plan(
            record,
            read,
            1 + len(query.others),
            max((at for at in kept if at is not None), default=None),
        )

    def _one(
        self, plan: Plan, repair: Repair, standing: Standing
    ) -> tuple[Repair, list[emit.Output]]:
        query = standing.registered.query
        now_ms = self._clock.now_ms()
        update: dict[str, Any] = {
            "revision": repair.revision + 1,
            "updated_at": now_ms,
            "kept_from": plan.kept_from,
        }
        try:
            check(plan, repair, standing)
            made = self._folded if standing.job.is_driven else self._open
            news, states = made(plan, standing)
        except Impossible as error:
            return repair.model_copy(
                update=update | {"state": RepairState.REFUSED, "detail": str(error)}
            ), []
        update |= {
            "added": news.added,
            "changed": news.changed,
            "withdrawn": news.withdrawn,
            "unchanged": news.unchanged,
        }
        update |= {
            "unknown": news.unknown,
            "removed_at": now_ms,
            "detail": "",
            "state": RepairState.DONE,
        }
        if query.window.ends and not standing.job.needs_all(query):
            end = first_open(query, plan.record)
            update |= {
                "state": RepairState.WAITING,
                "end": end,
                "done_to": min(end, self._begin(plan, repair, query)),
            }
        return repair.model_copy(update=update), [*news.outputs, *states]

    def _begin(self, plan: Plan, repair: Repair, query: Query) -> int:
        """The first closed window to compute: the log has it whole, or may have a reading of it."""
        oldest = self._oldest(plan)
        asked = first_begin(query.window, repair.begin) if repair.begin else 0
        first = FOREVER_MS if oldest is None else max(asked, first_begin(query.window, oldest))
        complete_from = plan.complete_from(query)
        return (
            first if complete_from is None else max(first, first_from(query.window, complete_from))
        )

    def _oldest(self, plan: Plan) -> int | None:
        """Event time, ms, of the oldest reading of FROM that the log has."""
        first = self._starts(plan.end, 0)
        return oldest(self._records(first, plan.end)) if first else None

    def _starts(self, end: Offsets, begin: int) -> dict[str, dict[int, int]]:
        """See `starts`; without topics that have none."""
        found = {topic: starts(self._kafka, topic, begin, of_one) for topic, of_one in end.items()}
        return {topic: start for topic, start in found.items() if start}

    def _records(self, start: Offsets, end: Offsets) -> DataFrame:
        ends = {
            topic: {partition: end[topic][partition] for partition in of_one}
            for topic, of_one in start.items()
        }
        return records(self._session, self._kafka, start, ends)

    def _open(self, plan: Plan, standing: Standing) -> tuple[Changes, list[emit.Output]]:
        """The changes of a query's open windows since they were emitted.

        Also its rows that are withheld until they are final.
        """
        registered, query = standing.registered, standing.registered.query
        first = first_open(query, plan.record)
        if plan.kept_from is not None:
            first = max(
                first, 0 if query.window.is_all else first_from(query.window, plan.kept_from)
            )
        start = self._starts(plan.end, first)
        if not start:
            return Changes(), []
        job = job_of(AggregateJob, registered, standing.types)
        frames = self._records(start, plan.end)
        partitions = len(plan.end) * (1 + max(max(of_one) for of_one in start.values()))
        rows = (
            job.graph(frames, partitions)
            .where(F.col("window_start") >= first)
            .limit(ROWS_MAX + 1)
            .toArrow()
        )
        if rows.num_rows > ROWS_MAX:
            raise Impossible(f"its open windows have more than {ROWS_MAX} rows")
        batch = emit.Batch(
            revision=plan.record.revision + 1, top_before=plan.record.top, top=plan.record.top
        )
        computed, held = withheld.parted(
            registered, _results(registered, partial(job.outputs, rows, batch))
        )
        before = emitted_rows(self._kafka, registered.topic, first, FOREVER_MS)
        is_whole = plan.kept_from is None
        news = changes(registered, before, computed, {}, revision=batch.revision, is_whole=is_whole)
        return news, self._held(registered, held, first if is_whole else None)

    def _held(
        self, registered: Registered, held: Mapping[bytes, emit.Output], first: int | None
    ) -> list[emit.Output]:
        """The rows that take the places of those held back until they are final.

        `first`: with all that begin then or later; or None.
        """
        before = withheld_rows(self._kafka, [registered])
        parts = state_parts.Parts(before)
        stale = [
            key.encode()
            for key in state_parts.joined(before)
            if first is not None
            and key.split("|", 2)[1] == registered.label
            and withheld.begin_of(key) >= first
        ]
        rows = {key: one.value for key, one in held.items()} | {
            key: None for key in stale if key not in held
        }
        return [
            emit.Output(topics.WINDOWS, name, part)
            for key, value in rows.items()
            for name, part in parts.cut(key, value)
        ]

    def _folded(self, plan: Plan, standing: Standing) -> tuple[Changes, list[emit.Output]]:
        """The changes of rows that the driver makes, and the states that replace the old ones."""
        registered, query, job = standing.registered, standing.registered.query, standing.job
        needs_all = job.needs_all(query)
        begin = 0 if needs_all else first_open(query, plan.record)
        offsets = plan.record.offsets
        found = {
            topic: starts(self._kafka, topic, reads_from(query, begin), offsets.get(topic, {}))
            for topic in plan.topics
        }
        ends = {
            topic: {partition: offsets[topic][partition] for partition in start}
            for topic, start in found.items()
        }
        complete_from = plan.complete_from(query)
        if complete_from is not None:
            begin = max(
                begin,
                complete_from
                if needs_all or query.window.is_all
                else first_from(query.window, complete_from),
            )
        span = Span(start=found, end=ends, first=begin)
        made = refolded(self._session, self._kafka, registered, standing.types, plan.record, span)
        computed, held = withheld.parted(registered, made.rows.values())
        news = Changes()
        # Else what was known then is known no more.
        if complete_from is None or not job.looks_back:
            before = emitted_rows(self._kafka, registered.topic, begin, FOREVER_MS)
            is_whole = complete_from is None or not needs_all
            news = changes(
                registered,
                before,
                computed,
                {},
                revision=plan.record.revision + 1,
                is_whole=is_whole,
            )
        parts = state_parts.Parts({})
        rows = {
            key: value
            for whole, state in made.states.items()
            for key, value in parts.cut(whole.encode(), state)
        }
        kept = [
            key.encode()
            for key in kept_rows(self._kafka, made.place)
            if key.split("|", 2)[1] == registered.label
        ]
        rows |= {key: None for key in kept if key not in rows}
        states = [emit.Output(topics.WINDOWS, key, value) for key, value in rows.items()]
        return news, [
            *states,
            *self._held(registered, held, begin if complete_from is None else None),
        ]


def _results(
    registered: Registered, outputs: Callable[[emit.Broken], Iterator[emit.Output | emit.Outputs]]
) -> list[emit.Output]:
    broken: emit.Broken = {}
    found = list(emit.results_of(registered, outputs(broken)))
    for why in broken.values():
        raise ValueError(why)
    return found


def _record_after(record: LaneRecord, done: Mapping[str, int | None]) -> emit.Output:
    """The lane's record after these queries (label) were computed from all that the logs have.

    Their rows are complete from these times (ms) on.
    """
    complete_from = {label: at for label, at in record.complete_from.items() if label not in done}
    complete_from |= {label: at for label, at in done.items() if at is not None}
    joined_at_offsets = record.joined_at_offsets | {
        label: {} for label in done if label in record.joined_at_offsets
    }
    after = record.model_copy(
        update={
            "revision": record.revision + 1,
            "complete_from": complete_from,
            "joined_at_offsets": joined_at_offsets,
        }
    )
    return emit.Output(topics.LANES, after.key, after.model_dump_json().encode())
