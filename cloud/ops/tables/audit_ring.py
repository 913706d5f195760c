"""Holds the newest entries of this server's audit log: changes, and reads of devices' payloads.

The log itself is the record; this shows pages what was logged since the process started.
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
"""The most entries, some hundred bytes each; the oldest are dropped."""


class AuditEntry(BaseModel):
    """An audited change or read."""

    number: int
    """Counts the entries since this server started."""
    at: int
    """ms since 1970 UTC."""
    holder: str
    method: str
    path: str
    status: int
    detail: str = ""


class AuditRing(logging.Handler):
    """A handler for the audit log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lock = threading.Lock()
        self._entries: deque[AuditEntry] = deque(maxlen=ENTRIES_MAX)
        self._next = 1

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a log record, if it belongs to the audit."""
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
        """Returns entries, newest first; with `before` only those with a smaller number."""
        with self._lock:
            entries = list(self._entries)
        older = (one for one in reversed(entries) if before is None or one.number < before)
        return list(islice(older, limit))
