"""Decides whether a reader still reads. Pure: numbers and times go in, a verdict comes out.

That `send` does not block proves nothing: the kernels on both sides swallow megabytes for a client
that never reads. What counts is what the other side has taken: bytes written less those still in
our buffer and in the socket's send queue. A reader that takes at least one byte in `stall_s` is
slow and is kept (it costs only itself); one that takes none while bytes wait is stalled and is cut
off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Progress:
    """What a reader had taken, in bytes, and since when (monotonic seconds) no more."""

    taken: int
    since: float


def observe(progress: Progress, *, written: int, waiting: int, now: float) -> Progress:
    """The progress after a check.

    `written`: bytes in all; `waiting`: those of them that the other side has not acknowledged.
    """
    taken = written - waiting
    if waiting == 0 or taken > progress.taken:
        return replace(progress, taken=max(taken, progress.taken), since=now)
    return progress


def is_stalled(progress: Progress, *, now: float, stall_s: float) -> bool:
    """Has it taken nothing for too long?"""
    return now - progress.since >= stall_s
