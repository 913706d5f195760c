"""Windows as values: which one a time is in, and up to where windows are over."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from edgewake.cloud.analysis.results.emit import closed, watermark
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.terms.windows import Window

HOUR = 3_600_000
T = 1_790_000_040_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "latest", "over"),
    [
        (Window(size_ms=60_000, slide_ms=60_000), (T, T + 60_000), T),
        (Window(size_ms=60_000, slide_ms=10_000), (T, T + 60_000), T),
        (
            Window(size_ms=60_000, slide_ms=60_000, offset_ms=17_000),
            (T - 43_000, T + 17_000),
            T - 43_000,
        ),
        (Window(size_ms=25, slide_ms=10, offset_ms=3), (T - 7, T + 18), T - 2),
        (
            Window(size_ms=25 * HOUR, slide_ms=25 * HOUR, unit="day", zone="UTC"),
            (ms("2026-09-21"), ms("2026-09-22")),
            ms("2026-09-21"),
        ),
        (Window(size_ms=1, slide_ms=1), (T, T + 1), T),
    ],
)
def test_a_window_says_where_it_is_and_what_is_over(
    window: Window, latest: tuple[int, int], over: int
) -> None:
    assert window.latest(T) == latest
    assert window.over(T) == over
    assert window.over(over) == over
    assert window.over(over - 1) < over


@pytest.mark.parametrize(
    ("unit", "zone", "at", "begin", "end"),
    [
        ("day", "Europe/Berlin", "2027-03-28 12:00", "2027-03-27 23:00", "2027-03-28 22:00"),
        ("day", "Europe/Berlin", "2027-10-31 12:00", "2027-10-30 22:00", "2027-10-31 23:00"),
        ("day", "America/Santiago", "2026-09-06 12:00", "2026-09-06 04:00", "2026-09-07 03:00"),
        ("week", "Asia/Kolkata", "2026-09-20 20:00", "2026-09-20 18:30", "2026-09-27 18:30"),
        ("month", "America/New_York", "2026-12-01 02:00", "2026-11-01 04:00", "2026-12-01 05:00"),
        ("quarter", "UTC", "2026-11-22 00:00", "2026-10-01", "2027-01-01"),
        ("year", "Europe/Berlin", "2026-12-31 23:30", "2026-12-31 23:00", "2027-12-31 23:00"),
    ],
)
def test_the_calendar_follows_its_zone(unit: str, zone: str, at: str, begin: str, end: str) -> None:
    window = Window(size_ms=1, slide_ms=1, unit=unit, zone=zone)
    assert window.latest(ms(at)) == (ms(begin), ms(end))
    assert window.latest(ms(end) - 1) == (ms(begin), ms(end))
    assert window.latest(ms(end))[0] == ms(end) == window.over(ms(end))


def test_windows_are_final_when_event_time_is_past_their_end_and_lateness() -> None:
    header = "-- name: q\n-- zone: Europe/Berlin\n-- lateness: 1 hour\n-- reopen: 1 hour\n"
    query = parse(f"{header}SELECT count(*) AS n FROM s GROUP BY date_trunc('day', event_time)")
    end = ms("2026-09-21 22:00")
    assert (watermark(query, end + HOUR - 1), watermark(query, end + HOUR)) == (
        end - 24 * HOUR,
        end,
    )
    assert (closed(query, end + 2 * HOUR - 1), closed(query, end + 2 * HOUR)) == (
        end - 24 * HOUR,
        end,
    )


def test_an_hour_in_a_zone_begins_with_that_zones_hour() -> None:
    query = parse(
        "-- name: q\n-- zone: Asia/Kolkata\nSELECT count(*) AS n FROM s GROUP BY "
        "date_trunc('hour', event_time)"
    )
    assert query.window.latest(ms("2026-09-21 10:00")) == (
        ms("2026-09-21 09:30"),
        ms("2026-09-21 10:30"),
    )
