"""Functions of the readings before, as they are written."""

from __future__ import annotations

import pytest

from edgewake.cloud.queries.query import History
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.syntax.lookback_syntax import CALLS_MAX, VALUES_MIN
from edgewake.cloud.queries.terms.lookback import HOURS, VALUES_MAX
from edgewake.protocol.errors import QueryError
from edgewake.protocol.sketches import seen
from edgewake.protocol.sketches.seen import Seen


def calls(*written: str) -> list[History]:
    columns = ", ".join(f"{one} AS x{number}" for number, one in enumerate(written))
    return list(parse(f"-- name: q\nSELECT device, {columns} FROM m").history)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (f"robust_zscore(a, {VALUES_MIN})", VALUES_MIN),
        (f"ROBUST_ZSCORE(a, {VALUES_MAX})", VALUES_MAX),
        ("trend(a, '1 millisecond')", 1),
        ("trend(a, '7 days')", 7 * 86_400_000),
        ("seasonal_baseline(a, 'day')", HOURS["day"]),
        ("seasonal_zscore(a, 'week')", HOURS["week"]),
    ],
)
def test_its_size_is_read(written: str, size: int) -> None:
    (call,) = calls(written)
    assert (call.past.function, call.past.size) == (written.partition("(")[0].lower(), size)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("seen_before(a)", Seen(seen.CAPACITY, seen.ERROR, None)),
        ("seen_before(a, '1 day')", Seen(seen.CAPACITY, seen.ERROR, 86_400_000)),
        ("seen_before(a, 5000)", Seen(5000, seen.ERROR, None)),
        ("seen_before_by_anyone(a, '366 days', 10, 0.001)", Seen(10, 0.001, 366 * 86_400_000)),
    ],
)
def test_what_is_remembered_is_read(written: str, expected: Seen) -> None:
    (call,) = calls(written)
    assert call.past.seen == expected


@pytest.mark.parametrize(
    "written",
    [
        f"robust_zscore(a, {VALUES_MIN - 1})",
        f"robust_zscore(a, {VALUES_MAX + 1})",
        f"robust_zscore(a, {'0' * 900}9999)",
        "robust_zscore(a, '60')",
        "robust_zscore(a, 6.0)",
        "robust_zscore(a, -60)",
        "robust_zscore(a, b)",
        "robust_zscore(a, NULL)",
        "robust_zscore(a)",
        "robust_zscore(a, 60, 60)",
        "trend(a, '0 seconds')",
        "trend(a, '8 days')",
        "trend(a, '')",
        "trend(a, 10)",
        "trend(a, INTERVAL 1 MINUTE)",
        "seasonal_baseline(a, 'month')",
        "seasonal_baseline(a, 'DAY')",
        "seasonal_baseline(a, day)",
        "seen_before()",
        "seen_before(a, '0 seconds')",
        "seen_before(a, '367 days')",
        "seen_before(a, 9)",
        "seen_before(a, 10001)",
        "seen_before(a, 50.5)",
        "seen_before(a, 5000, 0)",
        "seen_before(a, 5000, 1e-400)",
        "seen_before(a, 5000, 1e400)",
        "seen_before(a, 5000, '1 day')",
        "seen_before(a, '1 day', '1 day')",
        "seen_before(a, '1 day', 5000, 0.01, 1)",
        "seen_before(a, -5000)",
        "seen_before(a, NULL)",
        "seen_before(a, 5000L)",
    ],
)
def test_what_is_written_in_another_way_is_refused(written: str) -> None:
    with pytest.raises(QueryError, match="expected"):
        calls(written)


@pytest.mark.parametrize("written", ["trend('a', '1 hour')", "trend(a > 1, '1 hour')"])
def test_a_text_or_a_truth_has_no_trend(written: str) -> None:
    with pytest.raises(QueryError, match="trend: expected a number"):
        calls(written)


def test_none_is_of_another() -> None:
    with pytest.raises(QueryError, match="reading's own fields"):
        calls("trend(robust_zscore(a, 60), '1 hour')")


def test_equal_calls_are_one_and_others_are_counted() -> None:
    assert len(calls("trend(a, '60 seconds')", "Trend(a, '1 minute')")) == 1
    sizes = [f"robust_zscore(a, {VALUES_MIN + n})" for n in range(CALLS_MAX + 1)]
    assert len(calls(*sizes[:-1])) == CALLS_MAX
    with pytest.raises(QueryError, match=f"at most {CALLS_MAX} different calls"):
        calls(*sizes)
