"""Quiet hours: when they are, by the wall clock of their zone, and whom they keep waiting."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edgewake.cloud.alerts import quiet
from edgewake.cloud.alerts.telling import news, told
from edgewake.protocol.frames.event_time import zone_of
from edgewake.protocol.ops.alert import Quiet, Severity, State
from tests.alerts.build import rule
from tests.alerts.test_telling import alert

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = {"name": "night", "begins": "22:00", "ends": "07:00", "zone": "Europe/Berlin"}


def ms(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp() * 1000)


@pytest.mark.parametrize(
    ("now", "end"),
    [
        ("2026-11-27T21:59:59", None),
        ("2026-11-27T22:00:00", "2026-11-28T07:00:00"),
        ("2026-11-28T00:00:00", "2026-11-28T07:00:00"),
        ("2026-11-28T06:59:59", "2026-11-28T07:00:00"),
        ("2026-11-28T07:00:00", None),
    ],
)
def test_a_night_is_over_midnight_and_ends_in_the_morning(now: str, end: str | None) -> None:
    assert quiet.until(rule(quiet=NIGHT), ms(now)) == (0 if end is None else ms(end))


def test_the_clock_of_the_zone_counts_and_not_that_of_the_machine() -> None:
    noon = {"name": "siesta", "begins": "13:00", "ends": "15:00"}
    tokyo, utc = rule(quiet=noon | {"zone": "Asia/Tokyo"}), rule(quiet=noon | {"zone": "UTC"})
    now = ms("2026-11-27T14:00:00", ZoneInfo("Asia/Tokyo"))
    assert quiet.until(tokyo, now) == now + 3_600_000
    assert quiet.until(utc, now) == 0


def test_an_hour_that_comes_twice_ends_after_now_and_one_that_is_left_out_ends_too() -> None:
    late = rule(quiet=NIGHT | {"ends": "02:30"})
    second = ms("2026-10-25T02:10:00", fold=1)
    assert quiet.until(late, second) == second + 20 * 60_000
    assert quiet.until(late, ms("2026-03-29T01:59:00")) > ms("2026-03-29T01:59:00")
    assert quiet.until(late, ms("2026-03-29T03:00:00")) == 0


@pytest.mark.parametrize(
    ("severity", "passes", "waits"),
    [
        ("info", "critical", True),
        ("warning", "critical", True),
        ("critical", "critical", False),
        ("critical", "warning", False),
        ("warning", "warning", False),
        ("critical", None, True),
    ],
)
def test_who_is_severe_enough_goes_through(severity: str, passes: str | None, waits: bool) -> None:
    night = rule(quiet=NIGHT | {"passes": passes}, severity=Severity(severity))
    assert bool(quiet.until(night, ms("2026-11-27T23:00:00"))) == waits


def test_in_quiet_hours_nothing_is_told_and_after_them_how_it_is_then() -> None:
    def news_at(clock: str, *alerts: Any) -> list[str]:
        return [one.key for one in news(alerts, hot, ms(clock))]

    hot = rule(quiet=NIGHT, group_s=10, again_s=60)
    since = {"since": ms("2026-11-27T23:00:00"), "last_at": ms("2026-11-27T23:00:00")}
    fires = alert("fires").model_copy(update=since)
    is_over = alert("over", State.RESOLVED).model_copy(update=since)
    was_told = told(alert("told"), ms("2026-11-27T20:00:00"))
    assert news_at("2026-11-28T06:59:59", fires, is_over, was_told) == []
    assert news_at("2026-11-28T07:00:00", fires, is_over, was_told) == ["fires", "told"]


@given(now=st.integers(), begins=st.times(), ends=st.times())
def test_they_end_within_a_day_and_a_time_that_no_calendar_has_ends_nobody(
    now: int, begins: Any, ends: Any
) -> None:
    span = {"begins": f"{begins:%H:%M}", "ends": f"{ends:%H:%M}"}
    if span["begins"] == span["ends"]:
        return
    end = quiet.until(rule(quiet=NIGHT | span), now)
    assert end == 0 or now < end <= now + 25 * 3_600_000


@pytest.mark.parametrize(
    "wrong",
    [{"begins": "24:00"}, {"ends": "7:00"}, {"ends": "22:00"}, {"name": ""}, {"days": ["mon"]}],
)
def test_a_span_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Quiet.model_validate(NIGHT | wrong)


@pytest.mark.parametrize("name", ["Europe/Nowhere", "Europe", "../etc/passwd", ""])
def test_a_zone_that_is_unknown_keeps_nothing_back(name: str) -> None:
    with pytest.raises(ValueError, match="expected a time zone"):
        zone_of(name)
    assert quiet.until(rule(quiet=NIGHT | {"zone": name}), ms("2026-11-27T23:00:00")) == 0
