"""What waits in a log for the cloud: how many readings, and since when."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from edgewake.edge.log.tables.schema import sound_rows
from edgewake.edge.log.tables.streams import StreamState


def backlog(db: sqlite3.Connection, streams: Iterable[StreamState]) -> tuple[int, int]:
    """(readings accepted and not acknowledged, of them in frames)."""
    query = "SELECT coalesce(sum(count), 0) FROM frames WHERE gap IS NULL"
    framed: int = db.execute(query).fetchone()[0]
    return framed + sum(stream.last - stream.framed for stream in streams), framed


def oldest_at(db: sqlite3.Connection, streams: Iterable[StreamState]) -> int | None:
    """Wall clock in ms of the oldest unacknowledged acceptance; None: all are acknowledged."""
    found = [db.execute("SELECT min(accepted_at) FROM frames").fetchone()[0]]
    query = "SELECT accepted_at FROM batches WHERE stream = ? AND first > ? ORDER BY first LIMIT 1"
    for stream in streams:
        row = db.execute(query, (stream.id, stream.framed)).fetchone()
        found.append(row[0] if row else None)
    with sound_rows():
        return min((at for at in found if at is not None), default=None)
