from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgewake.cloud.quiet_hours import is_quiet, quiet_until
from edgewake.protocol.leases.lease import QuietHours

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Santiago",
]
MINUTES = st.integers(0, 24 * 60 - 1).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
MOMENTS_MS = st.integers(0, 4_000_000_000_000)


def berlin(text: str) -> int:
    """A wall clock time in Berlin; with `*` at its end the second one of that name."""
    moment = datetime.fromisoformat(text.rstrip("*")).replace(
        tzinfo=ZoneInfo("Europe/Berlin"), fold=int(text.endswith("*"))
    )
    return round(moment.astimezone(UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("start", "end", "at", "until"),
    [
        ("22:00", "07:00", "2026-06-01T21:59", "2026-06-01T21:59"),
        ("22:00", "07:00", "2026-06-01T22:00", "2026-06-02T07:00"),
        ("22:00", "07:00", "2026-06-02T06:59", "2026-06-02T07:00"),
        ("22:00", "07:00", "2026-06-02T07:00", "2026-06-02T07:00"),
        ("12:00", "13:30", "2026-06-02T12:10", "2026-06-02T13:30"),
        ("22:00", "07:00", "2026-03-28T23:00", "2026-03-29T07:00"),  # a night of eight hours
        # The end is jumped over: 01:59 is followed by 03:00.
        ("22:00", "02:30", "2026-03-28T23:00", "2026-03-29T03:00"),
        ("22:00", "02:30", "2026-10-25T00:00", "2026-10-25T02:30"),
        # The hour that comes twice is quiet twice.
        ("22:00", "02:30", "2026-10-25T02:10*", "2026-10-25T02:30*"),
        # All of the loud minutes are jumped over.
        ("02:40", "02:20", "2026-03-29T01:00", "2026-03-30T02:20"),
    ],
)
def test_when_the_quiet_time_ends(start: str, end: str, at: str, until: str) -> None:
    assert quiet_until(
        QuietHours(start=start, end=end, timezone="Europe/Berlin"), berlin(at)
    ) == berlin(until)


@given(MINUTES, MINUTES, st.sampled_from(ZONES), MOMENTS_MS, st.floats(0, 1, exclude_max=True))
def test_it_is_quiet_until_the_end_and_not_at_the_end(
    start: str, end: str, zone: str, at: int, share: float
) -> None:
    assume(start != end)
    hours = QuietHours(start=start, end=end, timezone=zone)
    until = quiet_until(hours, at)
    assert at <= until <= at + 2 * 86_400_000
    assert not is_quiet(hours, until)
    assert (until == at) == (not is_quiet(hours, at))
    if until > at:
        assert is_quiet(hours, at + round((until - 1 - at) * share))


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": "22:00", "end": "22:00"},
        {"start": "24:00", "end": "07:00"},
        {"start": "7:00", "end": "08:00"},
        {"start": "22:00", "end": "07:00", "timezone": "Europe/Nowhere"},
        {"start": "22:00", "end": "07:00", "timezone": "../../etc/passwd"},
        {"start": "22:00", "end": "07:00", "timezone": "Europe"},
        {"start": "22:00", "end": "07:00", "timezone": ""},
    ],
)
def test_quiet_hours_that_have_no_meaning_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="QuietHours"):
        QuietHours.model_validate(wrong)
