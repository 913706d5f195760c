"""What of the batches may go: what the cloud has and every consumer has passed, and at the bounds the oldest.

Three parts, each of them counted: what waits for its frame, what is in a frame that the cloud has not acknowledged, and what only consumers
still need. The first two have the quota, the third `log.consumer_bytes`. Inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from edgewake.edge.log.codec import Reading, batches
from edgewake.edge.log.consumers import LAGGED, ConsumerState, outside, passed_by_all
from edgewake.edge.log.draft import Draft
from edgewake.edge.log.rows import ROW_BYTES, LogRows
from edgewake.edge.log.streams import StreamState
from edgewake.edge.log.tables import frame_ranges, write_consumer
from edgewake.edge.log.work import Limits, Work
from edgewake.edge.uplink.lanes import RANK
from edgewake.protocol.names import is_own

ALL: Final = 1 << 62
"""After every position."""


class Retention:
    """Of one log."""

    def __init__(self, db: sqlite3.Connection, rows: LogRows, limits: Limits) -> None:
        self._db = db
        self._rows = rows
        self._limits = limits

    def free_batches(self, draft: Draft, stream: StreamState, first: int, last: int) -> None:
        """The cloud has these positions; what every consumer has passed of them goes."""
        passed = min(last, self.needed_after(draft, stream.name))
        kept = self._rows.batch_bytes(stream.id, first, last) if passed < last else 0
        gone = self._rows.delete_batches(stream.id, first, passed)
        size = max(kept, gone)
        draft.framed_bytes -= size
        draft.stored_bytes -= gone
        draft.retained_bytes += size - gone

    def keep_here(self, draft: Draft, stream: StreamState, readings: Sequence[Reading], commit: int, accepted_at: int) -> None:
        """Accept readings of a stream that is not sent: for its consumers, and not at all where it has none."""
        last = stream.last + len(readings)
        if self.needed_after(draft, stream.name) < last:
            before = draft.stored_bytes
            found = batches(readings, readings_max=self._limits.readings_max, bytes_max=self._limits.bytes_max)
            self._rows.insert_batches(draft, stream, stream.last + 1, found, commit, accepted_at)
            draft.retained_bytes += draft.stored_bytes - before
        draft.streams[stream.name] = stream.kept_here(last)

    def take_consumers(self, draft: Draft, work: Work, commit: int) -> None:
        before = {stream: self.needed_after(draft, stream) for consumer in draft.consumers.values() for stream in consumer.cursor}
        for consumer in work.registered:
            self._put_consumer(draft, replace(consumer, commit=commit))
        for name, passed in work.passed.items():
            if name in draft.consumers:
                self._put_consumer(draft, draft.consumers[name].moved(passed, commit))
        for name in work.forgotten:
            del draft.consumers[name]
            self._db.execute("DELETE FROM consumers WHERE name = ?", (name,))
            draft.change.forgotten.append(name)
        for name, after in before.items():
            stream = draft.streams.get(name)
            if stream is not None and (work.registered or work.passed or work.forgotten):
                self._forget_passed(draft, stream, after + 1, min(stream.framed, self.needed_after(draft, name)))

    def _put_consumer(self, draft: Draft, consumer: ConsumerState) -> None:
        draft.consumers[consumer.name] = consumer
        draft.change.consumers.append(consumer)
        write_consumer(self._db, consumer)

    @staticmethod
    def needed_after(draft: Draft, stream: str) -> int:
        """No consumer needs what comes up to here."""
        passed = passed_by_all(draft.consumers.values(), stream)
        return ALL if passed is None else passed

    def _forget_passed(self, draft: Draft, stream: StreamState, first: int, last: int) -> None:
        """All consumers have passed these positions: what the cloud has of them goes."""
        if first > last:
            return
        begins = self._db.execute("SELECT max(first) FROM batches WHERE stream = ? AND first <= ?", (stream.id, first)).fetchone()[0]
        for start, end in outside(frame_ranges(self._db, stream.id), begins or 0, last):
            size = self._rows.delete_batches(stream.id, start, end)
            draft.stored_bytes -= size
            draft.retained_bytes -= size

    def keep_consumer_bytes(self, draft: Draft) -> None:
        """The oldest of what only consumers need goes; a counted range of positions stays in its place. Who reads what the device
        notes for itself bounds that.
        """
        while draft.retained_bytes > self._limits.consumer_bytes:
            found = (self._first_retained(stream) for stream in draft.streams.values() if not is_own(stream.name))
            oldest = min((row for row in found if row is not None), default=None)
            if oldest is None:
                return
            _, stream_id, first, count, size = oldest
            self._db.execute("DELETE FROM batches WHERE stream = ? AND first = ?", (stream_id, first))
            self._rows.give_up(stream_id, first, count, LAGGED)
            draft.stored_bytes -= size + ROW_BYTES
            draft.retained_bytes -= size + ROW_BYTES

    def _first_retained(self, stream: StreamState) -> tuple[int, int, int, int, int] | None:
        for first, last in outside(frame_ranges(self._db, stream.id), 0, stream.framed):
            query = "SELECT commit_number, stream, first, count, length(body) FROM batches WHERE stream = ? AND first BETWEEN ? AND ?"
            row: tuple[int, int, int, int, int] | None = self._db.execute(
                query + " ORDER BY first LIMIT 1", (stream.id, first, last)
            ).fetchone()
            if row is not None:
                return row
        return None

    def keep_quota(self, draft: Draft) -> None:
        """The oldest batches of the lowest lane go first; a counted range of positions stays in their place."""
        while draft.stored_bytes - draft.retained_bytes > self._limits.quota_bytes:
            firsts = ((-RANK[self._limits.lane(name)], self._first_batch(stream)) for name, stream in draft.streams.items())
            _, oldest = min(((rank, first) for rank, first in firsts if first is not None), default=(0, None))
            if oldest is None:
                return  # only frames are left, and the window bounds them
            _, stream_id, first, count, size = oldest
            self._db.execute("DELETE FROM batches WHERE stream = ? AND first = ?", (stream_id, first))
            self._rows.give_up(stream_id, first, count, "quota", after=next(s.framed for s in draft.streams.values() if s.id == stream_id))
            draft.stored_bytes -= size + ROW_BYTES
            draft.add("lost_quota", count)
            draft.dropped += count

    def _first_batch(self, stream: StreamState) -> tuple[int, int, int, int, int] | None:
        query = (
            "SELECT commit_number, stream, first, count, length(body) FROM batches WHERE stream = ? AND first > ? ORDER BY first LIMIT 1"
        )
        found: tuple[int, int, int, int, int] | None = self._db.execute(query, (stream.id, stream.framed)).fetchone()
        return found
