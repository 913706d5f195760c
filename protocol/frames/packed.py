"""The packed frame: few readings in columns of bits, for a device that pays for each byte. Pure.

JSON's digits and a frame's names are most of what a frame of twenty readings is; the numbers
themselves are a third of it. Bytes, in this order (varint: base 128, least first; signed: zigzag, 0
-1 1 -2 …; bits: a number after the other, lowest bit first, then zeros to a byte):

    2                        the form, as in `edgewake.protocol.frames.compact`
    epoch, frame, seq        three varints, as in the JSON of a frame
    count                    varint: readings, 1 to 256
    names                    varint of the bytes that follow: field names in order, joined by
                             commas, raw deflate (RFC 1951)
                             with the preset dictionary NAMES
    times                    integers: the event times
    columns                  one for each name:

        form                 1 byte; + 128: nulls are left out, and `count` bits follow that say
                             which readings have a value (1)
        0                    integers
        1 to 15              integers; each divided by 10^form is a number with a fraction
        17 to 31             the same, less 16, where quotients without a fraction are integers
        32                   doubles: 8 bytes each, IEEE 754, least first
        33                   varint of the bytes that follow, 256 at most: JSON array of distinct
                             values; integers: which of them, from 0

        integers             1 byte: bits of each offset, 0 to 64, + 128: they are of differences;
                             signed varint: base;
                             then each number is base + offset; of differences: signed varint: the
                             first number, and each
                             later one is the number before + base + offset, so there is one offset
                             less

`pack` says None where a frame would not get smaller, or not come back exactly: that one goes as
JSON.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, compress
from operator import sub
from typing import Any, Final, cast

import orjson

from edgewake.protocol import varint
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame import (
    FIELDS_MAX,
    FRAME_BYTES_MAX,
    Frame,
    Kinds,
    Scalar,
    check_columns,
    check_counter,
    check_names,
)
from edgewake.protocol.names import FIELD_CHARS_MAX

PACKED_TYPE: Final = "application/vnd.edgewake.frame+packed"
FORM: Final = 2
"""The first byte, with which neither JSON nor zstd begins."""
PACKED_READINGS_MAX: Final = 256
"""Readings in a packed frame. Over it: rejected (oversize); taking bits out of a number of many
digits costs their square."""
TEXT_BYTES_MAX: Final = 256
"""Bytes of a column's distinct values as JSON. With more of them zstd does better, so the frame is
not packed; one that has more all the same is rejected (oversize): each of them may stand in every
reading, and a megabyte would be a quarter of a gigabyte."""
NAMES: Final = (
    b"wind_angle_deg,wind_true,wind_m_s,depth_m,depth_offset_m,heading_deg,sentence,report,valid,"
    b"fix_quality,fix_mode,satellites,"
    b"satellites_used,hdop,altitude_m,climb_m_s,position_error_m,position_lat,position_lon,"
    b"speed_m_s,course_deg,event,message,name,unit,"
    b"status,mode,error_count,active,level,power_kw,energy_kwh,voltage_v,current_a,frequency_hz,"
    b"pressure_hpa,pressure_bar,flow_l_s,"
    b"rotation_rpm,acceleration_x,acceleration_y,acceleration_z,gyro_x,gyro_y,gyro_z,"
    b"vibration_mm_s,torque_nm,fuel_percent,"
    b"battery_percent,battery_v,signal_dbm,latency_ms,duration_s,distance_m,temperature_c,"
    b"humidity_percent,temperature,humidity,"
    b"pressure,voltage,current,power,battery,x,y,z,value,count,state,latitude,longitude,altitude,"
    b"lat,lon,speed,course,lat,lon,speed_kmh,"
    b"heading,cpu_percent,memory_percent,memory_used_mib,disk_percent,load_1m,process_count,"
    b"net_sent_bytes_s,net_recv_bytes_s"
)
"""Names that readings often have, the most usual ones last. It belongs to the form: another
dictionary is another form."""
NAMES_KEPT: Final = 256
"""Lists of names that are remembered: the frames of a stream mostly have the same."""
NAMES_BYTES_MAX: Final = FIELDS_MAX * (FIELD_CHARS_MAX + 1)
"""Bytes of them, deflated or not. Deflate can say nothing in as many bytes as one likes, and what
is remembered is kept with its bytes."""

_NULLS: Final = 128
_DIFFERENCES: Final = 128
_WHOLE: Final = 16
_DOUBLES: Final = 32
_CHOICE: Final = 33
_DIGITS_MAX: Final = 15
"""The most digits of a fraction; more do not stay exact. A number with more is stored as a
double."""
_SCALES: Final[tuple[int, ...]] = tuple(10**digits for digits in range(_DIGITS_MAX + 1))
_INT: Final[frozenset[type]] = frozenset({int})
_FLOAT: Final[frozenset[type]] = frozenset({float})
_UNKNOWN: Final[frozenset[type]] = frozenset()
_EXACT: Final = 1 << 53
"""Integers below it are floats exactly, and so is what division by a power of ten up to 10^22
gives, rounded once (IEEE 754)."""
_INTEGER: Final = 1 << 63
_SAFE: Final = 48
"""The most bits of first, base and offsets; no number of a frame comes near 64."""


def pack(frame: Frame) -> bytes | None:
    """Pack a frame with columns; None where JSON is better.

    That is: it has no columns, too many readings, or values that JSON stores in less.
    """
    count = len(frame.t)
    if (
        frame.gap is not None
        or not 0 < count <= PACKED_READINGS_MAX
        or len(frame.fields) > FIELDS_MAX
    ):
        return None
    parts = [
        bytes([FORM]),
        *map(varint.encode, (frame.epoch or 0, frame.frame or 0, frame.seq or 0, count)),
    ]
    parts += [_sized(_deflated(tuple(frame.fields))), _integers(frame.t)]
    for column in frame.fields.values():
        part = _column(column)
        if part is None:
            return None
        parts.append(part)
    return b"".join(parts)


def unpack(payload: bytes) -> tuple[Frame, Kinds]:
    """Read a frame, and the types in each column, checked as JSON is; raises Rejected."""
    if len(payload) > FRAME_BYTES_MAX:
        raise Rejected(
            RejectReason.OVERSIZE, f"{len(payload)} bytes: expected at most {FRAME_BYTES_MAX}"
        )
    reader = varint.Reader(payload, 1)
    try:
        epoch, frame, seq, count = (
            reader.number(),
            reader.number(),
            reader.number(),
            reader.number(),
        )
        if not 0 < count <= PACKED_READINGS_MAX:
            raise Rejected(
                RejectReason.OVERSIZE,
                f"{count} readings: expected 1 to {PACKED_READINGS_MAX} in a packed frame",
            )
        names = _inflated(reader.exactly(reader.number()))
        t = _read_integers(reader, count)
        fields: dict[str, list[Scalar]] = {}
        kinds: dict[str, frozenset[type]] = {}
        for name in names:
            fields[name], kinds[name] = _read_column(reader, count)
    except (IndexError, ValueError, OverflowError, zlib.error, struct.error) as error:
        raise Rejected(RejectReason.ENCODING, f"packed frame: {error}") from error
    if payload[0] != FORM or not reader.ended:
        raise Rejected(RejectReason.ENCODING, "packed frame: unknown form, or bytes after its end")
    for what, number in (("epoch", epoch), ("frame", frame), ("seq", seq)):
        check_counter(what, number)
    # Whatever stands in a list of choices is in doubt; names and numbers were checked while they
    # were read.
    in_doubt = {name: fields[name] for name in names if not kinds[name]}
    return Frame(epoch, frame, seq, t, fields), {**kinds, **check_columns(t, in_doubt)}


# names


@lru_cache(maxsize=NAMES_KEPT)
def _deflated(names: tuple[str, ...]) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=NAMES)
    return packer.compress(",".join(names).encode()) + packer.flush()


@lru_cache(maxsize=NAMES_KEPT)
def _inflated(data: bytes) -> tuple[str, ...]:
    """The checked names of a frame.

    Raises ValueError, zlib.error, Rejected; what it raises for is not cached.
    """
    if len(data) > NAMES_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes of names")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS, zdict=NAMES)
    text = inflater.decompress(data, NAMES_BYTES_MAX)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("its names do not end")
    names = tuple(text.decode("ascii").split(",")) if text else ()
    if len(set(names)) < len(names):
        raise ValueError("a name twice")
    check_names(names)
    return names


# columns


def _column(values: Sequence[Scalar]) -> bytes | None:
    kinds = set(map(type, values))
    if not kinds & {int, float}:
        return _choice(values)
    if kinds <= {int, float}:
        return _numbers(values, kinds)
    if kinds <= {int, float, type(None)}:
        mask = [int(value is not None) for value in values]
        part = _numbers([value for value in values if value is not None], kinds - {type(None)})
        return None if part is None else bytes([part[0] | _NULLS]) + _bits(mask, 1) + part[1:]
    return None


def _numbers(values: Sequence[Any], kinds: set[type]) -> bytes | None:
    if kinds == {int}:
        return (
            b"\0" + _integers(values)
            if min(values) >= -_INTEGER and max(values) < _INTEGER
            else None
        )
    texts = orjson.dumps(values if isinstance(values, list) else list(values))[1:-1].split(b",")
    digits = max(len(text.partition(b".")[2]) for text in texts)
    scale: int = 10**digits
    # Large values stay unscaled: multiplied they may become infinite, which no integer holds.
    if (
        0 < digits <= _DIGITS_MAX
        and b"-0.0" not in texts
        and max(map(abs, values)) < _EXACT // scale
    ):
        wholes = [round(value * scale) for value in values]
        if [number / scale for number in wholes] == list(values):
            if int not in kinds:
                return bytes([digits]) + _integers(wholes)
            if not any(value.is_integer() for value in values if type(value) is float):
                return bytes([_WHOLE + digits]) + _integers(wholes)
    return (
        bytes([_DOUBLES]) + struct.pack(f"<{len(values)}d", *values) if kinds == {float} else None
    )


def _choice(values: Sequence[Scalar]) -> bytes | None:
    """Texts, booleans and nulls: none of them equals one of another type."""
    distinct = {value: place for place, value in enumerate(dict.fromkeys(values))}
    text = orjson.dumps(list(distinct))
    if len(text) > TEXT_BYTES_MAX:
        return None
    return bytes([_CHOICE]) + _sized(text) + _integers([distinct[value] for value in values])


def _read_column(reader: varint.Reader, count: int) -> tuple[list[Scalar], frozenset[type]]:
    """A column and the types in it; none of them where they are still to be checked."""
    form = reader.byte()
    if form <= _DIGITS_MAX:  # nearly all are: no call more than needed
        numbers = _read_integers(reader, count)
        if form == 0:
            return cast(list[Scalar], numbers), _INT
        scale = _SCALES[form]
        return [number / scale for number in numbers], _FLOAT
    if form < _NULLS:
        return _read_values(reader, form, count), _UNKNOWN
    places = list(compress(range(count), _read_bits(reader, 1, count)))
    values: list[Scalar] = [None] * count
    for place, value in zip(places, _read_values(reader, form - _NULLS, len(places)), strict=True):
        values[place] = value
    return values, _UNKNOWN


def _read_values(reader: varint.Reader, form: int, count: int) -> list[Scalar]:
    if form == _DOUBLES:
        doubles: list[Scalar] = list(struct.unpack(f"<{count}d", reader.exactly(8 * count)))
        if not all(map(math.isfinite, doubles)):  # type: ignore[arg-type]
            raise ValueError("a double that is not a number")
        return doubles
    if form == _CHOICE:
        size = reader.number()
        if size > TEXT_BYTES_MAX:
            raise Rejected(
                RejectReason.OVERSIZE,
                f"{size} bytes of distinct values: expected at most {TEXT_BYTES_MAX}",
            )
        distinct = orjson.loads(reader.exactly(size))
        places = _read_integers(reader, count)
        if type(distinct) is not list or min(places) < 0:
            raise ValueError("a choice of nothing")
        return [distinct[place] for place in places]
    scale = _SCALES[form % _WHOLE]
    numbers = _read_integers(reader, count)
    if form <= _DIGITS_MAX:
        return [number / scale for number in numbers] if form else cast(list[Scalar], numbers)
    if _WHOLE < form <= _WHOLE + _DIGITS_MAX:
        return [number / scale if number % scale else number // scale for number in numbers]
    raise ValueError(f"a column of form {form}")


# integers


def _integers(numbers: Sequence[int]) -> bytes:
    base = min(numbers)
    width = (max(numbers) - base).bit_length()
    if len(numbers) > 2 and width:
        steps = list(map(sub, numbers[1:], numbers))
        step = min(steps)
        step_width = (max(steps) - step).bit_length()
        if step_width * len(steps) + len(_signed(numbers[0])) * 8 < width * len(numbers):
            head = bytes([_DIFFERENCES | step_width]) + _signed(step) + _signed(numbers[0])
            return head + _bits([number - step for number in steps], step_width)
    return bytes([width]) + _signed(base) + _bits([number - base for number in numbers], width)


def _read_integers(reader: varint.Reader, count: int) -> list[int]:
    head = reader.byte()
    base = first = reader.signed()
    if head < _DIFFERENCES:
        numbers = _read_bits(reader, head, count, base)
    else:
        first = reader.signed()
        numbers = list(
            accumulate(_read_bits(reader, head - _DIFFERENCES, count - 1, base), initial=first)
        )
    is_safe = head % _DIFFERENCES <= _SAFE and not (abs(base) | abs(first)) >> _SAFE
    if not is_safe and numbers and not -_INTEGER <= min(numbers) <= max(numbers) < _INTEGER:
        raise ValueError("an integer past 64 bits")
    return numbers


def _bits(numbers: Sequence[int], width: int) -> bytes:
    whole = 0
    for number in reversed(numbers):
        whole = whole << width | number
    return whole.to_bytes((width * len(numbers) + 7) // 8, "little")


def _read_bits(reader: varint.Reader, width: int, count: int, base: int = 0) -> list[int]:
    if width > 64 or count < 0:
        raise ValueError(f"{count} numbers of {width} bits")
    if not width:
        return [base] * count
    size = (width * count + 7) // 8
    data = reader.bytes(size)
    if len(data) != size:
        raise IndexError(f"expected {size} bytes, found {len(data)}")
    whole = int.from_bytes(data, "little")
    mask = (1 << width) - 1
    return [(whole >> at & mask) + base for at in range(0, width * count, width)]


def _signed(number: int) -> bytes:
    return varint.encode(2 * number if number >= 0 else -2 * number - 1)


def _sized(data: bytes) -> bytes:
    return varint.encode(len(data)) + data
