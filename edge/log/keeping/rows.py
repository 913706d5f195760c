"""The rows of `batches` and `gaps`: written, counted, read with their checks, deleted.

Inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from edgewake.edge.log.keeping.draft import Draft
from edgewake.edge.log.tables.codec import Batch, checksum, is_sound_batch
from edgewake.edge.log.tables.gaps import GivenUp, delete_gap, gap_at, gap_before, write_gap
from edgewake.edge.log.tables.streams import StreamState

ROW_BYTES: Final = 64
"""What a row costs beside its body, for the quota."""


class LogRows:
    """The rows of the log over one connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def batch_bytes(self, stream: int, first: int, last: int) -> int:
        """What the batches that lie wholly in a range of positions count for."""
        query = (
            "SELECT count(*), total(length(body)) FROM batches WHERE stream = ? AND first BETWEEN "
            "? AND ? AND first + count - 1 <= ?"
        )
        count, total = self._db.execute(query, (stream, first, last, last)).fetchone()
        return int(total) + ROW_BYTES * int(count)

    def sums(self) -> dict[int, tuple[int, int]]:
        """By stream: the size of batches that are in a frame, and of those that wait for one.

        The size is that of `batch_bytes`.

        In one pass in the order of the table, which reads no body: where a query ends at a key,
        SQLite reads the whole row to compare it with that (a table WITHOUT ROWID is an index), and
        a start would read a log of gigabytes three times.
        """
        size = f"length(body) + {ROW_BYTES}"
        framed = (
            "total(CASE WHEN first BETWEEN 0 AND framed AND first + count - 1 <= framed THEN "
            f"{size} END)"
        )
        waiting = (
            "total(CASE WHEN first BETWEEN framed + 1 AND last AND first + count - 1 <= last "
            f"THEN {size} END)"
        )
        query = (
            f"SELECT stream, {framed}, {waiting} FROM batches CROSS JOIN streams ON id = +stream "  # noqa: S608
            "GROUP BY stream"
        )
        return {
            stream: (int(of_frames), int(of_waiting))
            for stream, of_frames, of_waiting in self._db.execute(query)
        }

    def delete_batches(self, stream: int, first: int, last: int) -> int:
        """Them, and the gaps in their places; what they counted for."""
        size = self.batch_bytes(stream, first, last)
        for table in ("batches", "gaps"):
            inside = "stream = ? AND first BETWEEN ? AND ? AND first + count - 1 <= ?"
            self._db.execute(f"DELETE FROM {table} WHERE {inside}", (stream, first, last, last))  # noqa: S608
        return size

    def insert_batches(
        self,
        draft: Draft,
        stream: StreamState,
        first: int,
        found: Iterable[Batch],
        commit: int,
        accepted_at: int,
    ) -> int:
        """Rows from position `first` on; the last position."""
        rows = []
        for batch in found:
            crc = checksum(batch.body, stream.id, first, batch.count)
            rows.append((stream.id, first, batch.count, commit, accepted_at, crc, batch.body))
            first += batch.count
            draft.stored_bytes += len(batch.body) + ROW_BYTES
            draft.wait_more(stream.name, len(batch.body) + ROW_BYTES)
        self._db.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return first - 1

    def replace_batch(
        self,
        draft: Draft,
        stream: StreamState,
        first: int,
        batch: Batch,
        size: int,
        commit: int,
        accepted_at: int,
    ) -> None:
        """Another body of a batch that waits for its frame, whose body had `size` bytes."""
        self._db.execute("DELETE FROM batches WHERE stream = ? AND first = ?", (stream.id, first))
        draft.stored_bytes -= size + ROW_BYTES
        draft.wait_more(stream.name, -size - ROW_BYTES)
        self.insert_batches(draft, stream, first, [batch], commit, accepted_at)

    def take_out(self, stream: int, first: int) -> int:
        """Delete a batch that is to be given up; how many readings it had.

        0 where the row is damaged: its count may say anything, and who comes to its place finds out
        how much is missing there.
        """
        where = (stream, first)
        row = self._db.execute(
            "SELECT count, crc, body FROM batches WHERE stream = ? AND first = ?", where
        ).fetchone()
        self._db.execute("DELETE FROM batches WHERE stream = ? AND first = ?", where)
        return int(row[0]) if row is not None and is_sound_batch(stream, first, *row) else 0

    def give_up(
        self, stream_id: int, first: int, count: int, reason: str, *, after: int = 0
    ) -> None:
        """Give up a range from `first`; join it with its neighbours.

        It is joined to the gap behind it, and to the one before it where that begins after position
        `after`.

        What is framed keeps its boundary.
        """
        gap = GivenUp(stream_id, first, count, reason)
        behind, before = (
            gap_at(self._db, stream_id, first + count),
            gap_before(self._db, stream_id, first),
        )
        if behind is not None and behind.reason == reason:
            delete_gap(self._db, behind)
            gap = replace(gap, count=count + behind.count)
        if (
            before is not None
            and before.reason == reason
            and before.last == first - 1
            and before.first > after
        ):
            gap = replace(before, count=before.count + gap.count)
        write_gap(self._db, gap)

    def sound_batches(
        self, stream: StreamState, first: int, last: int
    ) -> Iterator[tuple[int, int, Batch]]:
        """Yield (first position, accepted at, batch) of rows whose CRC holds, up to `last`."""
        query = (
            "SELECT first, count, accepted_at, crc, body FROM batches WHERE stream = ? AND first "
            "BETWEEN ? AND ? ORDER BY first"
        )
        for place, count, at, crc, body in self._db.execute(query, (stream.id, first, last)):
            if is_sound_batch(stream.id, place, count, crc, body) and place + count - 1 <= last:
                yield place, at, Batch(count, body)
