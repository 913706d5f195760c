"""Changes the stream catalogue for an operator: a field's type and unit, a stream's description.

A change raises the `revision` of the row or of a field's type, or the `unit_revision` of its unit,
which take precedence over what bridges learnt (`protocol.stream.merge`). Where a type was decided
the other type is refused permanently, and devices that got `later` are accepted when they send
again. Records in Kafka stay as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from edgewake.cloud.ops.lookups.retention import KeptBytes, KeptMs
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.frames.field_names import UNIT_CHARS_MAX
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import (
    STREAMS_MAX,
    FieldInfo,
    Stream,
    merge,
)
from edgewake.protocol.names import FIELD_PATTERN, is_field, is_reserved

FIELDS_CHANGED_MAX = 100
"""The most fields of one request."""
DESCRIPTION_CHARS_MAX = 500
"""The most characters of a description: some sentences."""


class FieldChange(BaseModel):
    """A change of a field; what is omitted stays. A field that nobody has sent yet needs a type."""

    model_config = ConfigDict(extra="forbid")

    type: FieldType | None = None
    unit: Annotated[str, StringConstraints(max_length=UNIT_CHARS_MAX)] | None = None
    """UCUM symbol."""


class StreamChange(BaseModel):
    """A change of a stream; what is omitted stays."""

    model_config = ConfigDict(extra="forbid")

    description: Annotated[str, StringConstraints(max_length=DESCRIPTION_CHARS_MAX)] | None = None
    fields: dict[
        Annotated[str, StringConstraints(pattern=f"^{FIELD_PATTERN.pattern}$")], FieldChange
    ] = Field(default_factory=dict, max_length=FIELDS_CHANGED_MAX)
    retention_ms: KeptMs | None = None
    """How long Kafka keeps its readings, ms."""
    retention_bytes: KeptBytes | None = None
    """How many bytes Kafka keeps of each partition."""

    @property
    def is_of_the_catalogue(self) -> bool:
        """Does it change the stream's row?"""
        return self.description is not None or bool(self.fields)


def changed(stream: Stream, change: StreamChange, *, now: int) -> Stream:
    """Returns the row after a change. Raises Problem(422)."""
    fields = dict(stream.fields)
    for name, decided in change.fields.items():
        before = fields.get(name)
        kind = decided.type or (before and before.type)
        if kind is None or not is_field(name):
            raise Problem(
                422,
                "field_type",
                f"stream {stream.name!r} has no field {name!r}: expected its type, or the name of "
                "a field",
            )
        known = before or FieldInfo(type=kind)
        update: dict[str, object] = {"changed_at": now}
        if decided.type is not None:
            update |= {"type": kind, "revision": known.revision + 1}
        if decided.unit is not None:
            revision = known.unit_revision + 1
            update |= {"unit": decided.unit, "unit_revision": revision, "other_unit": ""}
        fields[name] = known.model_copy(update=update)
    described = (
        {}
        if change.description is None
        else {"description": change.description, "revision": stream.revision + 1}
    )
    return stream.model_copy(update={"fields": fields, **described})


class CatalogueEditor:
    """Writes to `ew.streams`, one change at a time."""

    def __init__(
        self,
        writer: TableWriter,
        tables: OpsTables,
        clock: Clock,
        make_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        """`make_topic`: makes the topic of a stream that is declared. Raises Unavailable."""
        self._writer = writer
        self._tables = tables
        self._clock = clock
        self._make_topic = make_topic
        self._turn = asyncio.Lock()

    def _check_new(self, name: str, change: StreamChange) -> None:
        """May this stream be declared? Raises Problem(404 | 409)."""
        if not change.fields:
            raise Problem(404, "no_such_stream", f"no stream {name[:80]!r} is in the catalogue")
        if is_reserved(name) or name in self._tables.names:
            raise Problem(
                409, "name_taken", f"{name!r} is the name of a query, or reserved for the system"
            )
        if len(self._tables.streams) >= STREAMS_MAX:
            raise Problem(409, "too_many_streams", f"{STREAMS_MAX} streams are there, the most")

    async def learn(self, row: Stream) -> None:
        """Adds fields to a stream, as a bridge would. Raises Unavailable."""
        async with self._turn:
            known = self._tables.streams.get(row.name)
            await self._writer.write(topics.STREAMS, row.name, merge(known, row))

    async def change(self, name: str, change: StreamChange) -> Stream:
        """Applies a change and returns the new row; a stream may be new that gets fields.

        Raises Problem(404 | 409 | 422) or Unavailable.
        """
        async with self._turn:
            stream = self._tables.streams.get(name)
            if stream is None:
                self._check_new(name, change)
                stream = Stream(name=name)
            wanted = changed(stream, change, now=self._clock.now_ms())
            if name not in self._tables.streams:
                await self._make_topic(topics.stream_topic(name))
            await self._writer.write(topics.STREAMS, name, wanted)
            found = self._tables.streams.get(name)
            is_ours = found is not None and all(
                found.fields.get(field) == wanted.fields[field] for field in change.fields
            )
            if found is None or not is_ours:
                raise Problem(
                    409,
                    "changed_meanwhile",
                    f"stream {name!r} was changed by somebody else at the same time; look again",
                )
            return found
