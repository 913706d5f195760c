"""The frame: an immutable batch of readings of one device and stream, in columns.

Bytes of a frame, made once, before the first send, and the same at every attempt (JSON, UTF-8):

    {"epoch":3,"frame":12,"seq":1101,"t":[1790000000000,1790000001000],"fields":{"speed":[51.2,null]}}

`seq` is the first reading's; reading i has `seq + i`. `t` are event times in ms since 1970 UTC.
Every column is as long as `t`; a value is a number, a string, a boolean or null. A *gap frame* has
no columns and says what was lost on the device:

    {"epoch":3,"frame":14,"first_frame":13,"seq":1103,"gap":{"reason":"quota","count":200}}

It takes the numbers of the frames that it replaces (`first_frame` to `frame`), so that nobody waits
for them.

On MQTT the content type tells what the payload is: FRAME_TYPE, FRAME_ZSTD_TYPE (the same bytes as
one zstd frame), PACKED_TYPE (few readings in bits, `edgewake.protocol.frames.packed`), the compact
form of any of these (`edgewake.protocol.frames.compact`), or nothing for a plain device's single
JSON object, which `from_plain` turns into a frame of one. This module neither opens sockets nor
knows topics; it raises Rejected and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import zstandard

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.event_time import (
    TIME_MS_MAX as TIME_MS_MAX,  # it is a frame's bound, too
)
from edgewake.protocol.frames.event_time import (
    looks_like,
    of_plain,
)
from edgewake.protocol.frames.field_names import Names
from edgewake.protocol.json_text import parse
from edgewake.protocol.names import RESERVED_FIELDS, is_field

READING_BYTES_MAX: Final = 64 * 1024
"""The largest reading, bytes of JSON. A sensible one has some hundred; larger ones are refused,
counted and reported."""


FRAME_TYPE: Final = "application/vnd.edgewake.frame+json"
FRAME_ZSTD_TYPE: Final = "application/vnd.edgewake.frame+json+zstd"

FRAME_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a frame or a plain reading, inflated. As Kafka's default message bound. Over it:
rejected (oversize)."""
FRAME_READINGS_MAX: Final = 10_000
"""Readings in a frame. Over it: rejected (oversize)."""
FIELDS_MAX: Final = 256
"""Fields in a frame, after flattening. Over it: rejected (oversize)."""
STRING_CHARS_MAX: Final = 8192
"""Characters of a string value. Over it: rejected (oversize)."""
EXTRAS_MAX: Final = 1024
"""Values under keys of a frame that we do not know, of a later version. Over it: rejected
(oversize)."""
KEYS_MAX: Final = 16_384
"""Names in a message, those in arrays too, by a count that takes a tenth of the time that reading
them takes. Over it: rejected (oversize)."""
_BYTES_OF_KEYS_MAX: Final = 5 * KEYS_MAX
"""Messages of fewer bytes are not counted: they cannot have that many names."""
DEPTH_MAX: Final = 8
"""Nesting of a plain device's object before flattening. Over it: rejected (shape)."""
GAP_REASON_CHARS_MAX: Final = 64
"""The longest reason of a loss, characters."""
COUNTER_MAX: Final = 2**53 - 1
WHOLE_MAX: Final = 2**53
"""The largest whole number up to which all are exact in SQL, windows and the lake, whose numbers
are doubles."""
"""Largest epoch, frame or seq: what every JSON reader keeps exactly."""

ZSTD_FROM_BYTES: Final = 512
"""The size from which an agent compresses frames, bytes; below it zstd saves nothing."""

Scalar: TypeAlias = float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Gap:
    """A counted loss.

    `reason` is a word such as quota, corrupt or rejected; `count` counts readings.
    """

    reason: str
    count: int


class Frame(NamedTuple):
    """A batch of readings in columns, or a gap (then `t` and `fields` are empty).

    A tuple: the bridge makes one for every message, and a frozen dataclass takes four times as
    long.
    """

    epoch: int | None
    """Changes when the device's log is created, lost or restored. None: the device does not
    number."""
    frame: int | None
    """Number of the frame per (device, epoch, stream), from 1, without holes. None: not
    numbered."""
    seq: int | None
    """Number of the first reading per (device, epoch, stream), from 1."""
    t: Sequence[int]
    """Event times, ms since 1970 UTC, by the device's clock."""
    fields: Mapping[str, Sequence[Scalar]]
    """Columns, each as long as `t`."""
    gap: Gap | None = None
    first_frame: int | None = None
    """First frame number that a gap frame replaces; None otherwise."""


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. The caller keeps them: they are never made twice."""
    body: dict[str, Any] = {"epoch": frame.epoch, "frame": frame.frame, "seq": frame.seq}
    if frame.gap is not None:
        body["first_frame"] = frame.first_frame
        body["gap"] = {"reason": frame.gap.reason, "count": frame.gap.count}
    else:
        body["t"] = frame.t
        body["fields"] = frame.fields
    return orjson.dumps(body)


def compress(payload: bytes) -> tuple[bytes, str]:
    """The bytes to send and their content type: zstd where it pays."""
    if len(payload) < ZSTD_FROM_BYTES:
        return payload, FRAME_TYPE
    return zstandard.ZstdCompressor(level=3).compress(payload), FRAME_ZSTD_TYPE


def is_compressed(payload: bytes) -> bool:
    """Is this one zstd frame, by its magic number? No JSON begins so."""
    return payload.startswith(zstandard.FRAME_HEADER)


_INFLATER: Final = zstandard.ZstdDecompressor(max_window_size=1 << 23)
"""The decompressor of this process, since making one costs more than inflating a frame. Not
thread-safe."""


def inflate(payload: bytes) -> bytes:
    """Undo zstd within FRAME_BYTES_MAX; raises Rejected(encoding | oversize)."""
    try:
        size = zstandard.frame_content_size(payload)
        if size > FRAME_BYTES_MAX:
            raise Rejected(
                RejectReason.OVERSIZE,
                f"frame inflates to {size} bytes: expected at most {FRAME_BYTES_MAX}",
            )
        if size > 0:
            return _INFLATER.decompress(payload)
        inflated = _INFLATER.stream_reader(payload).read(FRAME_BYTES_MAX + 1)
    except zstandard.ZstdError as error:
        raise Rejected(RejectReason.ENCODING, f"zstd: {error}") from error
    if len(inflated) > FRAME_BYTES_MAX:
        raise Rejected(RejectReason.OVERSIZE, f"frame inflates past {FRAME_BYTES_MAX} bytes")
    return inflated


Kinds: TypeAlias = Mapping[str, frozenset[type]]
"""The Python types that occur in each column; what the stream catalogue compares."""


def decode(payload: bytes, *, device: str | None = None) -> Frame:
    """Read and check the bytes of a frame; raises Rejected.

    With `device`, a frame that claims another one is rejected too.
    """
    return decode_with_kinds(payload, device=device)[0]


def decode_with_kinds(payload: bytes, *, device: str | None = None) -> tuple[Frame, Kinds]:
    """`decode`, and the types in each column, found in the same pass."""
    body = _object(payload)
    if not body.keys() <= _FRAME_KEYS:
        _check_extras(body, device)
    epoch, frame, seq = _counter(body, "epoch"), _counter(body, "frame"), _counter(body, "seq")
    if "gap" in body:
        return Frame(
            epoch,
            frame,
            seq,
            (),
            {},
            gap=_gap(body["gap"]),
            first_frame=_counter(body, "first_frame"),
        ), {}
    t, fields = body.get("t"), body.get("fields")
    if type(t) is not list or type(fields) is not dict:
        raise Rejected(RejectReason.SHAPE, "frame: expected a list `t` and an object `fields`")
    return Frame(epoch, frame, seq, t, fields), check_columns(
        t, fields, suspect_strings=_has_suspect_strings(payload)
    )


def check_columns(
    t: Sequence[object], fields: Mapping[str, Any], *, suspect_strings: bool = True
) -> Kinds:
    """The rules for a frame's columns, whatever brought them; raises Rejected.

    `suspect_strings`: may a string hold what none may?
    """
    _check_times(t)
    return _check_columns(fields, len(t), suspect_strings=suspect_strings)


_FRAME_KEYS: Final = frozenset({"epoch", "frame", "seq", "t", "fields", "gap", "first_frame"})
_ENVELOPE_KEYS: Final = frozenset({"stream", "mode", "sent_at", "received_at", "via"})
"""Keys that the bridge writes before the frame's own bytes, where a second one would win."""


def _check_extras(body: Mapping[str, Any], device: str | None) -> None:
    """Keep keys of a later version, within DEPTH_MAX, but not those of the envelope."""
    if forged := body.keys() & _ENVELOPE_KEYS:
        raise Rejected(RejectReason.SHAPE, f"frame: key {min(forged)!r} is the bridge's to write")
    if device is not None and body.get("device", device) != device:
        raise Rejected(
            RejectReason.FOREIGN_DEVICE,
            f"claims device {str(body['device'])[:100]!r} on a topic of {device!r}",
        )
    if len(body) > len(_FRAME_KEYS) + EXTRAS_MAX:
        raise Rejected(
            RejectReason.OVERSIZE,
            f"frame: {len(body)} keys: expected at most {len(_FRAME_KEYS) + EXTRAS_MAX}",
        )
    left = EXTRAS_MAX
    for name in body.keys() - _FRAME_KEYS:
        left = _check_extra(body[name], 1, left)


def _check_extra(value: object, depth: int, left: int) -> int:
    """Count how many of `left` values remain after this one and those in it.

    Raises Rejected where there are more, or nested too deep.
    """
    if depth > DEPTH_MAX:
        raise Rejected(RejectReason.SHAPE, f"nested deeper than {DEPTH_MAX}")
    left -= 1
    if left < 0:
        raise Rejected(
            RejectReason.OVERSIZE, f"frame: expected at most {EXTRAS_MAX} values of a later version"
        )
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            left = _check_extra(inner, depth + 1, left)
    return left


def from_plain(payload: bytes, *, received_at: int, device: str | None = None) -> Frame:
    """A plain device's single JSON object as a frame of one; raises Rejected.

    `t` (ms since 1970; what can only be another unit is converted) is optional: where it is missing
    or unbelievable the reading is of `received_at`, and what cannot be a time is the field `t_`;
    `seq` and `epoch` are optional numbers by which repeats are removed; nested objects are
    flattened with `_`, arrays kept as JSON text; names are made legal
    (`edgewake.protocol.frames.field_names`), NaN and Infinity are null. With `device`, an object
    that claims another one is rejected too.
    """
    return from_plain_with_kinds(payload, received_at=received_at, device=device)[0]


def from_plain_with_kinds(
    payload: bytes, *, received_at: int, device: str | None = None
) -> tuple[Frame, Kinds]:
    """`from_plain`, and the type of each field, found in the same pass."""
    body = _object(payload, parse)
    if "device" in body and body.pop("device") != device is not None:
        raise Rejected(
            RejectReason.FOREIGN_DEVICE, f"claims another device on a topic of {device!r}"
        )
    seq = epoch = None
    if "seq" in body:
        seq = _counter(body, "seq")
        del body["seq"]
    if "epoch" in body:
        epoch = _counter(body, "epoch")
        del body["epoch"]
    t = _take_time(body, received_at)
    fields, kinds = _plain_columns(body, _has_suspect_strings(payload))
    return Frame((epoch or 0) if seq is not None else None, seq, seq, [t], fields), kinds


def renamed(payload: bytes) -> dict[str, str]:
    """Our name → the path it came by, of the fields of a plain object that have another one.

    Raises Rejected.
    """
    body = _object(payload, parse)
    for name in ("device", "seq", "epoch"):
        body.pop(name, None)
    _take_time(body, 0)
    names = Names.of_object(body)
    _flat_columns(body, names)
    return {name: path for path, name in names.known().items() if name != path.replace(".", "_")}


def time_form(payload: bytes) -> str:
    """The form of a plain object's `t`, as `looks_like` has it. Raises Rejected."""
    return looks_like(_object(payload, parse).get("t"))


def reading_of(
    body: Mapping[str, Any], *, now_ms: int, names: Names | None = None
) -> tuple[int, dict[str, Scalar]]:
    """One plain object as (event time, flat fields); raises Rejected.

    The rules of `from_plain`, for values that never were JSON too.

    Of `now_ms` where `t` is missing or no time. NaN, Infinity and integers past 64 bits are
    refused: JSON cannot carry them. `names`: what names became before; None: of this object alone.
    """
    rest = dict(body)
    t = _take_time(rest, now_ms)
    fields = _flat_columns(rest, names)
    _check_columns(fields, 1)
    flat = {name: column[0] for name, column in fields.items()}
    _check_numbers(flat)
    return t, flat


def _take_time(body: dict[str, Any], now_ms: int) -> int:
    """The event time, taken out of the object; what cannot be one stays there, as a field."""
    t = body.pop("t", None)
    if t is None:
        return now_ms
    found = of_plain(t)
    if found is None:
        body["t"] = t
        return now_ms
    return found


def _check_numbers(fields: Mapping[str, Scalar]) -> None:
    for name, value in fields.items():
        if type(value) is float and not math.isfinite(value):
            raise Rejected(RejectReason.JSON, f"field {name!r}: {value} is not JSON")
        if type(value) is int and not -(2**63) <= value < 2**64:
            raise Rejected(RejectReason.OVERSIZE, f"field {name!r}: an integer past 64 bits")


_NUL_OR_LONE_SURROGATE: Final = re.compile(r"[\x00\ud800-\udfff]")


def is_rounded(value: object) -> bool:
    """Whether it is a whole number that a double cannot hold: SQL and the lake round it."""
    return type(value) is int and abs(value) > WHOLE_MAX and int(float(value)) != value


def is_suspect(text: str) -> bool:
    """Is there NUL or a lone surrogate in it, which a string of a reading may not hold?"""
    return _NUL_OR_LONE_SURROGATE.search(text) is not None


def _object(payload: bytes, loads: Callable[[bytes], Any] = orjson.loads) -> dict[str, Any]:
    if len(payload) > FRAME_BYTES_MAX:
        raise Rejected(
            RejectReason.OVERSIZE, f"{len(payload)} bytes: expected at most {FRAME_BYTES_MAX}"
        )
    if (
        len(payload) > _BYTES_OF_KEYS_MAX
        and (keys := payload.count(b'":') - payload.count(b'\\":')) > KEYS_MAX
    ):
        raise Rejected(RejectReason.OVERSIZE, f"{keys} names: expected at most {FIELDS_MAX} fields")
    try:
        body = loads(payload)
    except orjson.JSONDecodeError as error:
        _check_utf8(payload)
        raise Rejected(RejectReason.JSON, f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Rejected(RejectReason.SHAPE, f"expected a JSON object, found {type(body).__name__}")
    return body


def _check_utf8(payload: bytes) -> None:
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Rejected(RejectReason.ENCODING, f"byte {error.start} is not UTF-8") from error


def _counter(body: Mapping[str, Any], name: str) -> int:
    return check_counter(name, body.get(name))


def check_counter(name: str, value: object) -> int:
    """An epoch, frame or seq; raises Rejected."""
    if type(value) is not int or not 0 <= value <= COUNTER_MAX:
        raise Rejected(
            RejectReason.SHAPE,
            f"{name}: expected an integer from 0 to 2^53-1, found {str(value)[:40]!r}",
        )
    return value


def _gap(value: object) -> Gap:
    match value:
        case {"reason": str(reason), "count": int(count)} if (
            0 <= count <= COUNTER_MAX and len(reason) <= GAP_REASON_CHARS_MAX
        ):
            return Gap(reason, count)
    raise Rejected(RejectReason.SHAPE, "gap: expected {reason: text, count: number}")


def _check_times(t: Sequence[object]) -> None:
    if not 0 < len(t) <= FRAME_READINGS_MAX:
        raise Rejected(
            RejectReason.OVERSIZE, f"{len(t)} readings: expected 1 to {FRAME_READINGS_MAX}"
        )
    if set(map(type, t)) != {int}:
        raise Rejected(RejectReason.TIME, "t: expected integers, milliseconds since 1970")
    least, most = min(t), max(t)  # type: ignore[type-var]
    if least < 0 or most > TIME_MS_MAX:  # type: ignore[operator]
        raise Rejected(
            RejectReason.TIME, f"t: expected 0 to {TIME_MS_MAX}, found {least} to {most}"
        )


_SCALARS: Final[frozenset[type]] = frozenset({int, float, str, bool, type(None)})


def _has_suspect_strings(payload: bytes) -> bool:
    """Must each string be checked?

    Only a text with an escape can hold NUL, and only a long one a string over its bound.
    """
    return len(payload) > STRING_CHARS_MAX or b"\\u" in payload


def _check_columns(
    fields: Mapping[str, Any], length: int, *, suspect_strings: bool = True
) -> Kinds:
    check_names(fields)
    kinds = {}
    for name, column in fields.items():
        if type(column) is not list or len(column) != length:
            raise Rejected(RejectReason.SHAPE, f"field {name!r}: expected a list of {length}")
        kinds[name] = found = frozenset(map(type, column))
        if not found <= _SCALARS:
            raise Rejected(
                RejectReason.SHAPE, f"field {name!r}: expected numbers, strings, booleans or null"
            )
        if suspect_strings and str in found:
            _check_strings(name, column)
    return kinds


def check_names(names: Collection[str]) -> None:
    """May these be a frame's fields? Raises Rejected."""
    if len(names) > FIELDS_MAX:
        raise Rejected(RejectReason.OVERSIZE, f"{len(names)} fields: expected at most {FIELDS_MAX}")
    for name in names:
        if not is_field(name):
            why = "reserved" if name in RESERVED_FIELDS else "not 1-64 of A-Z a-z 0-9 _"
            raise Rejected(RejectReason.SHAPE, f"field {name[:80]!r}: {why}")


def _check_strings(name: str, column: Sequence[Scalar]) -> None:
    for value in column:
        if type(value) is not str:
            continue
        if len(value) > STRING_CHARS_MAX:
            raise Rejected(
                RejectReason.OVERSIZE,
                f"field {name!r}: a string of {len(value)} characters, at most {STRING_CHARS_MAX}",
            )
        if is_suspect(value):
            raise Rejected(
                RejectReason.ENCODING, f"field {name!r}: NUL or a lone surrogate in a string"
            )


_SINGLE: Final[dict[type, frozenset[type]]] = {kind: frozenset({kind}) for kind in _SCALARS}


def _plain_columns(
    body: Mapping[str, Any], suspect_strings: bool
) -> tuple[dict[str, list[Scalar]], Kinds]:
    """The columns of one plain object and their types.

    It takes one pass where the object is flat and harmless, as nearly all are.
    """
    fields: dict[str, list[Scalar]] = {}
    kinds: dict[str, frozenset[type]] = {}
    if not suspect_strings and 0 < len(body) <= FIELDS_MAX:
        for name, value in body.items():
            kind = _SINGLE.get(type(value))
            if kind is None or not is_field(name):
                break
            fields[name] = [value]
            kinds[name] = kind
        else:
            return fields, kinds
    fields = _flat_columns(body)
    return fields, _check_columns(fields, 1, suspect_strings=suspect_strings)


def _flat_columns(body: Mapping[str, Any], names: Names | None = None) -> dict[str, list[Scalar]]:
    if len(body) > FIELDS_MAX:
        raise Rejected(RejectReason.OVERSIZE, f"{len(body)} fields: expected at most {FIELDS_MAX}")
    if names is None:
        names = Names.of_object(body)
    else:
        names.keep_own(name for name, value in body.items() if not isinstance(value, dict))
    fields: dict[str, list[Scalar]] = {}
    _flatten(body, "", 1, fields, 0, names)
    if not fields:
        raise Rejected(RejectReason.SHAPE, "reading: expected at least one field")
    return fields


def _flatten(
    body: Mapping[str, Any],
    prefix: str,
    depth: int,
    into: dict[str, list[Scalar]],
    objects: int,
    names: Names,
) -> int:
    """Put an object's fields into columns; how many objects there were with this one.

    What is too much is refused before a look at it.
    """
    objects += 1
    if depth > DEPTH_MAX:
        raise Rejected(RejectReason.SHAPE, f"nested deeper than {DEPTH_MAX}")
    if len(into) + len(body) > FIELDS_MAX:
        raise Rejected(
            RejectReason.OVERSIZE, f"{len(into) + len(body)} fields: expected at most {FIELDS_MAX}"
        )
    if objects > FIELDS_MAX:
        raise Rejected(RejectReason.OVERSIZE, f"more than {FIELDS_MAX} objects in one another")
    for name, value in body.items():
        path = prefix + str(name)
        if isinstance(value, dict):
            objects = _flatten(value, path + ".", depth + 1, into, objects, names)
        else:
            into[names.of(path)] = [_array_text(path, value) if isinstance(value, list) else value]
    return objects


def _array_text(name: str, value: list[Any]) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise Rejected(RejectReason.SHAPE, f"field {name[:80]!r}: {error}") from error
