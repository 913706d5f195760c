"""A uniform sample of readings; samples can be merged.

Each reading draws a priority of 64 random bits, and the SIZE lowest are kept (bottom-k).

The same readings summed up in any parts and order give the same sample, and the sample of two parts
that overlap has each of their common readings once where the priority is a hash of the reading. So
it is a reservoir that may be filled at many places and twice.

Bytes: varints of FORMAT, size, readings; then for each item the priority (8 bytes, big-endian), a
varint of the text's bytes, the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from edgewake.protocol import varint
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame import COUNTER_MAX, STRING_CHARS_MAX

FORMAT: Final = 1
SIZE: Final = 64
"""The default size, in readings: shares are known to ±12 percentage points with 95 % confidence."""
SIZE_MAX: Final = 1024
"""The largest sample that is decoded, in readings."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample as the module describes it. `items` are at most `size` (priority, text), sorted."""

    size: int
    readings: int
    items: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, items: Iterable[tuple[int, str]], *, size: int = SIZE) -> Sample:
        """Makes a sample from (priority, text) of every reading."""
        every = sorted(items)
        return cls(size, len(every), tuple(every[:size]))

    def merge(self, other: Sample) -> Sample:
        """Merges two samples."""
        size = min(self.size, other.size)
        return Sample(
            size, self.readings + other.readings, tuple(sorted({*self.items, *other.items})[:size])
        )

    def encode(self) -> bytes:
        """Encodes the sample as the module describes."""
        body = bytearray(b"".join(map(varint.encode, (FORMAT, self.size, self.readings))))
        for priority, text in self.items:
            data = text.encode()
            body += priority.to_bytes(8, "big") + varint.encode(len(data)) + data
        return bytes(body)

    @classmethod
    def decode(cls, data: bytes) -> Sample:
        """Decodes what `encode` wrote. Raises Rejected."""
        reader = varint.Reader(data, 0)
        try:
            version, size, readings = (reader.number() for _ in range(3))
            if version != FORMAT or not 1 <= size <= SIZE_MAX or readings > COUNTER_MAX:
                raise Rejected(
                    RejectReason.SHAPE,
                    f"sample: format {version}, size {size}, {readings} readings",
                )
            items: list[tuple[int, str]] = []
            while not reader.ended and len(items) < size:
                priority = int.from_bytes(reader.exactly(8), "big")
                items.append(
                    (priority, reader.exactly(min(reader.number(), 4 * STRING_CHARS_MAX)).decode())
                )
        except (IndexError, UnicodeDecodeError) as error:
            raise Rejected(RejectReason.SHAPE, f"sample: {error}") from error
        if (
            not reader.ended
            or len(items) > readings
            or any(one > two for one, two in pairwise(items))
        ):
            raise Rejected(
                RejectReason.SHAPE, "sample: more items than size or readings, or items not sorted"
            )
        return cls(size, readings, tuple(items))
