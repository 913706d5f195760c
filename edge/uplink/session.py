"""The uplink's decisions, without I/O: which frame to send when, and what frees it.

Time is an argument.

    OFFLINE ─connect─▶ CONNECTING ─connected─▶ SUBSCRIBING ─subscribed─▶ STREAMING ─drain─▶ DRAINING
    ─drained─▶ STOPPED
       ▲──────────────── lost ──┴──────────── lost ─┴──────── lost ───────┴── lost ─▶ STOPPED

Only the cloud's end-to-end acknowledgement frees a frame. A PUBACK proves that the broker has it,
no more: it starts the time-out after which the frame is sent again; sent with QoS 0 there is no
PUBACK, and the time-out starts at once. A frame that three later ones have overtaken is sent again
sooner. Frames of a stream are sent, and sent again after a reconnect, in their order; streams take
turns, and the more urgent lanes go first.

The cloud's answer `later` frees nothing: the stream waits for as long as the cloud asks, then its
oldest frame alone is tried, and the rest follows when the cloud has accepted or refused that one,
or when none is left to try. Other streams go on meanwhile. A PUBACK that refuses for now
(edgewake.edge.uplink.puback) means the same, with a wait of our own. What can never get through is
taken out by `refuse`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import FrameKey, OutFrame
from edgewake.edge.uplink.puback import Puback, meaning
from edgewake.protocol.errors import LocalError, RejectReason, RemoteError
from edgewake.protocol.frames.ack import Ack, Later

PUBACK_SUCCESS: Final = 0
OVERTAKEN_BY: Final = 3
"""Acknowledged frames that were sent later make a frame look lost (RFC 5681, section 3.2)."""
HURRIED_MAX: Final = 3
"""How often in a row a frame is sent again for that; afterwards only its time-out counts, so that a
cloud in trouble is not flooded."""
PROBE_S: Final = (1.0, 5.0)
"""Seconds after which the oldest frame is sent again where the broker confirms nothing: a dead
bridge may have had it. The second of them after PROBES attempts: so long at most a healed cloud
waits, however long it was away and however the other frames' patience has grown."""
PROBES: Final = 5
"""Attempts in quick succession; they last longer than bridges need to notice that one of them is
dead."""
HURRY_MIN_S: Final = 0.2
"""Seconds that every attempt is given: two bridges that answer in turns are not that far apart."""
LATER_MIN_S: Final = 0.1
"""The shortest wait of a stream after `later`, s, even where the cloud asks for less, so that no
answer makes the device send in a loop."""

REFUSED_WAIT_S: Final = 1.0
"""Seconds that a stream waits whose publish the broker refused for now; doubled each time, up to
the bound of patience."""
BULK_TURN: Final = 4
"""One in this many turns puts lane `bulk` before `normal`."""
TIMERS_SPARE: Final = 64
"""Outdated timers that are kept, beside as many as there are frames, before they are removed."""


class UplinkState(StrEnum):
    """The states of the connection."""

    OFFLINE = "offline"
    CONNECTING = "connecting"
    SUBSCRIBING = "subscribing"
    STREAMING = "streaming"
    DRAINING = "draining"
    STOPPED = "stopped"


class UplinkEvent(StrEnum):
    """The events of the connection."""

    CONNECT = "connect"
    CONNECTED = "connected"
    SUBSCRIBED = "subscribed"
    LOST = "lost"
    DRAIN = "drain"
    DRAINED = "drained"


TRANSITIONS: Final = {
    (UplinkState.OFFLINE, UplinkEvent.CONNECT): UplinkState.CONNECTING,
    (UplinkState.OFFLINE, UplinkEvent.DRAIN): UplinkState.STOPPED,
    (UplinkState.CONNECTING, UplinkEvent.CONNECTED): UplinkState.SUBSCRIBING,
    (UplinkState.CONNECTING, UplinkEvent.LOST): UplinkState.OFFLINE,
    (UplinkState.CONNECTING, UplinkEvent.DRAIN): UplinkState.STOPPED,
    (UplinkState.SUBSCRIBING, UplinkEvent.SUBSCRIBED): UplinkState.STREAMING,
    (UplinkState.SUBSCRIBING, UplinkEvent.LOST): UplinkState.OFFLINE,
    (UplinkState.SUBSCRIBING, UplinkEvent.DRAIN): UplinkState.STOPPED,
    (UplinkState.STREAMING, UplinkEvent.LOST): UplinkState.OFFLINE,
    (UplinkState.STREAMING, UplinkEvent.DRAIN): UplinkState.DRAINING,
    (UplinkState.DRAINING, UplinkEvent.LOST): UplinkState.STOPPED,
    (UplinkState.DRAINING, UplinkEvent.DRAINED): UplinkState.STOPPED,
    (UplinkState.STOPPED, UplinkEvent.LOST): UplinkState.STOPPED,
    (UplinkState.STOPPED, UplinkEvent.DRAIN): UplinkState.STOPPED,
}
"""Every pair that is not here is our bug and raises LocalError."""


@dataclass(frozen=True, slots=True)
class Freed:
    """A frame that the log may forget, or must replace by a gap."""

    key: FrameKey
    rejected: RejectReason | None
    detail: str = ""


@dataclass(slots=True)
class _InFlight:
    """A frame that the log handed over and the cloud did not acknowledge."""

    frame: OutFrame
    order: int
    """The order of the hand-over, counted over all frames."""
    attempts: int = 0
    packet_id: int | None = None
    """The packet id of the attempt whose PUBACK is awaited."""
    due_s: float | None = None
    """When to send it again; None while it is queued, and while the broker has not answered."""
    queued: bool = True
    """Is it queued to be sent?"""
    sent_number: int = 0
    """The number of the latest attempt, counted over all frames."""
    sent_s: float = 0.0
    overtaken: int = 0
    """Frames sent after the latest attempt that are acknowledged already."""
    hurried: int = 0
    """Times that it was sent again for that, since its patience last ended."""
    is_unconfirmed: bool = False
    """The latest attempt asked for no PUBACK: nobody tells whether the broker had anybody to give
    it to."""


@dataclass(slots=True)
class _Pause:
    """A stream that is paused because the cloud or the broker asked for it."""

    until_s: float
    why: str
    """Who asked for it, and the reason given."""
    tried: bool = False
    """The pause is over, and its oldest frame was sent as a test."""


@dataclass(slots=True)
class _Stream:
    """One stream's frames in flight, oldest first."""

    frames: dict[FrameKey, _InFlight] = field(default_factory=dict)
    queue: list[tuple[int, FrameKey]] = field(default_factory=list)
    """Heap of (order of the hand-over, key). Entries whose frame is not queued any more are dropped
    when they come up."""
    pause: _Pause | None = None
    refusals: int = 0
    """Times that the broker took nothing of it, since a frame of it was last acknowledged."""

    def put_in_queue(self, flying: _InFlight) -> None:
        """Queue the frame, in its place among the others."""
        flying.packet_id, flying.due_s, flying.queued = None, None, True
        entry = (flying.order, flying.frame.key)
        # The one that a waiting stream tries again and again is there already.
        if not self.queue or self.queue[0] != entry:
            heapq.heappush(self.queue, entry)

    def first_to_send(self, now_s: float) -> _InFlight | None:
        """The oldest frame that waits to be sent.

        While the stream waits, only its very oldest, after the wait.
        """
        if self.pause is not None:
            oldest = next(iter(self.frames.values()), None)
            return (
                oldest
                if oldest is not None and oldest.queued and self.pause.until_s <= now_s
                else None
            )
        while self.queue:
            order, key = self.queue[0]
            flying = self.frames.get(key)
            if flying is not None and flying.queued and flying.order == order:
                return flying
            heapq.heappop(self.queue)
        return None


def key_of(data: bytes | None) -> FrameKey:
    """The frame that an acknowledgement names; raises RemoteError."""
    try:
        stream, epoch, frame = (data or b"").decode("ascii").split("|")
        return FrameKey(stream, int(epoch), int(frame))
    except ValueError as error:
        raise RemoteError(f"correlation data {(data or b'')[:80]!r} is not ours") from error


class UplinkSession:
    """The frames in flight and the state of the connection. Memory: what the log's window holds."""

    def __init__(
        self,
        *,
        ack_timeout_s: float,
        ack_timeout_max_s: float,
        lane: Callable[[str], Lane] = lambda _: Lane.NORMAL,
    ) -> None:
        self._ack_timeout_s = ack_timeout_s
        self._ack_timeout_max_s = ack_timeout_max_s
        self._lane = lane
        self._flying: dict[FrameKey, _InFlight] = {}
        self._streams: dict[str, _Stream] = {}
        self._turns: dict[Lane, deque[str]] = {each: deque() for each in Lane}
        """Streams of each lane, at most as many as there are; who was looked at last is at the
        end."""
        self._bulk_turn = 0
        self.closed_lanes: frozenset[Lane] = frozenset()
        """Lanes of which nothing is sent now."""
        self._timers: list[tuple[float, int, FrameKey]] = []
        """Heap of (when to send again, order of the hand-over, key). Entries that hold no more are
        dropped when they come up."""
        self._by_packet: dict[int, FrameKey] = {}
        """Awaited PUBACKs, the longest awaited first."""
        self._by_attempt: OrderedDict[FrameKey, None] = OrderedDict()
        """Frames that are on their way, in the order of their latest attempts; without those that
        were overtaken."""
        self._handed_over = 0
        self._attempts = 0
        self.is_hurried = False
        """A frame is to be sent again earlier than was known; a caller that waits for `next_due_s`
        clears it and asks again."""
        self.state = UplinkState.OFFLINE
        self.resent = 0
        """Attempts after the first, since the start."""
        self.refused_by_broker = 0
        """PUBACKs that were not a success."""
        self.postponed = 0
        """Answers `later`."""

    def __len__(self) -> int:
        return len(self._flying)

    def move(self, event: UplinkEvent) -> UplinkState:
        """Change the state; raises LocalError where the table has no such step."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise LocalError(f"uplink: {event} while {self.state}")
        self.state = following
        if event is UplinkEvent.LOST:
            self._forget_attempts()
        return following

    @property
    def stopped(self) -> bool:
        """Is the session over?"""
        return self.state is UplinkState.STOPPED

    @property
    def sends(self) -> bool:
        """May frames be sent?"""
        return self.state in {UplinkState.STREAMING, UplinkState.DRAINING}

    @property
    def oldest_publish(self) -> int | None:
        """Packet id of the publish that is longest without its PUBACK."""
        return next(iter(self._by_packet), None)

    def frame(self, key: FrameKey) -> OutFrame | None:
        """A frame in flight; None where it is free."""
        flying = self._flying.get(key)
        return None if flying is None else flying.frame

    @property
    def largest(self) -> int:
        """Bytes of the largest frame in flight."""
        return max((len(flying.frame.payload) for flying in self._flying.values()), default=0)

    def hand_over(self, frames: Iterable[OutFrame]) -> None:
        """Take frames from the log, in order.

        One that is in flight already is the same frame; a gap with its number is sent in its place.
        """
        for frame in frames:
            known = self._flying.get(frame.key)
            if known is not None and known.frame.gap == frame.gap:
                continue
            self._handed_over += 1
            flying = _InFlight(frame, self._handed_over if known is None else known.order)
            self._flying[frame.key] = flying
            self._by_attempt.pop(frame.key, None)
            stream = self._stream(frame.key.stream)
            stream.frames[frame.key] = flying
            stream.put_in_queue(flying)

    def _stream(self, name: str) -> _Stream:
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = _Stream()
            self._turns[self._lane(name)].append(name)
        return found

    # what to send

    def to_send(self, now_s: float, limit: int) -> Iterator[OutFrame]:
        """At most `limit` frames whose turn it is.

        The more urgent lanes go first, the streams of a lane take turns, each in order. Call `sent`
        or `refuse` for each one before asking for the next.
        """
        if not self.sends:
            return
        self._queue_due(now_s)
        for _ in range(limit):
            flying = self._next(now_s)
            if flying is None:
                return
            if (pause := self._streams[flying.frame.key.stream].pause) is not None:
                pause.tried = True
            yield flying.frame

    def _next(self, now_s: float) -> _InFlight | None:
        """The next frame: strictly by lane, but every BULK_TURN-th turn `bulk` is before `normal`.

        So a backlog is slow, not stuck.
        """
        self._bulk_turn = (self._bulk_turn + 1) % BULK_TURN
        lanes = list(Lane) if self._bulk_turn else [Lane.URGENT, Lane.BULK, Lane.NORMAL]
        for lane in lanes:
            if lane in self.closed_lanes:
                continue
            flying = self._next_of(self._turns[lane], now_s)
            if flying is not None:
                return flying
        return None

    def _next_of(self, names: deque[str], now_s: float) -> _InFlight | None:
        """The next frame of one lane: live before backlog, and streams in turns.

        Each BULK_TURN-th turn is any stream's.
        """
        backlog: _InFlight | None = None
        for _ in range(len(names)):
            names.rotate(-1)
            flying = self._streams[names[-1]].first_to_send(now_s)
            if flying is None:
                continue
            if not flying.frame.is_backlog or not self._bulk_turn:
                return flying
            backlog = backlog or flying
        if backlog is not None:  # its stream was looked at last
            names.remove(backlog.frame.key.stream)
            names.append(backlog.frame.key.stream)
        return backlog

    def _queue_due(self, now_s: float) -> None:
        """Queue frames again whose time-out has passed."""
        while self._timers and self._timers[0][0] <= now_s:
            due_s, _, key = heapq.heappop(self._timers)
            flying = self._flying.get(key)
            if flying is not None and flying.due_s == due_s:
                self._streams[key.stream].put_in_queue(flying)
        oldest = next(iter(self._flying.values()), None)
        if (
            oldest is not None
            and (probe_s := self._probe_s(oldest)) is not None
            and probe_s <= now_s
        ):
            self._streams[oldest.frame.key.stream].put_in_queue(oldest)

    @staticmethod
    def _probe_s(oldest: _InFlight) -> float | None:
        if oldest.queued or not oldest.is_unconfirmed:
            return None
        return oldest.sent_s + PROBE_S[oldest.attempts > PROBES]

    def next_due_s(self) -> float | None:
        """When `to_send` has something to send again; None where nothing waits for a time."""
        while self._timers and not self._holds(self._timers[0]):
            heapq.heappop(self._timers)
        oldest = next(iter(self._flying.values()), None)
        times = [
            self._timers[0][0] if self._timers else None,
            None if oldest is None else self._probe_s(oldest),
        ]
        for name, stream in self._streams.items():
            if self._lane(name) in self.closed_lanes:
                continue
            first = next(iter(stream.frames.values()), None)
            if stream.pause is not None and first is not None and first.queued:
                times.append(stream.pause.until_s)
        return min((at_s for at_s in times if at_s is not None), default=None)

    def _holds(self, timer: tuple[float, int, FrameKey]) -> bool:
        flying = self._flying.get(timer[2])
        return flying is not None and flying.due_s == timer[0]

    def _send_again_at(self, flying: _InFlight, due_s: float) -> None:
        flying.due_s = due_s
        heapq.heappush(self._timers, (due_s, flying.order, flying.frame.key))
        if len(self._timers) > 2 * len(self._flying) + TIMERS_SPARE:
            self._timers = [timer for timer in self._timers if self._holds(timer)]
            heapq.heapify(self._timers)

    # what happened

    def sent(self, key: FrameKey, packet_id: int | None, now_s: float) -> None:
        """Note that a frame was sent: under this packet id, or (None) without a PUBACK to come."""
        flying = self._flying[key]
        self.resent += flying.attempts > 0
        flying.attempts += 1
        self._attempts += 1
        flying.packet_id, flying.queued, flying.due_s = packet_id, False, None
        if now_s - flying.sent_s >= self._ack_timeout_s:
            flying.hurried = 0
        flying.sent_number, flying.sent_s, flying.overtaken = self._attempts, now_s, 0
        flying.is_unconfirmed = packet_id is None
        self._by_attempt[key] = None
        self._by_attempt.move_to_end(key)
        if packet_id is None:
            self._send_again_at(flying, now_s + self._patience_s(flying.attempts))
        else:
            self._by_packet[packet_id] = key

    def on_puback(
        self, packet_id: int, reason: int, now_s: float
    ) -> tuple[FrameKey, Puback] | None:
        """Take a PUBACK: return its frame and what it means; None for an unknown packet.

        The frame stays. received: it is sent again when the cloud is silent for too long. not_now:
        its stream waits. never: call `refuse`.
        """
        key = self._by_packet.pop(packet_id, None)
        if key is None:
            return None
        self.refused_by_broker += reason != PUBACK_SUCCESS
        says = meaning(reason)
        flying = self._flying.get(key)
        if flying is None or flying.packet_id != packet_id:
            return key, says
        flying.packet_id = None
        if says is Puback.NOT_NOW:
            stream = self._streams[key.stream]
            stream.refusals += not (stream.pause is not None and not stream.pause.tried)
            self._pause(
                flying,
                now_s + self._refused_wait_s(stream.refusals),
                f"the broker takes nothing of it now (reason {reason})",
            )
        else:
            patience_s = now_s + self._patience_s(flying.attempts)
            self._send_again_at(
                flying, patience_s if flying.due_s is None else min(flying.due_s, patience_s)
            )
        return key, says

    def on_ack(self, key: FrameKey, ack: Ack, now_s: float) -> Freed | None:
        """Free an acknowledged frame; None where it was freed before: acknowledgements repeat."""
        flying = self._remove(key)
        if flying is None:
            return None
        self._hurry_overtaken(flying, now_s)
        stream = self._streams[key.stream]
        stream.refusals = 0
        if stream.pause is not None and stream.pause.tried:
            stream.pause = None
        return Freed(key, ack.rejected, ack.detail)

    def refuse(self, key: FrameKey, reason: RejectReason, detail: str) -> Freed | None:
        """Free a frame that can never get through to the cloud; a gap replaces it.

        None where it was freed before.
        """
        return None if self._remove(key) is None else Freed(key, reason, detail)

    def _remove(self, key: FrameKey) -> _InFlight | None:
        flying = self._flying.pop(key, None)
        if flying is not None:
            stream = self._streams[key.stream]
            del stream.frames[key]
            self._by_attempt.pop(key, None)
            # none is left to try, and the log forms no more of a stream that waits: it would wait
            # for ever
            if not stream.frames:
                stream.pause = None
        return flying

    def _hurry_overtaken(self, acked: _InFlight, now_s: float) -> None:
        """Send frames again soon that were sent before `acked` and still wait, as they may be lost.

        It does not wait for their time-out, as TCP does not (RFC 8985). Two bridges answer in
        bursts, so a frame is given the time that `acked` took once more. An acknowledged repetition
        ends an outage: all before it are sent again. Once overtaken, an attempt is not looked at
        again: the cost is bounded.
        """
        weight = 1 if acked.attempts == 1 else OVERTAKEN_BY
        overtaken = []
        for key in self._by_attempt:
            older = self._flying[key]
            if older.sent_number >= acked.sent_number:
                break
            older.overtaken += weight
            if older.overtaken < OVERTAKEN_BY:
                continue
            overtaken.append(key)
            at_s = older.sent_s + max(HURRY_MIN_S, 2 * (now_s - acked.sent_s))
            if (
                older.hurried < HURRIED_MAX
                and not older.queued
                and (older.due_s is None or at_s < older.due_s)
            ):
                older.hurried += 1
                self._send_again_at(older, at_s)
                self.is_hurried = True
        for key in overtaken:
            del self._by_attempt[key]

    def on_later(self, key: FrameKey, later: Later, now_s: float) -> bool:
        """Keep a frame that the cloud does not accept now, and pause its stream.

        False where the frame was freed before.
        """
        flying = self._flying.get(key)
        if flying is None:
            return False
        self._pause(
            flying,
            now_s + max(LATER_MIN_S, later.retry_after_ms / 1000),
            f"{later.reason}: {later.detail}" if later.detail else str(later.reason),
        )
        self.postponed += 1
        return True

    def _pause(self, flying: _InFlight, until_s: float, why: str) -> None:
        key = flying.frame.key
        stream = self._streams[key.stream]
        stream.put_in_queue(flying)
        stream.pause = _Pause(until_s, why)
        self._by_attempt.pop(key, None)

    @property
    def paused_streams(self) -> frozenset[str]:
        """Streams that the cloud or the broker asked to wait: their frames are not wanted now."""
        return frozenset(name for name, stream in self._streams.items() if stream.pause is not None)

    def waits(self) -> dict[str, str]:
        """Paused stream → why."""
        return {
            name: stream.pause.why
            for name, stream in self._streams.items()
            if stream.pause is not None
        }

    def _patience_s(self, attempts: int) -> float:
        return min(self._ack_timeout_max_s, self._ack_timeout_s * 2.0 ** min(attempts - 1, 32))

    def _refused_wait_s(self, refusals: int) -> float:
        return min(self._ack_timeout_max_s, REFUSED_WAIT_S * 2.0 ** min(refusals - 1, 32))

    def _forget_attempts(self) -> None:
        """Queue all that the lost connection carried: the next one sends it again, in order."""
        self._by_packet.clear()
        self._by_attempt.clear()
        self._timers.clear()
        for key, flying in self._flying.items():
            if not flying.queued:
                self._streams[key.stream].put_in_queue(flying)
            flying.packet_id = None
