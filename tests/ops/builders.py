"""Values for tests, with defaults."""

from __future__ import annotations

from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames.frame import Frame


def frame(number: int) -> Frame:
    """A frame of one reading."""
    return Frame(
        epoch=1, frame=number, seq=number, t=[1_790_000_000_000 + number], fields={"v": [number]}
    )


class HastyClock(SystemClock):
    """A clock by which `step_s` seconds pass between two looks: every deadline is soon over,
    however fast the machine is.
    """

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._now_s = 0.0

    def monotonic_s(self) -> float:
        self._now_s += self._step_s
        return self._now_s
