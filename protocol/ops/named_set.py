"""A named set of devices, as a record of `ew.sets` (key: name).

Filters use it as `device IN SET('north')`; its members may change while streams are open.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from edgewake.protocol.names import STREAM_PATTERN

MEMBERS_MAX: Final = 10_000
"""Texts of a set; a row of Kafka's holds 1 MB."""
MEMBER_CHARS_MAX: Final = 64
"""Characters of a text: those of a device's name."""

Name = Annotated[str, StringConstraints(pattern=f"^{STREAM_PATTERN.pattern}$")]
Member = Annotated[str, StringConstraints(min_length=1, max_length=MEMBER_CHARS_MAX)]


class SetText(BaseModel):
    """A set as people write it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: Annotated[str, StringConstraints(max_length=200)] = ""
    members: Annotated[tuple[Member, ...], Field(max_length=MEMBERS_MAX)]
    """Devices, or other texts that a field may hold; each counts once."""


class NamedSet(SetText):
    """A set that is kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Name
    version: int
    changed_at: int
    """ms since 1970 UTC."""
    changed_by: str
