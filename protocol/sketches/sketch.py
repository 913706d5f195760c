"""Sketches are summaries that a device sends instead of readings or beside them.

Each is a reading of the stream `device_sketches`.

Its fields say what was summed up and carry the bytes; its event time is the window's start:

    of_stream   the stream whose readings are summed up
    of_field    the field of that stream
    kind        numbers | hll | theta | kll | top | count_min | bloom | sample
    start, end  the window, ms since 1970 UTC; end is the first ms after it, at most a day later,
    and both lie in one UTC day
    readings    readings in the window that have the field
    beside      true: the readings are sent one by one as well. Not there: they are not, or they
                would count twice
    sketch      the bytes in base64 (RFC 4648, with padding), at most SKETCH_BYTES_MAX before it

What the bytes of each kind are:

    numbers     six little-endian doubles: count, mean, sum of squared differences from the mean,
                sum, min, max (see Numbers)
    hll         Apache DataSketches HLL of the values' texts, lg k 4 to 14; 12 always fits
    theta       Apache DataSketches compact theta of the texts, seed 9001, lg k 9 always fits
    kll         Apache DataSketches KLL of doubles; k 200 always fits
    top         Apache DataSketches frequent strings of the texts
    count_min   counts of texts (see count_min.py)
    bloom       which texts there were (see bloom.py): 2^20 to 2^48 places, an error of 1/100
    sample      a uniform sample of the texts (see sample.py)

What is sent instead is merged with what others send of the stream. What is sent beside is the
series of the set `@DEVICE`, and counted nowhere else: the cloud sums up the readings themselves.

A value's text is `item_text`, on devices and in the cloud; otherwise one value would be counted as
two. A sketch sent again for the same device, stream, field, kind and window replaces the former. A
device may send any of the kinds; what was not sent cannot be asked.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame import COUNTER_MAX, STRING_CHARS_MAX, TIME_MS_MAX, Scalar
from edgewake.protocol.names import is_field, is_stream

STREAM: Final = "device_sketches"
"""The stream of sketches that devices made."""
SKETCH_BYTES_MAX: Final = STRING_CHARS_MAX // 4 * 3
"""The most bytes of a sketch in a reading: its base64 is one string of a frame."""
TEXT_BYTES_MAX: Final = 256
"""The most bytes of a text that is counted as it is. The cloud counts longer ones by their
beginning and a hash; a device should not send them."""
DAY_MS: Final = 86_400_000
HLL_LOG2_BUCKETS: Final = 12
"""The size of a device's HLL: standard error 1.6 %, at most 4 KiB."""
THETA_LOG2_ENTRIES: Final = 9
"""The size of a device's theta sketch: standard error 4.4 %, at most 4.5 KiB."""
BLOOM_BITS_MIN: Final = 20
"""A device's Bloom filter has at least 2^20 places.

A smaller one would make every filter that it is merged with as coarse as itself: 10,000 values in
2^20 places are an error of 1 %.
"""
KLL_K: Final = 200
"""The size of a device's and the cloud's KLL: rank error 1.3 %, at most 5 KiB for a million
readings."""


class SketchKind(StrEnum):
    """The kinds of sketches, by what they can answer."""

    NUMBERS = "numbers"
    HLL = "hll"
    THETA = "theta"
    KLL = "kll"
    TOP = "top"
    COUNT_MIN = "count_min"
    BLOOM = "bloom"
    SAMPLE = "sample"


KINDS: Final = frozenset(kind.value for kind in SketchKind)


@dataclass(frozen=True, slots=True)
class DeviceSketch:
    """The sketch of one field over one window."""

    stream: str
    field: str
    kind: SketchKind
    start_ms: int
    end_ms: int
    readings: int
    data: bytes
    beside: bool = False

    @classmethod
    def set_of(cls, device: str) -> str:
        """Returns the name of the set for sketches that a device sends beside its readings.

        No declared set has such a name.
        """
        return f"@{device}"

    def fields(self) -> dict[str, Scalar]:
        """Returns the reading's fields. Raises ValueError where the sketch has too many bytes."""
        if len(self.data) > SKETCH_BYTES_MAX:
            raise ValueError(
                f"a sketch of {len(self.data)} bytes: expected at most {SKETCH_BYTES_MAX}"
            )
        return {
            "of_stream": self.stream,
            "of_field": self.field,
            "kind": self.kind.value,
            "start": self.start_ms,
            "end": self.end_ms,
            "readings": self.readings,
            "sketch": base64.b64encode(self.data).decode(),
            **({"beside": True} if self.beside else {}),
        }


def parse(fields: Mapping[str, object]) -> DeviceSketch:
    """Reads the sketch that a reading carries. Raises Rejected.

    The bytes themselves are checked where they are merged.
    """
    stream, field, kind = (_text(fields, name) for name in ("of_stream", "of_field", "kind"))
    if not is_stream(stream) or not is_field(field):
        raise Rejected(
            RejectReason.SHAPE,
            f"sketch of {stream[:80]!r}, {field[:80]!r}: no names of a stream and a field",
        )
    if kind not in KINDS:
        raise Rejected(
            RejectReason.SHAPE, f"kind {kind[:40]!r}: expected one of {', '.join(SketchKind)}"
        )
    start, end, readings = (
        _whole(fields, "start", TIME_MS_MAX),
        _whole(fields, "end", TIME_MS_MAX),
        _whole(fields, "readings", COUNTER_MAX),
    )
    if start >= end or start // DAY_MS != (end - 1) // DAY_MS:
        raise Rejected(
            RejectReason.TIME,
            f"window {start} to {end}: expected one within one UTC day, end after start",
        )
    try:
        data = base64.b64decode(_text(fields, "sketch"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Rejected(RejectReason.ENCODING, f"sketch: not base64: {error}") from error
    if not 0 < len(data) <= SKETCH_BYTES_MAX:
        raise Rejected(
            RejectReason.OVERSIZE, f"sketch of {len(data)} bytes: expected 1 to {SKETCH_BYTES_MAX}"
        )
    beside = fields.get("beside")
    if not isinstance(beside, bool | None):
        raise Rejected(RejectReason.SHAPE, "beside: expected true or false")
    return DeviceSketch(stream, field, SketchKind(kind), start, end, readings, data, bool(beside))


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise Rejected(RejectReason.SHAPE, f"{name}: expected a text")
    return value


def _whole(fields: Mapping[str, object], name: str, most: int) -> int:
    """Returns a whole number, which may come as a double: all fields are doubles in the cloud."""
    value = fields.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or value != value // 1
        or not 0 <= value <= most
    ):
        raise Rejected(RejectReason.SHAPE, f"{name}: expected a whole number from 0 to {most}")
    return int(value)


def item_text(value: float | str | bool) -> str:
    """Returns a value's text as sketches count it: a text itself, `true`, `false`, or a number.

    A number is written as by Python's `repr`, a whole one below 2^63 without a point. The cloud's
    analysis cuts texts of more than 256 bytes, so devices should not count such texts.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**63 else repr(number)


_NUMBERS: Final = struct.Struct("<6d")


@dataclass(frozen=True, slots=True)
class Numbers:
    """Exact figures of numbers, merged without loss of precision.

    Merging uses pairwise means and squared differences (Chan, Golub, LeVeque 1979). A figure that
    no double can hold (a sum past 1.8e308) is not finite here and null in results; min and max are
    always finite.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared differences from the mean."""
    sum: float = 0.0
    min: float = math.inf
    max: float = -math.inf

    @classmethod
    def of(cls, values: list[float]) -> Numbers:
        """Computes the figures of a few values."""
        if not values:
            return cls()
        total = _total(values)
        mean = total / len(values)
        least, most = min(values), max(values)
        mean = min(max(mean, least), most)
        return cls(
            len(values),
            mean,
            _total([(value - mean) * (value - mean) for value in values]),
            total,
            least,
            most,
        )

    @property
    def variance(self) -> float | None:
        """Returns the population variance; None without values, or where no double can hold it."""
        return self.squares / self.count if self.count and math.isfinite(self.squares) else None

    def merge(self, other: Numbers) -> Numbers:
        """Merges the figures of two sketches."""
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        gap = other.mean - self.mean
        least, most = min(self.min, other.min), max(self.max, other.max)
        mean = self.mean + gap * (other.count / count)
        if math.isfinite(mean):
            mean = min(max(mean, least), most)  # Rounding could leave the range.
        squares = self.squares + other.squares + gap * gap * self.count * (other.count / count)
        return Numbers(count, mean, squares, self.sum + other.sum, least, most)

    def encode(self) -> bytes:
        """Encodes the figures as the module describes."""
        return _NUMBERS.pack(self.count, self.mean, self.squares, self.sum, self.min, self.max)

    @classmethod
    def decode(cls, data: bytes) -> Numbers:
        """Decodes what `encode` wrote. Raises Rejected."""
        if len(data) != _NUMBERS.size:
            raise Rejected(
                RejectReason.SHAPE, f"numbers: expected {_NUMBERS.size} bytes, found {len(data)}"
            )
        count, mean, squares, total, least, most = _NUMBERS.unpack(data)
        if not (count.is_integer() and 0 <= count <= COUNTER_MAX):
            raise Rejected(RejectReason.SHAPE, f"numbers: count {count}")
        if not count:
            return cls()
        if (
            not (math.isfinite(least) and math.isfinite(most))
            or squares < 0
            or mean < least
            or mean > most
            or least > most
        ):
            raise Rejected(
                RejectReason.SHAPE,
                "numbers: expected finite min <= mean <= max, no negative squares",
            )
        return cls(int(count), mean, squares, total, least, most)

    @staticmethod
    def columns(
        data: bytes, rows: int
    ) -> Iterator[tuple[float, float, float, float, float, float]]:
        """Returns count, mean, squares, sum, min, max of `rows` concatenated encodings.

        Raises Rejected where the length differs. Nothing else is checked: it is for encodings that
        are known to be valid.
        """
        if len(data) != rows * _NUMBERS.size:
            raise Rejected(
                RejectReason.SHAPE,
                f"numbers: expected {rows} times {_NUMBERS.size} bytes, found {len(data)}",
            )
        return _NUMBERS.iter_unpack(data)


def _total(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # larger than a double can hold
        return math.nan
