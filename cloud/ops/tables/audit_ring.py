"""The newest entries of this server's audit log: changes, and reads of what devices sent.

The log is the record; this is what a page shows of it, since the start of this process.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from itertools import islice
from typing import Final

from pydantic import BaseModel

EVENT: Final = "ops.audit"
ENTRIES_MAX: Final = 1000
"""Entries kept, the newest; some hundred bytes each."""


class AuditEntry(BaseModel):
    """One change, or one read that is audited."""

    number: int
    """Grows by one with each, since this server started."""
    at: int
    """ms since 1970 UTC."""
    holder: str
    method: str
    path: str
    status: int
    detail: str = ""


class AuditRing(logging.Handler):
    """Takes what is logged as audit."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lock = threading.Lock()
        self._entries: deque[AuditEntry] = deque(maxlen=ENTRIES_MAX)
        self._next = 1

    def emit(self, record: logging.LogRecord) -> None:
        """A record of the log; any other than of the audit is left out."""
        if getattr(record, "event", None) != EVENT:
            return
        facts = record.__dict__
        with self._lock:
            self._entries.append(
                AuditEntry(
                    number=self._next,
                    at=round(record.created * 1000),
                    holder=facts["holder"],
                    method=facts["method"],
                    path=facts["path"],
                    status=facts["status"],
                    detail=facts.get("detail", ""),
                )
            )
            self._next += 1

    def newest(self, *, before: int | None, limit: int) -> list[AuditEntry]:
        """The newest first; `before`: those with a smaller number."""
        with self._lock:
            entries = list(self._entries)
        older = (one for one in reversed(entries) if before is None or one.number < before)
        return list(islice(older, limit))
