"""Names and values tell which columns are the time; what they do not tell is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.frames.event_time import to_ms
from edgewake.simulators.recordings.time_columns import STYLES, How, find, style_of

START = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)


def times(style: str, *, count: int = 40, step: timedelta = timedelta(hours=7)) -> list[str]:
    """Times that run on evenly, written so."""
    return [(START + n * step).strftime(style) for n in range(count)]


@pytest.mark.parametrize("style", STYLES)
def test_every_way_to_write_a_time_is_seen_or_one_that_means_the_same(style: str):
    written = times(style)
    found = style_of(written)
    assert found is not None
    assert [to_ms(text, found[0]) for text in written] == [to_ms(text, style) for text in written]


def test_day_or_month_first_is_told_by_how_evenly_time_runs():
    """No day is over 12, so both can be read."""
    step = timedelta(hours=5)
    for style in ("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"):
        written = [(START + n * step).strftime(style) for n in range(38)]
        assert all(int(part) <= 12 for text in written for part in text.split("/")[:2])
        assert style_of(written) == (style, "")


def test_what_cannot_be_told_is_said():
    found = style_of(["03/04/2026 10:00"])
    assert found is not None
    assert "%d/%m/%Y %H:%M or %m/%d/%Y %H:%M" in found[1]


@pytest.mark.parametrize(
    ("rows", "names", "how"),
    [
        ([{"a": 1, "Timestamp": 1_700_000_000}], ("Timestamp",), How.KNOWN),
        ([{"Date": "2026-01-02", "Time": "10:11:12", "a": 1}], ("Date", "Time"), How.KNOWN),
        ([{"year": 2026, "month": 2, "day": 3, "a": 1}], ("year", "month", "day"), How.KNOWN),
        ([{"a": 1, "seen": "2026-01-02T10:11:12Z"}], ("seen",), How.GUESSED),
        ([{"end": "2026-01-02 10:11", "start": "2026-01-02 10:00"}], ("start",), How.GUESSED),
        ([{"day": "2026-01-02", "at": "2026-01-02 10:00"}], ("at",), How.GUESSED),
        ([{"a": 1, "time": 17, "t": "x"}], (), How.NONE),
        ([{"run_time": 0.0}, {"run_time": 0.5}, {"run_time": 1.5}], ("run_time",), How.GUESSED),
        ([{"a": 1, "level": 1_700_000_000_000.5}], ("level",), How.GUESSED),
        ([], (), How.NONE),
    ],
)
def test_the_time_is_found(rows: list[dict[str, Any]], names: tuple[str, ...], how: How):
    found = find(rows, None)
    assert (found.names, found.how) == (names, how)


def test_what_somebody_says_is_taken():
    rows = [{"a": "01.02.2026 10:00", "t": 1_700_000_000}, {"a": "13.02.2026 10:00", "t": 2}]
    found = find(rows, ["a"])
    assert (found.names, found.style, found.how) == (("a",), "%d.%m.%Y %H:%M", How.NAMED)
    assert find(rows, []).names == ()
    assert find(rows, ["t"], "ms").style == "ms"


@given(st.lists(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.none())))
def test_nothing_in_a_column_is_an_error(values: list[Any]):
    find([{"a": value} for value in values], None)
