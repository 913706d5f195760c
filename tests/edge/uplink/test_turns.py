"""Whose frame is sent next: lanes, what is live, what is old, and turns; and what the shell around
is told.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import OutFrame
from edgewake.edge.uplink.session import BULK_TURN, UplinkEvent, UplinkSession, UplinkState
from edgewake.protocol.errors import RejectReason
from tests.edge.uplink.test_session import (
    KEPT,
    LATER,
    connect,
    out,
    send,
    send_unconfirmed,
    streaming,
)


def old(number: int, stream: str) -> OutFrame:
    return replace(out(number, stream), is_backlog=True)


def order(session: UplinkSession, limit: int = 100, now_s: float = 0.0) -> list[tuple[str, int]]:
    """(stream, number) of what is sent."""
    found = []
    for frame in session.to_send(now_s, limit):
        session.sent(frame.key, None, now_s)
        found.append((frame.key.stream, frame.key.frame))
    return found


def test_a_backlog_alone_goes_out_without_a_pause() -> None:
    session = streaming(*(old(number, "old") for number in range(1, 8)))
    assert order(session) == [("old", number) for number in range(1, 8)]


def test_backlogs_of_several_streams_take_turns() -> None:
    session = streaming(
        *(old(number, stream) for stream in ("a", "b", "c") for number in range(1, 5))
    )
    found = order(session)
    assert Counter(stream for stream, _ in found[:6]) == {"a": 2, "b": 2, "c": 2}
    for stream in "abc":
        assert [number for of, number in found if of == stream] == [1, 2, 3, 4]


def test_while_something_is_live_each_fourth_turn_is_the_backlogs() -> None:
    live = [out(number, "live") for number in range(1, 13)]
    session = streaming(*(old(number, "old") for number in range(1, 13)), *live)
    found = [stream for stream, _ in order(session, limit=4 * 3)]
    assert 1 <= found.count("old") <= 2 * len(found) / BULK_TURN


def test_live_streams_of_a_lane_take_turns_whatever_they_hold() -> None:
    session = streaming(
        *(out(number, "much") for number in range(1, 20)), out(1, "little"), out(1, "less")
    )
    assert {stream for stream, _ in order(session, limit=3)} == {"much", "little", "less"}


@given(
    st.lists(
        st.tuples(st.sampled_from(["u1", "u2", "n1", "n2", "b1", "b2"]), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.sets(st.sampled_from(list(Lane)), max_size=2),
)
def test_everything_goes_out_once_in_order_and_nothing_urgent_waits_for_anything_else(
    frames: list[tuple[str, bool]], closed: set[Lane]
) -> None:
    lanes = {"u": Lane.URGENT, "n": Lane.NORMAL, "b": Lane.BULK}
    session = UplinkSession(
        ack_timeout_s=10, ack_timeout_max_s=35, lane=lambda stream: lanes[stream[0]]
    )
    connect(session)
    session.closed_lanes = frozenset(closed)
    numbers = Counter[str]()
    for stream, is_backlog in frames:
        numbers[stream] += 1
        session.hand_over([replace(out(numbers[stream], stream), is_backlog=is_backlog)])
    found = order(session)
    expected = {
        (stream, number)
        for stream, count in numbers.items()
        for number in range(1, count + 1)
        if lanes[stream[0]] not in closed
    }
    assert sorted(found) == sorted(expected)
    for stream in numbers:
        assert [number for of, number in found if of == stream] == sorted(
            number for of, number in found if of == stream
        )
    urgent = [stream[0] == "u" for stream, _ in found]
    assert urgent == sorted(urgent, reverse=True)


def test_a_limit_of_nothing_sends_nothing_and_costs_no_turn() -> None:
    session = streaming(out(1))
    assert order(session, limit=0) == []
    assert order(session) == [("speed", 1)]


@pytest.mark.parametrize(
    ("events", "sends"),
    [
        ((), False),
        ((UplinkEvent.CONNECT,), False),
        ((UplinkEvent.CONNECT, UplinkEvent.CONNECTED), False),
        ((UplinkEvent.CONNECT, UplinkEvent.CONNECTED, UplinkEvent.SUBSCRIBED), True),
        (
            (UplinkEvent.CONNECT, UplinkEvent.CONNECTED, UplinkEvent.SUBSCRIBED, UplinkEvent.DRAIN),
            True,
        ),
        (
            (UplinkEvent.CONNECT, UplinkEvent.CONNECTED, UplinkEvent.SUBSCRIBED, UplinkEvent.LOST),
            False,
        ),
        (
            (
                UplinkEvent.CONNECT,
                UplinkEvent.CONNECTED,
                UplinkEvent.SUBSCRIBED,
                UplinkEvent.DRAIN,
                UplinkEvent.DRAINED,
            ),
            False,
        ),
    ],
    ids=["offline", "connecting", "subscribing", "streaming", "draining", "lost", "stopped"],
)
def test_frames_go_out_while_streaming_and_while_draining_only(
    events: tuple[UplinkEvent, ...], sends: bool
) -> None:
    session = UplinkSession(ack_timeout_s=10, ack_timeout_max_s=35)
    session.hand_over([out(1)])
    for event in events:
        session.move(event)
    assert (session.sends, order(session)) == (sends, [("speed", 1)] if sends else [])
    assert session.stopped == (session.state is UplinkState.STOPPED)


def test_only_a_lost_connection_sends_again_what_was_sent() -> None:
    session = streaming(out(1))
    send(session)
    session.move(UplinkEvent.DRAIN)
    assert send(session) == []
    assert session.oldest_publish == 1


# what the shell asks


def test_the_publish_that_is_longest_without_an_answer_is_known() -> None:
    session = streaming(out(5), out(3), out(4))
    assert session.oldest_publish is None
    send(session)
    assert session.oldest_publish == 5
    session.on_puback(3, 0, 0)
    assert session.oldest_publish == 5
    session.on_puback(5, 0, 0)
    assert session.oldest_publish == 4
    session.on_ack(out(4).key, KEPT, 0)
    assert session.oldest_publish == 4, "the cloud's answer is none of the broker's"


def test_the_largest_frame_in_flight_is_known() -> None:
    session = streaming(*(replace(out(size), payload=b"x" * size) for size in (30, 50, 40)))
    assert session.largest == 50
    session.on_ack(out(50).key, KEPT, 0)
    assert session.largest == 40
    session.refuse(out(40).key, RejectReason.OVERSIZE, "")
    session.on_ack(out(30).key, KEPT, 0)
    assert session.largest == 0


def test_a_frame_is_known_as_long_as_it_is_in_flight() -> None:
    session = streaming(out(1))
    assert session.frame(out(1).key) == out(1)
    assert session.frame(out(2).key) is None
    session.on_ack(out(1).key, KEPT, 0)
    assert session.frame(out(1).key) is None


def test_a_gap_takes_the_place_of_its_frame_in_the_order_of_its_stream() -> None:
    session = streaming(out(1), out(2), out(3))
    session.hand_over([out(2, gap="rejected")])
    assert [
        frame.gap for frame in session.to_send(0, 3) if session.sent(frame.key, None, 0) is None
    ] == [None, "rejected", None]


def test_counts_tell_what_was_sent_again_put_off_and_refused() -> None:
    session = streaming(out(1), out(2))
    send(session)
    session.on_puback(1, 0x97, 0)
    session.on_puback(2, 0, 0)
    session.on_later(out(2).key, LATER, 0)
    assert (session.resent, session.postponed, session.refused_by_broker) == (0, 1, 1)
    assert send(session, now_s=5) == [1]
    assert (session.resent, session.postponed, session.refused_by_broker) == (1, 1, 1)


# times


@pytest.mark.parametrize("confirmed", [True, False], ids=["QoS 1", "QoS 0"])
def test_a_frame_is_sent_again_at_its_time_and_no_moment_before(confirmed: bool) -> None:
    """Two of them, for with QoS 0 the oldest is tried every few seconds."""
    session = streaming(out(1), out(2))
    if confirmed:
        send(session)
        session.on_puback(1, 0, 0)
        session.on_puback(2, 0, 0)
        assert (send(session, now_s=9.999), send(session, now_s=10)) == ([], [1, 2])
    else:
        send_unconfirmed(session, 0)
        assert 2 not in send_unconfirmed(session, 9.999)
        assert 2 in send_unconfirmed(session, 10)


def test_patience_grows_by_doubling_from_the_configured_one_to_its_bound() -> None:
    session = UplinkSession(ack_timeout_s=3, ack_timeout_max_s=20)
    connect(session)
    session.hand_over([out(1)])
    now_s, waits = 0.0, []
    for _ in range(70):
        assert send(session, now_s) == [1]
        session.on_puback(1, 0, now_s)
        due_s = session.next_due_s()
        assert due_s is not None
        waits.append(due_s - now_s)
        now_s = due_s
    assert waits == [3, 6, 12] + [20] * 67


def test_with_qos_0_the_oldest_is_tried_quickly_five_times_and_then_seldom() -> None:
    session = UplinkSession(ack_timeout_s=1000, ack_timeout_max_s=1000)
    connect(session)
    session.hand_over([out(1), out(2)])
    now_s, times = 0.0, []
    while len(times) < 9:
        if 1 in send_unconfirmed(session, now_s):
            times.append(now_s)
        due_s = session.next_due_s()
        assert due_s is not None
        assert due_s > now_s
        now_s = due_s
    assert times == [0, 1, 2, 3, 4, 5, 10, 15, 20]


def test_a_frame_that_waits_for_the_brokers_answer_waits_for_no_time() -> None:
    session = streaming(out(1))
    send(session)
    assert session.next_due_s() is None
    session.on_puback(1, 0, 7)
    assert session.next_due_s() == 17
