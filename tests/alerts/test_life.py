"""The life of one alert, step by step."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.alerts.life import (
    FLAP_WINDOW_MS,
    FLAPS_MAX,
    KEPT_MS,
    look,
    loud,
    pass_time,
    say,
    wants,
    wants_again,
)
from edgewake.protocol.ops.alert import HISTORY_MAX, Alert, Rule, State, Word
from tests.alerts.build import T0, at, rule, seen


def lived(a_rule: Rule, *looks: tuple[float, bool | None]) -> Alert | None:
    alert = None
    for seconds, holds in looks:
        alert = look(alert, seen(seconds, holds), a_rule)
    return alert


def said(alert: Alert, what: str, seconds: float, until: int = 0) -> Alert:
    word = Word.model_validate(
        {"id": "1", "rule": "hot", "key": alert.key, "what": what, "until": until}
        | {"who": "ann", "at": at(seconds), "why": "mine"}
    )
    return say(alert, word)


def there(alert: Alert | None) -> Alert:
    assert alert is not None
    return alert


def test_without_a_wait_it_fires_at_once_and_is_over_at_once():
    alert = there(lived(rule(), (0, True)))
    assert (alert.state, alert.since) == (State.FIRING, at(0))
    alert = there(lived(rule(), (0, True), (5, False)))
    assert (alert.state, alert.since) == (State.RESOLVED, at(5))


def test_a_condition_that_does_not_hold_long_enough_leaves_nothing():
    waiting = rule(for_s=60)
    assert there(lived(waiting, (0, True))).state is State.PENDING
    assert lived(waiting, (0, True), (59, False)) is None


def test_it_fires_when_the_wait_is_over_also_without_another_reading():
    waiting = rule(for_s=60)
    alert = there(lived(waiting, (0, True)))
    assert there(pass_time(alert, at(59.9), waiting)).state is State.PENDING
    fired = there(pass_time(alert, at(75), waiting))
    assert (fired.state, fired.since) == (State.FIRING, at(60))


def test_who_catches_up_finds_the_life_that_was():
    waiting = rule(for_s=60, over_for_s=30)
    alert = there(lived(waiting, (0, True), (100, False), (500, True)))
    assert [entry.what for entry in alert.history] == ["pending", "firing", "resolved", "pending"]
    assert [entry.at for entry in alert.history] == [at(0), at(60), at(130), at(500)]


def test_between_the_two_conditions_nothing_happens():
    alert = there(lived(rule(until="temperature < 28"), (0, True), (5, None), (9, None)))
    assert (alert.state, alert.last_at) == (State.FIRING, at(9))


def test_it_is_over_only_when_it_was_over_long_enough():
    waiting = rule(over_for_s=30)
    alert = there(lived(waiting, (0, True), (10, False), (20, True), (30, False)))
    assert (alert.state, alert.over_since) == (State.FIRING, at(30))
    assert there(pass_time(alert, at(60), waiting)).state is State.RESOLVED


def test_what_was_not_heard_of_for_long_is_over_where_the_rule_says_so():
    alert = there(lived(rule(stale_s=60), (0, True)))
    assert there(pass_time(alert, at(3600), rule())).state is State.FIRING
    gone = there(pass_time(alert, at(3600), rule(stale_s=60)))
    assert (gone.state, gone.since) == (State.RESOLVED, at(60))


def test_a_correction_of_an_older_window_changes_nothing():
    windows = rule(query="means", stream=None)
    alert = look(None, seen(0, True, place=200), windows)
    assert look(alert, seen(1, False, place=100), windows) is alert
    assert there(look(alert, seen(1, False, place=200), windows)).state is State.RESOLVED


def test_who_takes_it_is_in_its_history_and_it_is_not_told_again():
    again = rule(again_s=60)
    alert = there(lived(again, (0, True))).model_copy(update={"told": "firing", "told_at": at(0)})
    assert wants_again(alert, at(60), again)
    taken = said(alert, "acknowledge", 30)
    assert (taken.state, taken.by, taken.history[-1].who) == (State.ACKNOWLEDGED, "ann", "ann")
    assert not wants_again(taken, at(600), again)
    assert there(look(taken, seen(700, False), again)).state is State.RESOLVED


def test_snoozed_it_is_silent_and_told_afterwards_as_it_is_then():
    alert = said(there(lived(rule(), (0, True))), "snooze", 1, until=at(100))
    assert not wants(alert, at(99))
    assert wants(alert, at(100))
    over = there(look(alert, seen(50, False), rule()))
    assert not wants(over, at(100)), "nobody was told that it fired"


def test_one_that_flaps_counts_as_firing_until_it_is_calm():
    turns = [(float(second), second % 2 == 0) for second in range(FLAPS_MAX)]
    before = there(lived(rule(), *turns[:-1]))
    alert = there(lived(rule(), *turns))
    assert (before.flapping, alert.flapping) == (False, True)
    assert alert.state is State.RESOLVED
    assert loud(alert) == "firing"
    calm = there(pass_time(alert, at(FLAPS_MAX) + FLAP_WINDOW_MS, rule()))
    assert not calm.flapping


def test_what_is_over_is_forgotten_after_a_week_but_never_before_it_was_told():
    alert = there(lived(rule(), (0, True), (1, False)))
    assert pass_time(alert, at(1) + KEPT_MS + 1, rule()) is None
    untold = alert.model_copy(update={"told": "firing"})
    assert pass_time(untold, at(1) + KEPT_MS + 1, rule()) is not None


@given(
    st.lists(
        st.tuples(st.integers(1, 400), st.sampled_from([True, False, None])),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, 300),
    st.integers(0, 300),
    st.sampled_from([0, 500]),
)
def test_whatever_is_seen_a_life_goes_its_way(
    looks: list[tuple[int, bool | None]], for_s: int, over_for_s: int, stale_s: int
):
    a_rule = rule(for_s=for_s, over_for_s=over_for_s, stale_s=stale_s)
    now, alert, follows = 0.0, None, {"": {"pending"}}
    follows |= {"pending": {"firing", "resolved", "pending"}, "firing": {"resolved"}}
    follows |= {"resolved": {"pending"}}
    for wait, holds in looks:
        now += wait
        alert = look(alert, seen(now, holds), a_rule)
        if alert is None:
            continue
        states = [one.what for one in alert.history if one.what not in ("flapping", "calm")]
        assert len(alert.history) <= HISTORY_MAX
        assert all(b in follows[a] for a, b in itertools.pairwise(states))
        times = [one.at for one in alert.history if one.what not in ("flapping", "calm")]
        assert times == sorted(times)
        assert alert.since >= T0


def states(alert: Alert | None) -> list[tuple[str, int]]:
    history = () if alert is None else alert.history
    return [(one.what, one.at) for one in history if one.what not in ("flapping", "calm")]


@given(
    st.lists(st.tuples(st.integers(1, 20), st.sampled_from([True, False, None])), max_size=5),
    st.fixed_dictionaries(
        {name: st.sampled_from([0, 1, 7, 30]) for name in ("for_s", "over_for_s", "stale_s")}
    ),
)
def test_a_judge_that_catches_up_finds_the_same_life_as_one_that_was_there(
    looks: list[tuple[int, bool | None]], waits: dict[str, int]
) -> None:
    a_rule = rule(**waits)
    now, late, there_always = 0, None, None
    for wait, holds in [*looks, (32, None)]:
        for second in range(now, now + wait + 1):
            there_always = there_always and pass_time(there_always, at(second), a_rule)
        now += wait
        there_always = look(there_always, seen(now, holds), a_rule)
        late = look(late, seen(now, holds), a_rule)
        assert states(late) == states(there_always)
    assert (late and late.flapping) == (there_always and there_always.flapping)


def test_what_fired_before_it_was_stale_did_fire_however_late_time_passes() -> None:
    alert = there(lived(rule(for_s=1, stale_s=7), (0, True)))
    after = there(pass_time(alert, at(60), rule(for_s=1, stale_s=7)))
    assert [what for what, _ in states(after)] == ["pending", "firing", "resolved"]
    assert [time for _, time in states(after)] == [at(0), at(1), at(7)]
