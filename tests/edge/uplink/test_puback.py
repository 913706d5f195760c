"""A stream that was asked to wait never waits for ever: as long as it waits, one of its frames is
there to end it.

The log forms no frames of a stream that waits. So a wait that no frame could end would silence the
stream until the agent is restarted.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edgewake.edge.uplink.puback import Puback
from edgewake.edge.uplink.session import UplinkEvent, UplinkSession
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.ack import Later, LaterReason
from tests.edge.uplink.test_session import KEPT, LATER, connect, out, send, streaming
from tests.examples import examples

REFUSED = 0x97
"""PUBACK: quota exceeded."""


def test_an_acknowledgement_of_the_only_frame_ends_the_wait_that_another_bridge_asked_for() -> None:
    """The frame was sent twice; one bridge said `later`, the other kept it.

    Nothing is left that could be tried after the wait.
    """
    session = streaming(out(1))
    send(session)
    session.on_later(out(1).key, LATER, now_s=0)
    session.on_ack(out(1).key, KEPT, now_s=0.1)
    assert session.paused_streams == frozenset()
    session.hand_over([out(2)])
    assert send(session, now_s=0.2) == [2]


def test_an_acknowledgement_of_one_of_several_leaves_the_wait_to_the_others() -> None:
    session = streaming(out(1), out(2))
    send(session)
    session.on_later(out(1).key, LATER, now_s=0)
    session.on_ack(out(1).key, KEPT, now_s=0.1)
    assert session.paused_streams == {"speed"}
    session.on_ack(out(2).key, KEPT, now_s=0.2)
    assert session.paused_streams == frozenset()


@pytest.mark.parametrize("tried", [False, True], ids=["before it was tried", "when it was tried"])
def test_the_only_frame_of_a_stream_that_waits_may_be_refused_and_the_stream_goes_on(
    tried: bool,
) -> None:
    """A broker that says `quota exceeded` first and `payload format invalid` at the next
    attempt.
    """
    session = streaming(out(1))
    send(session)
    session.on_puback(1, REFUSED, now_s=0)
    if tried:
        assert send(session, now_s=1) == [1]
        assert session.on_puback(1, 0x99, now_s=1) == (out(1).key, Puback.NEVER)
    session.refuse(out(1).key, RejectReason.ENCODING, "")
    assert session.paused_streams == frozenset(), (
        "nobody would hand over the gap that takes its place"
    )
    session.hand_over([out(1, gap="encoding"), out(2)])
    assert send(session, now_s=1) == [1, 2]


def test_the_next_oldest_is_tried_where_the_one_that_was_tried_is_refused() -> None:
    session = streaming(out(1), out(2), out(3))
    send(session)
    session.on_later(out(1).key, LATER, now_s=0)
    session.on_later(out(2).key, LATER, now_s=0)
    session.on_later(out(3).key, LATER, now_s=0)
    assert send(session, now_s=5) == [1]
    session.refuse(out(1).key, RejectReason.OVERSIZE, "")
    assert send(session, now_s=5) == [2]
    session.on_ack(out(2).key, KEPT, now_s=5)
    assert send(session, now_s=5) == [3]


def test_a_wait_is_counted_from_the_last_answer() -> None:
    session = streaming(out(1))
    send(session)
    session.on_later(out(1).key, LATER, now_s=0)
    session.on_later(out(1).key, LATER, now_s=3)
    assert (send(session, now_s=7.9), send(session, now_s=8)) == ([], [1])


def test_after_a_success_the_brokers_refusals_are_counted_from_the_beginning() -> None:
    session = streaming(out(1))
    now_s = 0.0
    for wait_s in (1, 2, 4):
        assert send(session, now_s) == [1]
        session.on_puback(1, REFUSED, now_s)
        assert session.next_due_s() == now_s + wait_s
        now_s += wait_s
    assert send(session, now_s) == [1]
    session.on_ack(out(1).key, KEPT, now_s)
    session.hand_over([out(2)])
    assert send(session, now_s) == [2]
    session.on_puback(2, REFUSED, now_s)
    assert session.next_due_s() == now_s + 1


def test_a_wait_of_one_stream_says_nothing_of_a_stream_whose_name_begins_alike() -> None:
    session = streaming(out(1, "speed"), out(2, "speed_limit"))
    send(session)
    session.on_later(out(1, "speed").key, LATER, now_s=0)
    assert session.paused_streams == {"speed"}
    session.hand_over([out(3, "speed_limit")])
    assert send(session, now_s=0) == [3]


@pytest.mark.parametrize(
    ("asked_ms", "wait_s"), [(0, 0.1), (99, 0.1), (100, 0.1), (101, 0.101), (60_000, 60.0)]
)
def test_the_wait_is_what_was_asked_for_and_never_none(asked_ms: int, wait_s: float) -> None:
    session = streaming(out(1))
    send(session)
    session.on_later(out(1).key, Later(LaterReason.QUOTA, asked_ms), now_s=50)
    assert session.next_due_s() == pytest.approx(50 + wait_s)


class Waiting(RuleBasedStateMachine):
    """A log that hands over nothing of a stream that waits, and a cloud that answers anything to
    any attempt.
    """

    def __init__(self) -> None:
        super().__init__()
        self.session: UplinkSession = streaming()
        self.now_s = 0.0
        self.made = 0
        self.packets: dict[int, int] = {}
        """Packet id → frame, of this connection."""
        self.next_packet = 1
        self.free: set[int] = set()
        self.resolved: set[int] = set()

    def hand_over_what_may(self) -> None:
        if "speed" not in self.session.paused_streams:
            self.made += 1
            self.session.hand_over([out(self.made)])

    @rule(confirmed=st.booleans(), limit=st.integers(1, 4))
    def send(self, confirmed: bool, limit: int) -> None:
        self.hand_over_what_may()
        for frame in self.session.to_send(self.now_s, limit):
            packet = self.next_packet if confirmed else None
            self.next_packet += confirmed
            if packet is not None:
                self.packets[packet] = frame.key.frame
            self.session.sent(frame.key, packet, self.now_s)

    @precondition(lambda self: self.packets)
    @rule(data=st.data(), reason=st.sampled_from([0x00, 0x10, 0x97, 0x87]))
    def puback(self, data: st.DataObject, reason: int) -> None:
        packet = data.draw(st.sampled_from(sorted(self.packets)))
        number = self.packets.pop(packet)
        assert self.session.on_puback(packet, reason, self.now_s) is not None
        assert self.session.on_puback(packet, reason, self.now_s) is None, (
            "the broker's answer counts once"
        )
        assert (self.session.frame(out(number).key) is None) == (number in self.resolved), (
            "a PUBACK frees nothing"
        )

    @precondition(lambda self: self.made > len(self.resolved))
    @rule(
        data=st.data(),
        answer=st.sampled_from(["kept", "later", "refused"]),
        wait_ms=st.integers(0, 20_000),
    )
    def answer(self, data: st.DataObject, answer: str, wait_ms: int) -> None:
        number = data.draw(st.sampled_from(sorted(set(range(1, self.made + 1)) - self.resolved)))
        key = out(number).key
        if answer == "later":
            assert self.session.on_later(key, Later(LaterReason.QUOTA, wait_ms), self.now_s)
            return
        freed = (
            self.session.on_ack(key, KEPT, self.now_s)
            if answer == "kept"
            else self.session.refuse(key, RejectReason.TOPIC, "")
        )
        assert freed is not None
        assert freed.key == key
        self.resolved.add(number)

    @rule()
    def lose(self) -> None:
        self.session.move(UplinkEvent.LOST)
        self.packets.clear()
        connect(self.session)

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @invariant()
    def whoever_waits_has_a_frame_that_ends_it(self) -> None:
        in_flight = set(range(1, self.made + 1)) - self.resolved
        assert len(self.session) == len(in_flight)
        if not in_flight:
            assert self.session.paused_streams == frozenset()

    def teardown(self) -> None:
        """From any state: a cloud that keeps everything ends every wait within the bounds of
        patience.
        """
        for _ in range(4 * self.made + 4):
            self.now_s += 40
            for packet in list(self.packets):
                self.session.on_puback(packet, 0, self.now_s)
            self.packets.clear()
            for frame in self.session.to_send(self.now_s, 100):
                self.session.sent(frame.key, None, self.now_s)
                assert self.session.on_ack(frame.key, KEPT, self.now_s) is not None
        assert (len(self.session), self.session.paused_streams) == (0, frozenset())


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
