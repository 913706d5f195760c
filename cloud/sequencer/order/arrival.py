"""What goes into the frame order and what comes out of it: values, no behaviour.

An `Arrival` is a record of `ew.up`; what passes on is the same object again. A `Statement` is what
the sequencer has to say itself.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from edgewake.protocol.frames.record import Placement


@dataclass(slots=True)
class Arrival:
    """A record of one partition of `ew.up`."""

    offset: int
    device: str
    placement: Placement
    bytes: int
    received_at: int
    """Kafka's clock when it kept the record, ms since 1970 UTC."""
    sent_at: int | None = None
    """The device's clock at this attempt, ms; None where unknown."""
    bridge_at: int = 0
    """The bridge's clock when the record came to it, ms."""
    payload: Any = None
    """The caller's; passed on untouched."""
    value: builtins.bytes | None = None
    """Set on the way out: the record's value in place of the payload's, where readings were left
    out."""
    late: bool = False
    """Set on the way out: it fills a hole that was stated open, or came after its device had given
    it up."""
    shift: int = 0
    """Set on the way: ms to add to its event times (see `clocks`)."""
    trace: tuple[tuple[str, builtins.bytes], ...] = ()
    """The caller's, of a frame that is traced; passed on untouched."""
    held_at_s: float = 0.0
    """Monotonic clock, when it began to wait for an earlier frame."""

    @property
    def sender(self) -> str:
        """The sender that numbers it: for a thing behind a gateway both.

        Two gateways number by themselves.
        """
        via = self.placement.via
        return f"{self.device} via {via}" if via else self.device

    @property
    def clock(self) -> str:
        """The device whose clock its times come from: its gateway or itself."""
        return self.placement.via or self.device

    @property
    def stream(self) -> str:
        """The stream of its placement."""
        return self.placement.stream


class StatementKind(StrEnum):
    """The reason of a gap record that the sequencer writes. Only MISSING counts a loss."""

    OPEN = "open"
    """The frames were not there in time; later ones pass first. They may still come, once each,
    marked late."""
    MISSING = "missing"
    """Frames of an open hole did not come within a day, or more holes opened than are remembered:
    counted as lost."""
    UNKNOWN_BEFORE = "unknown_before"
    """The sequencer knows nothing of this epoch before the next frame: no loss, no count."""
    RESTARTED = "restarted"
    """A plain device's counter fell: what follows are new readings under numbers that occurred
    before."""


class Statement(NamedTuple):
    """A statement about frames `first` to `last`, which begin with reading `seq`.

    `lost`: number of lost readings (0 unless MISSING).
    """

    kind: StatementKind
    device: str
    epoch: int
    stream: str
    first: int
    last: int
    seq: int
    lost: int = 0
    via: str = ""
    """The gateway that numbers them, of a thing behind one."""


Output: TypeAlias = Arrival | Statement
