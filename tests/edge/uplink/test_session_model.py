"""The uplink's session against a model of all that is beyond it: a broker that loses its session,
bridges that answer late, twice or never.

What the log handed over is either in flight, or kept in the cloud: at every moment, in any order of
events. And once the world is well, everything comes through within the bounds of patience, each
stream in its order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import FrameKey, OutFrame
from edgewake.edge.uplink.session import UplinkEvent, UplinkSession, UplinkState
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.ack import Ack, AckToken, Later, LaterReason
from tests.edge.uplink.test_session import connect, out
from tests.examples import examples

LANES = {"alarm": Lane.URGENT, "speed": Lane.NORMAL, "street": Lane.NORMAL, "notes": Lane.BULK}
STREAMS = sorted(LANES)
RECEIVE_MAX = 6
"""Publishes of QoS 1 that the broker takes without its PUBACK."""


class Uplinks(RuleBasedStateMachine):
    """`wire` is what the device sent and the broker has not seen; `answers` what the cloud said and
    the device has not heard.
    """

    def __init__(self) -> None:
        super().__init__()
        self.session = UplinkSession(ack_timeout_s=10, ack_timeout_max_s=35, lane=LANES.__getitem__)
        connect(self.session)
        self.now_s = 0.0
        self.confirmed = True
        self.packet_id = 0
        self.wire: deque[tuple[int | None, OutFrame]] = deque()
        self.pubacks: list[int] = []
        self.answers: list[tuple[FrameKey, Ack | Later]] = []
        """Also of connections that are gone: a bridge may answer late, on the new one."""
        self.handed: list[FrameKey] = []
        self.cloud: dict[FrameKey, OutFrame] = {}
        """What the cloud kept for good, or refused for good."""
        self.free: set[FrameKey] = set()
        self.first_sent: dict[str, list[int]] = {}
        """Of this connection."""

    # the device

    @rule(stream=st.sampled_from(STREAMS), count=st.integers(1, 3), is_backlog=st.booleans())
    def hand_over(self, stream: str, count: int, is_backlog: bool) -> None:
        if stream in self.session.paused_streams:
            return
        first = sum(key.stream == stream for key in self.handed) + 1
        frames = [
            replace(out(number, stream), is_backlog=is_backlog)
            for number in range(first, first + count)
        ]
        self.handed += [frame.key for frame in frames]
        self.session.hand_over(frames)

    @rule(limit=st.integers(0, RECEIVE_MAX))
    def send(self, limit: int) -> None:
        room = RECEIVE_MAX - len(self.pubacks) - len(self.wire) if self.confirmed else limit
        found = list(self._sending(max(0, min(limit, room))))
        assert len(found) <= limit
        assert not {frame.key for frame in found} & self.free, "what is free is not sent"
        assert all(LANES[frame.key.stream] not in self.session.closed_lanes for frame in found)
        for frame in found:
            sent = self.first_sent.setdefault(frame.key.stream, [])
            if frame.key.frame not in sent:
                assert not sent or frame.key.frame > max(sent), (
                    "new frames of a stream go out in their order"
                )
                sent.append(frame.key.frame)

    def _sending(self, limit: int) -> Sequence[OutFrame]:
        found = []
        for frame in self.session.to_send(self.now_s, limit):
            packet_id = None
            if self.confirmed:
                self.packet_id = self.packet_id % 9 + 1  # they come again soon
                while self.packet_id in self.pubacks or any(
                    each == self.packet_id for each, _ in self.wire
                ):
                    self.packet_id = self.packet_id % 9 + 1
                packet_id = self.packet_id
            self.session.sent(frame.key, packet_id, self.now_s)
            self.wire.append((packet_id, frame))
            found.append(frame)
        return found

    @rule(lanes=st.frozensets(st.sampled_from(list(Lane)), max_size=2))
    def hours(self, lanes: frozenset[Lane]) -> None:
        self.session.closed_lanes = lanes

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    # the broker and the cloud

    @precondition(lambda self: self.wire)
    @rule(
        fate=st.sampled_from(
            ["kept", "kept", "kept twice", "later", "refused", "unheard", "answer lost"]
        ),
        wait_ms=st.integers(0, 9000),
    )
    def arrive(self, fate: str, wait_ms: int) -> None:
        """The first packet of the wire comes to the broker, and to a bridge or to nobody."""
        packet_id, frame = self.wire.popleft()
        if packet_id is not None:
            self.pubacks.append(packet_id)
        key = frame.key
        if fate == "unheard":
            return
        if fate == "later" and key not in self.cloud:
            self.answers.append((key, Later(LaterReason.QUOTA, wait_ms)))
            return
        self.cloud.setdefault(key, frame)
        assert self.cloud[key].payload == frame.payload, "a number means the same bytes"
        if fate != "answer lost":
            ack = (
                Ack(AckToken(0, 1, dead=True), RejectReason.FIELD_TYPE)
                if fate == "refused"
                else Ack(AckToken(0, 1))
            )
            self.answers += [(key, ack)] * (1 + (fate == "kept twice"))

    @precondition(lambda self: self.pubacks)
    @rule(data=st.data(), reason=st.sampled_from([0x00, 0x00, 0x10, 0x97]))
    def puback(self, data: st.DataObject, reason: int) -> None:
        packet_id = data.draw(st.sampled_from(self.pubacks))
        self.pubacks.remove(packet_id)
        assert self.session.on_puback(packet_id, reason, self.now_s) is not None

    @rule(packet_id=st.integers(0, 12))
    def foreign_puback(self, packet_id: int) -> None:
        """Of a packet that was never sent on this connection, or answered already."""
        if packet_id not in self.pubacks and not any(each == packet_id for each, _ in self.wire):
            assert self.session.on_puback(packet_id, 0, self.now_s) is None

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), again=st.booleans())
    def hear(self, data: st.DataObject, again: bool) -> None:
        """Any answer, in any order; perhaps it comes once more later."""
        at = data.draw(st.integers(0, len(self.answers) - 1))
        key, answer = self.answers[at]
        if not again:
            del self.answers[at]
        if isinstance(answer, Later):
            assert self.session.on_later(key, answer, self.now_s) == (key not in self.free)
        else:
            assert (self.session.on_ack(key, answer, self.now_s) is None) == (key in self.free)
            self.free.add(key)

    @rule(confirmed=st.booleans(), acks_too=st.booleans())
    def lose(self, confirmed: bool, acks_too: bool) -> None:
        """The connection is gone, with what was on its way, and perhaps the answers too; the next
        one may have another QoS.
        """
        self.session.move(UplinkEvent.LOST)
        assert list(self.session.to_send(self.now_s, 10)) == []
        assert self.session.oldest_publish is None
        self.wire.clear()
        self.pubacks.clear()
        if acks_too:
            self.answers.clear()
        self.confirmed, self.first_sent = confirmed, {}
        connect(self.session)

    # what holds at every moment

    @invariant()
    def nothing_is_lost_and_nothing_is_free_that_the_cloud_does_not_have(self) -> None:
        assert self.free <= set(self.cloud)
        assert {key for key in self.handed if self.session.frame(key) is not None} == set(
            self.handed
        ) - self.free
        assert len(self.session) == len(self.handed) - len(self.free)

    @invariant()
    def whoever_waits_for_something_is_told_when(self) -> None:
        """A frame that is in flight is to be sent now, at a known time, when its PUBACK comes, or
        when its lane opens.
        """
        if self.wire or self.pubacks or self.session.closed_lanes or not len(self.session):
            return
        due_s = self.session.next_due_s()
        has_queued = any(
            stream.first_to_send(self.now_s) is not None
            for stream in self.session._streams.values()
        )
        assert has_queued or due_s is not None, "frames in flight, and nothing will ever send them"

    def teardown(self) -> None:
        """A world that is well: everything comes through, and the session can be drained."""
        self.session.closed_lanes = frozenset()
        for _ in range(6 * len(self.handed) + 8):
            self.now_s += 40
            while self.wire:
                self.arrive("kept", 0)
            for packet_id in self.pubacks:
                self.session.on_puback(packet_id, 0, self.now_s)
            self.pubacks.clear()
            while self.answers:
                key, answer = self.answers.pop()
                if isinstance(answer, Ack):
                    self.session.on_ack(key, answer, self.now_s)
                    self.free.add(key)
            self._sending(RECEIVE_MAX)
        assert len(self.session) == 0
        assert self.session.paused_streams == frozenset()
        assert (self.session.next_due_s(), self.session.largest) == (None, 0)
        assert self.session.move(UplinkEvent.DRAIN) is UplinkState.DRAINING
        assert self.session.move(UplinkEvent.DRAINED) is UplinkState.STOPPED
        assert self.session.stopped


TestUplinks = Uplinks.TestCase
TestUplinks.settings = settings(max_examples=examples(50), stateful_step_count=30, deadline=None)
