"""A problem of the system, from its beginning to its end: a row of `ew.problems`.

The key is its id.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

NOTE_CHARS_MAX: Final = 500
"""Characters of what is said when a problem is acknowledged."""

Kind = Literal["operations", "part", "query", "dead_letters", "lease", "alert", "device", "loss"]


class ProblemRecord(BaseModel):
    """Times are ms since 1970 UTC."""

    model_config = ConfigDict(frozen=True)

    id: str
    kind: Kind
    name: str
    """Name of the part, query or lease, the letters' reason, the devices' mark, `lost` or
    `opened`."""
    text: str
    """One sentence, as it was said last."""
    began_at: int
    ended_at: int | None = None
    """None: it lasts."""
    acknowledged_at: int | None = None
    acknowledged_by: str = ""
    note: Annotated[str, StringConstraints(max_length=NOTE_CHARS_MAX)] = ""
    """What was said when it was acknowledged."""
