"""The sequencer's lag, per partition and in all. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

READY_LAG_S: Final = 10.0
"""Seconds behind up to which a sequencer is ready: twice what it holds a frame for."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one partition."""

    records: int
    """Records of `ew.up` that are not passed on yet."""
    seconds: float
    """Age of the newest record that was passed on, while others wait; 0 where none does."""


def lag(*, end: int, position: int, received_at: int, now_ms: int) -> Lag:
    """`end`: offset after the last record; `received_at`: of the last record that was passed on."""
    records = max(0, end - max(position, 0))
    is_behind = records > 0 and received_at > 0
    return Lag(records, max(0.0, (now_ms - received_at) / 1000) if is_behind else 0.0)
