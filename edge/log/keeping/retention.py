"""Frees batches: those that the cloud has and every consumer has passed, and when full the oldest.

At the bounds it is the oldest.

Three parts, each of them counted: what waits for its frame, what is in a frame that the cloud has
not acknowledged, and what only consumers still need. The first two have the quotas (decided in
`quota`), the third `log.consumer_bytes`. Inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from edgewake.edge.log.keeping.draft import Draft
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import FULL, TOO_OLD, AtQuota, Kept, Quotas, Thinning, in_lanes
from edgewake.edge.log.keeping.rows import ROW_BYTES, LogRows
from edgewake.edge.log.keeping.work import Limits, Work
from edgewake.edge.log.tables.bundle import batches_of
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import (
    LAGGED,
    ConsumerState,
    followed,
    outside,
    passed_by_all,
)
from edgewake.edge.log.tables.streams import StreamState
from edgewake.edge.log.tables.tables import frame_ranges, write_consumer
from edgewake.protocol.names import is_own

ALL: Final = 1 << 62
"""After every position."""


class Retention:
    """The retention of one log."""

    def __init__(self, db: sqlite3.Connection, rows: LogRows, limits: Limits) -> None:
        self._db = db
        self._rows = rows
        self._limits = limits
        self.quotas = Quotas(limits.quota_bytes, limits.lane_quotas)
        self._thinnings: dict[str, Thinning] = {}
        """The thinning of each stream; forgotten at a restart, when it starts again."""

    def free_batches(self, draft: Draft, stream: StreamState, first: int, last: int) -> None:
        """The cloud has these positions; what every consumer has passed of them goes."""
        passed = min(last, self.needed_after(draft, stream.name))
        kept = self._rows.batch_bytes(stream.id, first, last) if passed < last else 0
        gone = self._rows.delete_batches(stream.id, first, passed)
        size = max(kept, gone)
        draft.framed_bytes -= size
        draft.stored_bytes -= gone
        draft.retained_bytes += size - gone

    def keep_here(
        self,
        draft: Draft,
        stream: StreamState,
        readings: Sequence[Reading],
        commit: int,
        accepted_at: int,
    ) -> None:
        """Accept readings of a stream that is not sent, for its consumers only."""
        last = stream.last + len(readings)
        if self.needed_after(draft, stream.name) < last:
            before = draft.stored_bytes
            found = batches_of(
                readings, readings_max=self._limits.readings_max, bytes_max=self._limits.bytes_max
            )
            self._rows.insert_batches(draft, stream, stream.last + 1, found, commit, accepted_at)
            draft.retained_bytes += draft.stored_bytes - before
            draft.wait_more(stream.name, before - draft.stored_bytes)
        draft.streams[stream.name] = stream.kept_here(last)

    def take_consumers(self, draft: Draft, work: Work, commit: int) -> None:
        before = {stream: self.needed_after(draft, stream) for stream in _moving(draft, work)}
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
            if stream is not None:
                self._forget_passed(
                    draft, stream, after + 1, min(stream.framed, self.needed_after(draft, name))
                )

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
        begins = self._db.execute(
            "SELECT max(first) FROM batches WHERE stream = ? AND first <= ?", (stream.id, first)
        ).fetchone()[0]
        for start, end in outside(frame_ranges(self._db, stream.id), begins or 0, last):
            size = self._rows.delete_batches(stream.id, start, end)
            draft.stored_bytes -= size
            draft.retained_bytes -= size

    def keep_consumer_bytes(self, draft: Draft) -> None:
        """Drop the oldest of what only consumers need; a counted range takes its place.

        The device's own notes are bounded by their reader.
        """
        while draft.retained_bytes > self._limits.consumer_bytes:
            found = (
                self._first_retained(stream)
                for stream in draft.streams.values()
                if not is_own(stream.name)
            )
            oldest = min((row for row in found if row is not None), default=None)
            if oldest is None:
                return
            _, stream_id, first, size = oldest
            if count := self._rows.take_out(stream_id, first):
                self._rows.give_up(stream_id, first, count, LAGGED)
            draft.stored_bytes -= size + ROW_BYTES
            draft.retained_bytes -= size + ROW_BYTES

    def _first_retained(self, stream: StreamState) -> tuple[int, int, int, int] | None:
        for first, last in outside(frame_ranges(self._db, stream.id), 0, stream.framed):
            query = (
                "SELECT commit_number, stream, first, length(body) FROM batches WHERE stream = ? "
                "AND first BETWEEN ? AND ?"
            )
            row: tuple[int, int, int, int] | None = self._db.execute(
                query + " ORDER BY first LIMIT 1", (stream.id, first, last)
            ).fetchone()
            if row is not None:
                return row
        return None

    def keep_quotas(self, draft: Draft, age_ms: Callable[[int, int], int]) -> None:
        """Drop what a lane or the log has too much of; a counted range takes its place.

        `age_ms` tells how old a batch is by its commit and the wall clock at its acceptance.
        """
        for lane in Lane:
            if (age_s := self.quotas.of(lane).age_s) is not None:
                self._drop_older(
                    draft, lane, lambda row: age_ms(row.commit, row.accepted_at) > 1000 * age_s
                )
        while (found := self.excess(draft)) is not None:
            lane, size = found
            give_up = (
                self._thin_out
                if self.quotas.of(lane).policy is AtQuota.THIN_OUT
                else self._drop_oldest
            )
            if not give_up(draft, lane, size):
                return

    def excess(self, draft: Draft) -> tuple[Lane, int] | None:
        """See `Quotas.excess`."""
        return self.quotas.excess(self.waiting(draft), draft.stored_bytes - draft.retained_bytes)

    def waiting(self, draft: Draft) -> dict[Lane, int]:
        """Bytes that wait for their frame, by lane."""
        return in_lanes(draft.waiting, ((name, self._limits.lane(name)) for name in draft.streams))

    def is_full(self, draft: Draft, stream: str) -> bool:
        """Does the stream's lane take no more?"""
        return self.quotas.is_full(
            self._limits.lane(stream),
            self.waiting(draft),
            draft.stored_bytes - draft.retained_bytes,
        )

    def stopped_lanes(self, draft: Draft) -> frozenset[Lane]:
        """Lanes whose sources must wait."""
        return self.quotas.stopped(self.waiting(draft), draft.stored_bytes - draft.retained_bytes)

    def dropping_lanes(self, draft: Draft) -> frozenset[Lane]:
        """Lanes that lose what comes next."""
        return self.quotas.dropping(self.waiting(draft), draft.stored_bytes - draft.retained_bytes)

    def _in_lane(self, draft: Draft, lane: Lane) -> list[StreamState]:
        return [stream for name, stream in draft.streams.items() if self._limits.lane(name) is lane]

    def _drop_older(self, draft: Draft, lane: Lane, is_too_old: Callable[[_Row], bool]) -> None:
        for stream in self._in_lane(draft, lane):
            while (row := self._next_batches(stream, stream.framed, 1)) and is_too_old(row[0]):
                self._give_up(draft, stream, row[0], TOO_OLD)

    def _drop_oldest(self, draft: Draft, lane: Lane, size: int) -> bool:
        """Drop `size` bytes of the lane, oldest commits first; False where nothing is left."""
        before = draft.waiting_bytes
        while before - draft.waiting_bytes < size:
            found = (
                (stream, self._next_batches(stream, stream.framed, 1))
                for stream in self._in_lane(draft, lane)
            )
            oldest = min(
                ((rows[0].commit, stream.id, stream, rows[0]) for stream, rows in found if rows),
                default=None,
            )
            if oldest is None:
                break  # only frames are left, and the window bounds them
            self._give_up(draft, oldest[2], oldest[3], FULL)
        return before > draft.waiting_bytes

    def _thin_out(self, draft: Draft, lane: Lane, size: int) -> bool:
        """Thin out `size` bytes of the stream that has most; False where nothing is left."""
        stream = max(self._in_lane(draft, lane), key=lambda each: draft.waiting.get(each.name, 0))
        before = draft.waiting_bytes
        last = self._next_batches(stream, stream.framed, 3)
        if len(last) < 3:
            return self._drop_oldest(draft, lane, size)
        while (left := size - before + draft.waiting_bytes) > 0 and len(last) == 3:
            # A damaged row may say 0.
            thinning = self._thinnings.get(stream.name, Thinning(hole_max=max(1, last[0].count)))
            begins = max(stream.framed + 1, thinning.stands_at)
            query = (
                "SELECT first, count, length(body) FROM batches WHERE stream = ? AND first >= ? "
                "ORDER BY first"
            )
            kept = (
                Kept(first, count, length + ROW_BYTES)
                for first, count, length in self._db.execute(query, (stream.id, begins))
            )
            gone, self._thinnings[stream.name] = thinning.go_on(kept, left)
            for batch in gone:
                self._give_up(draft, stream, batch, FULL)
            last = self._next_batches(stream, stream.framed, 3)
        return True

    def _give_up(self, draft: Draft, stream: StreamState, row: _Row | Kept, reason: str) -> None:
        draft.stored_bytes -= row.size
        draft.wait_more(stream.name, -row.size)
        if count := self._rows.take_out(stream.id, row.first):
            self._rows.give_up(stream.id, row.first, count, reason, after=stream.framed)
            draft.add(f"lost_{reason}", count)
            draft.dropped += count

    def _next_batches(self, stream: StreamState, after: int, limit: int) -> list[_Row]:
        columns = f"commit_number, first, count, length(body) + {ROW_BYTES}, accepted_at"
        query = (
            f"SELECT {columns} FROM batches WHERE stream = ? AND first > ? ORDER BY first LIMIT ?"  # noqa: S608
        )
        return [_Row(*row) for row in self._db.execute(query, (stream.id, after, limit))]


def _moving(draft: Draft, work: Work) -> set[str]:
    """Streams of which less, or more, may be needed after this work."""
    found = {
        stream
        for name, passed in work.passed.items()
        if name in draft.consumers
        for stream, at in passed.cursor.items()
        if at != draft.consumers[name].position(stream)
    }
    for name in (*work.forgotten, *(consumer.name for consumer in work.registered)):
        if name in draft.consumers:
            found |= followed(draft.consumers[name], draft.streams)
    for consumer in work.registered:
        found |= followed(consumer, draft.streams)
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    """A batch, for the quota."""

    commit: int
    first: int
    count: int
    size: int
    accepted_at: int
