"""Readings to rows and rows to frames: columns, checks and bytes.

Pure; knows neither SQLite nor threads.

In: readings, each (event time in ms, flat fields), checked before by `intake`. Out: *batches*, JSON
in columns that are a frame's body already, so that a batch which becomes a frame on its own is
never parsed again. A batch fits into one frame, has one type per column and a CRC-32 over its
bytes, its place and its count.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, TypeAlias

import orjson

from edgewake.protocol.frames.field_type import FieldType, types_of
from edgewake.protocol.frames.frame import FIELDS_MAX, Frame, Gap, Scalar, compress, encode
from edgewake.protocol.frames.packed import PACKED_TYPE, pack

Reading: TypeAlias = tuple[int, Mapping[str, Scalar]]
"""(event time in ms since 1970, flat fields)."""
Columns: TypeAlias = Mapping[str, Sequence[Scalar]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Readings of one stream as a row keeps them."""

    count: int
    body: bytes


def batches(readings: Sequence[Reading], *, readings_max: int, bytes_max: int) -> Iterator[Batch]:
    """Cut readings into batches, in order."""
    for at in range(0, len(readings), readings_max):
        yield from _fit(readings[at : at + readings_max], bytes_max)


def _fit(readings: Sequence[Reading], bytes_max: int) -> Iterator[Batch]:
    times, rows = zip(*readings, strict=True)
    fields = columns_of(rows)
    if len(readings) > 1 and (len(fields) > FIELDS_MAX or not _typed(fields)):
        yield from _halves(readings, bytes_max)
        return
    body = orjson.dumps({"t": times, "fields": fields})
    if len(body) > bytes_max and len(readings) > 1:
        yield from _halves(readings, bytes_max)
    else:
        yield Batch(len(readings), body)


def _halves(readings: Sequence[Reading], bytes_max: int) -> Iterator[Batch]:
    middle = len(readings) // 2
    yield from _fit(readings[:middle], bytes_max)
    yield from _fit(readings[middle:], bytes_max)


def cut(batch: Batch, *, bytes_max: int) -> Iterator[Batch]:
    """Cut a batch into several of at most `bytes_max` each, in order.

    A single reading stays whole, however large.
    """
    if len(batch.body) <= bytes_max or batch.count == 1:
        yield batch
        return
    parsed = orjson.loads(batch.body)
    middle = batch.count // 2
    for part, count in ((slice(middle), middle), (slice(middle, None), batch.count - middle)):
        fields = {name: column[part] for name, column in parsed["fields"].items()}
        yield from cut(
            Batch(count, orjson.dumps({"t": parsed["t"][part], "fields": fields})),
            bytes_max=bytes_max,
        )


def columns_of(rows: Sequence[Mapping[str, Scalar]]) -> Columns:
    """Rows turned into columns; null where a row has no such field."""
    names = tuple(rows[0])
    if len(names) > 1 and set(map(len, rows)) == {len(names)}:
        # The usual case: each row has the same number of fields, and all of these.
        with contextlib.suppress(KeyError):
            return dict(zip(names, zip(*map(itemgetter(*names), rows), strict=True), strict=True))
    union = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in union}


def _typed(fields: Columns) -> bool:
    try:
        types_of(fields)
    except TypeError:
        return False
    return True


PACK_READINGS_MAX: Final = 64
"""Readings of a frame that is packed. With more of them zstd has found what repeats, and what a
bridge needs to unpack counts: three times as much as for JSON."""
NULL_BYTES: Final = 5
"""Bytes of a value that is missing: `null,`."""


class FrameColumns:
    """Joins batches into one frame's columns, as long as they fit.

    A column has one type, or the bridge would refuse all of it.

    Batches with different fields fill each other's columns with null, so what counts is the size
    after that.
    """

    def __init__(self, *, readings_max: int, bytes_max: int) -> None:
        self._readings_max = readings_max
        self._bytes_max = bytes_max
        self._bodies: list[bytes] = []
        self._bytes = 0
        self._parsed: list[dict[str, Any]] = []
        self._types: dict[str, FieldType] = {}
        self._names: dict[str, None] = {}
        self._cells = 0
        self.count = 0

    def add(self, batch: Batch) -> bool:
        """Take one more batch; False where it belongs to the next frame.

        The first one is always taken.
        """
        if self._bodies:
            if (
                self.count + batch.count > self._readings_max
                or self._bytes + len(batch.body) > self._bytes_max
            ):
                return False
            if not self._parsed:
                self._learn(orjson.loads(self._bodies[0]), self.count)
            parsed = orjson.loads(batch.body)
            if not self._fits(parsed, batch):
                return False
            self._learn(parsed, batch.count)
        self._bodies.append(batch.body)
        self._bytes += len(batch.body)
        self.count += batch.count
        return True

    @property
    def is_full(self) -> bool:
        """Is there no room for one more reading?"""
        return self.count >= self._readings_max

    def _fits(self, parsed: dict[str, Any], batch: Batch) -> bool:
        fields = parsed["fields"]
        if any(self._types.get(name, kind) is not kind for name, kind in types_of(fields).items()):
            return False
        names = len(self._names | dict.fromkeys(fields))
        missing = (self.count + batch.count) * names - self._cells - batch.count * len(fields)
        return (
            names <= FIELDS_MAX
            and self._bytes + len(batch.body) + NULL_BYTES * missing <= self._bytes_max
        )

    def _learn(self, parsed: dict[str, Any], count: int) -> None:
        fields = parsed["fields"]
        self._types |= types_of(fields)
        self._names |= dict.fromkeys(fields)
        self._cells += count * len(fields)
        self._parsed.append(parsed)

    def wire(self, *, epoch: int, frame: int, seq: int) -> tuple[bytes, str]:
        """The bytes to send and their content type.

        Few readings are packed, others are JSON, compressed with zstd where that pays.
        """
        few = pack(self._frame(epoch, frame, seq)) if self.count <= PACK_READINGS_MAX else None
        if few is not None and len(few) < self._bytes:
            return few, PACKED_TYPE
        return compress(self.payload(epoch=epoch, frame=frame, seq=seq))

    def payload(self, *, epoch: int, frame: int, seq: int) -> bytes:
        """The frame as JSON, the same as `edgewake.protocol.frames.frame.encode` makes."""
        if len(self._bodies) == 1:
            return b'{"epoch":%d,"frame":%d,"seq":%d,' % (epoch, frame, seq) + self._bodies[0][1:]
        return encode(self._frame(epoch, frame, seq))

    def _frame(self, epoch: int, frame: int, seq: int) -> Frame:
        t: list[int] = []
        fields: dict[str, list[Scalar]] = {}
        for parsed in self._parsed or [orjson.loads(self._bodies[0])]:
            for name, column in parsed["fields"].items():
                into = fields.setdefault(name, [])
                into += [None] * (len(t) - len(into))
                into += column
            t += parsed["t"]
        for column in fields.values():
            column += [None] * (len(t) - len(column))
        return Frame(epoch, frame, seq, t, fields)


def gap_payload(*, epoch: int, frame: int, seq: int, gap: Gap) -> bytes:
    """The bytes of a frame that says what was lost."""
    return encode(Frame(epoch, frame, seq, (), {}, gap=gap, first_frame=frame))


def checksum(body: bytes, *place: int | str) -> int:
    """CRC-32 of a row's bytes and of where they belong."""
    return zlib.crc32(body, zlib.crc32("|".join(map(str, place)).encode()))


def is_sound_batch(stream: int, first: object, count: object, crc: object, body: object) -> bool:
    """Is this row of a stream what the log wrote? A flipped bit can make a number a text, too."""
    if not (
        isinstance(first, int) and isinstance(count, int) and count > 0 and isinstance(body, bytes)
    ):
        return False
    return checksum(body, stream, first, count) == crc


def readings_of(body: bytes) -> list[Reading]:
    """The readings of a batch; a field without a value is left out."""
    columns = orjson.loads(body)
    names = tuple(columns["fields"])
    if not names:
        return [(t, {}) for t in columns["t"]]
    rows = zip(*columns["fields"].values(), strict=True)
    return [
        (t, dict(zip(names, row, strict=True)) if None not in row else _present(names, row))
        for t, row in zip(columns["t"], rows, strict=True)
    ]


def _present(names: Sequence[str], row: Sequence[Scalar]) -> dict[str, Scalar]:
    return {name: value for name, value in zip(names, row, strict=True) if value is not None}
