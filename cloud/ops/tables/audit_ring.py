"""Holds the newest entries of the audit, as all operations servers wrote them. No I/O."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from pydantic import BaseModel

ENTRIES_MAX: Final = 10_000
"""The most entries, some 400 bytes each; the oldest are dropped."""


class Audited(BaseModel):
    """An entry of `ew.audit`: a change, or a read of what devices sent."""

    at: int
    """ms since 1970 UTC."""
    holder: str
    method: str
    path: str
    status: int
    detail: str = ""


class AuditEntry(Audited):
    """An audited change or read."""

    number: int
    """Its position on `ew.audit`."""


class AuditRing:
    """The newest entries."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=entries_max)
        self.next = 1
        """The number of the entry that comes next."""

    def take(self, number: int, one: Audited) -> None:
        """Takes an entry from `ew.audit`; one that was read before changes nothing."""
        if number >= self.next:
            self._entries.append(AuditEntry(number=number, **one.model_dump()))
            self.next = number + 1

    def newest(self, *, before: int | None, limit: int) -> list[AuditEntry]:
        """Returns entries, newest first; with `before` only those with a smaller number."""
        older = (one for one in reversed(self._entries) if before is None or one.number < before)
        return list(islice(older, limit))
