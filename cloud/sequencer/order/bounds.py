"""Bounds of the sequencer's waits and memory.

Every bound with its unit, its reason and what happens at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW: Final = 1024
"""Numbers below the highest of a NUMBERED line in which a repeat is distinguished from a late one,
and frames before an unknown beginning that may still come. Two bridges, one of them stopped for
seconds, put this many messages of one device out of order."""
EPOCHS_MAX: Final = 4
"""Epochs remembered per line. At the bound the one that was quiet longest is forgotten, never the
one with the highest number: a device that invents epochs forgets its own. Frames of a forgotten
epoch open it again (`unknown_before`)."""
KEYS_MAX: Final = 64
"""Keys of requests remembered per line (a device's stream), some 60 bytes each; the one that was
quiet longest is forgotten. A sender repeats what it sent last, not what it sent long before."""
RESTART_S: Final = 60
"""Seconds after which number 0 or 1 of a plain device is not a repeat but a counter that started
again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one partition of `ew.up`."""

    hold_s: float = 5.0
    """Seconds that later frames wait for an earlier one; then they pass, and the hole is stated
    open."""
    unknown_s: float = 2.0
    """Seconds that the frames of an unknown epoch wait for number 1; then the lowest that came is
    the first one known."""
    frames: int = 1024
    """Frames that wait, per state; at the bound the lowest hole is opened."""
    bytes: int = 2 << 20
    """Bytes that wait, per state; likewise."""
    bytes_total: int = 4 << 20
    """Bytes that wait, of the partition; at the bound the state that holds most lets its lowest
    frames pass."""
    hole_s: float = 86_400.0
    """Seconds after which the frames of an open hole are counted as lost."""
    holes_total: int = 4096
    """Open holes remembered, of the partition; at the bound the state that opens one more forgets
    (and counts) its lowest."""
    states: int = 32_768
    """States remembered. At the bound old epochs go first, then the lines that were quiet longest:
    their next frame is the first one known (`unknown_before`), nothing is counted as lost."""
    old_epoch_s: float = 7 * 86_400.0
    """Seconds that an epoch is remembered after its last frame when a line has a higher one."""
    contents: int = 4096
    """NUMBERED lines whose last 64 numbers are remembered with a checksum of what came under them,
    some 320 bytes each; at the bound the oldest is forgotten: another reading under one of its
    numbers then counts as a repeat until RESTART_S is over."""
    things: int = 16_384
    """Pairs of thing and stream whose own numbers are remembered, up to 5 KB each; at the bound the
    one that is quiet longest is forgotten: what then comes by a second gateway counts twice."""
    wide: int = 2048
    """NUMBERED lines with numbers that have not come among the last WINDOW; at the bound the oldest
    has 64 numbers only."""
