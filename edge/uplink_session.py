"""What the uplink decides, without I/O: which frame to send when, what frees it, when to send it again. Time is an argument.

    OFFLINE ─connect─▶ CONNECTING ─connected─▶ SUBSCRIBING ─subscribed─▶ STREAMING ─drain─▶ DRAINING ─drained─▶ STOPPED
       ▲──────────────── lost ──┴──────────── lost ─┴──────── lost ───────┴── lost ─▶ STOPPED

Only the cloud's end-to-end acknowledgement frees a frame. A PUBACK proves that the broker has it, no more: it starts the time-out
after which the frame is sent again; sent with QoS 0 there is none, and the time-out starts at once. A frame that three later ones have
overtaken is sent again sooner. A PUBACK with an error, or that nobody subscribed (0x10, MQTT 5, section 3.4.2.1), frees
nothing either. Frames of a stream are sent, and sent again after a reconnect, in their order.

The cloud's answer `later` frees nothing: the stream waits for as long as the cloud asks, then its oldest frame alone is tried, and the
rest follows when the cloud has accepted or refused that one. Other streams go on meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from edgewake.edge.log_store import FrameKey, OutFrame
from edgewake.protocol.ack import Ack, Later
from edgewake.protocol.errors import LocalError, RejectReason, RemoteError

PUBACK_SUCCESS: Final = 0
OVERTAKEN_BY: Final = 3
"""Acknowledged frames that were sent later make a frame look lost (RFC 5681, section 3.2)."""
HURRIED_MAX: Final = 3
"""Times that a frame is sent again for that in a row; then only patience counts, so that a cloud in trouble is not flooded."""
PROBE_S: Final = (1.0, 5.0)
"""Seconds after which the oldest frame is sent again where the broker confirms nothing: a dead bridge may have had it. The second of them
after PROBES attempts: so long at most a healed cloud waits, however long it was away and however the other frames' patience has grown."""
PROBES: Final = 5
"""Attempts in quick succession: longer than the bridges need to notice that one of them is dead."""
HURRY_MIN_S: Final = 0.2
"""Seconds that every attempt is given: two bridges that answer in turns are not that far apart."""
LATER_MIN_S: Final = 0.1
"""Seconds that a stream waits at least after `later`, also where the cloud asks for less: no answer makes the device send in a loop."""


class UplinkState(StrEnum):
    """Where the connection is."""

    OFFLINE = "offline"
    CONNECTING = "connecting"
    SUBSCRIBING = "subscribing"
    STREAMING = "streaming"
    DRAINING = "draining"
    STOPPED = "stopped"


class UplinkEvent(StrEnum):
    """What happens to it."""

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
    attempts: int = 0
    packet_id: int | None = None
    """Of the attempt whose PUBACK is awaited."""
    due_s: float | None = None
    """When to send it again; None while the broker has not answered."""
    queued: bool = True
    """Waits to be sent."""
    sent_number: int = 0
    """Of the latest attempt, counted over all frames."""
    sent_s: float = 0.0
    overtaken: int = 0
    """Frames sent after the latest attempt that are acknowledged already."""
    hurried: int = 0
    """Times that it was sent again for that, since its patience last ended."""
    is_unconfirmed: bool = False
    """The latest attempt asked for no PUBACK: nobody tells whether the broker had anybody to give it to."""


@dataclass(slots=True)
class _Pause:
    """A stream that the cloud asked to wait."""

    until_s: float
    tried: bool = False
    """Its time is over and its oldest frame was sent to try."""


def correlation(key: FrameKey) -> bytes:
    """Correlation data of a frame: the acknowledgement brings it back unchanged."""
    return f"{key.stream}|{key.epoch}|{key.frame}".encode()


def key_of(data: bytes | None) -> FrameKey:
    """The frame that an acknowledgement names; raises RemoteError."""
    try:
        stream, epoch, frame = (data or b"").decode("ascii").split("|")
        return FrameKey(stream, int(epoch), int(frame))
    except ValueError as error:
        raise RemoteError(f"correlation data {(data or b'')[:80]!r} is not ours") from error


class UplinkSession:
    """The frames in flight and the state of the connection. Memory: what the log's window holds."""

    def __init__(self, *, ack_timeout_s: float, ack_timeout_max_s: float) -> None:
        self._ack_timeout_s = ack_timeout_s
        self._ack_timeout_max_s = ack_timeout_max_s
        self._flying: dict[FrameKey, _InFlight] = {}
        self._by_packet: dict[int, FrameKey] = {}
        self._by_attempt: OrderedDict[FrameKey, None] = OrderedDict()
        """Frames that are on their way, in the order of their latest attempts."""
        self._attempts = 0
        self.is_hurried = False
        """A frame is to be sent again earlier than was known; whoever waits for `next_due_s` clears it and asks again."""
        self._pauses: dict[str, _Pause] = {}
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
        """Is it over?"""
        return self.state is UplinkState.STOPPED

    @property
    def sends(self) -> bool:
        """May frames go out?"""
        return self.state in {UplinkState.STREAMING, UplinkState.DRAINING}

    def hand_over(self, frames: Iterable[OutFrame]) -> None:
        """The log gives frames, in order. One that is in flight already is the same; a gap that takes its number is sent in its place."""
        for frame in frames:
            known = self._flying.get(frame.key)
            if known is None or known.frame.gap != frame.gap:
                self._flying[frame.key] = _InFlight(frame)
                self._by_attempt.pop(frame.key, None)

    def to_send(self, now_s: float, limit: int) -> Iterator[OutFrame]:
        """At most `limit` frames whose turn it is, in order. Tell `sent` for each one before asking for the next."""
        if not self.sends:
            return
        for flying, at_s in list(self._turns()):
            if limit <= 0:
                return
            if at_s <= now_s:
                limit -= 1
                if (pause := self._pauses.get(flying.frame.key.stream)) is not None:
                    pause.tried = True
                yield flying.frame

    def _turns(self) -> Iterator[tuple[_InFlight, float]]:
        """Frames that wait for a time, and which; of a stream that waits only the oldest, if that is not on its way."""
        tried: set[str] = set()
        oldest = next(iter(self._flying.values()), None)
        for flying in self._flying.values():
            stream = flying.frame.key.stream
            pause = self._pauses.get(stream)
            if stream in tried:
                continue
            if pause is not None:
                tried.add(stream)
            at_s = float("-inf") if flying.queued else flying.due_s
            if at_s is not None and flying is oldest and flying.is_unconfirmed:
                at_s = min(at_s, flying.sent_s + PROBE_S[flying.attempts > PROBES])
            if at_s is not None:
                yield flying, at_s if pause is None else max(at_s, pause.until_s)

    def sent(self, key: FrameKey, packet_id: int | None, now_s: float) -> None:
        """A frame went out: under this packet id, or (None) without asking for the broker's PUBACK."""
        flying = self._flying[key]
        self.resent += flying.attempts > 0
        flying.attempts += 1
        self._attempts += 1
        flying.packet_id, flying.queued = packet_id, False
        if now_s - flying.sent_s >= self._ack_timeout_s:
            flying.hurried = 0
        flying.sent_number, flying.sent_s, flying.overtaken = self._attempts, now_s, 0
        flying.is_unconfirmed = packet_id is None
        self._by_attempt[key] = None
        self._by_attempt.move_to_end(key)
        if packet_id is None:
            flying.due_s = now_s + self._patience_s(flying.attempts)
        else:
            flying.due_s = None
            self._by_packet[packet_id] = key

    def on_puback(self, packet_id: int, reason: int, now_s: float) -> FrameKey | None:
        """The broker answered. The frame stays; it is sent again when the cloud is silent for too long. Its key, None where unknown."""
        key = self._by_packet.pop(packet_id, None)
        flying = self._flying.get(key) if key is not None else None
        if flying is None or flying.packet_id != packet_id:
            return key
        flying.packet_id = None
        patience_s = now_s + self._patience_s(flying.attempts)
        flying.due_s = patience_s if flying.due_s is None else min(flying.due_s, patience_s)
        self.refused_by_broker += reason != PUBACK_SUCCESS
        return key

    def on_ack(self, key: FrameKey, ack: Ack, now_s: float) -> Freed | None:
        """The cloud answered: the frame is free. None where it was freed before: acknowledgements repeat like everything else."""
        flying = self._flying.pop(key, None)
        if flying is None:
            return None
        self._by_attempt.pop(key, None)
        self._hurry_overtaken(flying, now_s)
        if (pause := self._pauses.get(key.stream)) is not None and pause.tried:
            del self._pauses[key.stream]
        return Freed(key, ack.rejected, ack.detail)

    def _hurry_overtaken(self, acked: _InFlight, now_s: float) -> None:
        """Frames sent before `acked` and still waiting may be lost: send them again soon, not only when patience ends (as TCP does,
        RFC 8985). Two bridges answer in bursts, so a frame is given the time that `acked` took once more. An acknowledged repetition ends
        an outage: all before it are sent again.
        """
        weight = 1 if acked.attempts == 1 else OVERTAKEN_BY
        for key in self._by_attempt:
            older = self._flying[key]
            if older.sent_number >= acked.sent_number:
                return
            older.overtaken += weight
            if older.overtaken >= OVERTAKEN_BY and older.hurried < HURRIED_MAX:
                at_s = older.sent_s + max(HURRY_MIN_S, 2 * (now_s - acked.sent_s))
                if older.due_s is None or at_s < older.due_s:
                    older.hurried += 1
                    older.due_s = at_s
                    self.is_hurried = True

    def on_later(self, key: FrameKey, later: Later, now_s: float) -> bool:
        """The cloud does not accept the frame now: it stays, and its stream waits. False where it was freed before."""
        flying = self._flying.get(key)
        if flying is None:
            return False
        flying.packet_id, flying.due_s, flying.queued = None, None, True
        self._by_attempt.pop(key, None)
        self._pauses[key.stream] = _Pause(now_s + max(LATER_MIN_S, later.retry_after_ms / 1000))
        self.postponed += 1
        return True

    @property
    def paused_streams(self) -> frozenset[str]:
        """Streams that the cloud asked to wait: no more of their frames are wanted."""
        return frozenset(self._pauses)

    def next_due_s(self) -> float | None:
        """When `to_send` has something to send again; None where nothing waits for a time."""
        return min((at_s for _, at_s in self._turns() if at_s != float("-inf")), default=None)

    def _patience_s(self, attempts: int) -> float:
        return min(self._ack_timeout_max_s, self._ack_timeout_s * 2.0 ** min(attempts - 1, 32))

    def _forget_attempts(self) -> None:
        """The connection is gone: what it carried may be gone too, so all of it is sent again, in order, on the next one."""
        self._by_packet.clear()
        self._by_attempt.clear()
        for flying in self._flying.values():
            flying.packet_id, flying.due_s, flying.queued = None, None, True
