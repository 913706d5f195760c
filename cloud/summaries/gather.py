"""From kept rows to what was asked: which steps to read, and what to merge.

Pure but for the view that it is given.

A day is read as one row where it is rolled up and nothing came since; otherwise its hours are, and
of these the minutes in the same way. What devices made for a window longer than a step lies at the
longer one: it counts in hours and days, and not in their minutes. Late parts of hours and days
(late_part) count in their own step alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from edgewake.cloud.summaries.store import COVERS
from edgewake.cloud.summaries.summary import Record, Series, Step, Summary, merged
from edgewake.protocol.sketches.sketch import SketchKind


class Rows(Protocol):
    """What is read from (store.View)."""

    def rows(
        self,
        series: Series,
        step: Step,
        start_ms: int,
        end_ms: int,
        kinds: Collection[SketchKind],
        *,
        late: bool | None = None,
    ) -> Iterable[Record]: ...
    def dirty(self, series: Series, step: Step, start_ms: int, end_ms: int) -> set[int]: ...


def gathered(
    view: Rows,
    series: Series,
    step: Step,
    start_ms: int,
    end_ms: int,
    kinds: Collection[SketchKind],
) -> list[Record]:
    """Rows that cover the time, each reading in one of them.

    They are roll-ups, else their parts, and what came late.

    `start_ms` and `end_ms` are multiples of the step.
    """
    found = covering(view, series, step, start_ms, end_ms, kinds)
    return (
        found + joined(view.rows(series, step, start_ms, end_ms, kinds, late=True))
        if step in COVERS
        else found
    )


def covering(
    view: Rows,
    series: Series,
    step: Step,
    start_ms: int,
    end_ms: int,
    kinds: Collection[SketchKind],
) -> list[Record]:
    """Gather without the parts that count beside roll-ups."""
    if step not in COVERS:
        return joined(view.rows(series, step, start_ms, end_ms, kinds))
    rows = joined(view.rows(series, step, start_ms, end_ms, kinds, late=False))
    whole = {row.start_ms for row in rows if not row.maker} - view.dirty(
        series, step, start_ms, end_ms
    )
    found = [row for row in rows if (row.start_ms in whole) == (not row.maker)]
    gaps = [start_ms, *sorted(whole), end_ms]
    for left, right in pairwise(gaps):
        begin = left + step.ms if left in whole else left
        if begin < right:
            found += covering(view, series, COVERS[step], begin, right, kinds)
    return found


def joined(rows: Iterable[Record]) -> list[Record]:
    """Join the sketches that a device made of the same readings; `rows` by start and maker."""
    found: list[Record] = []
    for row in rows:
        last = found[-1] if found else None
        if (
            last is not None
            and row.maker
            and (last.start_ms, _device_and_end(last.maker))
            == (row.start_ms, _device_and_end(row.maker))
        ):
            one, two = last.summary, row.summary
            numbers = one.numbers if one.numbers.count else two.numbers
            summary = Summary(
                max(one.readings, two.readings), numbers, {**one.sketches, **two.sketches}
            )
            found[-1] = replace(last, summary=summary)
        else:
            found.append(row)
    return found


def _device_and_end(maker: str) -> str:
    """Device and end of the window; the maker itself where it is not a device."""
    return maker.rpartition("|")[0] or maker


def over(
    view: Rows, series: Series, start_ms: int, end_ms: int, kinds: Collection[SketchKind]
) -> Summary:
    """One summary of the time, from whole days, then whole hours, then minutes at its ends.

    Both are multiples of a minute.
    """
    parts: list[Record] = []
    begin, end = start_ms, end_ms
    for step in Step:  # the ends first, so that what remains are whole hours, then whole days
        longer = next((whole for whole, part in COVERS.items() if part is step), None)
        first = end if longer is None else min(end, -(-begin // longer.ms) * longer.ms)
        last = first if longer is None else max(first, longer.floor(end))
        parts += gathered(view, series, step, begin, first, kinds)
        parts += gathered(view, series, step, last, end, kinds)
        begin, end = first, last
    return merged((part.summary for part in parts), with_values=SketchKind.BLOOM in kinds)


def by_step(
    view: Rows,
    series: Series,
    step: Step,
    start_ms: int,
    end_ms: int,
    kinds: Collection[SketchKind],
) -> dict[int, Summary]:
    """Start → summary of each step in which there is anything."""
    parts: dict[int, list[Summary]] = defaultdict(list)
    for row in gathered(view, series, step, start_ms, end_ms, kinds):
        parts[step.floor(row.start_ms)].append(row.summary)
    with_values = SketchKind.BLOOM in kinds
    return {start: merged(ones, with_values=with_values) for start, ones in sorted(parts.items())}
