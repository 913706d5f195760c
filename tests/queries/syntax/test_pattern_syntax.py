"""Windows that conditions decide, as they are written."""

from __future__ import annotations

import pytest
import sqlglot

from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.syntax.pattern_syntax import CONDITIONS_MAX, conditions
from edgewake.cloud.queries.terms.windows import Rule, Window
from edgewake.protocol.errors import QueryError


def window(written: str) -> Window:
    return parse(
        f"-- name: q\nSELECT device, count(*) AS n FROM m GROUP BY device, {written}"
    ).window


def pattern_of(count: int, time: str = "'10 minutes'") -> str:
    return f"pattern_window({time}, {', '.join(f'a > {n}' for n in range(count))})"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("threshold_window(a > 1)", (Rule.THRESHOLD, 0, 0)),
        ("THRESHOLD_WINDOW(a > 1, a < 0, '30 seconds')", (Rule.THRESHOLD, 30_000, 0)),
        ("threshold_window(a > 1, INTERVAL 1 MINUTE)", (Rule.THRESHOLD, 60_000, 0)),
        (pattern_of(2), (Rule.SUCCESSION, 0, 600_000)),
        (pattern_of(CONDITIONS_MAX, "'7 days'"), (Rule.SUCCESSION, 0, 7 * 86_400_000)),
        ("absence_window(event_time, '1 millisecond')", (Rule.ABSENCE, 0, 1)),
    ],
)
def test_a_window_is_read(written: str, expected: tuple[Rule, int, int]) -> None:
    found = window(written)
    assert (found.rule, found.for_ms, found.within_ms) == expected


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("threshold_window()", "expected threshold_window"),
        ("threshold_window('30 seconds')", "expected threshold_window"),
        ("threshold_window(a > 1, a < 0, b)", "expected threshold_window"),
        ("threshold_window(a > 1, '1 second', '1 second')", "expected threshold_window"),
        ("threshold_window(a > 1, '0 seconds')", "from 1 millisecond to 7 days"),
        ("threshold_window(a > 1, '')", "expected a number and a unit"),
        ("threshold_window(a > 1, '-1 seconds')", "expected a number and a unit"),
        ("threshold_window(a > 1, '9999999999 seconds')", "expected a number and a unit"),
        (pattern_of(1), "expected pattern_window"),
        (pattern_of(CONDITIONS_MAX + 1), "expected pattern_window"),
        ("pattern_window(a > 1, a > 2)", "expected pattern_window"),
        (pattern_of(2, "'8 days'"), "from 1 millisecond to 7 days"),
        ("absence_window(event_time)", "expected absence_window"),
        ("absence_window('event_time', '1 second')", "expected a number and a unit"),
        ("absence_window('1 second', event_time)", "expected absence_window"),
        ("absence_window(received_at, '1 second')", "expected absence_window"),
        ("absence_window(max(event_time), '1 second')", "expected absence_window"),
        ("absence_window(NULL, '1 second')", "expected absence_window"),
        ("absence_window(event_time, INTERVAL a MINUTE)", "expected a number and a unit"),
        ("absence_window(event_time, INTERVAL 1.5 MINUTE)", "expected a number and a unit"),
    ],
)
def test_what_is_none_of_them_is_refused(written: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        window(written)


def test_without_a_second_condition_a_threshold_is_over_where_the_first_is_false() -> None:
    node = sqlglot.parse_one("Threshold_Window(a > 1 OR b, '1 second')", read="spark")
    assert [one.sql() for one in conditions(node)] == ["a > 1 OR b", "NOT (a > 1 OR b)"]


@pytest.mark.parametrize("other", ["absence_window(event_time, '1 second')", "abs(a)", "a", "1"])
def test_other_expressions_have_no_conditions(other: str) -> None:
    assert conditions(sqlglot.parse_one(other, read="spark")) == []
