"""Varints: unsigned integers in base 128, least first (as in LEB128 and protocol buffers).

The high bit is set on all bytes but the last.
"""

from __future__ import annotations

from typing import Final


def encode(value: int) -> bytes:
    """The bytes of a number of 0 or more."""
    body = bytearray()
    while value > 0x7F:
        body.append(value & 0x7F | 0x80)
        value >>= 7
    body.append(value)
    return bytes(body)


NUMBER_BITS_MAX: Final = 70
"""The longest number that is read, bits: ten bytes. We write no longer one, and reading it would
cost the square of its length."""


class Reader:
    """Reads numbers from `body`, beginning at `at`.

    Raises IndexError where the bytes end inside one, or one is longer than any of ours.
    """

    def __init__(self, body: bytes, at: int) -> None:
        self._body = body
        self.at = at

    @property
    def ended(self) -> bool:
        """Have all bytes been read?"""
        return self.at >= len(self._body)

    def number(self) -> int:
        """The next number."""
        value = self._body[self.at]
        self.at += 1
        if value < 0x80:
            return value
        value &= 0x7F
        shift = 7
        while True:
            byte = self._body[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift >= NUMBER_BITS_MAX:
                raise IndexError("a number of more than ten bytes")

    def signed(self) -> int:
        """The next number, which may be below 0: zigzag, 0 -1 1 -2 and so on."""
        value = self.number()
        return -(value + 1 >> 1) if value & 1 else value >> 1

    def byte(self) -> int:
        """The next byte."""
        self.at += 1
        return self._body[self.at - 1]

    def exactly(self, count: int) -> bytes:
        """The next bytes; IndexError where there are fewer."""
        found = self.bytes(count)
        if len(found) != count:
            raise IndexError(f"expected {count} bytes, found {len(found)}")
        return found

    def bytes(self, count: int) -> bytes:
        """The next bytes as they are."""
        self.at += count
        return self._body[self.at - count : self.at]
