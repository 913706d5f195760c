"""The holder of the key, or the person, who sent the current request."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

ASKED_BY: Final[ContextVar[str]] = ContextVar("asked_by", default="")
"""Set by the guard for each request; empty in the server's own tasks."""
