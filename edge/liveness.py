"""Is the connection alive? Pure: time and the socket's counters are arguments.

Signs of life: bytes that came in; and bytes of ours that the other side's kernel confirmed while
more of them still waited. The second keeps a slow link alive, where one frame takes longer than the
keepalive and nothing comes in meanwhile. It does not keep a frozen broker alive: its kernel takes
what fits into its buffer, then nothing waits any more, or nothing moves.

A broker that answers pings and confirms no publish is dead, too: PUBACK_KEEPALIVES after a publish
has left, the connection is given up. A publish has left when as many bytes are confirmed as had
been written when it was first seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SILENT_KEEPALIVES: Final = 1.5
"""Keepalives without a sign of life after which a connection is dead (MQTT 5, section 3.1.2.10)."""
PUBACK_KEEPALIVES: Final = 1.5
"""Keepalives that the broker has for a PUBACK."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The socket's counters."""

    confirmed: int
    """Bytes that the other side's kernel has confirmed, since the connection began."""
    waiting: int
    """Bytes written and not confirmed: in our buffers or on their way."""


@dataclass(slots=True)
class _Awaited:
    """A publish whose PUBACK is awaited."""

    packet_id: int
    position: int
    """It has left when this many bytes are confirmed."""
    left_s: float | None = None


class Liveness:
    """Feed it what happens; `check` it a few times per keepalive."""

    def __init__(self, keepalive_s: float, now_s: float) -> None:
        self._keepalive_s = keepalive_s
        self._alive_s = now_s
        self._confirmed = 0
        self._awaited: _Awaited | None = None

    def heard(self, now_s: float) -> None:
        """Bytes came in."""
        self._alive_s = now_s

    def check(self, now_s: float, outgoing: Outgoing, oldest_publish: int | None) -> str | None:
        """Why the connection is dead; None while it lives.

        `oldest_publish`: packet id of the one that is longest without its PUBACK.
        """
        if outgoing.confirmed > self._confirmed and outgoing.waiting:
            self._alive_s = now_s
        self._confirmed = outgoing.confirmed
        silent_s = now_s - self._alive_s
        if silent_s > SILENT_KEEPALIVES * self._keepalive_s:
            return f"nothing heard for {silent_s:.0f} s"
        return self._check_puback(now_s, outgoing, oldest_publish)

    def _check_puback(
        self, now_s: float, outgoing: Outgoing, oldest_publish: int | None
    ) -> str | None:
        if oldest_publish is None:
            self._awaited = None
            return None
        if self._awaited is None or self._awaited.packet_id != oldest_publish:
            self._awaited = _Awaited(oldest_publish, outgoing.confirmed + outgoing.waiting)
        awaited = self._awaited
        if awaited.left_s is None and outgoing.confirmed >= awaited.position:
            awaited.left_s = now_s
        if (
            awaited.left_s is not None
            and now_s - awaited.left_s > PUBACK_KEEPALIVES * self._keepalive_s
        ):
            return f"a publish was not confirmed for {now_s - awaited.left_s:.0f} s"
        return None
