"""Varints: unsigned integers in base 128, least first, the high bit set on all bytes but the last (as in LEB128 and protocol buffers)."""

from __future__ import annotations


def encode(value: int) -> bytes:
    """The bytes of a number of 0 or more."""
    body = bytearray()
    while value > 0x7F:
        body.append(value & 0x7F | 0x80)
        value >>= 7
    body.append(value)
    return bytes(body)


class Reader:
    """Reads numbers from `body`, beginning at `at`. Raises IndexError where the bytes end inside one."""

    def __init__(self, body: bytes, at: int) -> None:
        self._body = body
        self.at = at

    @property
    def ended(self) -> bool:
        """Is all read?"""
        return self.at >= len(self._body)

    def number(self) -> int:
        """The next number."""
        value = shift = 0
        while True:
            byte = self._body[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def bytes(self, count: int) -> bytes:
        """The next bytes as they are."""
        self.at += count
        return self._body[self.at - count : self.at]
