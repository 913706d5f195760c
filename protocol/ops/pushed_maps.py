"""Maps that an operator gave to all bridges, as records of `ew.maps` (key: `version|id`).

Each version is a record of its own; the newest one is in use, and the last KEPT are kept. Two
operations servers may write the same number at the same moment: the order of the log decides, and
everybody who reads it comes to the same version. The id makes each record's key its own, so that
compaction keeps the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from edgewake.protocol.maps.compiling import FILE_BYTES_MAX

KEPT: Final = 20
"""The most versions that are kept; an older one is removed when a new one comes."""


class MapsText(BaseModel):
    """Maps as a person gives them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: Annotated[str, StringConstraints(max_length=200)] = ""
    text: Annotated[str, StringConstraints(max_length=FILE_BYTES_MAX)]
    """A map file (docs/maps.md), at most 256 KiB. Empty: no maps; each bridge has those of its own
    file or presets."""


class PushedMaps(MapsText):
    """A version that is kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Annotated[int, Field(ge=1)]
    changed_at: int
    """ms since 1970 UTC."""
    changed_by: str


def key_of(version: int, row_id: str) -> str:
    """The key of a record. `row_id` is unique."""
    return f"{version}|{row_id}"


def decode(key: str, value: bytes) -> PushedMaps:
    """The version in a record. Raises ValueError."""
    row = PushedMaps.model_validate_json(value)
    if key.partition("|")[0] != str(row.version):
        raise ValueError(f"{key!r} has version {row.version}")
    return row


@dataclass
class MapVersions:
    """The versions that are kept, from the records in the order of the log."""

    rows: dict[str, PushedMaps] = field(default_factory=dict)
    """Key → version, the oldest first."""
    unused: dict[str, int] = field(default_factory=dict)
    """Keys of records whose number another one had already → that number."""
    newest: PushedMaps | None = None

    def put(self, key: str, value: bytes | None) -> None:
        """Takes a record; None removes one. Raises ValueError."""
        if value is None:
            self.rows.pop(key, None)
            self.unused.pop(key, None)
            return
        if key in self.rows:
            return  # read once more
        row = decode(key, value)
        if self.newest is not None and row.version <= self.newest.version:
            self.unused[key] = row.version
            return
        self.rows[key] = self.newest = row

    def keys_before(self, version: int) -> list[str]:
        """Keys of all records of older versions, those without use first."""
        unused = [key for key, number in self.unused.items() if number < version]
        return unused + [key for key, row in self.rows.items() if row.version < version]
