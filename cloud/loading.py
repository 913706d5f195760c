"""Modules are loaded without the cycle collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Nothing that a program loads becomes garbage, and looking through it for some takes a fifth
    of the start of what serves HTTP.

    What was made within is never looked through later, either.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
