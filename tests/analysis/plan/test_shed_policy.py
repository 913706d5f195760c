"""When readings are left out: above the declared lag and no longer, without flapping, and always
the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.plan import shed_policy
from edgewake.cloud.analysis.plan.shed_policy import (
    LEVEL_MAX,
    STEP_MS,
    WINDOWS_MAX,
    ZONES_MAX,
    Shedding,
    counted,
    decided,
    lag_ms,
)

T0 = 1_790_000_040_000
ABOVE_MS = 60_000
OTHERS_SHARE = 0.15
"""Of a reading's cost, what it costs also where it is left out."""


@dataclass
class Simulated:
    """A lane that can compute so many readings a second when it takes all, and reads what waits in
    the order in which it came.
    """

    per_s: Callable[[int], float]
    """Second → readings that come."""
    capacity_per_s: float = 1_000
    may_shed: bool = True
    second: int = 0
    waiting: list[tuple[int, float]] = field(default_factory=list)
    registered_at: int = 0
    shedding: Shedding = field(default_factory=Shedding)
    lags: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)

    def run(self, seconds: int) -> Simulated:
        for _ in range(seconds):
            self.step()
        return self

    def step(self) -> None:
        self.waiting.append((self.second, self.per_s(self.second)))
        self.second += 1
        level = self.shedding.level
        able = self.capacity_per_s / (OTHERS_SHARE + (1 - OTHERS_SHARE) / 2**level)
        while self.waiting and able > 0:
            second, readings = self.waiting.pop(0)
            if readings > able:
                self.waiting.insert(0, (second, readings - able))
            able -= readings
        lag = 1000 * (self.second - self.waiting[0][0]) if self.waiting else 0
        if self.may_shed:
            now = T0 + self.second * 1000
            self.shedding = decided(
                self.shedding,
                lag_ms=lag,
                above_ms=ABOVE_MS,
                now_ms=now,
                offsets={0: self.second},
                registered_at=self.registered_at,
            )
        self.lags.append(lag)
        self.levels.append(self.shedding.level)

    @property
    def changes(self) -> int:
        return sum(one != other for one, other in pairwise(self.levels))


def overloaded(second: int) -> float:
    """Three times too much for ten minutes, from the second minute on."""
    return 3_000 if 60 <= second < 660 else 700


def test_a_lag_is_held_at_what_was_declared_and_everything_is_taken_again_when_it_is_gone() -> None:
    found = Simulated(overloaded).run(1_200)

    first = next(i for i, level in enumerate(found.levels) if level)
    assert found.lags[first] > ABOVE_MS
    assert max(found.lags[first + 120 : 660]) <= 1.2 * ABOVE_MS, (
        "two minutes after it began the lag is about what was declared"
    )
    assert max(found.levels) <= 4, "a third is needed, and half of it more for what has piled up"
    assert set(found.levels[:first]) == set(found.levels[-300:]) == {0}
    assert found.changes <= 12
    control = Simulated(overloaded, may_shed=False).run(660)
    assert control.lags[-1] > 5 * ABOVE_MS, (
        "without it the lag grows for as long as there is too much"
    )


def test_a_stream_that_is_always_too_much_settles_and_tries_less_only_now_and_then() -> None:
    found = Simulated(lambda _: 1_500).run(7_200)
    last = found.levels[3_600:]
    assert set(last) <= {0, 1, 2}
    assert sum(one != other for one, other in pairwise(last)) <= 20, "in an hour"
    assert max(found.lags[3_600:]) <= 1.5 * ABOVE_MS


def test_a_lag_that_goes_by_itself_leaves_nothing_out() -> None:
    """The analysis was away for 100 seconds; what waited is read four times as fast as it comes."""
    found = Simulated(lambda _: 250, waiting=[(second, 250) for second in range(-100, 0)]).run(300)
    assert max(found.lags) > ABOVE_MS
    assert found.lags[-1] <= 1_000
    assert found.shedding.zones == ()


HISTORY = [(second, 500) for second in range(-3_600, 0)]


@pytest.mark.parametrize("capacity_per_s", [700, 1_500, 20_000])
def test_what_was_there_before_the_query_is_no_lag(capacity_per_s: float) -> None:
    """An hour of readings that the query was not there for; then it catches up with what came
    meanwhile, slowly or fast.
    """
    found = Simulated(lambda _: 500, capacity_per_s, waiting=list(HISTORY), registered_at=T0).run(
        12_000
    )
    assert max(found.lags) > 3_000_000
    assert found.lags[-1] <= 1_000
    assert found.shedding.zones == (), "nothing was left out"
    control = Simulated(lambda _: 500, capacity_per_s, waiting=list(HISTORY)).run(60)
    assert capacity_per_s > 10_000 or control.shedding.level > 0, (
        "of a query that was there it is lag"
    )


def test_a_query_that_cannot_catch_up_sheds_when_that_is_seen_and_one_that_has_sheds_as_ever() -> (
    None
):
    slow = Simulated(
        lambda second: 900 if second < 600 else 3_000,
        waiting=[(s, 500) for s in range(-100, 0)],
        registered_at=T0,
    ).run(2_000)
    first = next(i for i, level in enumerate(slow.levels) if level)
    assert 600 <= first <= 600 + 2 * shed_policy.FILL_MS // 1_000 + ABOVE_MS // 1_000
    assert slow.lags[-1] <= 1.5 * ABOVE_MS


@given(st.lists(st.tuples(st.integers(0, 400_000), st.integers(0, 100_000)), max_size=60))
def test_whatever_the_lag_did_levels_rise_by_one_above_it_and_go_back_below_it(
    looks: list[tuple[int, int]],
) -> None:
    shedding, now = Shedding(), T0
    for place, (lag, apart) in enumerate(looks):
        now += apart
        after = decided(shedding, lag_ms=lag, above_ms=ABOVE_MS, now_ms=now, offsets={0: place})
        if after.level > shedding.level:
            assert lag > ABOVE_MS
            assert after.level == shedding.level + 1 <= LEVEL_MAX
        elif after.level < shedding.level:
            assert lag <= ABOVE_MS / 2
        if after.zones != shedding.zones:
            assert after.zones[-1].offsets == {0: place}
            assert after.zones[:-1] == shedding.zones[-(ZONES_MAX - 1) :]
        shedding = after
    for _ in range(2):
        now += shed_policy.CALM_MS * shed_policy.PATIENCE_MAX * LEVEL_MAX
        shedding = decided(shedding, lag_ms=0, above_ms=ABOVE_MS, now_ms=now, offsets={})
    assert (shedding.level, shedding.kept) == (0, 1.0)


def test_a_step_is_seen_before_the_next_one_and_a_clock_that_is_set_back_holds_nothing_up() -> None:
    one = decided(Shedding(), lag_ms=70_000, above_ms=ABOVE_MS, now_ms=T0, offsets={})
    assert one.level == 0, "of one look no pace is known"
    one = decided(one, lag_ms=70_000, above_ms=ABOVE_MS, now_ms=T0 + 1_000, offsets={})
    assert one.level == 1
    same = decided(one, lag_ms=70_000, above_ms=ABOVE_MS, now_ms=T0 + STEP_MS, offsets={})
    assert same.level == 1
    back = decided(same, lag_ms=70_000, above_ms=ABOVE_MS, now_ms=T0 - 3_600_000, offsets={})
    assert (
        decided(back, lag_ms=70_000, above_ms=ABOVE_MS, now_ms=T0 - 3_599_000, offsets={}).level
        == 2
    )


@pytest.mark.parametrize(
    ("left", "received_at", "expected"),
    [
        (None, {0: T0}, None),
        ({0: 0, 1: 0}, {}, 0),
        ({0: 5, 1: 5}, {0: T0 - 9_000, 1: T0 - 2_000}, 9_000),
        ({0: 0, 1: 5}, {0: T0 - 9_000, 1: T0 - 2_000}, 2_000),
        ({0: 5, 1: 5}, {1: T0 - 2_000}, 2_000),
        ({0: 5}, {}, None),
        ({0: 5}, {0: T0 + 9_000}, 0),
    ],
)
def test_the_lag_is_that_of_the_partition_furthest_behind(
    left: Mapping[int, int] | None, received_at: Mapping[int, int], expected: int | None
) -> None:
    assert lag_ms(left, received_at, T0) == expected


@given(st.lists(st.dictionaries(st.integers(0, 90), st.integers(1, 50), max_size=5), max_size=30))
def test_what_windows_lack_is_counted_once_however_often_it_is_told(
    growth: list[dict[int, int]],
) -> None:
    """A window's count grows, and each batch tells those that it changed; a state that is computed
    again comes by where it was.
    """
    shedding, counts = Shedding(), dict.fromkeys(range(91), 0)
    for more in growth:
        for start, readings in more.items():
            counts[start] += readings
        said = {start: counts[start] for start in more}
        again = {start: readings // 2 for start, readings in said.items()}
        shedding = counted(counted(counted(shedding, said), again), said)
    assert shedding.total == sum(counts.values())


def test_of_more_windows_than_are_remembered_none_is_counted_twice() -> None:
    shedding = Shedding()
    for _ in range(2):
        shedding = counted(shedding, dict.fromkeys(range(3 * WINDOWS_MAX), 1))
    assert len(shedding.windows) == WINDOWS_MAX
    assert shedding.total == 3 * WINDOWS_MAX
