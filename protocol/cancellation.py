"""A cancellation that must not get lost."""

from __future__ import annotations

import asyncio


def raise_if_cancelled() -> None:
    """Raise a cancellation again that something else took: a client whose leaving fails with an error of its own, or a library's
    `asyncio.wait_for`, which loses the cancellation that comes with its result (Python 3.11). Without it a loop would never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
