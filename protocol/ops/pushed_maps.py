"""Maps that an operator gave to all bridges, as a record of `ew.maps` (key: version).

Each version is a record of its own; the newest one is in use, and the last KEPT are kept.
"""

from __future__ import annotations

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
