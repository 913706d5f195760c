"""Values for tests, with defaults."""

from __future__ import annotations

from edgewake.protocol.frame import Frame


def frame(number: int) -> Frame:
    """A frame of one reading."""
    return Frame(epoch=1, frame=number, seq=number, t=[1_790_000_000_000 + number], fields={"v": [number]})
