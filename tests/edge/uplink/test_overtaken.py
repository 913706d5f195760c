"""What looks lost because later ones came through: sent again soon, within bounds; and a window
that is counted exactly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.keeping.lanes import PART, SHARE, URGENT_PART, Lane, Window
from edgewake.edge.uplink.session import HURRIED_MAX, OVERTAKEN_BY, UplinkEvent, UplinkSession
from tests.edge.uplink.test_session import KEPT, connect, out, send, streaming


def acknowledge(session: UplinkSession, *numbers: int, now_s: float) -> None:
    for number in numbers:
        session.on_ack(out(number).key, KEPT, now_s)


def test_a_frame_that_was_sent_again_is_not_behind_what_was_sent_before_that() -> None:
    """Frames 2 and 3 were passed by three others; frame 1 was not, for its last attempt was the
    latest of all.
    """
    session = streaming(*map(out, range(1, 7)))
    send(session, now_s=0)
    session.on_puback(1, 0, 0)
    assert send(session, now_s=10) == [1]
    acknowledge(session, 4, 5, 6, now_s=10.1)
    assert session.is_hurried
    assert send(session, now_s=1000) == [2, 3]


@pytest.mark.parametrize(
    ("acked", "hurried"), [((2,), []), ((2, 3), []), ((2, 3, 4), [1]), ((5, 4, 3), [1, 2])]
)
def test_three_must_have_passed(acked: tuple[int, ...], hurried: list[int]) -> None:
    assert OVERTAKEN_BY == 3
    session = streaming(*map(out, range(1, 6)))
    send(session, now_s=0)
    acknowledge(session, *acked, now_s=0.05)
    assert send(session, now_s=5) == hurried


@pytest.mark.parametrize(("took_s", "due_s"), [(0.01, 0.2), (0.1, 0.2), (0.11, 0.22), (2.0, 4.0)])
def test_a_hole_is_given_the_time_that_the_others_took_once_more_and_a_little_at_least(
    took_s: float, due_s: float
) -> None:
    session = streaming(*map(out, range(1, 5)))
    send(session, now_s=0)
    acknowledge(session, 2, 3, 4, now_s=took_s)
    assert session.next_due_s() == pytest.approx(due_s)


def test_one_acknowledged_repetition_passes_for_three() -> None:
    """It ends an outage: what was sent before it was lost with it."""
    session = streaming(*map(out, range(1, 5)))
    send(session, now_s=0)
    session.on_puback(3, 0, 0)
    assert send(session, now_s=10) == [3]
    acknowledge(session, 3, now_s=10.1)
    assert send(session, now_s=1000) == [1, 2, 4]


def test_after_its_patience_has_ended_a_frame_may_be_hurried_again() -> None:
    session = streaming(out(1))
    assert send(session, now_s=0) == [1]
    number, now_s = 1, 0.0

    def hurry(times: int) -> int:
        """How often frame 1 is sent again while three others pass it each time."""
        nonlocal number, now_s
        count = 0
        for _ in range(times):
            session.hand_over(out(number + each) for each in (1, 2, 3))
            now_s += 0.3
            count += send(session, now_s).count(1)
            acknowledge(session, number + 1, number + 2, number + 3, now_s=now_s + 0.01)
            number += 3
        return count

    assert hurry(HURRIED_MAX + 5) == HURRIED_MAX
    now_s += 100
    session.on_puback(1, 0, now_s)
    now_s = session.next_due_s() or 0.0
    assert send(session, now_s) == [1], "patience"
    assert hurry(HURRIED_MAX + 5) == HURRIED_MAX


def test_frames_of_other_streams_pass_too() -> None:
    session = streaming(out(1, "a"), *(out(number, "b") for number in (2, 3, 4)))
    send(session, now_s=0)
    for number in (2, 3, 4):
        session.on_ack(out(number, "b").key, KEPT, 0.1)
    assert send(session, now_s=5) == [1]


def test_what_waits_in_the_queue_is_not_hurried() -> None:
    session = streaming(*map(out, range(1, 5)))
    assert send(session, now_s=0, limit=3) == [1, 2, 3]
    acknowledge(session, 1, 2, 3, now_s=0.1)
    assert not session.is_hurried
    assert send(session, now_s=0.1) == [4]


def test_late_acknowledgements_of_a_connection_that_is_gone_hurry_nothing() -> None:
    session = streaming(*map(out, range(1, 5)))
    send(session, now_s=0)
    session.move(UplinkEvent.LOST)
    connect(session)
    acknowledge(session, 2, 3, 4, now_s=0.1)
    assert not session.is_hurried
    assert send(session, now_s=0.1) == [1]


# the window

LANES = {"u": Lane.URGENT, "v": Lane.URGENT, "n": Lane.NORMAL, "m": Lane.NORMAL, "b": Lane.BULK}


def admitted(frames: int, size: int, flying: Sequence[tuple[str, int]], stream: str) -> bool:
    """By the words of the module, from the list of all that is in flight."""
    own = [used for name, used in flying if name == stream]
    lane = LANES[stream]
    if not own:
        return True
    if (
        lane is Lane.URGENT
        and sum(LANES[name] is Lane.URGENT for name, _ in flying) < URGENT_PART * frames
    ):
        return True
    free_frames = math.ceil(frames * PART[lane]) - len(flying)
    free_bytes = int(size * PART[lane]) - sum(used for _, used in flying)
    return (
        free_frames > 0
        and free_bytes > 0
        and len(own) <= SHARE * free_frames
        and sum(own) <= SHARE * free_bytes
    )


@given(
    st.integers(1, 30),
    st.integers(1, 60),
    st.lists(st.tuples(st.sampled_from(sorted(LANES)), st.integers(0, 12)), max_size=30),
    st.sampled_from(sorted(LANES)),
)
def test_who_may_have_one_more_is_what_the_words_say(
    frames: int, size: int, flying: list[tuple[str, int]], stream: str
) -> None:
    window = Window(frames, size, flying, lane=LANES.__getitem__)
    assert window.admits(stream) == admitted(frames, size, flying, stream)


@pytest.mark.parametrize(("used", "admits"), [(74, True), (75, True), (76, False)])
def test_one_stream_may_have_three_quarters_of_the_bytes(used: int, admits: bool) -> None:
    """With the tenth of the frames, which the urgent lane has in any case, in flight."""
    full = [("u", 0)] * 100
    assert Window(1000, 100, [*full, ("u", used)], lane=LANES.__getitem__).admits("u") == admits


@given(
    st.lists(st.sampled_from(sorted(LANES)), max_size=8), st.sets(st.sampled_from(sorted(LANES)))
)
def test_the_order_is_of_lanes_then_of_who_is_behind_then_as_given(
    streams: list[str], behind: set[str]
) -> None:
    found = Window(1, 1, lane=LANES.__getitem__).in_order(streams, is_behind=behind.__contains__)
    assert Counter(found) == Counter(streams)
    keys = [(list(Lane).index(LANES[name]), name in behind) for name in found]
    assert keys == sorted(keys)
    for key in set(keys):
        alike = [name for name, each in zip(found, keys, strict=True) if each == key]
        assert alike == [
            name for name in streams if (list(Lane).index(LANES[name]), name in behind) == key
        ]


@pytest.mark.parametrize(("urgent", "admits"), [(1, True), (2, False), (3, False)])
def test_the_urgent_lane_has_its_tenth_of_a_full_window_and_no_more(
    urgent: int, admits: bool
) -> None:
    """Twenty frames: one is in flight, and a second one may be."""
    flying = [*[("n", 1)] * 19, *[("u", 1)] * urgent]
    assert Window(20, 10**6, flying, lane=LANES.__getitem__).admits("u") is admits


def test_where_nobody_says_who_is_behind_the_order_of_a_lane_is_the_one_given() -> None:
    window = Window(1, 1, lane=LANES.__getitem__)
    assert window.in_order(["m", "b", "n", "u"]) == ["u", "m", "n", "b"]
