"""Count-Min counts how often a text occurred, never too low (Cormode, Muthukrishnan 2005).

A table of `depth` rows of `width` cells; a text adds 1 to one cell of each row, and the smallest of
its cells is the answer. With probability 1 - 2^-depth it is too high by at most 2/width of all
readings. With a thousand different texts there is hardly an empty cell, so it cannot tell which
occurred: a Bloom filter does (bloom.py). Texts are hashed as Apache Spark's `count_min_sketch`
does, so that its tables merge with those of devices: Murmur3 x86 of the UTF-8 bytes with seed 0 (h)
and with seed h (g); the cell of row i is |h + i·g| mod width, in 32-bit arithmetic. The width is a
power of two, so a wide table folds into a narrow one, cell j onto j mod width.

Bytes: varints of FORMAT, depth, log2 of width, readings; then the cells row by row, a run of n
empty ones as 0, n.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

from edgewake.protocol import varint
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame import COUNTER_MAX

FORMAT: Final = 1
DEPTH: Final = 5
"""The default number of rows: the bound holds with probability 1 - 1/32 = 96.9 %."""
WIDTH: Final = 1024
"""The default number of cells in a row: counts are too high by at most 0.2 % of the readings.

A device
uses 256 where the sketch must fit a text of a frame."""
DEPTH_MAX: Final = 16
WIDTH_MAX: Final = 1 << 14
"""The widest sketch that is decoded: at most 2 MiB in memory."""
_SPARK_HEAD: Final = struct.Struct(">iqii")
_MASK: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class CountMin:
    """A sketch as the module describes it. `cells` are stored row by row."""

    depth: int
    width: int
    readings: int
    cells: tuple[int, ...]

    @classmethod
    def of(cls, texts: Iterable[str], *, depth: int = DEPTH, width: int = WIDTH) -> CountMin:
        """Makes a sketch of texts; `width` is a power of two."""
        return cls.of_counts(((text, 1) for text in texts), depth=depth, width=width)

    @classmethod
    def of_counts(
        cls, counts: Iterable[tuple[str, int]], *, depth: int = DEPTH, width: int = WIDTH
    ) -> CountMin:
        """Makes a sketch of texts and how often each occurred."""
        table = [0] * (depth * width)
        readings = 0
        for text, count in counts:
            readings += count
            for place in places(text, depth, width):
                table[place] += count
        return cls(depth, width, readings, tuple(table))

    def merge(self, other: CountMin) -> CountMin:
        """Merges two sketches; see `merged`."""
        return CountMin.merged((self, other))

    @classmethod
    def merged(cls, parts: Sequence[CountMin]) -> CountMin:
        """Merges sketches; the result has the fewest rows and the narrowest width among them."""
        depth, width = min(part.depth for part in parts), min(part.width for part in parts)
        table = [0] * (depth * width)
        for part in parts:
            cells = part.fold(depth, width).cells
            for place in _used(cells):
                table[place] += cells[place]
        return cls(depth, width, sum(part.readings for part in parts), tuple(table))

    def fold(self, depth: int, width: int) -> CountMin:
        """Folds the sketch to fewer and narrower rows."""
        if (depth, width) == (self.depth, self.width):
            return self
        folded = []
        for row in range(depth):
            cells = self.cells[row * self.width : (row + 1) * self.width]
            folded += [sum(cells[at::width]) for at in range(width)]
        return CountMin(depth, width, self.readings, tuple(folded))

    def count(self, text: str) -> int:
        """Returns an upper bound of how often a text occurred."""
        return min(self.cells[place] for place in places(text, self.depth, self.width))

    def inner_product(self, other: CountMin) -> int:
        """Returns an upper bound of the sum over all texts of count here times count there.

        That is the size of a join on the text.
        """
        depth, width = min(self.depth, other.depth), min(self.width, other.width)
        mine, theirs = self.fold(depth, width).cells, other.fold(depth, width).cells
        return min(
            sum(map(int.__mul__, mine[at : at + width], theirs[at : at + width]))
            for at in range(0, depth * width, width)
        )

    @property
    def error(self) -> int:
        """Returns by how much a count may be too high, with the probability `confidence`."""
        return -(-2 * self.readings // self.width)

    @property
    def confidence(self) -> float:
        """Returns the probability that `error` holds for one count."""
        return float(1 - 0.5**self.depth)

    def encode(self) -> bytes:
        """Encodes the sketch as the module describes."""
        body = bytearray()
        for number in (FORMAT, self.depth, self.width.bit_length() - 1, self.readings):
            body += varint.encode(number)
        behind = 0
        for place in (*_used(self.cells), len(self.cells)):
            if place > behind:
                body += b"\0" + varint.encode(place - behind)
            if place < len(self.cells):
                body += varint.encode(self.cells[place])
            behind = place + 1
        return bytes(body)

    @classmethod
    def decode(cls, data: bytes) -> CountMin:
        """Decodes what `encode` wrote. Raises Rejected."""
        try:
            return cls._decode(varint.Reader(data, 0))
        except IndexError as error:
            raise Rejected(RejectReason.SHAPE, "count_min: truncated") from error

    @classmethod
    def _decode(cls, reader: varint.Reader) -> CountMin:
        version, depth, log2_width, readings = (reader.number() for _ in range(4))
        if version != FORMAT:
            raise Rejected(RejectReason.VERSION, f"count_min: format {version}, expected {FORMAT}")
        if (
            not 1 <= depth <= DEPTH_MAX
            or log2_width >= WIDTH_MAX.bit_length()
            or readings > COUNTER_MAX
        ):
            raise Rejected(
                RejectReason.SHAPE,
                f"count_min: {depth} rows of 2^{log2_width} cells, {readings} readings",
            )
        width = 1 << log2_width
        cells: list[int] = []
        while len(cells) < depth * width:
            value = reader.number()
            run = 1 if value else reader.number()
            if value > readings or not 0 < run <= depth * width - len(cells):
                raise Rejected(
                    RejectReason.SHAPE, "count_min: too many readings in a cell, or too many cells"
                )
            cells += [value] * run
        if not reader.ended or any(
            sum(cells[at : at + width]) != readings for at in range(0, depth * width, width)
        ):
            raise Rejected(
                RejectReason.SHAPE,
                "count_min: each row must hold every reading once, and nothing follows",
            )
        return cls(depth, width, readings, tuple(cells))

    @classmethod
    def from_spark(cls, data: bytes) -> CountMin:
        """Decodes what Spark's `count_min_sketch` gives (its format 1).

        That is version, readings, depth, width, a factor per row (unused), cells.
        """
        version, readings, depth, width = _SPARK_HEAD.unpack_from(data)
        if version != 1:
            raise Rejected(RejectReason.VERSION, f"count_min: Spark's format {version}, expected 1")
        return cls(
            depth,
            width,
            readings,
            struct.unpack_from(f">{depth * width}q", data, _SPARK_HEAD.size + 8 * depth),
        )


def _used(cells: Sequence[int]) -> Iterable[int]:
    """Returns the indexes of cells that are not empty: after few texts, most are empty."""
    return compress(range(len(cells)), cells)


def places(text: str, depth: int, width: int) -> list[int]:
    """Returns the indexes of a text's cells, one in each row."""
    data = text.encode()
    first = _murmur3(data, 0)
    second = _murmur3(data, first)
    return [row * width + abs(_signed(first + row * second)) % width for row in range(depth)]


def _signed(value: int) -> int:
    return (value + 0x8000_0000 & _MASK) - 0x8000_0000


def _murmur3(data: bytes, seed: int) -> int:
    """Returns Murmur3 x86 32-bit with Spark's deviation at the end.

    Each of the last 1 to 3 bytes is mixed in as a word of its own, with its sign.
    """
    whole = len(data) & ~3
    value = seed
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _mix(value, word)
    for byte in data[whole:]:
        value = _mix(value, byte - 256 if byte > 127 else byte)
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def _mix(value: int, word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    value ^= word * 0x1B873593 & _MASK
    value = (value << 13 | value >> 19) & _MASK
    return value * 5 + 0xE6546B64 & _MASK
