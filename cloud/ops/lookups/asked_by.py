"""Who asks: the holder of the key, or the person, of the request that is answered."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

ASKED_BY: Final[ContextVar[str]] = ContextVar("asked_by", default="")
"""Set by the guard of each request; empty in what the server does by itself."""
