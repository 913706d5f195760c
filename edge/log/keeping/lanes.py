"""Which stream may have one more frame in flight: lanes, and each stream's share of the window.

Pure.

The window bounds what is sent and not yet acknowledged, in frames and bytes. A stream that is
refused, or that nobody answers, must not fill it. So a stream may have at most SHARE times as much
in flight as is still free (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
packet switches", 1998): one stream alone gets three quarters of the window, two greedy ones three
sevenths each, and something is always left for the next one. A stream that has nothing in flight
may always have one frame, so no stream waits for another's acknowledgement; the window is exceeded
by at most that one frame a stream (and by the urgent lane's own tenth).

A lane leaves a part of the window to the lanes that are more urgent, and frames are formed and sent
in the order of the lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

SHARE: Final = 3
"""A stream may have this many times the free part of its lane's window in flight."""


class Lane(StrEnum):
    """Priority of a stream on the device, the most urgent first."""

    URGENT = "urgent"
    NORMAL = "normal"
    BULK = "bulk"


RANK: Final = {lane: rank for rank, lane in enumerate(Lane)}
"""For sorting: 0 is sent first."""
PART: Final = {Lane.URGENT: 1.0, Lane.NORMAL: 0.9, Lane.BULK: 0.6}
"""Part of the window that a lane may fill together with all others; what is beyond belongs to the
more urgent ones."""
URGENT_PART: Final = 0.1
"""Part of the window that the urgent lane has in any case, also when the first frames of many other
streams exceed the window."""


class Window:
    """What is in flight, by stream.

    Refill it from what is outstanding after each change; `add` while frames are formed.
    """

    def __init__(
        self,
        frames: int,
        size: int,
        outstanding: Iterable[tuple[str, int]] = (),
        *,
        lane: Callable[[str], Lane] = lambda _: Lane.NORMAL,
    ) -> None:
        """At most `frames` frames and `size` bytes.

        `outstanding` gives (stream, bytes) of each frame in flight.
        """
        self._frames = frames
        self._size = size
        self._lane = lane
        self._total_frames = 0
        self._total_size = 0
        self._urgent_frames = 0
        self._by_stream: dict[str, tuple[int, int]] = {}
        for stream, frame_size in outstanding:
            self.add(stream, frame_size)

    def add(self, stream: str, size: int) -> None:
        """One more frame is in flight."""
        frames, used = self._by_stream.get(stream, (0, 0))
        self._by_stream[stream] = (frames + 1, used + size)
        self._total_frames += 1
        self._total_size += size
        if self._lane(stream) is Lane.URGENT:
            self._urgent_frames += 1

    def admits(self, stream: str) -> bool:
        """May one more frame of this stream be in flight?"""
        frames, used = self._by_stream.get(stream, (0, 0))
        if frames == 0:
            return True
        lane = self._lane(stream)
        if lane is Lane.URGENT and self._urgent_frames < URGENT_PART * self._frames:
            return True
        part = PART[lane]
        free_frames = math.ceil(self._frames * part) - self._total_frames
        free_size = int(self._size * part) - self._total_size
        return (
            free_frames > 0
            and frames <= SHARE * free_frames
            and free_size > 0
            and used <= SHARE * free_size
        )

    def in_order(
        self, streams: Iterable[str], *, is_behind: Callable[[str], bool] = lambda _: False
    ) -> list[str]:
        """Sort streams by urgency of their lanes; within a lane, those that are behind come last.

        Then the order given.

        A stream that is not behind needs one frame and then no more, so those that are behind have
        all the rest.
        """
        return sorted(streams, key=lambda stream: (RANK[self._lane(stream)], is_behind(stream)))
