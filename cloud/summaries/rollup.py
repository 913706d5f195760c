"""Hours from minutes and days from hours, when they are over and quiet. Pure but for the store.

A roll-up is a function of what lies below it and has one key, so doing it twice changes nothing.
What comes later makes it dirty again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from edgewake.cloud.summaries.gather import covering
from edgewake.cloud.summaries.store import COVERS, Store, TooMuch, View
from edgewake.cloud.summaries.summary import Record, Series, Step, merged
from edgewake.protocol.sketches.sketch import SketchKind

log = logging.getLogger("edgewake.summaries")

QUIET_MS: Final = 90_000
"""Without a change for so long an hour is rolled up: the analysis writes changed minutes once in 60
s."""
AT_ONCE_MAX: Final = 50
"""Hours or days rolled up in one turn; the next turn goes on."""
TOO_LARGE_AGAIN_MS: Final = 3_600_000
"""After so long an hour or day that has too much to read is tried again. Until then it is dirty:
who asks reads its parts, and is told where they are too many."""


def rolled_up(
    store: Store, view: View, *, now_ms: int, quiet_ms: int = QUIET_MS
) -> Iterator[tuple[Step, Series, int, Record | None]]:
    """Hours and days that are due, hours first, each with its start and its record.

    The record is None where it stays as it is. One that has too much to read is left out, and due
    again later.
    """
    for step in COVERS:
        for series, start in store.due(
            step, ended_before_ms=now_ms, changed_before_ms=now_ms - quiet_ms, limit=AT_ONCE_MAX
        ):
            view.begin()  # each is a question of its own: after a replay many are due at once
            try:
                found = roll_up(view, series, step, start)
            except TooMuch as error:
                log.warning(
                    "%s of %s is not rolled up: %s",
                    step,
                    series,
                    error,
                    extra={"event": "summaries.too_much", "stream": series.stream},
                )
                store.postpone(step, series, start, changed_ms=now_ms + TOO_LARGE_AGAIN_MS)
                continue
            yield step, series, start, found


def roll_up(view: View, series: Series, step: Step, start_ms: int) -> Record | None:
    """Roll up one hour or day of a series.

    None where the earlier roll-up has more readings, because its parts are no longer retained.
    """
    end_ms = start_ms + step.ms
    parts = [
        row.summary for row in covering(view, series, step, start_ms, end_ms, tuple(SketchKind))
    ]
    before = [
        row.summary.readings
        for row in view.rows(series, step, start_ms, start_ms + 1, ())
        if not row.maker
    ]
    found = merged(parts)
    return (
        None if before and before[0] > found.readings else Record(series, start_ms, end_ms, found)
    )
