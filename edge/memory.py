"""Memory that start-up needed and nobody needs again, given back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Final

M_ARENA_MAX: Final = -8
"""Of glibc's mallopt(3)."""


def use_one_heap() -> None:
    """Let all threads allocate from one heap, before the first of them starts: each would keep one of its own, 0.2 MB and more, and hold no
    lock that the interpreter's own does not hold anyhow. Where the C library cannot, nothing is lost.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def release_free_memory() -> None:
    """Collect, and let the C library return its free pages (1 MB after the imports). Where it cannot, nothing is lost."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
