"""The event log's rows: what one transaction does. One thread calls it; it starts none.

In: a `Work` (new readings by stream, source positions, freed frames, may frames be formed). Out: a `Done` (frames to send, readings
dropped). `apply` does all of it in one durable transaction or, raising sqlite3.Error, nothing: the state in memory changes after COMMIT
only. Every row is checked by its CRC before its bytes leave; a damaged one becomes a gap with its count.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from edgewake.edge.lanes import RANK, Window
from edgewake.edge.log_codec import Batch, FrameColumns, Reading, batches, checksum, cut, gap_payload
from edgewake.edge.log_epoch import COUNTED_ANEW, LogIdentity, LogLocation, location_of, new_epoch_reason
from edgewake.edge.log_salvage import (
    FrameRow,
    Salvage,
    SavedRow,
    damaged_logs,
    forget_gaps_of_what_is_there,
    take_over,
    what_it_knew,
)
from edgewake.edge.log_schema import LOG_NAME, MIGRATIONS, PAGE_BYTES, LogDamagedError, open_for_writing, sound_rows, transaction
from edgewake.edge.log_sidecar import Change, FrameId, Known, Sidecar
from edgewake.edge.log_streams import StreamState
from edgewake.edge.log_tables import read_identity, read_streams, write_identity, write_known, write_stream
from edgewake.edge.log_work import Done, Failpoint, FrameKey, Limits, OutFrame, Work, frame_of, no_failpoint
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frame import FRAME_TYPE, Gap, compress

log = logging.getLogger("edgewake.log")

SALVAGE_PAGES: Final = 1024
"""Pages of a damaged log that are read in one turn: 1 or 4 MiB, so that no reading waits long behind it."""
ROW_BYTES: Final = 64
"""What a row costs beside its body, for the quota."""


@dataclass(slots=True)
class _Draft:
    """The state as it will be after COMMIT."""

    streams: dict[str, StreamState]
    outstanding: dict[FrameKey, int]
    unsent: deque[FrameKey]
    stored_bytes: int
    counters: dict[str, int]
    frames: list[OutFrame] = field(default_factory=list)
    dropped: int = 0
    change: Change = field(default_factory=Change)

    def copy(self) -> _Draft:
        return _Draft(dict(self.streams), dict(self.outstanding), deque(self.unsent), self.stored_bytes, dict(self.counters))

    def add(self, name: str, count: int) -> None:
        self.counters[name] = self.counters.get(name, 0) + count


class LogStore:
    """The open log. Raises sqlite3.Error from every method; `is_damage` tells those after which the files have to be set aside."""

    def __init__(
        self,
        directory: Path,
        limits: Limits,
        clock: Clock,
        *,
        boot: str,
        new_epoch: Callable[[int, int], int],
        failpoint: Failpoint = no_failpoint,
    ) -> None:
        """Open or create; `boot` names this start of the machine, `new_epoch` gets (previous epoch, now in ms)."""
        self._path = directory / LOG_NAME
        self._limits = limits
        self._clock = clock
        self._failpoint = failpoint
        self._sidecar = Sidecar(directory)
        self._next_stream = 0
        self._frame_bytes = limits.bytes_max
        known = self._sidecar.read()
        page_bytes = known.page_size if known and known.page_size else PAGE_BYTES  # as a damaged log's, whose header may be lost
        self._db = open_for_writing(self._path, version=known.version if known else 0, page_bytes=page_bytes)
        try:
            self._open(known, boot, new_epoch)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            self._db.close()
            raise LogDamagedError(f"not what the log wrote: {error!r}") from error
        except BaseException:
            self._db.close()
            raise

    # what it is

    def _open(self, known: Known | None, boot: str, new_epoch: Callable[[int, int], int]) -> None:
        damaged = damaged_logs(self._path.parent)
        identity, here = read_identity(self._db), location_of(self._path, boot=boot)
        if identity is None and damaged:
            known = what_it_knew(damaged[-1], known)
        self.epoch_began = new_epoch_reason(identity, known, here, damaged=bool(damaged))
        self.log_id = identity.log_id if identity and self.epoch_began != "without its sidecar" else secrets.token_hex(16)
        self.epoch = identity.epoch if identity else 0
        self.commit = max(identity.commit if identity else 0, known.commit if known else 0)
        if self.epoch_began is not None:
            ended = identity.epoch if identity else known.epoch if known else 0
            self.epoch = new_epoch(max(self.epoch, known.epoch if known else 0), self._clock.now_ms())
            self.commit += 1
            self._begin_epoch(here, ended, None if identity else known)
        self._page_bytes: int = self._db.execute("PRAGMA page_size").fetchone()[0]
        self._state = self._load()
        self._positions: dict[str, str] = dict(self._db.execute("SELECT name, position FROM sources"))
        is_of_this_commit = identity is None or (known and (known.log_id, known.commit) == (identity.log_id, identity.commit))
        if identity and known and known.version and is_of_this_commit and not self._frames_here() <= known.frames.keys():
            raise LogDamagedError("frames that were never formed")
        self._wanted = self._missing_frames(known) if known and (damaged or is_of_this_commit) else {}
        self._salvage = Salvage(damaged, self._page_bytes) if damaged or self._wanted else None
        self._failpoint("new log")
        self._rewrite_sidecar()

    def _begin_epoch(self, here: LogLocation, ended: int, known: Known | None) -> None:
        """The log first, its sidecar second: a crash between makes no old log look new. `known`: what a log that is gone must hold."""
        keep_numbers = self.epoch_began not in COUNTED_ANEW
        with transaction(self._db):
            if known is not None:
                write_known(self._db, known)
            write_identity(self._db, LogIdentity(self.log_id, self.epoch, self.commit, here))
            for stream in read_streams(self._db):
                write_stream(self._db, stream.in_new_epoch(ended, keep_numbers=keep_numbers))

    def _load(self) -> _Draft:
        db = self._db
        streams = {stream.name: stream for stream in read_streams(self._db)}
        names = {stream.id: stream.name for stream in streams.values()}
        keys = db.execute("SELECT stream, epoch, frame FROM frames ORDER BY epoch, frame, stream").fetchall()
        unsent = deque(FrameKey(names[stream], epoch, frame) for stream, epoch, frame in keys)
        stored = 0
        for size in ("length(body)) FROM batches", "length(payload)) FROM frames"):
            count, total = db.execute(f"SELECT count(*), total({size}").fetchone()
            stored += int(total) + ROW_BYTES * count
        counters = dict(db.execute("SELECT name, value FROM counters WHERE name <> 'commit'"))
        return _Draft(streams, {}, unsent, stored, counters)

    def _rewrite_sidecar(self) -> None:
        known = Known(self.log_id, self.epoch, self.commit, len(MIGRATIONS), self._page_bytes)
        known.streams = {stream.id: stream for stream in self._state.streams.values()}
        known.counters = self._state.counters
        known.sources = self._positions
        rows = self._db.execute("SELECT stream, epoch, frame, seq, count FROM frames")
        known.frames = self._wanted | {(stream, epoch, frame): (seq, count) for stream, epoch, frame, seq, count in rows}
        self._sidecar.rewrite(known)

    # salvage

    def _frames_here(self) -> set[FrameId]:
        return {(self._state.streams[key.stream].id, key.epoch, key.frame) for key in self._state.unsent}

    def _missing_frames(self, known: Known) -> dict[FrameId, tuple[int, int]]:
        """Frames that the sidecar knows and that are not in the log: first seq and count."""
        ids = {stream.id for stream in self._state.streams.values()}
        here = self._frames_here()
        return {frame: of for frame, of in known.frames.items() if frame not in here and frame[0] in ids}

    @property
    def is_salvaging(self) -> bool:
        """Are rows of a damaged log still to be read? Until then no frames are formed: an earlier reading may yet be found."""
        return self._salvage is not None

    def salvage(self) -> None:
        """Take over the rows of some more pages of a damaged log, in one transaction."""
        assert self._salvage is not None
        rows = self._salvage.rows(SALVAGE_PAGES)
        if rows is None:
            self._end_salvage()
            return
        with transaction(self._db):
            taken = [row for row in rows if self._take_over(row)]
            self._failpoint("salvaging")
        self._salvage.advance()
        self._state.stored_bytes += sum(row.size + ROW_BYTES for row in taken)
        for row in taken:
            if isinstance(row, FrameRow):
                self._wanted.pop((row.stream, row.epoch, row.frame), None)
        self._failpoint("salvaged")

    def _take_over(self, row: SavedRow) -> bool:
        stream = next((one for one in self._state.streams.values() if one.id == row.stream), None)
        return stream is not None and take_over(self._db, row, stream, self._wanted)

    def _end_salvage(self) -> None:
        """What was not found is a gap. A range that was given up, but whose readings are there, was not."""
        assert self._salvage is not None
        names = {stream.id: stream for stream in self._state.streams.values()}
        draft = self._state.copy()
        with transaction(self._db):
            forget_gaps_of_what_is_there(self._db)
            for (number, epoch, frame), (seq, count) in sorted(self._wanted.items()):
                draft.add("lost_corrupt", count)
                self._put_gap(draft, names[number], epoch, frame, seq, Gap("corrupt", count))
            self._db.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", draft.counters.items())
            self._failpoint("salvage ends")
        self._failpoint("salvage ended")
        self._salvage.delete()
        log.warning(
            "a damaged log was saved as far as it could be read; %d frames were not found", len(self._wanted),
            extra={"event": "log.salvaged", "frames_lost": len(self._wanted)},
        )  # fmt: skip
        self._salvage, self._wanted = None, {}
        self._state = self._load()
        self._rewrite_sidecar()

    # what the writer asks

    @property
    def stored_bytes(self) -> int:
        """Bytes that count for the quota."""
        return self._state.stored_bytes

    def can_frame(self, paused: frozenset[str] = frozenset()) -> bool:
        """Is there a stream that waits for a frame and may have one more in flight?"""
        if self.is_salvaging:
            return False
        state = self._state
        window, in_flight = self._window(state, paused), self._epochs_in_flight(state)
        formable = {name for name in self._unframed(state, paused) if self._is_turn_of(state.streams[name], in_flight)}
        return any(map(window.admits, formable | self._unsent(state, paused)))

    def has_unframed(self, paused: frozenset[str] = frozenset()) -> bool:
        """Is there anything that waits for room in the window?"""
        return bool(self._unsent(self._state, paused) or self._unframed(self._state, paused))

    @property
    def counters(self) -> Mapping[str, int]:
        """Readings lost, by reason, since the log was made."""
        return self._state.counters

    def backlog(self) -> tuple[int, int]:
        """(readings accepted and not acknowledged, of them in frames)."""
        framed = self._db.execute("SELECT coalesce(sum(count), 0) FROM frames WHERE gap IS NULL").fetchone()[0]
        return framed + sum(stream.last - stream.framed for stream in self._state.streams.values()), framed

    def oldest_at(self) -> int | None:
        """Wall clock in ms of the oldest acceptance that is not acknowledged; None where all are."""
        found = [self._db.execute(f"SELECT min(accepted_at) FROM {table}").fetchone()[0] for table in ("frames",)]  # noqa: S608
        for stream in self._state.streams.values():
            row = self._db.execute("SELECT accepted_at FROM batches WHERE stream = ? ORDER BY first LIMIT 1", (stream.id,)).fetchone()
            found.append(row[0] if row else None)
        with sound_rows():
            return min((at for at in found if at is not None), default=None)

    def position(self, source: str) -> str | None:
        """How far a source had read when its last readings were accepted. From memory: any thread may ask, whatever the disk does."""
        return self._positions.get(source)

    # the transaction

    def apply(self, work: Work) -> Done:
        """Do `work` in one durable transaction. Frames in the answer may be sent: their bytes are kept."""
        draft = self._state.copy()
        commit = self.commit + 1
        with transaction(self._db):
            for name, readings in work.readings.items():
                self._insert(draft, name, readings, commit)
            self._db.executemany("INSERT OR REPLACE INTO sources VALUES (?, ?)", work.positions.items())
            draft.change.sources |= work.positions
            for name, reasons in work.lost.items():
                for reason, count in reasons.items():
                    self._lose(draft, name, reason, count)
            with sound_rows():
                for key, rejected in work.freed:
                    self._free(draft, key, rejected)
                self._keep_quota(draft)
            if work.sending and not self.is_salvaging:
                self._frame_bytes = min(self._limits.bytes_max, work.frame_bytes or self._limits.bytes_max)
                with sound_rows():
                    self._fill_window(draft, work.paused)
            self._write_state(draft, commit)
            self._failpoint("inserted")
        self._failpoint("committed")
        self._state, self.commit = draft, commit
        self._positions |= work.positions
        self._sidecar.append(commit, draft.change)
        if self._sidecar.is_due:
            self._rewrite_sidecar()
        done = Done(draft.frames, draft.dropped)
        draft.frames, draft.dropped, draft.change = [], 0, Change()
        return done

    def _write_state(self, draft: _Draft, commit: int) -> None:
        before = self._state.streams
        for name, stream in draft.streams.items():
            if before.get(name) is not stream:
                write_stream(self._db, stream)
                draft.change.streams.append(stream)
        changed = {name: value for name, value in draft.counters.items() if self._state.counters.get(name) != value}
        draft.change.counters |= changed
        self._db.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", [("commit", commit), *changed.items()])

    # accept

    def _insert(self, draft: _Draft, name: str, readings: Sequence[Reading], commit: int) -> None:
        stream = draft.streams.get(name) or StreamState(_next_id(draft.streams), name)
        found = batches(readings, readings_max=self._limits.readings_max, bytes_max=self._limits.bytes_max)
        last = self._insert_batches(draft, stream, stream.last + 1, found, commit, self._clock.now_ms())
        draft.streams[name] = replace(stream, last=last)

    def _insert_batches(self, draft: _Draft, stream: StreamState, first: int, found: Iterable[Batch], commit: int, accepted_at: int) -> int:
        """Rows from position `first` on; the last position."""
        rows = []
        for batch in found:
            crc = checksum(batch.body, stream.id, first, batch.count)
            rows.append((stream.id, first, batch.count, commit, accepted_at, crc, batch.body))
            first += batch.count
            draft.stored_bytes += len(batch.body) + ROW_BYTES
        self._db.executemany("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return first - 1

    def _lose(self, draft: _Draft, name: str, reason: str, count: int) -> None:
        """Readings that never came here take positions too, so that the cloud is told where they are missing."""
        stream = draft.streams.get(name) or StreamState(_next_id(draft.streams), name)
        self._give_up(stream.id, stream.last + 1, count, reason)
        draft.add(f"lost_{reason}", count)
        draft.streams[name] = replace(stream, last=stream.last + count)

    # free

    def _free(self, draft: _Draft, key: FrameKey, rejected: RejectReason | None) -> None:
        """The cloud has the frame, or refused it for ever; then its number is taken by a gap, or everything after it would wait for it."""
        stream = draft.streams[key.stream]
        place = (stream.id, key.epoch, key.frame)
        row = self._db.execute("SELECT seq, count, gap, length(payload) FROM frames WHERE stream = ? AND epoch = ? AND frame = ?", place)
        found = row.fetchone()
        draft.change.freed.append(place)
        if found is None:
            self._free_missing(draft, stream, key, rejected)
            return
        seq, count, gap, size = found
        self._db.execute("DELETE FROM frames WHERE stream = ? AND epoch = ? AND frame = ?", place)
        draft.stored_bytes -= size + ROW_BYTES
        draft.outstanding.pop(key, None)
        if rejected is not None and gap is None:
            draft.add("lost_rejected", count)
            draft.frames.append(self._put_gap(draft, stream, key.epoch, key.frame, seq, Gap("rejected", count)))

    def _free_missing(self, draft: _Draft, stream: StreamState, key: FrameKey, rejected: RejectReason | None) -> None:
        """It is freed already, or is still in a damaged log."""
        seq, count = self._wanted.pop((stream.id, key.epoch, key.frame), (0, 0))
        if count and rejected is not None:
            draft.add("lost_rejected", count)
            draft.frames.append(self._put_gap(draft, stream, key.epoch, key.frame, seq, Gap("rejected", count)))

    # retention

    def _keep_quota(self, draft: _Draft) -> None:
        """The oldest batches of the lowest lane go first; a counted range of positions stays in their place."""
        while draft.stored_bytes > self._limits.quota_bytes:
            firsts = ((-RANK[self._limits.lane(name)], self._first_batch(stream)) for name, stream in draft.streams.items())
            _, oldest = min(((rank, first) for rank, first in firsts if first is not None), default=(0, None))
            if oldest is None:
                return  # only frames are left, and the window bounds them
            _, stream_id, first, count, size = oldest
            self._db.execute("DELETE FROM batches WHERE stream = ? AND first = ?", (stream_id, first))
            self._give_up(stream_id, first, count, "quota")
            draft.stored_bytes -= size + ROW_BYTES
            draft.add("lost_quota", count)
            draft.dropped += count

    def _first_batch(self, stream: StreamState) -> tuple[int, int, int, int, int] | None:
        query = "SELECT commit_number, stream, first, count, length(body) FROM batches WHERE stream = ? ORDER BY first LIMIT 1"
        found: tuple[int, int, int, int, int] | None = self._db.execute(query, (stream.id,)).fetchone()
        return found

    def _give_up(self, stream_id: int, first: int, count: int, reason: str) -> None:
        before = "UPDATE gaps SET count = count + ? WHERE stream = ? AND first + count = ? AND reason = ?"
        if not self._db.execute(before, (count, stream_id, first, reason)).rowcount:
            self._db.execute("INSERT INTO gaps VALUES (?, ?, ?, ?)", (stream_id, first, count, reason))

    # frame

    def _window(self, draft: _Draft, paused: frozenset[str]) -> Window:
        """What is in flight; of paused streams nothing counts: it is at most their share, because no more is formed."""
        out = ((key.stream, size) for key, size in draft.outstanding.items() if key.stream not in paused)
        return Window(self._limits.window_frames, self._limits.window_bytes, out, lane=self._limits.lane)

    @staticmethod
    def _unframed(draft: _Draft, paused: frozenset[str]) -> list[str]:
        return [name for name, stream in draft.streams.items() if stream.framed < stream.last and name not in paused]

    @staticmethod
    def _epochs_in_flight(draft: _Draft) -> dict[str, int]:
        return {key.stream: key.epoch for key in (*draft.unsent, *draft.outstanding)}

    def _is_turn_of(self, stream: StreamState, in_flight: Mapping[str, int]) -> bool:
        """Are all frames of the epochs before the next one's acknowledged? The cloud remembers few epochs of a stream, and takes their
        frames in the order in which they come.
        """
        epoch = stream.next_epoch(self.epoch)
        return in_flight.get(stream.name, epoch) == epoch

    def _may_form(self, stream: StreamState, in_flight: Mapping[str, int]) -> bool:
        return stream.framed < stream.last and self._is_turn_of(stream, in_flight)

    @staticmethod
    def _unsent(draft: _Draft, paused: frozenset[str]) -> set[str]:
        return {key.stream for key in draft.unsent} - paused

    def _fill_window(self, draft: _Draft, paused: frozenset[str]) -> None:
        """First what was formed before, then new frames: the more urgent lanes first, the streams of a lane in turns."""
        window = self._window(draft, paused)
        self._reload_unsent(draft, window, paused)
        in_flight = self._epochs_in_flight(draft)
        names = self._unframed(draft, paused)
        names = window.in_order(names[self._next_stream :] + names[: self._next_stream])
        while names := [name for name in names if self._may_form(draft.streams[name], in_flight) and window.admits(name)]:
            rank = RANK[self._limits.lane(names[0])]
            for name in names:
                if RANK[self._limits.lane(name)] == rank and window.admits(name):
                    out = self._form(draft, draft.streams[name])
                    draft.frames.append(out)
                    in_flight[name] = out.key.epoch
                    window.add(name, len(out.payload))
        self._next_stream = (self._next_stream + 1) % max(1, len(draft.streams))

    def _reload_unsent(self, draft: _Draft, window: Window, paused: frozenset[str]) -> None:
        """Frames of an earlier life, each stream's in order, as long as its stream may have them in flight."""
        waiting: deque[FrameKey] = deque()
        full = set(paused)
        for key in draft.unsent:
            if key.stream in full or not window.admits(key.stream):
                full.add(key.stream)
                waiting.append(key)
            else:
                self._reload(draft, key)
                window.add(key.stream, draft.outstanding[key])
        draft.unsent = waiting

    def _form(self, draft: _Draft, stream: StreamState) -> OutFrame:
        """One frame of what comes next in a stream. Its bytes are written before anybody sends them."""
        first = stream.framed + 1
        span = stream.next_range(self.epoch)
        lost = self._lost_from(draft, stream, first, span.last)
        frame, seq = span.frame + 1, first - span.base
        if lost is not None:
            draft.streams[stream.name] = stream.after_frame(first + lost.count - 1)
            return self._put_gap(draft, stream, span.epoch, frame, seq, lost)
        self._cut_first(draft, stream, first, span.last)
        columns = FrameColumns(readings_max=self._limits.readings_max, bytes_max=self._frame_bytes)
        accepted_at = 0
        for place, at, batch in self._sound_batches(stream, first, span.last):
            if place != first + columns.count or not columns.add(batch):
                break
            accepted_at = accepted_at or at
            draft.stored_bytes -= len(batch.body) + ROW_BYTES
        through = stream.framed + columns.count
        self._db.execute("DELETE FROM batches WHERE stream = ? AND first <= ?", (stream.id, through))
        draft.streams[stream.name] = stream.after_frame(through)
        payload, content_type = compress(columns.payload(epoch=span.epoch, frame=frame, seq=seq))
        out = OutFrame(FrameKey(stream.name, span.epoch, frame), payload, content_type, columns.count, None)
        return self._put(draft, stream, out, seq, accepted_at)

    def _cut_first(self, draft: _Draft, stream: StreamState, first: int, last: int) -> None:
        """Cut the batch at `first`, written under wider bounds, into such as fit into a frame of today's."""
        _, accepted_at, batch = next(self._sound_batches(stream, first, last))
        if len(batch.body) <= self._frame_bytes or batch.count == 1:
            return
        where = (stream.id, first)
        (commit,) = self._db.execute("SELECT commit_number FROM batches WHERE stream = ? AND first = ?", where).fetchone()
        self._db.execute("DELETE FROM batches WHERE stream = ? AND first = ?", where)
        draft.stored_bytes -= len(batch.body) + ROW_BYTES
        self._insert_batches(draft, stream, first, cut(batch, bytes_max=self._frame_bytes), commit, accepted_at)

    def _lost_from(self, draft: _Draft, stream: StreamState, first: int, last: int) -> Gap | None:
        """The range that begins at `first`, ends at `last` at the latest, and was given up or damaged; None where a sound batch begins."""
        given_up = self._db.execute("SELECT count, reason FROM gaps WHERE stream = ? AND first = ?", (stream.id, first)).fetchone()
        if given_up is not None:
            count, reason = given_up
            self._db.execute("DELETE FROM gaps WHERE stream = ? AND first = ?", (stream.id, first))
            if first + count - 1 > last:  # what is beyond belongs to another epoch
                self._db.execute("INSERT INTO gaps VALUES (?, ?, ?, ?)", (stream.id, last + 1, first + count - 1 - last, reason))
            return Gap(reason, min(count, last + 1 - first))
        sound = next(self._sound_batches(stream, first, last), None)
        following = [last + 1] if sound is None else [sound[0]]
        query = "SELECT min(first) FROM gaps WHERE stream = ? AND first > ?"
        following += [row[0] for row in self._db.execute(query, (stream.id, first)) if row[0] is not None]
        count = min(following) - first
        if count == 0:
            return None
        damaged = "FROM batches WHERE stream = ? AND first < ?"
        size = self._db.execute(f"SELECT coalesce(sum(length(body) + {ROW_BYTES}), 0) {damaged}", (stream.id, first + count))
        draft.stored_bytes -= size.fetchone()[0]
        self._db.execute(f"DELETE {damaged}", (stream.id, first + count))
        draft.add("lost_corrupt", count)
        return Gap("corrupt", count)

    def _sound_batches(self, stream: StreamState, first: int, last: int) -> Iterator[tuple[int, int, Batch]]:
        """(first position, accepted at, batch) of rows whose CRC holds, from a position on and through `last`."""
        query = "SELECT first, count, accepted_at, crc, body FROM batches WHERE stream = ? AND first BETWEEN ? AND ? ORDER BY first"
        for place, count, at, crc, body in self._db.execute(query, (stream.id, first, last)):
            if isinstance(body, bytes) and checksum(body, stream.id, place, count) == crc and place + count - 1 <= last:
                yield place, at, Batch(count, body)

    def _put_gap(self, draft: _Draft, stream: StreamState, epoch: int, frame: int, seq: int, gap: Gap) -> OutFrame:
        payload = gap_payload(epoch=epoch, frame=frame, seq=seq, gap=gap)
        out = OutFrame(FrameKey(stream.name, epoch, frame), payload, FRAME_TYPE, gap.count, gap.reason)
        return self._put(draft, stream, out, seq, self._clock.now_ms())

    def _put(self, draft: _Draft, stream: StreamState, out: OutFrame, seq: int, accepted_at: int) -> OutFrame:
        key = out.key
        crc = checksum(out.payload, stream.id, key.epoch, key.frame)
        row = (stream.id, key.epoch, key.frame, seq, out.count, out.gap, accepted_at, out.content_type, crc, out.payload)
        self._db.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        draft.stored_bytes += len(out.payload) + ROW_BYTES
        draft.outstanding[key] = len(out.payload)
        draft.change.formed.append(((stream.id, key.epoch, key.frame), seq, out.count))
        return out

    def _reload(self, draft: _Draft, key: FrameKey) -> None:
        """A frame of an earlier life: the same bytes, or a gap of its number where they are damaged."""
        stream = draft.streams[key.stream]
        place = (stream.id, key.epoch, key.frame)
        query = "SELECT seq, count, crc, payload FROM frames WHERE stream = ? AND epoch = ? AND frame = ?"
        seq, count, crc, payload = self._db.execute(query, place).fetchone()
        if isinstance(payload, bytes) and checksum(payload, *place) == crc:
            draft.frames.append(frame_of(key, payload, count))
            draft.outstanding[key] = len(payload)
            return
        self._db.execute("DELETE FROM frames WHERE stream = ? AND epoch = ? AND frame = ?", place)
        draft.stored_bytes -= len(payload) + ROW_BYTES
        draft.add("lost_corrupt", count)
        draft.frames.append(self._put_gap(draft, stream, key.epoch, key.frame, seq, Gap("corrupt", count)))

    # housekeeping

    def checkpoint(self) -> bool:
        """Copy the write-ahead log into the file and empty it; False where a reader is in the way."""
        self._failpoint("checkpointing")
        busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._sidecar.sync()
        return not busy

    def give_back(self, size: int) -> None:
        """Return free bytes to the file system. As a script, because it frees a page a step and `execute` steps once."""
        self._db.executescript(f"PRAGMA incremental_vacuum({size // self._page_bytes})")

    def free_bytes(self) -> int:
        """Bytes of the file that hold nothing."""
        found: int = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        return found * self._page_bytes

    def wal_bytes(self) -> int:
        """Size of the write-ahead log on the disk."""
        try:
            return self._path.with_name(LOG_NAME + "-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        """Close; SQLite checkpoints and removes the write-ahead log where nobody else reads."""
        try:
            self._db.close()
        finally:
            self._sidecar.close()


def _next_id(streams: Mapping[str, StreamState]) -> int:
    return 1 + max((stream.id for stream in streams.values()), default=0)
