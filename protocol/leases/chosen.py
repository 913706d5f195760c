"""What a lease, a delivery or a group is of: streams or a publication, and what of them.

The same words as of a stream (docs/filters.md), so that a client may leave one way to read and go
on in another.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from edgewake.protocol.names import STREAMS_PER_SUBSCRIPTION_MAX

DEVICES_MAX: Final = 1000
"""Devices that one may name: it is stored with them. A longer list is a named set."""


class Chosen(BaseModel):
    """The part of a request that says which events are wanted."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    streams: Annotated[tuple[str, ...], Field(max_length=STREAMS_PER_SUBSCRIPTION_MAX)] = ()
    """Streams and queries; or `publication`."""
    publication: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """A publication, in the place of `streams`: a right to it is enough."""
    where: str | None = None
    select: str | None = None
    devices: Annotated[tuple[str, ...], Field(min_length=1, max_length=DEVICES_MAX)] | None = None
    """These alone; a longer list is a named set in `where`."""
    sample: Annotated[float, Field(gt=0, le=1)] | None = None
    """A share of all devices, the same ones everywhere."""
    per: Annotated[str, Field(max_length=500)] | None = None
    """For `sample`: the fields that tell what is the same thing, with commas between."""

    @model_validator(mode="after")
    def _is_of_one(self) -> Chosen:
        if bool(self.streams) == (self.publication is not None):
            raise ValueError("expected streams, or a publication in their place")
        return self
