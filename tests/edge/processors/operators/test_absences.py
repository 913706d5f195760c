"""The states of one absence rule, for the device or for each thing behind it."""

from __future__ import annotations

from edgewake.edge.processors.config import AbsenceConfig
from edgewake.edge.processors.operators.absences import OWN, Absences

CONFIG = AbsenceConfig.checked({"name": "quiet", "stream": "s", "into": "alerts", "after_s": 10})


def begun(*things: str, kept: bytes | None = None) -> Absences:
    return Absences.resumed(CONFIG, kept, things, now_s=0, now_ms=1_790_000_000_000)


def silent(one: Absences, now_s: float) -> set[str]:
    """The things whose alert is raised now."""
    return set(one.silent(now_s=now_s, now_ms=1_790_000_000_000 + round(now_s * 1000)))


def test_each_is_told_once_when_it_has_been_silent_for_too_long() -> None:
    one = begun("a", "b")
    one.heard(["b"], now_s=5, now_ms=1_790_000_005_000)
    assert (silent(one, 9), silent(one, 11), silent(one, 12), silent(one, 16)) == (
        set(), {"a"}, set(), {"b"},
    )  # fmt: skip
    assert one.active == 2


def test_the_time_left_is_that_of_the_next_one_and_none_where_all_are_told() -> None:
    one = begun("a", "b")
    one.heard(["b"], now_s=5, now_ms=1_790_000_005_000)
    assert one.left_s(6) == 4
    silent(one, 20)
    assert one.left_s(20) is None


def test_an_alert_is_over_with_the_next_reading_and_told_once() -> None:
    one = begun(OWN)
    silent(one, 11)
    assert set(one.heard([OWN], now_s=12, now_ms=1_790_000_012_000)) == {OWN}
    assert one.heard([OWN], now_s=13, now_ms=1_790_000_013_000) == {}


def test_an_alert_that_is_raised_stays_raised_over_a_restart() -> None:
    before = begun("a", "b")
    before.heard(["b"], now_s=5, now_ms=1_790_000_005_000)
    silent(before, 11)
    after = begun("a", "b", kept=before.encode())
    assert (after.active, silent(after, 11)) == (1, {"b"})


def test_a_thing_is_watched_from_its_first_reading_on() -> None:
    one = begun()
    assert one.left_s(0) is None
    one.heard(["new"], now_s=100, now_ms=1_790_000_100_000)
    assert silent(one, 110) == {"new"}


def test_a_state_that_cannot_be_read_raises_nothing() -> None:
    assert [begun("a", kept=kept).active for kept in (b"{", b"[]", b'{"a":7}', b'{"a":{}}')] == [
        0
    ] * 4
