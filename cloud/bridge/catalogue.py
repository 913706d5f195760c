"""What the bridges know of streams and their fields, and how they agree on it. No I/O.

`check` compares what arrives with what is known and learns what is new; `unpublished` gives what must be put on `ew.streams`;
`follow` takes what stands there. The topic is the truth: where two bridges learn at once, its order decides, and a field that one record
forgets is learnt and published again at its next appearance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frame import Kinds
from edgewake.protocol.stream import STREAMS_MAX, FieldInfo, FieldType, Stream, types_of_kinds

STREAM_FIELDS_MAX: Final = 1024
"""Fields of one stream, of all its devices together. A message with one more is rejected (oversize): a device that invents names
with every message fills the catalogue of nobody."""


class Catalogue:
    """Streams and their fields' types."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}
        self._types: dict[str, dict[str, FieldType]] = {}
        self._unpublished: set[str] = set()
        self._last: dict[str, Kinds] = {}
        """What was found right last time; mostly the next message is like it."""

    def check(self, stream: str, kinds: Kinds) -> None:
        """Are these columns of this stream's types? Learns what is new. Raises Rejected(field_type | oversize)."""
        if self._last.get(stream) == kinds:
            return
        try:
            types = types_of_kinds(kinds)
        except TypeError as error:
            raise Rejected(RejectReason.FIELD_TYPE, f"stream {stream!r}: {error}") from error
        known = self._types.get(stream)
        if known is None or not types.items() <= known.items():
            self._learn(stream, types)
        self._last[stream] = kinds

    def _learn(self, stream: str, types: Mapping[str, FieldType]) -> None:
        entry = self._streams.get(stream)
        if entry is None:
            if len(self._streams) >= STREAMS_MAX:
                raise Rejected(RejectReason.OVERSIZE, f"stream {stream!r} would be one more than {STREAMS_MAX}")
            entry = Stream(name=stream)
        for name, found in types.items():
            if (info := entry.fields.get(name)) is not None and info.type is not found:
                raise Rejected(RejectReason.FIELD_TYPE, f"field {name!r} of stream {stream!r}: expected a {info.type}, found a {found}")
        fields = {**entry.fields, **{name: FieldInfo(type=found) for name, found in types.items() if name not in entry.fields}}
        if len(fields) > STREAM_FIELDS_MAX:
            raise Rejected(
                RejectReason.OVERSIZE, f"stream {stream!r} would have {len(fields)} fields: expected at most {STREAM_FIELDS_MAX}"
            )
        self._put(entry.model_copy(update={"fields": fields}))
        self._unpublished.add(stream)

    def _put(self, entry: Stream) -> None:
        self._streams[entry.name] = entry
        self._last.pop(entry.name, None)
        self._types[entry.name] = {name: info.type for name, info in entry.fields.items()}

    def unpublished(self) -> list[Stream]:
        """What was learnt since the last call; the caller puts it on the topic."""
        learnt = [self._streams[name] for name in self._unpublished if name in self._streams]
        self._unpublished.clear()
        return learnt

    def follow(self, name: str, value: bytes | None) -> None:
        """Take a record of `ew.streams`. Raises ValueError for one that cannot be read."""
        if value is None:
            self._streams.pop(name, None)
            self._types.pop(name, None)
            self._last.pop(name, None)
            return
        try:
            entry = Stream.model_validate_json(value)
        except ValidationError as error:
            raise ValueError(f"stream {name!r}: {error.error_count()} errors, first: {error.errors()[0]['msg']}") from error
        if entry.name != name:
            raise ValueError(f"key {name!r} holds stream {entry.name!r}")
        self._put(entry)

    def get(self, stream: str) -> Stream | None:
        """What is known of a stream."""
        return self._streams.get(stream)
