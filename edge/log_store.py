"""The event log's rows: what one transaction does. One thread calls it; it starts none.

In: a `Work` (new readings by stream, source positions, freed frames, may frames be formed). Out: a `Done` (frames to send, readings
dropped). `apply` does all of it in one durable transaction or, raising sqlite3.Error, nothing: the state in memory changes after COMMIT
only. Every row is checked by its CRC before its bytes leave; a damaged one becomes a gap with its count.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from edgewake.edge.lanes import RANK, Lane, Window
from edgewake.edge.log_codec import Batch, FrameColumns, Reading, batches, checksum, cut, gap_payload
from edgewake.edge.log_epoch import LogIdentity, Mark, MarkFile, Place, place_of, why_new
from edgewake.edge.log_schema import LOG_NAME, open_for_writing
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frame import FRAME_TYPE, Gap, compress

ROW_BYTES: Final = 64
"""What a row costs beside its body, for the quota."""
Failpoint = Callable[[str], None]
"""Called with the name of a place where a crash must be survivable; does nothing outside tests."""


def no_failpoint(_place: str) -> None:
    """Nothing happens."""


@dataclass(frozen=True, slots=True)
class FrameKey:
    """What an acknowledgement names."""

    stream: str
    epoch: int
    frame: int


@dataclass(frozen=True, slots=True)
class OutFrame:
    """A frame as it is sent, the same bytes at every attempt."""

    key: FrameKey
    payload: bytes
    content_type: str
    count: int
    """Readings in it, or lost."""
    gap: str | None
    """Why they were lost; None where it holds them."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """One stream's counters; see log_schema."""

    id: int
    name: str
    last: int = 0
    framed: int = 0
    base: int = 0
    frame: int = 0

    def checksum(self) -> int:
        """CRC of the row."""
        return checksum(b"", self.id, self.name, self.last, self.framed, self.base, self.frame)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of rows and frames; units as in LogConfig and UplinkConfig."""

    quota_bytes: int
    readings_max: int
    bytes_max: int
    window_frames: int
    window_bytes: int
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    """Of the streams that are not `normal`."""

    def lane(self, stream: str) -> Lane:
        """A stream's lane."""
        return self.lanes.get(stream, Lane.NORMAL)


@dataclass(frozen=True, slots=True)
class Work:
    """What a transaction has to do."""

    readings: Mapping[str, Sequence[Reading]] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)
    freed: Sequence[tuple[FrameKey, RejectReason | None]] = ()
    sending: bool = False
    """May frames be formed? Only while somebody sends them: a backlog that waits makes fuller frames."""
    paused: frozenset[str] = frozenset()
    """Streams of which no more frames are formed; those that are out do not count for the window, so that the others have it whole."""
    frame_bytes: int | None = None
    """Bytes of the frames formed now, where the link or the broker takes less than the configuration allows."""

    @property
    def empty(self) -> bool:
        """Is there nothing to write?"""
        return not (self.readings or self.positions or self.freed)


@dataclass(frozen=True, slots=True)
class Done:
    """What a transaction did."""

    frames: Sequence[OutFrame]
    dropped: int
    """Readings that the quota cost."""


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

    def copy(self) -> _Draft:
        return _Draft(dict(self.streams), dict(self.outstanding), deque(self.unsent), self.stored_bytes, dict(self.counters))

    def add(self, name: str, count: int) -> None:
        self.counters[name] = self.counters.get(name, 0) + count


class LogStore:
    """The open log. Raises sqlite3.Error from every method; `identity` says what it is."""

    def __init__(
        self, directory: Path, limits: Limits, clock: Clock, *, new_epoch: Callable[[int, int], int], failpoint: Failpoint = no_failpoint
    ) -> None:
        """Open or create; `new_epoch` gets (previous epoch, now in ms)."""
        self._path = directory / LOG_NAME
        self._limits = limits
        self._clock = clock
        self._failpoint = failpoint
        self._mark = MarkFile(directory)
        self._db = open_for_writing(self._path)
        try:
            self._path.chmod(0o600)
            self.epoch_began = self._begin(new_epoch)
            self._state = self._load()
        except BaseException:
            self._db.close()
            raise
        self._next_stream = 0
        self._frame_bytes = limits.bytes_max

    # what it is

    def _identity(self) -> LogIdentity | None:
        meta = dict(self._db.execute("SELECT name, value FROM meta"))
        if not meta:
            return None
        commit = self._db.execute("SELECT value FROM counters WHERE name = 'commit'").fetchone()[0]
        return LogIdentity(meta["log_id"], int(meta["epoch"]), commit, Place(meta["machine"], int(meta["device"]), int(meta["inode"])))

    def _begin(self, new_epoch: Callable[[int, int], int]) -> str | None:
        """Begin a new epoch where one is due; why, or None. The log first, its mark second: a crash between makes no old log look new."""
        identity, mark, place = self._identity(), self._mark.read(), place_of(self._path)
        why = why_new(identity, mark, place)
        self.log_id = identity.log_id if identity and why != "without its mark" else secrets.token_hex(16)
        self.epoch = identity.epoch if identity else 0
        self.commit = max(identity.commit if identity else 0, mark.commit if mark else 0)
        if why is not None:
            self.epoch = new_epoch(max(self.epoch, mark.epoch if mark else 0), self._clock.now_ms())
            self.commit += 1
            self._write_identity(place)
        self._mark.write(Mark(self.log_id, self.epoch, self.commit))
        self._mark.sync()
        return why

    def _write_identity(self, place: Place) -> None:
        """Frames that were formed keep their epoch and number; what was not framed is counted anew from here."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        values = {"log_id": self.log_id, "epoch": self.epoch, "machine": place.machine, "device": place.device, "inode": place.inode}
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(name, str(value)) for name, value in values.items()])
        db.execute("INSERT OR REPLACE INTO counters VALUES ('commit', ?)", (self.commit,))
        for row in db.execute("SELECT id, name, last, framed, base, frame FROM streams").fetchall():
            stream = StreamState(*row)
            self._write_stream(replace(stream, base=stream.framed, frame=0))
        db.execute("COMMIT")

    def _load(self) -> _Draft:
        db = self._db
        streams = {}
        for *row, crc in db.execute("SELECT id, name, last, framed, base, frame, crc FROM streams"):
            stream = StreamState(*row)
            if stream.checksum() != crc:
                raise sqlite3.DatabaseError(f"counters of stream {stream.name!r} are malformed")
            streams[stream.name] = stream
        names = {stream.id: stream.name for stream in streams.values()}
        keys = db.execute("SELECT stream, epoch, frame FROM frames ORDER BY epoch, frame, stream").fetchall()
        unsent = deque(FrameKey(names[stream], epoch, frame) for stream, epoch, frame in keys)
        stored = 0
        for table, column in (("batches", "body"), ("frames", "payload")):
            stored += db.execute(f"SELECT coalesce(sum(length({column}) + {ROW_BYTES}), 0) FROM {table}").fetchone()[0]  # noqa: S608
        counters = dict(db.execute("SELECT name, value FROM counters WHERE name <> 'commit'"))
        return _Draft(streams, {}, unsent, stored, counters)

    # what the writer asks

    @property
    def stored_bytes(self) -> int:
        """Bytes that count for the quota."""
        return self._state.stored_bytes

    def can_frame(self, paused: frozenset[str] = frozenset()) -> bool:
        """Is there a stream that waits for a frame and may have one more in flight?"""
        state = self._state
        window = self._window(state, paused)
        return any(map(window.admits, {*self._unframed(state, paused), *self._unsent(state, paused)}))

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
        return min((at for at in found if at is not None), default=None)

    def position(self, source: str) -> str | None:
        """How far a source had read when its last readings were accepted."""
        row = self._db.execute("SELECT position FROM sources WHERE name = ?", (source,)).fetchone()
        return None if row is None else str(row[0])

    # the transaction

    def apply(self, work: Work) -> Done:
        """Do `work` in one durable transaction. Frames in the answer may be sent: their bytes are kept."""
        draft = self._state.copy()
        commit = self.commit + 1
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for name, readings in work.readings.items():
                self._insert(draft, name, readings, commit)
            for source, position in work.positions.items():
                self._db.execute("INSERT OR REPLACE INTO sources VALUES (?, ?)", (source, position))
            for key, rejected in work.freed:
                self._free(draft, key, rejected)
            self._keep_quota(draft)
            if work.sending:
                self._frame_bytes = min(self._limits.bytes_max, work.frame_bytes or self._limits.bytes_max)
                self._fill_window(draft, work.paused)
            self._write_state(draft, commit)
            self._failpoint("inserted")
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._failpoint("committed")
        self._state, self.commit = draft, commit
        self._mark.write(Mark(self.log_id, self.epoch, commit))
        done = Done(draft.frames, draft.dropped)
        draft.frames, draft.dropped = [], 0
        return done

    def _write_state(self, draft: _Draft, commit: int) -> None:
        before = self._state.streams
        for name, stream in draft.streams.items():
            if before.get(name) is not stream:
                self._write_stream(stream)
        changed = [(name, value) for name, value in draft.counters.items() if self._state.counters.get(name) != value]
        self._db.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", [("commit", commit), *changed])

    def _write_stream(self, stream: StreamState) -> None:
        row = (stream.id, stream.name, stream.last, stream.framed, stream.base, stream.frame, stream.checksum())
        self._db.execute("INSERT OR REPLACE INTO streams VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    # accept

    def _insert(self, draft: _Draft, name: str, readings: Sequence[Reading], commit: int) -> None:
        stream = draft.streams.get(name) or StreamState(id=len(draft.streams) + 1, name=name)
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

    # free

    def _free(self, draft: _Draft, key: FrameKey, rejected: RejectReason | None) -> None:
        """The cloud has the frame, or refused it for ever; then its number is taken by a gap, or everything after it would wait for it."""
        stream = draft.streams[key.stream]
        place = (stream.id, key.epoch, key.frame)
        row = self._db.execute("SELECT seq, count, gap, length(payload) FROM frames WHERE stream = ? AND epoch = ? AND frame = ?", place)
        found = row.fetchone()
        if found is None:
            return
        seq, count, gap, size = found
        self._db.execute("DELETE FROM frames WHERE stream = ? AND epoch = ? AND frame = ?", place)
        draft.stored_bytes -= size + ROW_BYTES
        draft.outstanding.pop(key, None)
        if rejected is not None and gap is None:
            draft.add("lost_rejected", count)
            draft.frames.append(self._put_gap(draft, stream, key.epoch, key.frame, seq, Gap("rejected", count)))

    # retention

    def _keep_quota(self, draft: _Draft) -> None:
        """The oldest batches of all streams go first; a counted range of positions stays in their place."""
        while draft.stored_bytes > self._limits.quota_bytes:
            oldest = min(filter(None, map(self._first_batch, draft.streams.values())), default=None)
            if oldest is None:
                return  # only frames are left, and the window bounds them
            _, stream_id, first, count, size = oldest
            self._db.execute("DELETE FROM batches WHERE stream = ? AND first = ?", (stream_id, first))
            self._give_up(stream_id, first, count)
            draft.stored_bytes -= size + ROW_BYTES
            draft.add("lost_quota", count)
            draft.dropped += count

    def _first_batch(self, stream: StreamState) -> tuple[int, int, int, int, int] | None:
        query = "SELECT commit_number, stream, first, count, length(body) FROM batches WHERE stream = ? ORDER BY first LIMIT 1"
        found: tuple[int, int, int, int, int] | None = self._db.execute(query, (stream.id,)).fetchone()
        return found

    def _give_up(self, stream_id: int, first: int, count: int) -> None:
        before = "UPDATE gaps SET count = count + ? WHERE stream = ? AND first + count = ? AND reason = 'quota'"
        if not self._db.execute(before, (count, stream_id, first)).rowcount:
            self._db.execute("INSERT INTO gaps VALUES (?, ?, ?, 'quota')", (stream_id, first, count))

    # frame

    def _window(self, draft: _Draft, paused: frozenset[str]) -> Window:
        """What is in flight; of paused streams nothing counts: it is at most their share, because no more is formed."""
        out = ((key.stream, size) for key, size in draft.outstanding.items() if key.stream not in paused)
        return Window(self._limits.window_frames, self._limits.window_bytes, out, lane=self._limits.lane)

    @staticmethod
    def _unframed(draft: _Draft, paused: frozenset[str]) -> list[str]:
        return [name for name, stream in draft.streams.items() if stream.framed < stream.last and name not in paused]

    @staticmethod
    def _unsent(draft: _Draft, paused: frozenset[str]) -> set[str]:
        return {key.stream for key in draft.unsent} - paused

    def _fill_window(self, draft: _Draft, paused: frozenset[str]) -> None:
        """First what was formed before, then new frames: the more urgent lanes first, the streams of a lane in turns."""
        window = self._window(draft, paused)
        self._reload_unsent(draft, window, paused)
        names = self._unframed(draft, paused)
        names = window.in_order(names[self._next_stream :] + names[: self._next_stream])
        while names := [name for name in names if draft.streams[name].framed < draft.streams[name].last and window.admits(name)]:
            rank = RANK[self._limits.lane(names[0])]
            for name in names:
                if RANK[self._limits.lane(name)] == rank and window.admits(name):
                    out = self._form(draft, draft.streams[name])
                    draft.frames.append(out)
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
        lost = self._lost_from(draft, stream, first)
        frame, seq = stream.frame + 1, first - stream.base
        if lost is not None:
            draft.streams[stream.name] = replace(stream, framed=first + lost.count - 1, frame=frame)
            return self._put_gap(draft, stream, self.epoch, frame, seq, lost)
        self._cut_first(draft, stream, first)
        columns = FrameColumns(readings_max=self._limits.readings_max, bytes_max=self._frame_bytes)
        accepted_at = 0
        for place, at, batch in self._sound_batches(stream, first):
            if place != first + columns.count or not columns.add(batch):
                break
            accepted_at = accepted_at or at
            draft.stored_bytes -= len(batch.body) + ROW_BYTES
        through = stream.framed + columns.count
        self._db.execute("DELETE FROM batches WHERE stream = ? AND first <= ?", (stream.id, through))
        draft.streams[stream.name] = replace(stream, framed=through, frame=frame)
        payload, content_type = compress(columns.payload(epoch=self.epoch, frame=frame, seq=seq))
        out = OutFrame(FrameKey(stream.name, self.epoch, frame), payload, content_type, columns.count, None)
        return self._put(draft, stream, out, seq, accepted_at)

    def _cut_first(self, draft: _Draft, stream: StreamState, first: int) -> None:
        """Cut the batch at `first`, written under wider bounds, into such as fit into a frame of today's."""
        _, accepted_at, batch = next(self._sound_batches(stream, first))
        if len(batch.body) <= self._frame_bytes or batch.count == 1:
            return
        where = (stream.id, first)
        (commit,) = self._db.execute("SELECT commit_number FROM batches WHERE stream = ? AND first = ?", where).fetchone()
        self._db.execute("DELETE FROM batches WHERE stream = ? AND first = ?", where)
        draft.stored_bytes -= len(batch.body) + ROW_BYTES
        self._insert_batches(draft, stream, first, cut(batch, bytes_max=self._frame_bytes), commit, accepted_at)

    def _lost_from(self, draft: _Draft, stream: StreamState, first: int) -> Gap | None:
        """The range that begins at `first` and was given up or damaged; None where a sound batch begins there."""
        given_up = self._db.execute("SELECT count, reason FROM gaps WHERE stream = ? AND first = ?", (stream.id, first)).fetchone()
        if given_up is not None:
            self._db.execute("DELETE FROM gaps WHERE stream = ? AND first = ?", (stream.id, first))
            return Gap(given_up[1], given_up[0])
        sound = next(self._sound_batches(stream, first), None)
        following = [stream.last + 1] if sound is None else [sound[0]]
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

    def _sound_batches(self, stream: StreamState, first: int) -> Iterator[tuple[int, int, Batch]]:
        """(first position, accepted at, batch) of rows whose CRC holds, from a position on."""
        query = "SELECT first, count, accepted_at, crc, body FROM batches WHERE stream = ? AND first >= ? ORDER BY first"
        for place, count, at, crc, body in self._db.execute(query, (stream.id, first)):
            if isinstance(body, bytes) and checksum(body, stream.id, place, count) == crc and place + count - 1 <= stream.last:
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
        return out

    def _reload(self, draft: _Draft, key: FrameKey) -> None:
        """A frame of an earlier life: the same bytes, or a gap of its number where they are damaged."""
        stream = draft.streams[key.stream]
        place = (stream.id, key.epoch, key.frame)
        query = "SELECT seq, count, gap, content_type, crc, payload FROM frames WHERE stream = ? AND epoch = ? AND frame = ?"
        seq, count, gap, content_type, crc, payload = self._db.execute(query, place).fetchone()
        if isinstance(payload, bytes) and checksum(payload, *place) == crc:
            draft.frames.append(OutFrame(key, payload, content_type, count, gap))
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
        self._mark.sync()
        return not busy

    def give_back(self, pages: int) -> None:
        """Return free pages to the file system. As a script, because it frees a page a step and `execute` steps once."""
        self._db.executescript(f"PRAGMA incremental_vacuum({pages})")

    def free_pages(self) -> int:
        """Pages of the file that hold nothing."""
        found: int = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        return found

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
            self._mark.close()
