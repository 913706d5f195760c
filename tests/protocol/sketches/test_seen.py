"""Was it seen before: never a remembered value denied, a new one taken for seen no more often than
declared, a state that is bounded and survives being written down.
"""

from __future__ import annotations

import math
import random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.protocol.sketches import seen
from edgewake.protocol.sketches.seen import Seen
from tests.examples import examples


def answers(memory: Seen, values: list[tuple[int, str]]) -> tuple[list[bool], object]:
    """With the state written down and read again after each."""
    state, found = None, []
    for t, text in values:
        state, was_seen = memory.step(state, t, text)
        state = orjson.loads(orjson.dumps(state))
        found.append(was_seen)
    return found, state


@pytest.mark.parametrize("capacity", [100, 1_000, pytest.param(5_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("error", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("times", [0.5, 1, 10])
def test_a_new_value_is_taken_for_seen_no_more_often_than_declared(
    capacity: int, error: float, times: float
) -> None:
    """Ten times over the capacity too: the oldest are forgotten, the error stays."""
    memory, state = Seen(capacity, error), None
    count = round(capacity * times)
    for i in range(count):
        state, _ = memory.step(state, i, f"value-{i}")
    probes = 5_000
    wrong = sum(memory.step(state, count, f"absent-{i}")[1] for i in range(probes))
    assert wrong <= probes * error + 5 * math.sqrt(probes * error * (1 - error))
    latest = range(max(0, count - capacity), count)
    assert all(memory.step(state, count, f"value-{i}")[1] for i in latest)


def test_beyond_the_capacity_the_oldest_are_forgotten() -> None:
    """The control of the bound: a filter that never forgets would say yes of all of them."""
    memory = Seen(400, 0.001)
    _, state = answers(memory, [(i, f"value-{i}") for i in range(3_000)])
    remembered = [i for i in range(3_000) if memory.step(state, 3_000, f"value-{i}")[1]]
    assert set(range(2_600, 3_000)) <= set(remembered)
    assert len(remembered) <= 2.25 * 400 + 10


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), max_size=120),
    st.integers(10, 20),
    st.sampled_from([None, 8, 40]),
)
@settings(max_examples=examples(300), deadline=None)
def test_a_value_that_must_be_remembered_is_never_denied(
    steps: list[tuple[int, int]], capacity: int, forget_ms: int | None
) -> None:
    """Against lists of all that came: the `capacity` latest values, of the time if there is one."""
    memory, state, t = Seen(capacity, 0.001, forget_ms), None, 0
    came: list[tuple[int, str]] = []
    for after, number in steps:
        t, text = t + after // 10, f"v{number}"
        latest = list(dict.fromkeys(one for _, one in reversed(came)))[:capacity]
        last = max((at for at, one in came if one == text), default=None)
        must = text in latest and (forget_ms is None or t - (last or 0) < forget_ms)
        state, was_seen = memory.step(state, t, text)
        state = orjson.loads(orjson.dumps(state))
        assert was_seen or not must
        assert last is not None or not was_seen, "of so few values there are lists, and no error"
        came.append((t, text))


@pytest.mark.parametrize("forget_ms", [1_000, 86_400_000])
@pytest.mark.parametrize("others", [0, 3, 40])
def test_a_value_is_forgotten_after_its_time_and_at_most_a_quarter_later(
    forget_ms: int, others: int
) -> None:
    memory, begin = Seen(1_000, 0.001, forget_ms), 1_790_000_000_000
    state, _ = memory.step(None, begin, "first")
    for i in range(others):
        state, _ = memory.step(state, begin + i * forget_ms // (others + 1), f"other {i}")
    assert memory.step(state, begin + forget_ms - 1, "first")[1]
    assert not memory.step(state, begin + forget_ms + forget_ms // 4, "first")[1]


def test_a_value_that_comes_again_is_remembered_from_then_on() -> None:
    memory = Seen(1_000, 0.001, 1_000)
    found, _ = answers(memory, [(t, "it") for t in (0, 900, 1_800, 2_700, 4_200, 4_300)])
    assert found == [False, True, True, True, False, True]


def test_a_time_that_goes_backwards_forgets_nothing() -> None:
    memory = Seen(1_000, 0.001, 1_000)
    found, _ = answers(memory, [(5_000, "a"), (100, "b"), (90, "b"), (80, "a"), (5_100, "b")])
    assert found == [False, False, True, True, True]


@pytest.mark.parametrize(("forget_ms", "size"), [(None, 6_200), (1_000_000, 17_500)])
def test_the_state_is_bounded_and_small_for_few_values(forget_ms: int | None, size: int) -> None:
    memory, rng, state = Seen(forget_ms=forget_ms), random.Random(1), None
    sizes = []
    for i in range(12_000):
        state, _ = memory.step(state, i * 97, str(rng.random()))
        sizes.append(len(orjson.dumps(state)))
    assert sizes[9] < 300
    assert size * 0.8 < max(sizes) < size


def test_the_largest_state_is_what_its_bound_says() -> None:
    memory = Seen(seen.CAPACITY_MAX, seen.ERROR_MIN, 1_000_000)
    state, _ = answers(memory, [(0, str(i)) for i in range(1_500)])[1], None
    assert isinstance(state, list)
    assert (seen.PARTS + 3) * len(orjson.dumps(state)) < 225_000


def test_the_state_of_today_is_read_for_ever() -> None:
    state = FROZEN
    memory = Seen(80, 0.5, 60_000)
    found = [memory.step(state, 20_009, text)[1] for text in ("a", "v3", "v9", "b")]
    assert found == [True, True, True, False]
    came = [(1, "a"), *((20_000 + i, f"v{i}") for i in range(12))]
    assert answers(memory, came)[1] == FROZEN


FROZEN: object = [
    [1, 1, [8863373810831573271]],
    [20000, 12, "CAAAAAAEACQAAEBACAAEAACABGBAEAACAAEIAECAAAgABAAAEgAEwAEAiYAAIoAEREAEICCAAggAB"],
]
