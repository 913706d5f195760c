"""A publication, as a record of `ew.publications` (key: name).

An operator puts streams, a filter and fields together under a name; readers open it by that name.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from edgewake.protocol.names import FIELD_PATTERN, STREAM_PATTERN, STREAMS_PER_SUBSCRIPTION_MAX

Name = Annotated[str, StringConstraints(pattern=f"^{STREAM_PATTERN.pattern}$")]
FieldName = Annotated[str, StringConstraints(pattern=f"^{FIELD_PATTERN.pattern}$")]


class PublicationLimits(BaseModel):
    """What its readers may have of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    readers_max: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Readers at the same time on one server; one more is refused with 503."""
    max_rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Events a second for each reader; who asks for less gets less."""
    conflate_ms: Annotated[int, Field(ge=20, le=3_600_000)] | None = None
    """Emit only the latest of each device, or group, once in this time, ms; readers may ask for a
    longer time."""


class PublicationText(BaseModel):
    """A publication as people write it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: Annotated[str, StringConstraints(max_length=200)] = ""
    streams: Annotated[
        tuple[Name, ...], Field(min_length=1, max_length=STREAMS_PER_SUBSCRIPTION_MAX)
    ]
    """Streams and queries."""
    where: Annotated[str, StringConstraints(min_length=1, max_length=64_000)] | None = None
    """The condition that an event must pass; it sees all fields."""
    fields: Annotated[tuple[FieldName, ...], Field(min_length=1, max_length=200)] | None = None
    """Fields that are shown, beside stream, device, order and times; all where it is left out."""
    limits: PublicationLimits = PublicationLimits()


class Publication(PublicationText):
    """A publication that is kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Name
    version: int
    changed_at: int
    """ms since 1970 UTC."""
    changed_by: str
