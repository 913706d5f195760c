"""A re-computation of a query's windows from its stream's log, as a row of `ew.repairs`.

The row says who asked, and what changed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

ROWS_MAX: Final = 1000
"""Repairs that are remembered; beyond it the oldest that has ended is forgotten."""
OPEN_MAX: Final = 20
"""Repairs that wait or run; beyond it another one is refused."""


class RepairKind(StrEnum):
    """What a repair is for."""

    REPAIR = "repair"
    """Readings that came after their window was closed. Windows that are open at the moment are
    left out: they take them anyway."""
    BACKFILL = "backfill"
    """Windows of before the query was registered. Those that are open at the moment are waited
    for."""
    REBUILD = "rebuild"
    """The state of the query, and every window that the log has whole. Its lane's state is removed
    and computed again."""


class RepairState(StrEnum):
    """The state of a repair."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    """It cannot be done, `detail` says why; nothing was changed after `done_to`."""

    @property
    def is_open(self) -> bool:
        """Is there something left to do?"""
        return self in (RepairState.WAITING, RepairState.RUNNING)


class Repair(BaseModel):
    """A repair (key on `ew.repairs`: id).

    The operations API writes the first revision, the analysis all others.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    revision: int = 0
    query: str
    registered_at: int
    """The registration that it repairs, ms since 1970."""
    kind: RepairKind = RepairKind.REPAIR
    begin: int
    """Event time, ms: the first window is the one that it lies in."""
    end: int | None = None
    """Event time, ms: windows that begin at it or later are left out. None: as far as the kind
    goes."""
    asked_at: int
    asked_by: str
    state: RepairState = RepairState.WAITING
    detail: str = ""
    lossy: bool = False
    """Rebuild also where open windows have readings that retention deleted: they lose them then."""
    removed_at: int | None = None
    """When a rebuild had replaced the state, ms; None: not yet."""
    kept_from: int | None = None
    """Event time, ms, as a rebuild found it: windows that begin before it may have readings that
    retention deleted, and stay as they were. None: it took none."""
    done_to: int | None = None
    """Windows that begin before it (ms) are done."""
    added: int = 0
    """Rows emitted that did not exist before."""
    changed: int = 0
    """Rows told again with other values, or told as complete."""
    withdrawn: int = 0
    """Rows that HAVING or LIMIT let through no more."""
    unchanged: int = 0
    """Rows found as they were told."""
    unknown: int = 0
    """Rows that were told and that the log gives no reason for; they stay as they are."""
    updated_at: int = Field(ge=0)
    """ms since 1970 UTC."""
