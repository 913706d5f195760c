"""Expressions over finished results: SQL's nulls, finite numbers, and calendars of a zone.

That Spark gives the same is shown in tests/analysis/plan/test_columns.py.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from edgewake.cloud.queries.terms.evaluate import (
    begin_of,
    evaluated,
    local,
    ms_of,
    number_text,
    rounded_half_up,
    text_number,
)
from edgewake.cloud.queries.terms.functions import TEXT_CHARS_MAX
from edgewake.cloud.queries.terms.tree import Call, Field, Literal


def value(function: str, *arguments: Any) -> Any:
    """What a function gives for constants."""
    return evaluated(Call(function, tuple(map(Literal, arguments))), {})(())


def test_a_field_is_read_at_its_place_in_the_row() -> None:
    total = evaluated(Call("+", (Field("b"), Field("a"))), {"a": 2, "b": 0})
    assert total((1.0, "x", 5.0)) == 6.0


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("and", (False, None), False),
        ("and", (True, None), None),
        ("or", (True, None), True),
        ("or", (False, None), None),
        ("not", (None,), None),
        ("=", (None, None), None),
        ("<=>", (None, None), True),
        ("<=>", (1.0, None), False),
        ("in", (1.0, None, 1.0), True),
        ("in", (1.0, None, 2.0), None),
        ("in", (None, 1.0), None),
        ("between", (5.0, None, 3.0), False),
        ("between", (5.0, 1.0, None), None),
        ("is_null", (None,), True),
        ("coalesce", (None, 2.0, 3.0), 2.0),
        ("least", (None, 3.0, 2.0), 2.0),
        ("greatest", (None, None), None),
        ("concat", ("a", None), None),
    ],
)
def test_what_has_no_value_is_neither_true_nor_false(
    function: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert value(function, *arguments) is expected or value(function, *arguments) == expected


def test_a_case_takes_the_first_branch_that_is_true_and_computes_no_other() -> None:
    def chosen(condition: bool | None) -> Any:
        return value("case", condition, "first", True, "second", "default")

    assert (chosen(True), chosen(False), chosen(None)) == ("first", "second", "second")
    assert value("case", None, 1.0, None) is None


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("/", (1.0, 0.0)),
        ("%", (1.0, 0.0)),
        ("div", (1.0, 0.0)),
        ("div", (1e300, 1e-300)),
        ("*", (1e200, 1e200)),
        ("pow", (0.0, -1.0)),
        ("pow", (1e200, 2.0)),
        ("pow", (-8.0, 1 / 3)),
        ("exp", (1000.0,)),
        ("ln", (0.0,)),
        ("log", (1.0, 5.0)),
        ("sqrt", (-1.0,)),
        ("asin", (2.0,)),
        ("hour", (1e18, "UTC")),
    ],
)
def test_what_has_no_finite_value_is_null(function: str, arguments: tuple[Any, ...]) -> None:
    assert value(function, *arguments) is None


@pytest.mark.parametrize(
    ("number", "digits", "expected"),
    [
        (2.5, 0, 3.0),
        (-2.5, 0, -3.0),
        (0.15, 1, 0.2),
        (1.005, 2, 1.01),
        (123456789012345.67, 15, 123456789012345.67),
        (1000000000000000.5, 0, 1000000000000001.0),
        (1e22, 15, 1e22),
        (1e300, 2, 1e300),
        (-1e30, 0, -1e30),
    ],
)
def test_a_number_of_any_size_is_rounded(number: float, digits: int, expected: float) -> None:
    """From 13 digits before the point and 15 behind it on it was NULL."""
    assert rounded_half_up(number, digits) == value("round", number, digits) == expected


def test_what_is_rounded_to_zero_has_no_sign() -> None:
    assert str(value("round", -0.4, 0)) == "0.0"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (" 7 \n", 7.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("+1e3", 1000.0),
        ("", None),
        (".", None),
        ("1_000", None),
        ("1d", None),
        ("0x1F", None),
        ("nan", None),
        ("Infinity", None),
        ("٣", None),
        ("\u00a07", None),
        ("7\u2003", None),
    ],
)
def test_a_text_is_a_number_by_the_same_letters_in_every_place(
    text: str, number: float | None
) -> None:
    """Digits and blanks of other scripts were a number in HAVING and none in WHERE."""
    assert text_number(text) == number


def test_a_text_too_large_for_a_number_is_null() -> None:
    assert value("text_number", "1e999") is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(-0.0, "0"), (3.0, "3"), (2.5, "2.5"), (1e17, "100000000000000000"), (1e20, "1e+20")],
)
def test_a_whole_number_is_text_without_a_point(number: float, text: str) -> None:
    assert number_text(number) == text


def test_whole_results_stay_in_64_bits() -> None:
    assert value("floor", 1e30) == 2.0**63
    assert value("ceil", -1e30) == -(2.0**63)


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("substring", ("abc", 0.0, 2.0), "ab"),
        ("substring", ("abc", -5.0, 3.0), "a"),
        ("substring", ("abc", 9.0, 2.0), ""),
        ("substring", ("abc", 2.0, -1.0), ""),
        ("left", ("abc", -1.0), ""),
        ("right", ("abc", 0.0), ""),
        ("right", ("abc", 9.0), "abc"),
        ("split_part", ("a-b-c", "-", -1.0), "c"),
        ("split_part", ("a-b-c", "-", 4.0), ""),
        ("split_part", ("a-b-c", "-", 0.0), None),
        ("split_part", ("a-b", "", 1.0), "a-b"),
        ("replace", ("aaa", "", "x"), "aaa"),
        ("instr", ("abc", "z"), 0),
        ("trim", (" \ta ",), "\ta"),
    ],
)
def test_places_in_a_text_beyond_its_ends_are_empty(
    function: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert value(function, *arguments) == expected


def test_texts_keep_their_bound_whatever_joins_them() -> None:
    long = "a" * TEXT_CHARS_MAX
    assert value("concat", long, "b") == long
    assert value("replace", long, "a", "bb") == "b" * TEXT_CHARS_MAX


BERLIN = "Europe/Berlin"
SPRING = int(datetime(2026, 3, 29, 1, 30, tzinfo=UTC).timestamp() * 1000)
"""Half an hour after clocks in Berlin went from 2:00 to 3:00."""
AUTUMN = int(datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp() * 1000)
"""2:30 in Berlin for the first of two times."""


def test_a_day_begins_at_midnight_of_its_zone_though_clocks_change_in_it() -> None:
    spring, autumn = (value("date_trunc", at, "day", BERLIN) for at in (SPRING, AUTUMN))
    assert datetime.fromtimestamp(spring / 1000, ZoneInfo(BERLIN)).isoformat() == (
        "2026-03-29T00:00:00+01:00"
    )
    assert datetime.fromtimestamp(autumn / 1000, ZoneInfo(BERLIN)).isoformat() == (
        "2026-10-25T00:00:00+02:00"
    )


def test_the_hour_that_comes_twice_is_two_hours() -> None:
    first, second = (value("date_trunc", at, "hour", BERLIN) for at in (AUTUMN, AUTUMN + 3_600_000))
    assert second - first == 3_600_000
    assert value("hour", AUTUMN, BERLIN) == value("hour", AUTUMN + 3_600_000, BERLIN) == 2


@pytest.mark.parametrize(
    ("unit", "begin"),
    [
        ("second", "2026-11-26T14:45:26"),
        ("minute", "2026-11-26T14:45:00"),
        ("hour", "2026-11-26T14:00:00"),
        ("day", "2026-11-26T00:00:00"),
        ("week", "2026-11-23T00:00:00"),
        ("month", "2026-11-01T00:00:00"),
        ("quarter", "2026-10-01T00:00:00"),
        ("year", "2026-01-01T00:00:00"),
    ],
)
def test_a_unit_of_the_calendar_begins_where_people_say(unit: str, begin: str) -> None:
    at = datetime(2026, 11, 26, 14, 45, 26, 789_000, tzinfo=UTC)
    assert begin_of(unit, at).replace(tzinfo=None).isoformat() == begin


def test_a_time_before_1970_comes_back_as_it_was() -> None:
    assert ms_of(local(-1, "UTC")) == -1
    assert value("unix_seconds", -1) == -1
    assert value("year", -1, "UTC") == 1969


def test_sunday_is_the_first_day_for_one_function_and_the_last_for_the_other() -> None:
    sunday = int(datetime(2026, 11, 29, tzinfo=UTC).timestamp() * 1000)
    assert (value("dayofweek", sunday, "UTC"), value("weekday", sunday, "UTC")) == (1, 6)
