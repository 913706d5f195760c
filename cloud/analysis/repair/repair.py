"""Which windows of a query are computed again next, and which of their rows changed.

Pure; repairs.py acts on it.

Only closed windows are computed again: they take no more readings, so nobody else writes their
rows. What the log gives for them is compared with what was emitted last, and only differences are
emitted, with a higher revision: a repair that is repeated, or done again after a crash, changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson

from edgewake.cloud.analysis.checkpoints.log_reader import READINGS_HEADER, Row
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.jobs.kinds import job_type
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.query import Query, Registered
from edgewake.cloud.queries.terms.windows import Window
from edgewake.protocol.clock import moment
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.ops.repair import Repair, RepairKind

_NO_VALUES: Final = ("revision", "final", "complete")


@dataclass(frozen=True, slots=True)
class Standing:
    """A query that runs, and where its lane stands."""

    registered: Registered
    record: LaneRecord
    types: Mapping[str, Mapping[str, FieldType]]
    """Stream → its fields, of the whole catalogue."""
    beside: tuple[Registered, ...] = ()
    """All queries of its lane."""

    @property
    def job(self) -> type[Job]:
        """How it is computed."""
        return job_type(self.registered.query)

    @property
    def lane(self) -> tuple[str, str]:
        """Stream and kind of its lane."""
        return self.record.stream, self.record.lane


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do yet."""

    detail: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """It cannot be done at all."""

    detail: str


@dataclass(frozen=True, slots=True)
class Compute:
    """Windows that begin in [start, stop) are computed; `end`: where the whole repair ends."""

    start: int
    stop: int
    end: int


@dataclass(frozen=True, slots=True)
class Replace:
    """The lane stands still and its state is replaced by one computed from the log."""


@dataclass(frozen=True, slots=True)
class Done:
    """The repair is done."""

    detail: str = ""


Step: TypeAlias = Wait | Refuse | Replace | Compute | Done


def step(repair: Repair, registered_at: int | None, standing: Standing | None) -> Step:
    """Decide the next step of a repair.

    `registered_at`: when the query was registered, None where no query has its name; `standing`:
    None where it does not run.
    """
    if registered_at != repair.registered_at:
        return Refuse(
            f"query {repair.query!r} was {'removed' if registered_at is None else 'replaced'} "
            "after the repair was asked for"
        )
    if standing is None or standing.record.top is None:
        return Wait("waits until the query runs")
    query, record, job = standing.registered.query, standing.record, standing.job
    is_rebuild = repair.kind is RepairKind.REBUILD
    if is_rebuild and not (job.is_driven or job.has_spark_state):
        return Done("a query without aggregates keeps no state")
    if (why := job.why_not(query, is_rebuild=is_rebuild)) is not None:
        return Refuse(why)
    if is_rebuild and repair.removed_at is None:
        return Replace()
    if query.window.is_all or (is_rebuild and job.needs_all(query)):
        return Done()
    bound = first_open(query, record)
    if (end := _end(repair, record, standing.registered.label, bound)) is None:
        return Done("the query was asked for everything that the stream keeps")
    start = first_begin(query.window, repair.begin) if repair.done_to is None else repair.done_to
    if start >= end:
        return Done()
    stop = min(end, bound)
    if stop <= start or (repair.done_to is not None and stop < end):
        return Wait(
            f"windows that begin before {moment(start)} are done; the rest follows when those "
            f"that begin before {moment(end)} are"
            " closed: event time must pass their end by the lateness, so on a quiet stream with "
            "the next readings"
        )
    return Compute(start, stop, end)


def first_open(query: Query, record: LaneRecord) -> int:
    """Windows that begin before it (ms) are closed."""
    return job_type(query).first_open(query, record.top)


def reads_from(query: Query, begin_ms: int) -> int:
    """The earliest event time of a reading that windows need which begin at `begin_ms` or later.

    A partner may be earlier.
    """
    within = None if query.join is None else query.join.within
    return begin_ms if within is None else begin_ms + min(0, within.earliest_ms)


def reads_to(query: Query, stop_ms: int) -> int:
    """Windows that begin before `stop_ms` need no reading of this event time or later."""
    within = None if query.join is None else query.join.within
    return stop_ms + query.window.size_ms + (0 if within is None else max(0, within.latest_ms))


def _end(repair: Repair, record: LaneRecord, label: str, bound: int) -> int | None:
    if repair.end is not None:
        return min(repair.end, bound) if repair.kind is RepairKind.REPAIR else repair.end
    return bound if repair.kind is RepairKind.REPAIR else record.complete_from.get(label)


def first_begin(window: Window, time_ms: int) -> int:
    """No window that `time_ms` lies in begins before it."""
    return window.latest(time_ms)[0] - (window.hops - 1) * (
        window.slide_ms if window.unit is None else 0
    )


def first_from(window: Window, time_ms: int) -> int:
    """The first window that begins at `time_ms` or later."""
    start, end = window.latest(time_ms)
    if start == time_ms:
        return start
    return end if window.unit is not None else start + window.slide_ms


@dataclass
class Changes:
    """Records to write, and what they are."""

    outputs: list[emit.Output] = field(default_factory=list)
    added: int = 0
    changed: int = 0
    withdrawn: int = 0
    unchanged: int = 0
    unknown: int = 0


def changes(
    registered: Registered,
    emitted_rows: Mapping[bytes, Row],
    computed: Iterable[emit.Output],
    readings: Mapping[bytes, int],
    *,
    revision: int,
    is_whole: bool = False,
) -> Changes:
    """Return the computed rows that differ from the emitted ones.

    `emitted_rows`: key → row; `readings`: key → how many are in the row, where that is known;
    `revision`: the least revision of a row that is emitted, higher than all that the lane emitted
    for closed windows; `is_whole`: the log has every reading there ever was, so an emitted row that
    is not computed again is withdrawn.
    """
    found = Changes()
    seen: set[bytes] = set()
    for output in computed:
        seen.add(output.key)
        before = emitted_rows.get(output.key)
        assert output.value is not None  # a result
        value = orjson.loads(output.value)
        if before is not None and _is_same(before, value, readings.get(output.key)):
            found.unchanged += 1
            continue
        found.outputs.append(
            _emitted_rows(output, value, before, readings.get(output.key), revision)
        )
        if before is None:
            found.added += 1
        else:
            found.changed += 1
    for output in _withdrawn(registered, emitted_rows, seen, found, revision, is_whole=is_whole):
        found.outputs.append(output)
        found.withdrawn += 1
    return found


def _is_same(before: Row, value: Mapping[str, Any], readings: int | None) -> bool:
    if before.readings is not None and not before.value.get("withdrawn"):
        return before.readings == readings
    return before.value.get("complete", True) is True and _values(before.value) == _values(value)


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _NO_VALUES}


def _emitted_rows(
    output: emit.Output,
    value: dict[str, Any],
    before: Row | None,
    readings: int | None,
    revision: int,
) -> emit.Output:
    value["revision"] = (
        revision if before is None else max(revision, int(before.value["revision"]) + 1)
    )
    headers = {} if readings is None else {READINGS_HEADER: str(readings).encode()}
    return emit.Output(output.topic, output.key, orjson.dumps(value), headers)


def _withdrawn(
    registered: Registered,
    emitted_rows: Mapping[bytes, Row],
    seen: set[bytes],
    found: Changes,
    revision: int,
    *,
    is_whole: bool,
) -> Iterator[emit.Output]:
    """Withdraw rows that were emitted and are no longer computed.

    Without HAVING and LIMIT a window never loses a row, so they are left as they are.
    """
    query = registered.query
    for key, before in emitted_rows.items():
        if key in seen or before.value.get("withdrawn"):
            continue
        if query.having is None and query.limit is None and not is_whole:
            found.unknown += 1
            continue
        names = ("query", "window_start", "window_end", *query.key_names, "window_number")
        kept = {name: before.value[name] for name in names if name in before.value}
        told_at = max(revision, int(before.value["revision"]) + 1)
        value = kept | {"withdrawn": True, "revision": told_at, "final": True}
        yield emit.Output(registered.topic, key, orjson.dumps(value))
