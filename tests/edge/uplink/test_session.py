"""What the uplink decides, without I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import FrameKey, OutFrame
from edgewake.edge.uplink.puback import Puback, meaning
from edgewake.edge.uplink.session import (
    LATER_MIN_S,
    TRANSITIONS,
    Freed,
    UplinkEvent,
    UplinkSession,
    UplinkState,
    key_of,
)
from edgewake.protocol.errors import LocalError, RejectReason, RemoteError
from edgewake.protocol.frames.ack import Ack, AckToken, Later, LaterReason
from edgewake.protocol.frames.compact import correlation
from tests.examples import examples

KEPT = Ack(AckToken(0, 1))
LATER = Later(LaterReason.FIELD_TYPE, 5_000)


def out(frame: int = 1, stream: str = "speed", gap: str | None = None) -> OutFrame:
    return OutFrame(FrameKey(stream, 7, frame), b"{}", "type", 1, gap)


def streaming(*frames: OutFrame) -> UplinkSession:
    session = UplinkSession(ack_timeout_s=10, ack_timeout_max_s=35)
    connect(session)
    session.hand_over(frames)
    return session


def connect(session: UplinkSession) -> None:
    for event in (UplinkEvent.CONNECT, UplinkEvent.CONNECTED, UplinkEvent.SUBSCRIBED):
        session.move(event)


def send(session: UplinkSession, now_s: float = 0, limit: int = 100) -> list[int]:
    """Send all that is due; the frame numbers. The packet id is the frame's number."""
    numbers = []
    for frame in session.to_send(now_s, limit):
        session.sent(frame.key, frame.key.frame, now_s)
        numbers.append(frame.key.frame)
    return numbers


@pytest.mark.parametrize(("state", "event"), list(product(UplinkState, UplinkEvent)))
def test_every_pair_of_state_and_event_is_in_the_table_or_raises(
    state: UplinkState, event: UplinkEvent
) -> None:
    session = UplinkSession(ack_timeout_s=1, ack_timeout_max_s=1)
    session.state = state
    expected = TRANSITIONS.get((state, event))
    if expected is None:
        with pytest.raises(LocalError):
            session.move(event)
        assert session.state is state
    else:
        assert session.move(event) is expected


def test_nothing_is_sent_before_the_acknowledgements_are_subscribed() -> None:
    session = UplinkSession(ack_timeout_s=1, ack_timeout_max_s=1)
    session.move(UplinkEvent.CONNECT)
    session.move(UplinkEvent.CONNECTED)
    session.hand_over([out()])
    assert send(session) == []
    session.move(UplinkEvent.SUBSCRIBED)
    assert send(session) == [1]


def test_frames_are_sent_once_in_order_within_the_limit() -> None:
    session = streaming(out(1), out(2), out(3))
    assert send(session, limit=2) == [1, 2]
    assert send(session) == [3]
    assert send(session) == []


@pytest.mark.parametrize("reason", [0x00, 0x10, 0x80, 0x87, 0x97])
def test_a_puback_frees_nothing_whatever_it_says(reason: int) -> None:
    session = streaming(out())
    send(session)
    assert session.on_puback(1, reason, now_s=0) == (out().key, meaning(reason))
    assert len(session) == 1
    assert session.refused_by_broker == (reason != 0)


def test_silence_after_the_puback_sends_again_with_doubled_patience_up_to_its_bound() -> None:
    session = streaming(out())
    send(session)
    # The broker has not answered: TCP delivers or the connection dies.
    assert send(session, now_s=1000) == []
    now_s = 1000.0
    for patience_s in (10, 20, 35, 35):
        session.on_puback(1, 0, now_s)
        assert session.next_due_s() == now_s + patience_s
        assert send(session, now_s + patience_s - 0.1) == []
        now_s += patience_s
        assert send(session, now_s) == [1]
    assert session.resent == 4


def test_after_a_reconnect_all_that_is_not_acknowledged_is_sent_again_in_order() -> None:
    session = streaming(out(1), out(2), out(3))
    send(session)
    session.on_puback(1, 0, 0)
    session.on_ack(out(2).key, KEPT, 0)
    session.move(UplinkEvent.LOST)
    connect(session)
    assert send(session) == [1, 3]


def send_unconfirmed(session: UplinkSession, now_s: float) -> list[int]:
    """As `send`, with QoS 0."""
    numbers = []
    for frame in session.to_send(now_s, 100):
        session.sent(frame.key, None, now_s)
        numbers.append(frame.key.frame)
    return numbers


def test_a_frame_that_three_later_ones_overtook_is_sent_again_at_once() -> None:
    """Its acknowledgement came in 0.1 s; the hole is given as much once more and then filled, long
    before patience ends.
    """
    session = streaming(*map(out, range(1, 6)))
    send(session, now_s=0)
    for number in (2, 3):
        session.on_ack(out(number).key, KEPT, now_s=0.1)
    assert send(session, now_s=1.0) == [], "two may be disorder between two bridges"
    assert not session.is_hurried
    session.on_ack(out(4).key, KEPT, now_s=1.0)
    assert session.is_hurried
    assert (send(session, now_s=1.9), send(session, now_s=2.0)) == ([], [1])
    assert send(session, now_s=3.0) == [], "frame 5 was overtaken by nobody"


def test_a_puback_that_comes_late_does_not_slow_a_hurried_frame() -> None:
    session = streaming(*map(out, range(1, 5)))
    send(session)
    for number in (2, 3, 4):
        session.on_ack(out(number).key, KEPT, now_s=0.1)
    session.on_puback(1, 0, now_s=0.1)
    assert session.next_due_s() == pytest.approx(0.2)


def test_hurry_is_bounded() -> None:
    """A frame that the cloud never acknowledges is not sent with every third of the others."""
    session = streaming(out(1))
    send(session, now_s=0)
    number, now_s, attempts = 1, 0.0, 0
    for _ in range(20):
        session.hand_over(out(number + i) for i in (1, 2, 3))
        number += 3
        now_s += 0.3
        attempts += send(session, now_s).count(1)
        for i in range(3):
            session.on_ack(out(number - i).key, KEPT, now_s + 0.01)
    assert attempts == 3


def test_with_qos_0_patience_starts_when_the_frame_is_sent() -> None:
    session = streaming(out(1), out(2))
    assert send_unconfirmed(session, 0) == [1, 2]
    assert session.next_due_s() == 1, "the oldest probes"
    assert [now_s for now_s in range(1, 20) if 1 in send_unconfirmed(session, now_s)] == [
        1,
        2,
        3,
        4,
        5,
        10,
        15,
    ]


def test_with_qos_0_the_oldest_frame_probes_and_its_acknowledgement_brings_all_others() -> None:
    """The cloud was away for ten minutes; patience has grown to its bound, and nobody waits that
    long after it is back.
    """
    session = streaming(out(1), out(2), out(3))
    now_s = 0.0
    while now_s < 600:
        sent = send_unconfirmed(session, now_s)
        now_s = session.next_due_s() or 0.0
    assert sent[0] == 1
    session.on_ack(out(1).key, KEPT, now_s)
    again = send_unconfirmed(session, now_s + 0.2)
    assert set(again) | set(sent[1:]) == {2, 3}


def test_an_old_puback_of_a_packet_id_used_anew_is_not_taken_for_the_new_one() -> None:
    session = streaming(out(1))
    send(session)
    session.move(UplinkEvent.LOST)
    connect(session)
    assert session.on_puback(1, 0, 0) is None


def test_an_acknowledgement_frees_once() -> None:
    session = streaming(out())
    send(session)
    assert session.on_ack(out().key, KEPT, 0) == Freed(out().key, None)
    assert session.on_ack(out().key, KEPT, 0) is None


def test_a_refusal_frees_with_its_reason() -> None:
    session = streaming(out())
    assert session.on_ack(
        out().key, Ack(AckToken(0, 1, dead=True), RejectReason.FIELD_TYPE, "speed"), 0
    ) == Freed(out().key, RejectReason.FIELD_TYPE, "speed")


def test_later_frees_nothing_and_the_stream_waits_for_as_long_as_the_cloud_asks() -> None:
    session = streaming(out(1))
    send(session)
    assert session.on_later(out(1).key, LATER, now_s=100)
    assert len(session) == 1
    assert session.paused_streams == {"speed"}
    assert session.waits() == {"speed": "field_type"}
    session.on_later(out(1).key, LATER._replace(detail="expected a number"), now_s=100)
    assert session.waits() == {"speed": "field_type: expected a number"}
    session.hand_over([out(2)])
    assert send(session, now_s=104.9) == []
    assert session.next_due_s() == 105
    assert send(session, now_s=105) == [1]


def test_other_streams_go_on_while_one_waits() -> None:
    session = streaming(out(1), out(2, "street"), out(3))
    send(session)
    session.on_later(out(1).key, LATER, now_s=0)
    session.hand_over([out(4, "street")])
    assert send(session, now_s=1) == [4]


def test_after_the_wait_the_oldest_frame_alone_is_tried_and_its_answer_sets_the_others_going() -> (
    None
):
    session = streaming(out(1), out(2), out(3))
    send(session)
    for number in (1, 2, 3):
        session.on_later(out(number).key, LATER, now_s=0)
    assert send(session, now_s=6) == [1]
    assert send(session, now_s=100) == []  # the answer is awaited
    assert session.next_due_s() is None
    session.on_ack(out(1).key, KEPT, 0)
    assert session.paused_streams == frozenset()
    assert send(session, now_s=100) == [2, 3]


def test_an_answer_to_a_frame_that_was_sent_before_the_wait_does_not_end_it() -> None:
    session = streaming(out(1), out(2))
    send(session)
    session.on_later(out(1).key, LATER, now_s=0)
    session.on_ack(out(2).key, KEPT, 0)
    assert send(session, now_s=4.9) == []


def test_a_frame_that_is_tried_is_sent_again_when_the_cloud_is_silent() -> None:
    session = streaming(out(1))
    send(session)
    session.on_later(out(1).key, LATER, now_s=0)
    assert send(session, now_s=5) == [1]
    session.on_puback(1, 0, 5)
    due_s = session.next_due_s()
    assert due_s is not None
    assert due_s > 5
    assert send(session, now_s=due_s) == [1]


def test_a_stream_waits_on_after_a_reconnect() -> None:
    session = streaming(out(1))
    send(session)
    session.on_later(out(1).key, LATER, now_s=0)
    session.move(UplinkEvent.LOST)
    connect(session)
    assert send(session, now_s=1) == []
    assert send(session, now_s=5) == [1]


def test_later_without_a_time_does_not_make_the_device_send_in_a_loop() -> None:
    session = streaming(out(1))
    send(session)
    session.on_later(out(1).key, LATER._replace(retry_after_ms=0), now_s=0)
    assert session.next_due_s() == LATER_MIN_S


def test_later_for_a_frame_that_is_free_changes_nothing() -> None:
    session = streaming(out(1))
    send(session)
    session.on_ack(out(1).key, KEPT, 0)
    assert not session.on_later(out(1).key, LATER, now_s=0)
    assert session.paused_streams == frozenset()


def test_a_frame_handed_over_again_is_not_sent_twice() -> None:
    session = streaming(out())
    send(session)
    session.hand_over([out()])
    assert send(session) == []


def test_a_gap_that_takes_a_frames_number_is_sent() -> None:
    session = streaming(out())
    send(session)
    session.hand_over([out(gap="rejected")])
    assert send(session) == [1]


@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x97, 0xA5])
def test_a_refusing_puback_makes_the_stream_wait_longer_and_try_its_oldest_alone(
    reason: int,
) -> None:
    session = streaming(out(1), out(2), out(4, "alarm"))
    send(session)
    for number in (1, 2):
        session.on_puback(number, reason, now_s=0)
    assert session.paused_streams == {"speed"}
    waits = []
    now_s = 0.0
    for _ in range(7):
        due_s = session.next_due_s()
        assert due_s is not None
        waits.append(due_s - now_s)
        now_s = due_s
        assert send(session, now_s - 0.01) == []
        assert send(session, now_s) == [1]
        session.on_puback(1, reason, now_s)
    assert waits == [1, 2, 4, 8, 16, 32, 35], "two refusals of one burst are one"
    session.on_ack(out(4, "alarm").key, KEPT, now_s)
    now_s = session.next_due_s() or 0
    assert send(session, now_s) == [1]
    session.on_puback(1, 0, now_s)
    session.on_ack(out(1).key, KEPT, now_s)
    assert session.paused_streams == frozenset()
    assert send(session, now_s) == [2]


@pytest.mark.parametrize("reason", [0x90, 0x99])
def test_what_the_broker_refuses_for_good_can_be_taken_out(reason: int) -> None:
    session = streaming(out(1), out(2))
    send(session)
    assert session.on_puback(1, reason, now_s=0) == (out(1).key, Puback.NEVER)
    assert session.refuse(out(1).key, RejectReason.ENCODING, "why") == Freed(
        out(1).key, RejectReason.ENCODING, "why"
    )
    assert session.refuse(out(1).key, RejectReason.ENCODING, "why") is None
    assert len(session) == 1


def test_no_matching_subscribers_is_silence_of_the_cloud_and_no_refusal() -> None:
    session = streaming(out())
    send(session)
    assert session.on_puback(1, 0x10, now_s=0) == (out().key, Puback.RECEIVED)
    assert (session.next_due_s(), session.paused_streams) == (10, frozenset())


def test_streams_take_turns_and_each_keeps_its_order() -> None:
    session = streaming(
        *(out(n, "backlog") for n in range(1, 6)), out(11, "alarm"), out(12, "alarm")
    )
    assert send(session, limit=4) in ([1, 11, 2, 12], [11, 1, 12, 2])
    assert send(session) == [3, 4, 5]


def test_urgent_goes_first_and_bulk_is_slow_but_not_stuck() -> None:
    lanes = {"alarm": Lane.URGENT, "backlog": Lane.BULK}
    session = UplinkSession(
        ack_timeout_s=10, ack_timeout_max_s=35, lane=lambda stream: lanes.get(stream, Lane.NORMAL)
    )
    connect(session)
    session.hand_over(
        [
            *(out(n, "backlog") for n in range(100, 110)),
            *(out(n) for n in range(1, 31)),
            out(201, "alarm"),
        ]
    )
    sent = send(session, limit=13)
    assert sent[0] == 201
    assert [n for n in sent if n >= 100][1:] == [100, 101, 102]
    assert [n for n in sent if n < 100] == list(range(1, 10))


def test_what_is_live_goes_before_a_backlog_of_the_same_lane_which_is_slow_but_not_stuck() -> None:
    session = streaming(
        *(replace(out(n, "old"), is_backlog=True) for n in range(1, 9)),
        *(out(n, "live") for n in range(1, 7)),
    )
    sent = [frame.key for frame in _sending(session)]
    assert [key.stream for key in sent[:6]].count("old") <= 2
    assert {key.stream for key in sent[:5]} == {"old", "live"}, "the backlog is stuck"
    for stream in ("old", "live"):
        numbers = [key.frame for key in sent if key.stream == stream]
        assert numbers == sorted(numbers), "inside one stream order stays"


def test_a_closed_lane_sends_nothing_and_wakes_nobody() -> None:
    session = UplinkSession(ack_timeout_s=10, ack_timeout_max_s=35, lane={"notes": Lane.BULK}.get)  # type: ignore[arg-type]
    connect(session)
    session.closed_lanes = frozenset({Lane.BULK})
    session.hand_over([out(1, "notes")])
    assert list(_sending(session)) == []
    assert session.on_later(out(1, "notes").key, LATER, 0.0)
    assert session.next_due_s() is None
    session.closed_lanes = frozenset()
    assert [frame.key.frame for frame in _sending(session, 10.0)] == [1]


def _sending(session: UplinkSession, now_s: float = 0.0) -> Iterator[OutFrame]:
    for frame in session.to_send(now_s, 100):
        session.sent(frame.key, None, now_s)
        yield frame


def test_the_cost_of_an_acknowledgement_does_not_grow_with_what_is_in_flight() -> None:
    """Steps counted, not time: how often frames are looked at for 4000 frames in flight, a third of
    which is never answered.
    """
    looked = 0

    class Counted(OrderedDict[FrameKey, None]):
        def __iter__(self) -> Iterator[FrameKey]:
            nonlocal looked
            for key in super().__iter__():
                looked += 1
                yield key

    frames = [out(n, ("silent", "a", "b")[n % 3]) for n in range(1, 4001)]
    session = streaming(*frames)
    session._by_attempt = Counted()
    assert len(send(session, limit=4000)) == 4000
    for frame in frames:
        if frame.key.stream != "silent":
            session.on_ack(frame.key, KEPT, 0.1)
    assert looked <= 5 * len(frames)
    assert len(session._timers) <= 2 * len(frames) + 64


def test_timers_of_frames_that_are_gone_do_not_pile_up() -> None:
    session = streaming()
    for n in range(1, 5000):
        session.hand_over([out(n)])
        assert send_unconfirmed(session, n / 1000) == [n]
        session.on_ack(out(n).key, KEPT, n / 1000)
    assert len(session._timers) <= 100


def test_correlation_data_names_the_frame_and_nothing_else_is_read() -> None:
    key = out(12).key
    assert key_of(correlation(key.stream, key.epoch, key.frame)) == key
    for data in (None, b"", b"a|b|c", b"speed|1", b"\xff|1|2"):
        with pytest.raises(RemoteError):
            key_of(data)


class Sessions(RuleBasedStateMachine):
    """Any order of events: a frame is in flight from its hand-over to its acknowledgement, and new
    frames go out in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.session = streaming()
        self.now_s = 0.0
        self.handed: set[int] = set()
        self.acked: set[int] = set()
        self.sent_here: set[int] = set()

    @rule(count=st.integers(1, 3))
    def hand_over(self, count: int) -> None:
        numbers = range(len(self.handed) + 1, len(self.handed) + count + 1)
        self.handed |= set(numbers)
        self.session.hand_over(out(n) for n in numbers)

    @rule(limit=st.integers(0, 5))
    def send(self, limit: int) -> None:
        numbers = send(self.session, self.now_s, limit)
        assert len(numbers) <= limit
        assert not set(numbers) & self.acked
        fresh = [n for n in numbers if n not in self.sent_here]
        assert fresh == sorted(fresh)
        self.sent_here |= set(numbers)

    @rule(data=st.data(), reason=st.sampled_from([0, 0x10, 0x97]))
    def puback(self, data: st.DataObject, reason: int) -> None:
        self.session.on_puback(data.draw(st.integers(1, 20)), reason, self.now_s)

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.handed)))
        assert (self.session.on_ack(out(number).key, KEPT, 0) is None) == (number in self.acked)
        self.acked.add(number)

    @precondition(lambda self: self.handed)
    @rule(data=st.data(), wait_ms=st.integers(0, 60_000))
    def later(self, data: st.DataObject, wait_ms: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.handed)))
        postponed = self.session.on_later(
            out(number).key, Later(LaterReason.QUOTA, wait_ms), self.now_s
        )
        assert postponed == (number not in self.acked)

    @rule()
    def nothing_is_forgotten(self) -> None:
        """With time and positive answers every frame goes out."""
        for _ in range(2 * len(self.handed) + 2):
            self.now_s += 100
            for number in send(self.session, self.now_s):
                self.session.on_ack(out(number).key, KEPT, 0)
                self.acked.add(number)
            for number in self.handed - self.acked:
                self.session.on_puback(number, 0, self.now_s)
        assert len(self.session) == 0

    @rule()
    def reconnect(self) -> None:
        self.session.move(UplinkEvent.LOST)
        assert send(self.session, self.now_s) == []
        connect(self.session)
        self.sent_here = set()

    @rule(seconds=st.floats(0, 50))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @invariant()
    def in_flight_is_what_was_not_acknowledged(self) -> None:
        assert len(self.session) == len(self.handed - self.acked)


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
