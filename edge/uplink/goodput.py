"""The measured speed of the link, and what follows for frames and keepalive. Pure.

A frame is one write: what is more urgent waits until it is through. So a frame holds at most what
the link carries in FRAME_S. The speed is measured while bytes wait the whole time; bytes that did
not have to wait prove a lower bound only.
"""

from __future__ import annotations

from typing import Final

from edgewake.edge.liveness import Outgoing

FRAME_S: Final = 2.0
"""Seconds of the link's speed that one frame may take."""
FRAME_BYTES_FIRST: Final = 32 * 1024
"""Bytes of a frame before anything is known: 4 s at 64 kbit/s, and a fast link proves itself within
a second."""
FRAME_BYTES_MIN: Final = 2 * 1024
"""Bytes of a frame on the slowest link: below that what a packet costs beside its frame weighs too
much."""
SAMPLE_S: Final = 0.5
"""Seconds of one measurement at least."""
GROWTH: Final = 1.5
"""A link on which nothing waited any more may have become faster: so much more is tried at each
measurement."""
PACKET_KEEPALIVES: Final = 3
"""A packet on its way may take at most a third of the keepalive: a broker counts whole packets as
signs of life."""
KEEPALIVE_MAX_S: Final = 120
"""Bound of a keepalive that is prolonged for a slow link."""


class Goodput:
    """Feed it the socket's counters about once a second; one object for all connections."""

    def __init__(self) -> None:
        self.bytes_per_s: float | None = None
        """Measured, while the link is the bottleneck; None while it is not, or nothing is known."""
        self._proven = 0.0
        self._last: tuple[float, Outgoing] | None = None

    def connected(self) -> None:
        """A new connection: its counters start again.

        It may be another network: what was proven holds no more; that it is slow does.
        """
        self._last = None
        self._proven = 0.0

    def sample(self, now_s: float, outgoing: Outgoing) -> None:
        """The counters now."""
        if self._last is None:
            self._last = now_s, outgoing
            return
        then_s, before = self._last
        seconds = now_s - then_s
        if seconds < SAMPLE_S:
            return
        self._last = now_s, outgoing
        rate = (outgoing.confirmed - before.confirmed) / seconds
        if before.waiting and outgoing.waiting:
            if rate == 0:
                return  # nothing moves: the connection may be lost, which `Liveness` decides
            self.bytes_per_s = rate if self.bytes_per_s is None else (self.bytes_per_s + rate) / 2
            return
        self._proven = max(self._proven, rate)
        if rate > 0 and not outgoing.waiting and self.bytes_per_s is not None:
            self.bytes_per_s = max(rate, self.bytes_per_s * GROWTH)

    def frame_bytes(self, most: int, *, cap_bytes_per_s: float | None = None) -> int:
        """The size of the next frames in bytes: at most `most`, and what a cap lets through."""
        if cap_bytes_per_s is not None:
            most = min(most, max(FRAME_BYTES_MIN, int(FRAME_S * cap_bytes_per_s)))
        if self.bytes_per_s is None:
            return min(most, max(FRAME_BYTES_FIRST, int(FRAME_S * self._proven)))
        return min(most, max(FRAME_BYTES_MIN, int(FRAME_S * self.bytes_per_s)))

    def keepalive_s(self, configured_s: int, largest: int) -> int:
        """The keepalive to ask for, if a packet of `largest` bytes is to be sent."""
        if not self.bytes_per_s:
            return configured_s
        return max(
            configured_s, min(KEEPALIVE_MAX_S, int(PACKET_KEEPALIVES * largest / self.bytes_per_s))
        )
