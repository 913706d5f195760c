"""Windows as GROUP BY writes them."""

from __future__ import annotations

import pytest
import sqlglot

from edgewake.cloud.queries.syntax.window_syntax import (
    calendar,
    duration_ms,
    is_calendar,
    is_window,
    window,
    zone_of,
)
from edgewake.cloud.queries.terms.windows import Window
from edgewake.protocol.errors import QueryError

MINUTE = 60_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("window(event_time, '1 minute')", Window(size_ms=MINUTE, slide_ms=MINUTE)),
        ("tumble(event_time, INTERVAL 1 MINUTE)", Window(size_ms=MINUTE, slide_ms=MINUTE)),
        ("window(event_time, '1 minute', '10 seconds')", Window(size_ms=MINUTE, slide_ms=10_000)),
        ("hop(event_time, '10 seconds', '1 minute')", Window(size_ms=MINUTE, slide_ms=10_000)),
        (
            "window(event_time, '1 hour', '1 hour', '90 minutes')",
            Window(size_ms=60 * MINUTE, slide_ms=60 * MINUTE, offset_ms=30 * MINUTE),
        ),
        (
            "tumble(event_time, '1 hour', '15 minutes')",
            Window(size_ms=60 * MINUTE, slide_ms=60 * MINUTE, offset_ms=15 * MINUTE),
        ),
        (
            "window(received_at, '1 minute')",
            Window(size_ms=MINUTE, slide_ms=MINUTE, time="received_at"),
        ),
        (
            "session_window(event_time, '5 minutes')",
            Window(size_ms=1, slide_ms=1, gap_ms=5 * MINUTE),
        ),
        ("count_window(100)", Window(size_ms=1, slide_ms=1, count=100, step=100)),
        ("count_window(100, 10)", Window(size_ms=1, slide_ms=1, count=100, step=10)),
    ],
)
def test_a_window_is_what_it_says(text: str, expected: Window) -> None:
    node = sqlglot.parse_one(text, read="spark")
    assert (is_window(node), window(node)) == (True, expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("window(event_time, '50 milliseconds')", "from 100 milliseconds to 31 days"),
        ("window(event_time, '32 days')", "from 100 milliseconds to 31 days"),
        ("window(event_time, '1 minute', '2 minutes')", "slide '2 minutes'"),
        ("window(event_time)", r"expected window\("),
        ("window(cpu, '1 minute')", "received_at or sent_at in place"),
        ("window(now(), '1 minute')", "results would differ"),
        ("window(event_time, '1 minut')", "a number and a unit"),
        ("session_window(event_time, '8 days')", "100 milliseconds to 7 days"),
        ("count_window(0)", "up to 10000 readings"),
        ("count_window(10, 11)", "up to 10000 readings"),
        ("count_window(10000, 1)", "at most 120 windows"),
        ("count_window('5')", r"expected count_window\(100"),
        ("cumulate(event_time, '1 minute')", "windows grow anyway"),
    ],
)
def test_a_window_that_cannot_be_is_refused_with_what_to_write(text: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        window(sqlglot.parse_one(text, read="spark"))


def test_the_calendar_s_windows_are_those_of_a_zone() -> None:
    day = sqlglot.parse_one("date_trunc('day', event_time)", read="spark")
    hour = sqlglot.parse_one("date_trunc('hour', event_time)", read="spark")
    assert [is_calendar(one) for one in (day, hour, None)] == [True, True, False]
    berlin, india = calendar(day, "Europe/Berlin"), calendar(hour, "Asia/Kolkata")
    assert (berlin.unit, berlin.zone, berlin.size_ms) == ("day", "Europe/Berlin", 90_000_000)
    assert india == Window(size_ms=60 * MINUTE, slide_ms=60 * MINUTE, offset_ms=30 * MINUTE)


def test_times_and_zones_are_read_or_refused_by_name() -> None:
    assert [duration_ms(text, "x") for text in ("2 WEEKS", " interval 3 second ", "1day")] == [
        1_209_600_000,
        3_000,
        86_400_000,
    ]
    for text in ("-1 day", "1.5 hours", "² days", "1 month", "9" * 10 + " days"):
        with pytest.raises(QueryError, match="expected a number and a unit"):
            duration_ms(text, "x")
    assert zone_of("Europe/Berlin") == "Europe/Berlin"
    with pytest.raises(QueryError, match="did you mean 'Europe/Berlin'"):
        zone_of("Europe/Berln")
