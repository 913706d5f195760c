"""What people say of a device: a note, and the groups that it is in (key on `ew.notes`: device)."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from edgewake.protocol.names import STREAM_PATTERN

NOTE_CHARS_MAX: Final = 1000
"""Characters of a note, such as where the device hangs and who to call."""
GROUPS_MAX: Final = 16
"""Groups of one device."""
NOTES_MAX: Final = 100_000
"""Devices that something is said of; one more is refused."""

Group = Annotated[str, StringConstraints(pattern=f"^{STREAM_PATTERN.pattern}$")]


class NoteText(BaseModel):
    """The text that a person writes about a device."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    note: Annotated[str, StringConstraints(max_length=NOTE_CHARS_MAX)] = ""
    groups: tuple[Group, ...] = Field(default=(), max_length=GROUPS_MAX)
    """Small letters, digits and _, a letter first."""


class DeviceNote(NoteText):
    """A note about a device as it is stored."""

    device: str
    changed_at: int = Field(ge=0)
    """ms since 1970 UTC."""
    changed_by: str = ""
