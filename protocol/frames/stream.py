"""The stream catalogue: which streams there are, with which fields, and which names queries have.

One compacted record per name on `ew.streams` (key: name). Streams and fields are learnt by the
bridges from what arrives; an operator may change a field's type or unit. Queries claim their names
here, so that one topic's order decides who has a name.

**Who wins** (`merge`): the topic has many writers, and each writes whole rows. The higher
`revision` wins, of a row's head and of each field by itself; among equal ones the first on the
topic. The higher `unit_revision` wins the unit alone. A field that a later row lacks stays, and a
field without a unit, path, label or classes takes that of the first row that has one. So all
readers come to the same row, a first type is never overturned by another first type, and an
operator's change beats what was learnt. Compaction keeps only a name's last record; therefore a
bridge that sees a row which merging changes puts the merged one on the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import islice
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.names import FIELD_PATTERN, STREAM_PATTERN

STREAMS_MAX = 1000
"""Streams in the catalogue; each is a Kafka topic. The first message of one more is answered
`later`, or refused (quota)."""

TIME_FORMS_MAX: Final = 8
"""Forms of time of a stream: there are six."""


class FieldInfo(BaseModel):
    """One field of a stream."""

    model_config = ConfigDict(frozen=True)

    type: FieldType
    unit: str = ""
    """As people write it, e.g. m/s, °C, % (`as_written`); empty where unknown."""
    revision: int = Field(default=0, ge=0)
    """Counts the times that an operator decided its type; 0: it has the type of the first reading,
    and may still be changed."""
    unit_revision: int = Field(default=0, ge=0)
    """Counts the times that an operator decided its unit; 0: it is the first one said, if any."""
    other_unit: str = ""
    """Another unit that was said of it, and who said it: `°F by plug-7`. The unit stays; where an
    operator decides on it, this is empty."""
    path: str = ""
    """The name by which it came, where that is not a legal name: its path, joined by dots."""
    label: str = ""
    """What its device calls it for people: `Bedroom temperature`."""
    classes: str = ""
    """What kind of value it is, in the words of Home Assistant: `energy, total_increasing`."""
    first_device: str = ""
    """The device whose reading it was learnt from; counts for that device's share of fields."""
    first_via: str = ""
    """The gateway that named that device, `*` where a map or a request did; its share counts, too.
    Empty: the device came by itself."""
    changed_at: int | None = None
    """When an operator last decided, ms since 1970 UTC."""


class NameKind(StrEnum):
    """The kinds of things that have names in the catalogue."""

    STREAM = "stream"
    QUERY = "query"


class Stream(BaseModel):
    """A named kind of reading, or the claim of a query to its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, StringConstraints(pattern=f"^{STREAM_PATTERN.pattern}$")]
    kind: NameKind = NameKind.STREAM
    claim: str = ""
    """The registration of a query that has claimed the name."""
    revision: int = Field(default=0, ge=0)
    """Counts the changes of its description or claim."""
    description: str = ""
    first_device: str = ""
    """The device that sent it first; counts for that device's share of streams."""
    first_via: str = ""
    """As of a field."""
    times: dict[str, str] = Field(default_factory=dict)
    """Forms of `t` other than ms that plain devices sent and a bridge converted, such as `t (s)` →
    the device that was the first; TIME_FORMS_MAX of them."""
    fields: dict[
        Annotated[str, StringConstraints(pattern=f"^{FIELD_PATTERN.pattern}$")], FieldInfo
    ] = Field(default_factory=dict)


def merge(known: Stream | None, row: Stream) -> Stream:
    """What a name's row is after `known` and then `row` stood on the topic."""
    if known is None:
        return row
    head = row if row.revision > known.revision else known
    if head.kind is NameKind.QUERY:
        return head
    fields = {name: _merged(known.fields.get(name), info) for name, info in row.fields.items()}
    times = dict(islice({**known.times, **row.times, **known.times}.items(), TIME_FORMS_MAX))
    return head.model_copy(update={"fields": {**known.fields, **fields}, "times": times})


def _merged(known: FieldInfo | None, info: FieldInfo) -> FieldInfo:
    if known is None:
        return info
    typed = info if info.revision > known.revision else known
    unit_of, other_of = known, info
    # An older version's row has one revision for both.
    if (info.unit_revision, info.revision) > (known.unit_revision, known.revision):
        unit_of, other_of = info, known
    merged = {
        "unit": unit_of.unit,
        "unit_revision": unit_of.unit_revision,
        "other_unit": unit_of.other_unit,
        "path": typed.path or known.path or info.path,
        "label": typed.label or known.label or info.label,
        "classes": typed.classes or known.classes or info.classes,
        "changed_at": max(known.changed_at or 0, info.changed_at or 0) or None,
    }
    if other_of.unit_revision == unit_of.unit_revision:
        merged["other_unit"] = unit_of.other_unit or other_of.other_unit
        if not unit_of.unit_revision:  # nobody decided that it has none
            merged["unit"] = unit_of.unit or other_of.unit
    if all(getattr(typed, name) == value for name, value in merged.items()):
        return typed
    return typed.model_copy(update=merged)


class StreamTable(dict[str, Stream]):
    """`ew.streams` as one merged row per name. Fill it with `apply`."""

    def apply(self, name: str, value: bytes | None) -> bool:
        """Take in a record; False where the topic's last record is not the merged row.

        Raises ValueError for one that cannot be read.
        """
        if value is None:
            self.pop(name, None)
            return True
        try:
            row = Stream.model_validate_json(value)
        except ValidationError as error:
            raise ValueError(
                f"stream {name!r}: {error.error_count()} errors, first: {error.errors()[0]['msg']}"
            ) from error
        if row.name != name:
            raise ValueError(f"key {name!r} holds stream {row.name!r}")
        self[name] = merge(self.get(name), row)
        return self[name] == row

    def streams(self) -> dict[str, Stream]:
        """The rows that are streams."""
        return {name: row for name, row in self.items() if row.kind is NameKind.STREAM}


def unit_in(streams: Mapping[str, Stream], stream: str, field: str) -> str:
    """The unit of a stream's field; empty where none is known."""
    found = streams.get(stream)
    info = None if found is None else found.fields.get(field)
    return "" if info is None else info.unit
