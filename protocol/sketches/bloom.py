"""A Bloom filter tells whether a text occurred; `no` is certain (Bloom 1970).

`yes` is wrong with a known probability.

It is kept compressed (Mitzenmacher 2002): one hash into 2^bits places, so few of them are set, and
the set ones are written as a sorted list in the code of Elias and Fano. That takes about 13 bits
for a value where a plain filter with the same probability takes ten, and has three advantages:

- The probability that `yes` is wrong is the share of places that are set: a count, not an
  estimate.
- Merging is the union of the places, so any order and grouping gives the same bytes.
- It grows. Its maker declares for how many different values it is (the capacity) and how often
  `yes` may be wrong (the error); the places are GROWTH times as many as that needs, so the error
  holds up to GROWTH times the capacity. Beyond SIZE_BITS_MAX it folds: two places become one, the
  probability doubles, and `false_positives` says so.

A text's hash is that of an Apache DataSketches theta sketch with its default seed: the upper 63 of
the first 64 bits of Murmur3 x64 128 of its UTF-8 bytes, seed 9001. So a theta sketch that still
holds all values is made into a filter without the values, in Python, Java and Spark. The place is
the hash's first `bits` bits. Such sketches leave the empty text out, and so must who fills this.

Bytes: varints of FORMAT, bits, one_in (the error is 1/one_in), n; then of each of the n places in
order its lower `low` bits, one behind the other; then a row of bits with bit (place >> low) + i set
for the i-th place. `low` is bits - floor(log2(n)), 0 without places. Numbers and rows have their
first bit in the highest of the first byte, and each of the two ends with zeros at a whole byte.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Final

from edgewake.protocol import varint
from edgewake.protocol.errors import Rejected, RejectReason

FORMAT: Final = 1
CAPACITY: Final = 10_000
"""The default capacity, in different values."""
ERROR: Final = 0.01
"""The default error: how often `yes` may be wrong."""
CAPACITY_MAX: Final = 100_000
"""The largest capacity that can be declared: with ERROR_MIN it fits SIZE_BITS_MAX."""
ERROR_MIN: Final = 1e-5
"""The smallest error that can be declared: with CAPACITY_MAX it needs 38 of a hash's 63 bits."""
GROWTH: Final = 16
"""The error holds up to this many times the capacity; each doubling costs a bit per value."""
SIZE_BITS_MAX: Final = 1 << 21
"""The most bits of a filter, 256 KiB. As base64 it takes a sixth of the largest Kafka record and
holds 240,000 values at the defaults of capacity and error."""
BITS_MAX: Final = 48
"""The most bits of a place in a filter that was received."""
ONE_IN_MAX: Final = 1_000_000
HASH_BITS: Final = 63
SEED: Final = 9001
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_C1: Final = 0x87C3_7B91_1142_53D5
_C2: Final = 0x4CF5_AD43_2745_937F


def bits_for(capacity: int, error: float) -> int:
    """Returns the bits of a place in a filter for `capacity` values with this error."""
    return math.ceil(math.log2(GROWTH * capacity / error))


BITS: Final = bits_for(CAPACITY, ERROR)
ONE_IN: Final = round(1 / ERROR)


@dataclass(frozen=True, slots=True)
class Bloom:
    """A filter as the module describes it. `places` are the set ones, in order."""

    bits: int
    one_in: int
    places: tuple[int, ...]

    @classmethod
    def of(
        cls,
        texts: Iterable[str],
        *,
        capacity: int = CAPACITY,
        error: float = ERROR,
        size_bits_max: int = SIZE_BITS_MAX,
    ) -> Bloom:
        """Makes a filter of texts, none of them empty."""
        declared = cls(bits_for(capacity, error), round(1 / error), ())
        return cls.merged([declared], map(hash_of, texts), size_bits_max=size_bits_max)

    @classmethod
    def merged(
        cls,
        parts: Collection[Bloom],
        hashes: Iterable[int] = (),
        *,
        size_bits_max: int = SIZE_BITS_MAX,
    ) -> Bloom:
        """Merges filters and hashes of values; the result is as coarse as the coarsest part.

        There must be at least one part. Memory stays below twice SIZE_BITS_MAX, however many hashes
        come.
        """
        bits = min(part.bits for part in parts)
        one_in = min(part.one_in for part in parts)
        places: set[int] = set()
        for part in parts:
            fold = part.bits - bits
            places.update(part.places if not fold else (place >> fold for place in part.places))
            bits, places = _folded(bits, places, size_bits_max)
        drop = HASH_BITS - bits
        for number, value in zip(count(1), hashes):
            places.add(value >> drop)
            if number % _CHECKED_AFTER == 0:
                bits, places = _folded(bits, places, size_bits_max)
                drop = HASH_BITS - bits
        bits, places = _folded(bits, places, size_bits_max)
        return cls(bits, one_in, tuple(sorted(places)))

    def merge(self, other: Bloom) -> Bloom:
        """Merges two filters; see `merged`."""
        return Bloom.merged((self, other))

    def contains(self, text: str) -> bool:
        """Returns whether a text occurred; False is certain."""
        return self.has(hash_of(text))

    def has(self, value: int) -> bool:
        """Returns whether a text with this hash may have been added; False is certain."""
        place = value >> HASH_BITS - self.bits
        at = bisect_left(self.places, place)
        return at < len(self.places) and self.places[at] == place

    @property
    def false_positives(self) -> float:
        """Returns the probability that `contains` is wrong about a text that did not occur."""
        return float(len(self.places) / (1 << self.bits))

    @property
    def error(self) -> float:
        """Returns the declared error."""
        return 1 / self.one_in

    def encode(self) -> bytes:
        """Encodes the filter as the module describes."""
        body = bytearray()
        for number in (FORMAT, self.bits, self.one_in, len(self.places)):
            body += varint.encode(number)
        low = _low(self.bits, len(self.places))
        if low:
            mask = (1 << low) - 1
            body += _packed("".join(f"{place & mask:0{low}b}" for place in self.places))
        row = bytearray(_row_bytes(self.bits, low, len(self.places)))
        for i, place in enumerate(self.places):
            at = (place >> low) + i
            row[at >> 3] |= 0x80 >> (at & 7)
        return bytes(body + row)

    @classmethod
    def decode(cls, data: bytes) -> Bloom:
        """Decodes what `encode` wrote. Raises Rejected."""
        try:
            return cls._decode(varint.Reader(data, 0), len(data))
        except IndexError as error:
            raise _wrong("truncated") from error

    @classmethod
    def _decode(cls, reader: varint.Reader, size: int) -> Bloom:
        version = reader.number()
        if version != FORMAT:
            raise Rejected(RejectReason.VERSION, f"bloom: format {version}, expected {FORMAT}")
        bits, one_in, n = (reader.number() for _ in range(3))
        if not 1 <= bits <= BITS_MAX or not 1 <= one_in <= ONE_IN_MAX or n > 1 << bits:
            raise _wrong(f"{n} of 2^{bits} places, an error of 1/{one_in}")
        low = _low(bits, n)
        low_bytes, row_bytes = -(-n * low // 8), _row_bytes(bits, low, n)
        # Checked before memory is allocated for `n` places.
        if size - reader.at != low_bytes + row_bytes:
            raise _wrong(f"expected {low_bytes + row_bytes} bytes of {n} places")
        lower = _unpacked(reader.exactly(low_bytes))
        row = _unpacked(reader.exactly(row_bytes))
        upper = [at - i for i, at in enumerate(_ones(row))]
        if len(upper) != n or "1" in lower[n * low :]:
            raise _wrong("the number of places differs from `n`, or bits follow the last")
        if low:
            places = tuple(
                high << low | int(lower[i * low : (i + 1) * low], 2) for i, high in enumerate(upper)
            )
        else:
            places = tuple(upper)
        if any(one >= two for one, two in pairwise(places)) or (n and places[-1] >> bits):
            raise _wrong("the places are not sorted")
        return cls(bits, one_in, places)


_CHECKED_AFTER: Final = 1 << 16
"""Hashes between two checks whether a filter under construction must be folded."""


def _folded(bits: int, places: set[int], size_bits_max: int) -> tuple[int, set[int]]:
    """Folds until all places fit the size.

    The size only grows with the values, so the result is the same whether it is checked once or
    often.
    """
    while bits > 1 and _size_bits(bits, len(places)) > size_bits_max:
        bits -= 1
        places = {place >> 1 for place in places}
    return bits, places


def _size_bits(bits: int, n: int) -> float:
    """Returns an upper estimate of the bits of both rows, at most half a bit per place too high.

    Unlike the real size it never shrinks when n grows, and so it is used instead.
    """
    return n * (bits - math.log2(n) + 2.5) if n else 0.0


def _low(bits: int, n: int) -> int:
    return bits - n.bit_length() + 1 if n else 0


def _row_bytes(bits: int, low: int, n: int) -> int:
    return -(-(n + (1 << bits - low)) // 8) if n else 0


def _packed(text: str) -> bytes:
    """Packs zeros and ones into bytes, padded with zeros."""
    size = -(-len(text) // 8)
    return int(text.ljust(8 * size, "0"), 2).to_bytes(size, "big")


def _unpacked(data: bytes) -> str:
    return f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}" if data else ""


def _ones(text: str) -> Iterable[int]:
    at = text.find("1")
    while at >= 0:
        yield at
        at = text.find("1", at + 1)


def _wrong(what: str) -> Rejected:
    return Rejected(RejectReason.SHAPE, f"bloom: {what}")


def hash_of(text: str) -> int:
    """Hashes a text as the module describes."""
    return _murmur3_x64(text.encode(), SEED) >> 1


def _murmur3_x64(data: bytes, seed: int) -> int:
    """Returns the first 64 bits of Murmur3 x64 128."""
    one = two = seed
    whole = len(data) & ~15
    for first, second in struct.iter_unpack("<QQ", data[:whole]):
        one ^= _scrambled_one(first)
        one = (_rotated(one, 27) + two) * 5 + 0x52DC_E729 & _MASK
        two ^= _scrambled_two(second)
        two = (_rotated(two, 31) + one) * 5 + 0x3849_5AB5 & _MASK
    tail = data[whole:]
    two ^= _scrambled_two(int.from_bytes(tail[8:], "little"))
    one ^= _scrambled_one(int.from_bytes(tail[:8], "little"))
    one ^= len(data)
    two ^= len(data)
    one = one + two & _MASK
    two = two + one & _MASK
    return _mixed(one) + _mixed(two) & _MASK


def _scrambled_one(value: int) -> int:
    return _rotated(value * _C1 & _MASK, 31) * _C2 & _MASK


def _scrambled_two(value: int) -> int:
    return _rotated(value * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51_AFD7_ED55_8CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CE_B9FE_1A85_EC53 & _MASK
    return value ^ value >> 33
