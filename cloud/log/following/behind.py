"""How far a reader is behind the newest of what it reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from edgewake.cloud.log.following.followed import Followed
from edgewake.cloud.log.subscription import Positions


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a reader is behind: `records` of Kafka at most, and `seconds`.

    Transaction markers count too, a record holds one or many readings, and a filter may hide some.
    `seconds` is the age of the oldest of them; where it is older than memory, the age of the oldest
    in memory, so at least.
    """

    records: int
    seconds: float


def behind(entries: Iterable[Followed], positions: Positions, *, now_ms: int) -> Behind:
    """How far a reader at `positions` is behind, per entry and partition."""
    records, oldest_ms = 0, now_ms
    for entry, row in zip(entries, positions, strict=True):
        for tail, latest, position in zip(entry.tails, entry.latest, row, strict=True):
            unread = max(tail.end, latest) - tail.end_of(position)[0]
            if unread <= 0:
                continue
            records += unread
            for record in islice(tail.read_from(position), 1):
                oldest_ms = min(oldest_ms, record.timestamp)
    return Behind(records, (now_ms - oldest_ms) / 1000)
