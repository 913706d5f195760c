"""A publish that is not confirmed, among others that are: each is given its own time, from when it
has left.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.liveness import PUBACK_KEEPALIVES, SILENT_KEEPALIVES, Liveness, Outgoing

KEEPALIVE_S = 10.0
ALL_CONFIRMED = Outgoing(500, 0)


def looked_at(oldest: dict[int, int | None], until_s: int) -> list[tuple[int, str]]:
    """When one that hears something each second is given up, and why; `oldest`: packet id of the
    oldest publish, from a second on.
    """
    liveness = Liveness(KEEPALIVE_S, now_s=0)
    found, now = [], None
    for second in range(until_s):
        now = oldest.get(second, now)
        liveness.heard(second)
        if (why := liveness.check(second, ALL_CONFIRMED, now)) is not None:
            found.append((second, why))
    return found


def test_one_that_is_never_confirmed_is_said_with_its_seconds() -> None:
    assert looked_at({0: 7}, 17) == [(16, "a publish was not confirmed for 16 s")]


def test_a_number_that_comes_again_is_another_publish() -> None:
    """Packet ids are used again as soon as they are confirmed."""
    assert looked_at({0: 7, 10: None, 12: 7}, 28) == []
    assert looked_at({0: 7, 10: None, 12: 7}, 29) == [(28, "a publish was not confirmed for 16 s")]


def test_the_next_one_has_its_own_time() -> None:
    assert looked_at({0: 7, 15: 8, 30: 9}, 46) == []


@pytest.mark.parametrize(
    ("silent_s", "dead"),
    [(SILENT_KEEPALIVES * KEEPALIVE_S, False), (SILENT_KEEPALIVES * KEEPALIVE_S + 0.1, True)],
)
def test_silence_is_counted_to_the_moment(silent_s: float, dead: bool) -> None:
    liveness = Liveness(KEEPALIVE_S, now_s=100)
    liveness.heard(200)
    assert (liveness.check(200 + silent_s, Outgoing(0, 0), None) is not None) is dead


@pytest.mark.parametrize(
    ("waits_s", "dead"),
    [(PUBACK_KEEPALIVES * KEEPALIVE_S, False), (PUBACK_KEEPALIVES * KEEPALIVE_S + 0.1, True)],
)
def test_a_publish_that_has_left_has_its_time_to_the_moment(waits_s: float, dead: bool) -> None:
    liveness = Liveness(KEEPALIVE_S, now_s=0)
    assert liveness.check(0, ALL_CONFIRMED, 7) is None
    liveness.heard(waits_s)
    assert (liveness.check(waits_s, ALL_CONFIRMED, 7) is not None) is dead


@pytest.mark.parametrize(
    ("confirmed", "waiting", "lives"),
    [(1, 1, True), (1, 0, False), (0, 1, False)],
    ids=["one byte moved and more wait", "one byte moved and none waits", "nothing moved"],
)
def test_bytes_that_move_are_a_sign_of_life_while_others_wait(
    confirmed: int, waiting: int, lives: bool
) -> None:
    liveness = Liveness(KEEPALIVE_S, now_s=0)
    assert liveness.check(14, Outgoing(confirmed, waiting), None) is None
    assert (liveness.check(16, Outgoing(confirmed, waiting), None) is None) is lives


@given(st.lists(st.tuples(st.floats(0.1, 5), st.booleans()), max_size=30))
def test_one_that_is_heard_and_confirms_each_publish_within_its_time_is_never_given_up(
    steps: list[tuple[float, bool]],
) -> None:
    liveness, now_s = Liveness(KEEPALIVE_S, now_s=0), 0.0
    for packet, (passed_s, is_open) in enumerate(steps):
        now_s += passed_s
        liveness.heard(now_s)
        assert liveness.check(now_s, ALL_CONFIRMED, packet // 2 if is_open else None) is None, (
            "each is the oldest for 10 s at most"
        )
