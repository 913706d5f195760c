"""J1939 messages of more than eight bytes, put together from their frames (SAE J1939-21). No I/O.

A sender announces a parameter group, its size and the number of frames, to all (BAM) or to one
receiver (RTS), and sends seven bytes in each frame, numbered from 1. We only listen, so that a
frame which we missed is missing: the message is lost, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Final, NamedTuple

ANNOUNCES: Final = 0xEC00
"""The group that announces another one in several frames (TP.CM)."""
CARRIES: Final = 0xEB00
"""The group of these frames (TP.DT)."""
PDU_2: Final = 0xF000
"""Parameter groups from here on have no address in them."""
RTS: Final = 16
"""Begins an announcement to one receiver."""
BAM: Final = 32
"""Begins an announcement to all."""
ABORT: Final = 255
"""Begins the word of either side that a message ends here."""
FRAME_BYTES: Final = 7
"""Bytes of the message in each frame; the eighth is the frame's number."""
SIZE: Final = range(9, 1786)
"""Bytes that a message may have: a shorter one fits into one frame, and frames have numbers up to
255."""
SILENCE_MS: Final = 1250
"""The longest time between two frames of a message (T2, T3); one that comes later is of none."""
OPEN_MAX: Final = 256
"""Messages that are put together at a time, of two kilobytes each; of more the oldest is lost. A
sender may have one to all and one to each receiver."""


class Whole(NamedTuple):
    """A message, as if it had come in one frame."""

    number: int
    """The frame's number: priority, group, receiver and sender."""
    data: bytes


@dataclass(slots=True)
class _Open:
    group: int
    size: int
    number: int
    heard_ms: int
    parts: dict[int, bytes] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return -(-self.size // FRAME_BYTES)


class Transport:
    """Puts messages of a bus together."""

    def __init__(self, wanted: Container[int], on_lost: Callable[[int], None]) -> None:
        """`wanted`: groups that are put together.

        `on_lost`: called with the group of a message of which a frame is missing.
        """
        self._wanted = wanted
        self._on_lost = on_lost
        self._open: dict[tuple[int, int], _Open] = {}
        """Sender and receiver → what is put together, the longest quiet first."""

    def take(self, number: int, data: bytes, t_ms: int) -> Whole | None:
        """Take a frame with a number of 29 bits; returns the message that it completes."""
        group, receiver, sender = group_of(number), number >> 8 & 0xFF, number & 0xFF
        if len(data) != 8 or group not in (ANNOUNCES, CARRIES):
            return None
        if group == CARRIES:
            return self._carried((sender, receiver), data, t_ms)
        if data[0] == ABORT:
            for ends in ((sender, receiver), (receiver, sender)):
                self._lose(ends)
        elif data[0] in (BAM, RTS):
            self._lose((sender, receiver))
            self._announced((sender, receiver), number, data, t_ms)
        return None

    def _announced(self, ends: tuple[int, int], number: int, data: bytes, t_ms: int) -> None:
        group, size = int.from_bytes(data[5:8], "little"), int.from_bytes(data[1:3], "little")
        if group not in self._wanted or size not in SIZE or group >> 18:
            return
        sender, receiver = ends
        address = 0 if group & 0xFF00 >= PDU_2 else receiver << 8
        own = number & 0x1C000000 | group << 8 | address | sender
        if len(self._open) >= OPEN_MAX:
            self._lose(next(iter(self._open)))
        self._open[ends] = _Open(group, size, own, t_ms)

    def _carried(self, ends: tuple[int, int], data: bytes, t_ms: int) -> Whole | None:
        one = self._open.get(ends)
        if one is None:
            return None
        if not 0 <= t_ms - one.heard_ms <= SILENCE_MS or not 1 <= data[0] <= one.count:
            self._lose(ends)
            return None
        one.heard_ms = t_ms
        one.parts[data[0]] = data[1:]
        if len(one.parts) == one.count:
            del self._open[ends]
            whole = b"".join(one.parts[part] for part in range(1, one.count + 1))
            return Whole(one.number, whole[: one.size])
        if data[0] == one.count and ends[1] == 0xFF:  # nobody asks for what is missing
            self._lose(ends)
            return None
        self._open[ends] = self._open.pop(ends)
        return None

    def _lose(self, ends: tuple[int, int]) -> None:
        lost = self._open.pop(ends, None)
        if lost is not None:
            self._on_lost(lost.group)


def group_of(number: int) -> int:
    """The parameter group of a J1939 frame. Pure."""
    group = number >> 8 & 0x3FFFF
    return group if group & 0xFF00 >= PDU_2 else group & 0x3FF00
