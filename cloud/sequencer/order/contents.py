"""Checksums of the last 64 numbers of a NUMBERED line. No I/O.

Other bytes under the same number are not a repeat.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

KEPT: Final = 64
"""Numbers whose contents are remembered."""
_ONE: Final = Struct("<I")
RING_BYTES: Final = KEPT * _ONE.size


class Contents:
    """The contents of one line: a ring of checksums (0: unknown), and the ring of the run before.

    A run ends when the device's counter starts again.
    """

    __slots__ = ("before", "ring")

    def __init__(self, ring: bytes = bytes(RING_BYTES), before: bytes = b"") -> None:
        if len(ring) != RING_BYTES or len(before) not in (0, RING_BYTES):
            raise ValueError(
                f"contents of {len(ring)} and {len(before)} bytes: expected {RING_BYTES}"
            )
        self.ring = bytearray(ring)
        self.before = before

    def note(self, number: int, content: int, *, skipped: int = 0) -> None:
        """`content` came under the number; the `skipped` numbers before it have not come."""
        if skipped:
            for older in range(max(number - min(skipped, KEPT), 0), number):
                _ONE.pack_into(self.ring, older % KEPT * _ONE.size, 0)
        _ONE.pack_into(self.ring, number % KEPT * _ONE.size, content)

    def is_other(self, number: int, content: int) -> bool:
        """Is this other content under one of the last KEPT numbers?

        A repeat of the run before does not count.
        """
        known = self._at(self.ring, number)
        return known not in (0, content) and (
            not self.before or self._at(self.before, number) != content
        )

    def begin_anew(self) -> None:
        """The device's counter starts again."""
        self.before = bytes(self.ring)
        self.ring = bytearray(RING_BYTES)

    @staticmethod
    def _at(ring: bytes | bytearray, number: int) -> int:
        return int(_ONE.unpack_from(ring, number % KEPT * _ONE.size)[0])
