"""A time in whole steps, and the sketches that a question needs."""

from __future__ import annotations

import pytest

from edgewake.cloud.summaries.asking import Asked, Span
from edgewake.cloud.summaries.summary import HOUR_MS, MINUTE_MS, Step
from edgewake.protocol.sketches.sketch import SketchKind


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (MINUTE_MS, 3 * MINUTE_MS, None, Span(MINUTE_MS, 3 * MINUTE_MS)),
        (1, 1, None, Span(0, MINUTE_MS)),
        (MINUTE_MS - 1, MINUTE_MS + 1, None, Span(0, 2 * MINUTE_MS)),
        (HOUR_MS, HOUR_MS + 1, Step.HOUR, Span(HOUR_MS, 2 * HOUR_MS)),
        (5, 2 * HOUR_MS, Step.HOUR, Span(0, 2 * HOUR_MS)),
    ],
)
def test_a_time_is_all_steps_that_it_touches(
    start: int, end: int, step: Step | None, expected: Span
) -> None:
    found = Span.of(start, end, step)
    rows = 1 if step is None else (expected.end_ms - expected.start_ms) // step.ms
    assert (found, found.steps(step)) == (expected, rows)


def test_only_the_sketches_that_are_needed_are_read() -> None:
    assert Asked().kinds == ()
    assert Asked(distinct=True, sample=3).kinds == (
        SketchKind.HLL,
        SketchKind.THETA,
        SketchKind.SAMPLE,
    )
    assert Asked(ranks=(0.5,), contained=("a",)).kinds == (
        SketchKind.THETA,
        SketchKind.KLL,
        SketchKind.BLOOM,
    )
