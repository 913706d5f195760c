"""The state of the log in memory, read from its tables at the start and after a salvage."""

from __future__ import annotations

import sqlite3
from collections import deque

from edgewake.edge.log.keeping.draft import Draft
from edgewake.edge.log.keeping.rows import ROW_BYTES, LogRows
from edgewake.edge.log.keeping.work import FrameKey
from edgewake.edge.log.tables.consumers import outside, passed_by_all
from edgewake.edge.log.tables.gaps import forget_unsound_gaps
from edgewake.edge.log.tables.schema import SUMS, transaction
from edgewake.edge.log.tables.tables import frame_ranges, read_consumers, read_frames, read_streams


def load(db: sqlite3.Connection, rows: LogRows, *, is_salvaging: bool) -> Draft:
    """Count what the tables hold. Raises sqlite3.Error.

    Rows that nobody needs are deleted, unless a salvage may still need them.
    """
    streams = {stream.name: stream for stream in read_streams(db)}
    names = {stream.id: stream.name for stream in streams.values()}
    frames = [
        FrameKey(names[stream], epoch, frame) for (stream, epoch, frame), _ in read_frames(db)
    ]
    unsent = deque(sorted(frames, key=lambda key: (key.epoch, key.frame, streams[key.stream].id)))
    consumers = {consumer.name: consumer for consumer in read_consumers(db)}
    draft = Draft(streams, {}, unsent, 0, 0, 0, {}, {}, consumers)
    draft.counters = dict(
        db.execute("SELECT name, value FROM counters WHERE name NOT IN ('commit', ?, ?)", SUMS)
    )
    if not is_salvaging:
        _forget_what_nobody_needs(db, rows, draft)
    for size in ("length(body)) FROM batches", "coalesce(length(payload), 0)) FROM frames"):
        count, total = db.execute(f"SELECT count(*), total({size}").fetchone()
        draft.stored_bytes += int(total) + ROW_BYTES * count
    sums = rows.sums()
    for stream in streams.values():
        framed = sum(
            rows.batch_bytes(stream.id, first, last) for first, last in frame_ranges(db, stream.id)
        )
        in_frames_or_kept, draft.waiting[stream.name] = sums.get(stream.id, (0, 0))
        draft.framed_bytes += framed
        draft.retained_bytes += in_frames_or_kept - framed
    with transaction(db):
        db.executemany(
            "INSERT INTO counters VALUES (?, ?) ON CONFLICT DO UPDATE SET value = "
            "excluded.value WHERE value <> excluded.value",
            draft.sums.items(),
        )
    return draft


def _forget_what_nobody_needs(db: sqlite3.Connection, rows: LogRows, draft: Draft) -> None:
    """Rows whose position was damaged lie where nobody looks for them."""
    with transaction(db):
        forget_unsound_gaps(db)
        for stream in draft.streams.values():
            passed = passed_by_all(draft.consumers.values(), stream.name)
            last = stream.framed if passed is None else min(stream.framed, passed)
            for first, through in outside(frame_ranges(db, stream.id), 0, last):
                rows.delete_batches(stream.id, first, through)
