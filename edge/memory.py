"""Memory that start-up needed and nobody needs again, given back to the system.

Where the C library is not glibc, nothing is lost.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import Final

ONE_HEAP: Final[Mapping[str, str]] = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_TOP_PAD_": "16384",
}
"""What glibc reads when a program begins (mallopt(3)). One heap for all threads: each would keep
one of its own, 0.2 MB and more, and none waits for another longer than for the interpreter's own
lock. And what is free at the heap's end goes back soon."""


def forget_environment() -> None:
    """Clear ONE_HEAP in the program that began with it: its child programs must not inherit it."""
    for name in ONE_HEAP:
        os.environ.pop(name, None)


def collect() -> None:
    """Now and not some day: what a start leaves behind refers to itself, and is a megabyte."""
    gc.collect()
