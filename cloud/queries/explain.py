"""Explains a query before it runs: its class, why, and its plan in sentences. Pure.

It needs no Spark. What a class is: lane_kind.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.queries.lane_kind import kind_of
from edgewake.cloud.queries.measures import measures
from edgewake.cloud.queries.plan_cost import PLAN_MAX, plan_cost, tags
from edgewake.cloud.queries.query import Query
from edgewake.cloud.queries.terms.windows import Rule, Window
from edgewake.protocol import topics


@dataclass(frozen=True, slots=True)
class Described:
    """What is said of a query file that is good."""

    name: str
    streams: tuple[str, ...]
    columns: tuple[str, ...]
    measures: Mapping[str, tuple[str, ...]]
    """Column → the fields whose values it has (measures.py)."""
    execution: str
    """shared or dedicated."""
    why: str
    plan: tuple[str, ...]
    """What is done with a reading, step by step."""
    cost: int
    """Functions, names and constants that Spark plans for it."""
    rows: int
    """Rows that one reading becomes on its way."""
    cost_max: int = PLAN_MAX
    """The most that `cost` may be."""

    @property
    def stream(self) -> str:
        """The stream of FROM."""
        return self.streams[0]


def streams_of(query: Query) -> tuple[str, ...]:
    """The streams whose readings become its rows, that of FROM first."""
    join, others = query.join, query.others
    if join is not None and (query.is_paired or (query.is_table and join.topic != topics.DEVICES)):
        others = (join.table,)
    return tuple(dict.fromkeys((query.stream, *others)))


def described(query: Query) -> Described:
    """What is said of it."""
    kind = kind_of(query)
    return Described(
        name=query.name,
        streams=streams_of(query),
        columns=query.columns,
        measures=measures(query),
        execution=kind.execution,
        why=kind.why,
        plan=tuple(_plan(query)),
        cost=plan_cost(query),
        rows=tags(query),
    )


def _plan(query: Query) -> Iterator[str]:
    fields = ", ".join(sorted(query.fields)) or "no field"
    yield (
        f"read {' and '.join(streams_of(query))}, as "
        f"{'one' if len(streams_of(query)) > 1 else 'it is'}: {fields}"
    )
    if query.shed is not None:
        yield (
            "leave readings out while what comes next was received more than "
            f"{_span(query.shed.above_ms)} ago"
        )
    if query.where is not None:
        yield "keep the readings that pass WHERE"
    yield from _completing(query)
    rows = query.window.hops * len(query.unpivot.fields if query.unpivot is not None else "1")
    if query.is_table:
        yield (
            f"keep the latest reading of each {', '.join(query.key_names)}; emit rows that are "
            "new, changed or withdrawn"
        )
    elif query.on_change:
        yield (
            "compare each with the one before of the same "
            f"{', '.join(query.on_change)}: {', '.join(one.name for one in query.compared)}"
        )
        yield "emit the first, and each that differs, as a row at once, final"
    elif query.is_rows:
        yield "emit each as a row at once, final"
    else:
        by = ", ".join(key.name for key in query.keys)
        yield f"put each into {_windows(query.window)}{f' of its group ({by})' if by else ''}" + (
            f": {rows} rows" if rows > 1 else ""
        )
        yield (
            f"aggregate {', '.join(dict.fromkeys(one.function for one in query.aggregates))}, as "
            "partials that merge"
        )
        yield from _telling(query)
    if query.having is not None:
        yield "emit rows that pass HAVING; withdraw those that stop passing"
    if query.limit is not None:
        yield (
            f"emit the first {query.limit} rows of each window; withdraw those that are not "
            "among them"
        )


def _completing(query: Query) -> Iterator[str]:
    join = query.join
    for is_of_all, whose in ((False, "each device"), (True, "all devices")):
        names = [one.past.function for one in query.history if one.past.is_of_all is is_of_all]
        if names:
            yield (
                f"remember the readings before of {whose}, for {', '.join(dict.fromkeys(names))}"
            )
    if join is not None:
        on = ", ".join(f"{ours} = {join.table}.{theirs}" for ours, theirs in join.keys)
        nulls = "nulls without one" if join.is_left else "drop those without one"
        if join.within is not None:
            yield (
                f"pair with all readings of {join.table} where {on}, "
                f"{_between(join.within.earliest_ms, join.within.latest_ms)}; {nulls}"
            )
        else:
            when = "as it is now" if query.is_table else "that held at the reading's time"
            yield f"find the row of {join.table} where {on}, {when}; {nulls}"
    if query.where_after is not None:
        yield (
            "keep what passes the rest of WHERE"
            if query.where is not None
            else "keep what passes WHERE"
        )


def _telling(query: Query) -> Iterator[str]:
    window = query.window
    if window.is_all:
        yield (
            "emit a row again with each batch that changes it; it is never final, and its state "
            "is kept for ever"
        )
    elif window.count:
        when = (
            "emit a row once, when it is full"
            if query.emits_final
            else "emit a row again with each batch that changes it"
        )
        yield f"{when}; it is final when it is full"
    elif window.ends:
        reopen = f", open it again for {_span(query.reopen_ms)}" if query.reopen_ms else ""
        over = f"final {_span(query.lateness_ms)} after its window's end{reopen}"
        when = (
            "keep a row back until it is final, and emit it once"
            if query.emits_final
            else "emit a row again when a reading changes it"
        )
        yield f"{when}; {over}; then drop its state"


_BY: Final = {
    "t": "",
    "received_at": " by when a bridge had it",
    "sent_at": " by when its device sent it",
}


def _windows(window: Window) -> str:
    if window.rule is Rule.THRESHOLD:
        return "the time in which the condition holds"
    if window.rule is Rule.SUCCESSION:
        return f"the conditions' succession within {_span(window.within_ms)}"
    if window.rule is Rule.ABSENCE:
        return f"the absence of readings for {_span(window.within_ms)}"
    if window.gap_ms:
        return f"a session that {_span(window.gap_ms)} without a reading end"
    if window.count:
        return f"windows of {window.count} readings, a new one with every {window.step}"
    if window.is_all:
        return "the one row"
    by = _BY[window.time]
    if window.unit is not None:
        return f"its {window.unit} in {window.zone}{by}"
    each = "" if window.hops == 1 else f", a new one every {_span(window.slide_ms)}"
    return f"{'its window' if window.hops == 1 else 'windows'} of {_span(window.size_ms)}{each}{by}"


def _between(earliest_ms: int, latest_ms: int) -> str:
    return f"from {_signed(earliest_ms)} to {_signed(latest_ms)}"


def _signed(ms: int) -> str:
    return "the same time" if ms == 0 else f"{_span(abs(ms))} {'before' if ms < 0 else 'after'}"


def _span(ms: int) -> str:
    if ms == 0:
        return "0 seconds"
    for unit, name in (
        (86_400_000, "day"),
        (3_600_000, "hour"),
        (60_000, "minute"),
        (1_000, "second"),
    ):
        if ms % unit == 0:
            return f"{ms // unit} {name}{'' if ms == unit else 's'}"
    return f"{ms} ms"
