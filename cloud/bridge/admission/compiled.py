"""Decoders made from the catalogue: they parse and check a message in one pass of C code (msgspec).

No I/O. They only ever accept. What they do not recognise at once (a new field, a nested object, an
escape in a string, a gap, anything wrong) is decided by `protocol.frame`, which has the sentences
for refusals; `tests/bridge/admission/test_compiled.py` shows that both agree on every acceptance.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

import msgspec
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import astuple

from edgewake.cloud.bridge.admission.catalogue import Catalogue
from edgewake.protocol.frames.event_time import CLOCK_SET_MS
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import (
    COUNTER_MAX,
    FRAME_BYTES_MAX,
    FRAME_READINGS_MAX,
    STRING_CHARS_MAX,
    TIME_MS_MAX,
)
from edgewake.protocol.frames.stream import Stream

COMPILED_FIELDS_MAX: Final = 128
"""Fields of a stream that gets decoders; a wider one is decoded as before: making a decoder costs
more than it would save."""

_Counter = Annotated[int, Meta(ge=0, le=COUNTER_MAX)]
_Time = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
_PlainTime = Annotated[int, Meta(ge=CLOCK_SET_MS, le=TIME_MS_MAX)]
"""As `is_ms` has it: what is below is another unit, or no time."""
_VALUES: Final[dict[FieldType, Any]] = {
    FieldType.NUMBER: int | float | None,
    FieldType.STRING: Annotated[str, Meta(max_length=STRING_CHARS_MAX)] | None,
    FieldType.BOOLEAN: bool | None,
}


class Head(NamedTuple):
    """What the bridge needs of a frame whose body is found right."""

    epoch: int
    frame: int
    seq: int
    readings: int


class PlainReading(NamedTuple):
    """A plain device's object as a frame of one."""

    epoch: int | None
    seq: int | None
    frame_bytes: bytes


class _Decoders(NamedTuple):
    entry: Stream
    """The catalogue's row that the decoders were made from; they are made again for another one."""
    frame: msgspec.json.Decoder[Any]
    plain: msgspec.json.Decoder[Any]
    names: tuple[str, ...]


class CompiledStreams:
    """The decoders of all streams, made when a stream's first message comes."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._decoders: dict[str, _Decoders] = {}

    def frame(self, stream: str, payload: bytes) -> Head | None:
        """The head of a frame in order, as `decode` gives it; None where that must decide."""
        decoders = self._of(stream, payload)
        if decoders is None:
            return None
        try:
            body = decoders.frame.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        count = len(body.t)
        for column in astuple(body.fields):
            if column is not UNSET and len(column) != count:
                return None
        return Head(body.epoch, body.frame, body.seq, count)

    def plain(
        self, stream: str, payload: bytes, *, device: str, received_at: int
    ) -> PlainReading | None:
        """Decode a plain reading in order, as `from_plain` and `encode` do.

        None where those must decide.
        """
        decoders = self._of(stream, payload)
        if decoders is None:
            return None
        try:
            t, seq, epoch, claimed, *values = astuple(decoders.plain.decode(payload))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        fields = {
            name: [value]
            for name, value in zip(decoders.names, values, strict=True)
            if value is not UNSET
        }
        if not fields or (claimed is not UNSET and claimed != device):
            return None
        seq = None if seq is UNSET else seq
        if seq is None:
            epoch = None
        elif epoch is UNSET:
            epoch = 0
        body = {
            "epoch": epoch,
            "frame": seq,
            "seq": seq,
            "t": [received_at if t is UNSET else t],
            "fields": fields,
        }
        try:
            return PlainReading(epoch, seq, orjson.dumps(body))
        except TypeError:
            # An integer past 64 bits, which orjson reads as a float and does not write.
            return None

    def _of(self, stream: str, payload: bytes) -> _Decoders | None:
        # Only a text with an escape can hold NUL. One byte is looked for many times faster than the
        # two of its beginning.
        if len(payload) > FRAME_BYTES_MAX or b"\\" in payload:
            return None
        entry = self._catalogue.sendable(stream)
        known = self._decoders.get(stream)
        if known is not None and known.entry is entry:
            return known
        self._decoders.pop(stream, None)
        if entry is None or not 0 < len(entry.fields) <= COMPILED_FIELDS_MAX:
            return None
        made = self._decoders[stream] = _compile(entry)
        return made


def _compile(entry: Stream) -> _Decoders:
    attributes = {f"f{i}": name for i, name in enumerate(entry.fields)}
    values = [_VALUES[info.type] for info in entry.fields.values()]
    columns = msgspec.defstruct(
        "Columns",
        [
            (attribute, _LIST[value] | UnsetType, UNSET)
            for attribute, value in zip(attributes, values, strict=True)
        ],
        rename=attributes,
        **_STRICT,
    )
    times = Annotated[list[_Time], Meta(min_length=1, max_length=FRAME_READINGS_MAX)]
    frame: type[Struct] = msgspec.defstruct(
        "Body",
        [
            ("epoch", _Counter),
            ("frame", _Counter),
            ("seq", _Counter),
            ("t", times),
            ("fields", columns),
        ],
        **_STRICT,
    )
    plain: type[Struct] = msgspec.defstruct(
        "Plain",
        [
            ("t", _PlainTime | UnsetType, UNSET),
            ("seq", _Counter | UnsetType, UNSET),
            ("epoch", _Counter | UnsetType, UNSET),
            ("device", str | UnsetType, UNSET),
            *(
                (attribute, value | UnsetType, UNSET)
                for attribute, value in zip(attributes, values, strict=True)
            ),
        ],
        rename=attributes,
        **_STRICT,
    )
    return _Decoders(
        entry, msgspec.json.Decoder(frame), msgspec.json.Decoder(plain), tuple(entry.fields)
    )


_LIST: Final[Any] = list
_STRICT: Final[dict[str, Any]] = {"forbid_unknown_fields": True, "gc": False}
