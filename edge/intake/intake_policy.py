"""What a source does when its queue is full."""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """What a source does when the queue is full."""

    BLOCK = "block"  # wait: the sender feels it (a pipe, a file)
    DROP_NEWEST = (
        "drop_newest"  # a measurement that waits is worth less than the next one: drop it, count it
    )
