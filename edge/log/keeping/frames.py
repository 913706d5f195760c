"""Frames: boundaries over the batches.

Formed, kept until they are acknowledged, put together again after a restart. Inside the caller's
transaction.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from edgewake.edge.log.keeping.draft import Draft
from edgewake.edge.log.keeping.retention import ALL, Retention
from edgewake.edge.log.keeping.rows import ROW_BYTES, LogRows
from edgewake.edge.log.keeping.work import FrameKey, Limits, OutFrame, frame_of
from edgewake.edge.log.tables.codec import Batch, FrameColumns, checksum, cut, gap_payload
from edgewake.edge.log.tables.gaps import gap_at, gaps_behind, write_gap
from edgewake.edge.log.tables.schema import NO_BATCHES
from edgewake.edge.log.tables.sidecar import Boundary
from edgewake.edge.log.tables.streams import StreamState
from edgewake.edge.log.tables.tables import write_frame
from edgewake.protocol.clock import CLOCK_FLOOR_MS, Clock
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.frame import FRAME_TYPE, Gap

UNSET_CLOCK: Final = "unset_clock"
"""Counter of readings that were sent with times from before the machine's clock was set."""


class LogFrames:
    """The frames of one log."""

    def __init__(
        self,
        db: sqlite3.Connection,
        rows: LogRows,
        retention: Retention,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._db = db
        self._rows = rows
        self._retention = retention
        self._limits = limits
        self._clock = clock

    def free(self, draft: Draft, key: FrameKey, rejected: RejectReason | None) -> None:
        """Free a frame that the cloud has, or refused permanently; then a gap takes its number.

        Otherwise everything after it would wait for it.
        """
        stream = draft.streams.get(key.stream)
        if stream is None:
            return  # of a log that is gone, with all that it knew
        place = (stream.id, key.epoch, key.frame)
        query = (
            "SELECT seq, first, count, gap, coalesce(length(payload), 0) FROM frames WHERE stream "
            "= ? AND epoch = ? AND frame = ?"
        )
        found = self._db.execute(query, place).fetchone()
        draft.change.freed.append(place)
        if found is None:
            return  # it is freed already
        seq, first, count, gap, size = found
        self._db.execute("DELETE FROM frames WHERE stream = ? AND epoch = ? AND frame = ?", place)
        draft.stored_bytes -= size + ROW_BYTES
        if draft.outstanding.pop(key, None) is None:  # sent before the log was opened again
            draft.unsent.remove(key)
        if first != NO_BATCHES:
            self._retention.free_batches(draft, stream, first, first + count - 1)
        if rejected is not None and gap is None:
            draft.add("lost_rejected", count)
            draft.frames.append(
                self.put_gap(draft, stream, key.epoch, key.frame, seq, Gap("rejected", count))
            )

    def form(self, draft: Draft, stream: StreamState, epoch: int, frame_bytes: int) -> OutFrame:
        """One frame of what comes next in a stream.

        Its bytes are written before anybody sends them.
        """
        first = stream.framed + 1
        span = stream.next_range(epoch)
        found = self._rows.sound_batches(stream, first, span.last)
        begins = next(found, None)
        lost = self._lost_from(draft, stream, first, span.last, begins)
        frame, seq = span.frame + 1, first - span.base
        if lost is not None:
            draft.streams[stream.name] = stream.after_frame(first + lost.count - 1)
            return self.put_gap(draft, stream, span.epoch, frame, seq, lost, first=first)
        if self._cut_first(draft, stream, begins, frame_bytes):
            found = self._rows.sound_batches(stream, first, span.last)
            begins = next(found, None)
        columns = FrameColumns(readings_max=self._limits.readings_max, bytes_max=frame_bytes)
        accepted_at = 0
        for place, at, batch in chain([] if begins is None else [begins], found):
            if place != first + columns.count or not columns.add(batch):
                break
            accepted_at = accepted_at or at
            draft.framed_bytes += len(batch.body) + ROW_BYTES
            draft.wait_more(stream.name, -len(batch.body) - ROW_BYTES)
            if columns.is_full:
                break
        after = draft.streams[stream.name] = stream.after_frame(first + columns.count - 1)
        if accepted_at and accepted_at < CLOCK_FLOOR_MS:
            draft.add(UNSET_CLOCK, columns.count)
        payload, content_type = columns.wire(epoch=span.epoch, frame=frame, seq=seq)
        key, is_backlog = FrameKey(stream.name, span.epoch, frame), after.framed < after.last
        out = OutFrame(key, payload, content_type, columns.count, None, is_backlog)
        return self._put(draft, stream, out, (seq, columns.count, first), accepted_at)

    def _cut_first(
        self,
        draft: Draft,
        stream: StreamState,
        begins: tuple[int, int, Batch] | None,
        frame_bytes: int,
    ) -> bool:
        """Cut a batch, written under wider bounds, into such as fit into a frame of today's.

        Was it cut?
        """
        if begins is None or len(begins[2].body) <= frame_bytes or begins[2].count == 1:
            return False
        first, accepted_at, batch = begins
        where = (stream.id, first)
        commit = self._db.execute(
            "SELECT commit_number FROM batches WHERE stream = ? AND first = ?", where
        ).fetchone()[0]
        self._db.execute("DELETE FROM batches WHERE stream = ? AND first = ?", where)
        draft.stored_bytes -= len(batch.body) + ROW_BYTES
        draft.wait_more(stream.name, -len(batch.body) - ROW_BYTES)
        self._rows.insert_batches(
            draft, stream, first, cut(batch, bytes_max=frame_bytes), commit, accepted_at
        )
        return True

    def _lost_from(
        self,
        draft: Draft,
        stream: StreamState,
        first: int,
        last: int,
        sound: tuple[int, int, Batch] | None,
    ) -> Gap | None:
        """The lost range that begins at `first` and ends at `last` at the latest.

        It was given up or damaged; None where a sound batch begins. `sound`: the first one from
        there on.
        """
        given_up = gap_at(self._db, stream.id, first)
        if given_up is not None:
            if given_up.last > last:  # what is beyond belongs to another epoch
                write_gap(self._db, replace(given_up, count=last + 1 - first))
                write_gap(self._db, replace(given_up, first=last + 1, count=given_up.last - last))
            return Gap(given_up.reason, min(given_up.count, last + 1 - first))
        following = [last + 1] if sound is None else [sound[0]]
        following += [gap.first for gap in islice(gaps_behind(self._db, stream.id, first, last), 1)]
        count = min(following) - first
        if count == 0:
            return None
        damaged = "FROM batches WHERE stream = ? AND first BETWEEN ? AND ?"
        where = (stream.id, first, first + count - 1)
        size = self._db.execute(
            f"SELECT coalesce(sum(length(body) + {ROW_BYTES}), 0) {damaged}", where
        ).fetchone()[0]
        draft.stored_bytes -= size
        draft.wait_more(stream.name, -size)
        self._db.execute(f"DELETE {damaged}", where)
        self._rows.give_up(stream.id, first, count, self._limits.missing, after=first)
        draft.add(f"lost_{self._limits.missing}", count)
        return Gap(self._limits.missing, count)

    def put_gap(
        self,
        draft: Draft,
        stream: StreamState,
        epoch: int,
        frame: int,
        seq: int,
        gap: Gap,
        *,
        first: int = NO_BATCHES,
    ) -> OutFrame:
        payload = gap_payload(epoch=epoch, frame=frame, seq=seq, gap=gap)
        out = OutFrame(
            FrameKey(stream.name, epoch, frame), payload, FRAME_TYPE, gap.count, gap.reason
        )
        return self._put(draft, stream, out, (seq, gap.count, first), self._clock.now_ms())

    def _put(
        self, draft: Draft, stream: StreamState, out: OutFrame, boundary: Boundary, accepted_at: int
    ) -> OutFrame:
        frame = (stream.id, out.key.epoch, out.key.frame)
        copy = out.payload if self._limits.copies_sent and out.gap is None else None
        write_frame(self._db, frame, boundary, out.gap, accepted_at, copy)
        draft.stored_bytes += len(copy or b"") + ROW_BYTES
        draft.outstanding[out.key] = len(out.payload)
        draft.change.formed.append((frame, boundary))
        return out

    def reload(self, draft: Draft, key: FrameKey) -> None:
        """Reload a frame of an earlier life: the same bytes, or a gap where they are damaged."""
        out = replace(self.frame_out(draft, key), is_backlog=True)
        draft.frames.append(out)
        draft.outstanding[key] = len(out.payload)

    def frame_out(self, draft: Draft, key: FrameKey) -> OutFrame:
        """The bytes of a kept frame: its gap, its copy, or its readings put together again."""
        stream = draft.streams[key.stream]
        place = (stream.id, key.epoch, key.frame)
        query = (
            "SELECT seq, first, count, gap, payload_crc, payload FROM frames WHERE stream = ? AND "
            "epoch = ? AND frame = ?"
        )
        seq, first, count, gap, crc, payload = self._db.execute(query, place).fetchone()
        if gap is not None:
            text = gap_payload(epoch=key.epoch, frame=key.frame, seq=seq, gap=Gap(gap, count))
            return OutFrame(key, text, FRAME_TYPE, count, gap)
        if isinstance(payload, bytes) and checksum(payload, *place) == crc:
            return frame_of(key, payload, count)
        columns = self._columns_of(stream, first, count)
        if columns is not None:
            body, content_type = columns.wire(epoch=key.epoch, frame=key.frame, seq=seq)
            return OutFrame(key, body, content_type, count, None)
        self._db.execute("DELETE FROM frames WHERE stream = ? AND epoch = ? AND frame = ?", place)
        draft.stored_bytes -= len(payload or b"") + ROW_BYTES
        draft.add(f"lost_{self._limits.missing}", count)
        return self.put_gap(
            draft, stream, key.epoch, key.frame, seq, Gap(self._limits.missing, count), first=first
        )

    def _columns_of(self, stream: StreamState, first: int, count: int) -> FrameColumns | None:
        """What was put together for a frame, once more; None where a part of it is missing.

        Its bounds were kept when it was formed.
        """
        columns = FrameColumns(readings_max=count, bytes_max=ALL)
        for place, _, batch in self._rows.sound_batches(stream, first, first + count - 1):
            if first == NO_BATCHES or place != first + columns.count or not columns.add(batch):
                return None
        return columns if columns.count == count else None
