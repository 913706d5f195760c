"""The event log's rows: what one transaction does. One thread calls it; it starts none.

In: a `Work` (new readings by stream, source positions, freed frames, may frames be formed). Out: a
`Done` (frames to send, readings dropped). `apply` does all of it in one durable transaction or,
raising sqlite3.Error, nothing: the state in memory changes after COMMIT only. Every row is checked
by its CRC before its bytes leave; a damaged one becomes a gap with its count.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from edgewake.edge.log.damage.pages import has_lost_its_header
from edgewake.edge.log.damage.repair import Repair
from edgewake.edge.log.damage.salvage import (
    Salvage,
    SavedRow,
    damaged_logs,
    forget_gaps_of_what_is_there,
    needed,
    set_aside,
    take_over,
    what_it_knew,
)
from edgewake.edge.log.keeping.backlog import backlog, oldest_at
from edgewake.edge.log.keeping.draft import Draft
from edgewake.edge.log.keeping.frame_window import FrameWindow, has_waiting
from edgewake.edge.log.keeping.frames import UNSET_CLOCK, LogFrames
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.loading import load
from edgewake.edge.log.keeping.quota import FULL, AtQuota
from edgewake.edge.log.keeping.retention import Retention
from edgewake.edge.log.keeping.rows import ROW_BYTES, LogRows
from edgewake.edge.log.keeping.work import Done, Failpoint, Limits, Work, no_failpoint
from edgewake.edge.log.opening import begin_epoch, corrected_positions, restore_frames
from edgewake.edge.log.tables.bundle import batches_of
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import (
    ConsumerState,
    Missed,
    RawBatch,
    is_any_of,
    rows_after,
)
from edgewake.edge.log.tables.epoch import (
    LogIdentity,
    LogLocation,
    location_of,
    new_epoch_reason,
)
from edgewake.edge.log.tables.gaps import given_up
from edgewake.edge.log.tables.schema import (
    LOG_NAME,
    PAGE_BYTES,
    VERSION,
    LogDamagedError,
    open_for_writing,
    open_in_memory,
    sound_rows,
    transaction,
)
from edgewake.edge.log.tables.sidecar import Known, Sidecar
from edgewake.edge.log.tables.streams import StreamState
from edgewake.edge.log.tables.tables import (
    read_frames,
    read_identity,
    write_stream,
)
from edgewake.edge.log.wal import WriteAheadLog
from edgewake.protocol.clock import Clock
from edgewake.protocol.names import is_own
from edgewake.protocol.topics import stream_and_thing

log = logging.getLogger("edgewake.log")

KEPT_FREE_BYTES: Final = 16 << 20
"""Free space that the file keeps for the next readings, bytes, unless the disk is full; more goes
back to the file system."""
GIVE_BACK_BYTES: Final = 4 << 20
"""Bytes returned to the file system in one step, which takes some milliseconds."""
SALVAGE_PAGES: Final = 1024
"""Pages of a damaged log that are read in one turn: 1 or 4 MiB, so that no reading waits long
behind it."""


class LogStore:
    """The open log.

    Raises sqlite3.Error from every method; `is_damage` tells those after which the files have to be
    set aside.
    """

    def __init__(
        self,
        directory: Path,
        limits: Limits,
        clock: Clock,
        *,
        boot: str,
        new_epoch: Callable[[int, int], int],
        failpoint: Failpoint = no_failpoint,
        is_durable: bool = True,
    ) -> None:
        """Open or create; `boot` names this start of the machine.

        `new_epoch` gets (previous epoch, now in ms).
        """
        self._path = directory / LOG_NAME
        self._limits = limits
        self._clock = clock
        self._failpoint = failpoint
        self._sidecar = Sidecar(directory)
        self.wal: Final = WriteAheadLog(directory / f"{LOG_NAME}-wal")
        known, was_left_open = self._sidecar.read(), self.wal.file_bytes > 0
        # As a damaged log's, whose header may be lost.
        page_bytes = known.page_size if known and known.page_size else PAGE_BYTES
        if (
            known
            and known.version
            and has_lost_its_header(directory / f"{LOG_NAME}-wal", page_bytes)
        ):
            set_aside(directory)
            raise LogDamagedError("its write-ahead log has no header")
        if is_durable:
            self._db = open_for_writing(
                self._path, version=known.version if known else 0, page_bytes=page_bytes
            )
        else:
            self._db = open_in_memory()
        try:
            self._rows = LogRows(self._db)
            self._repair = Repair(self._db, self._rows, clock, boot, limits.clock_wait_s)
            self._retention = Retention(self._db, self._rows, limits)
            self._frames = LogFrames(self._db, self._rows, self._retention, limits, clock)
            self._window = FrameWindow(limits, self._frames)
            self._open(known, boot, new_epoch, was_left_open)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            self._db.close()
            raise LogDamagedError(f"not what the log wrote: {error!r}") from error
        except BaseException:
            self._db.close()
            raise

    # what it is

    def _open(
        self,
        known: Known | None,
        boot: str,
        new_epoch: Callable[[int, int], int],
        was_left_open: bool,
    ) -> None:
        """`was_left_open`: it has a write-ahead log from before.

        One that is behind its sidecar then was not put back: a frame of it is damaged or cut off,
        and SQLite recovers what comes before.
        """
        damaged = damaged_logs(self._path.parent)
        identity = read_identity(self._db)
        where = self._path if self._path.exists() else self._path.parent
        location = location_of(where, boot=boot)
        # An empty log beside a damaged one goes on from what the damaged one still says, so that
        # no number is given to two readings.
        if identity is None and damaged:
            known = what_it_knew(damaged[-1], known)
        self.epoch_began = new_epoch_reason(identity, known, location, damaged=bool(damaged))
        if self.epoch_began == "restored" and was_left_open:
            # At once: SQLite deletes what it does not see of the write-ahead log.
            set_aside(self._path.parent)
            raise LogDamagedError("its write-ahead log is without commits that the sidecar knows")
        self._number(identity, known, location, new_epoch)
        self._window.epoch = self.epoch
        self._page_bytes: int = self._db.execute("PRAGMA page_size").fetchone()[0]
        restored = self._reconcile(identity, known, is_damaged=bool(damaged))
        self._salvage = Salvage(damaged, self._page_bytes) if damaged or restored else None
        self._state = load(self._db, self._rows, is_salvaging=self.is_salvaging)
        self._failpoint("new log")
        self._rewrite_sidecar()

    def _reconcile(
        self, identity: LogIdentity | None, known: Known | None, *, is_damaged: bool
    ) -> int:
        """Take what the sidecar knows better than the file; the number of frames put back.

        The sidecar gets a line after each commit, which a power cut may take away: then the file is
        newer, and counts alone. Of the same commit the sidecar repeats what a damaged page may have
        taken from the file.
        """
        self._positions: dict[str, str] = dict(
            self._db.execute("SELECT name, position FROM sources")
        )
        here = {frame for frame, _ in read_frames(self._db)}
        is_of_this_commit = _is_of_this_commit(known, identity)
        if known and identity and is_of_this_commit:
            self._positions = corrected_positions(self._db, self._positions, known.sources)
            if known.version and not here <= known.frames.keys():
                raise LogDamagedError("frames that were never formed")
        if known and (is_damaged or is_of_this_commit):
            return restore_frames(self._db, known, here, self._clock.now_ms())
        return 0

    def _number(
        self,
        identity: LogIdentity | None,
        known: Known | None,
        location: LogLocation,
        new_epoch: Callable[[int, int], int],
    ) -> None:
        """Which log, epoch and commit this is from now on; written where an epoch begins."""
        is_known = identity is not None and self.epoch_began != "without its sidecar"
        self.log_id = identity.log_id if identity and is_known else os.urandom(16).hex()
        self.epoch = identity.epoch if identity else 0
        self.commit_found = identity.commit if identity else 0
        """Number of the last commit that was in the file when it was opened; 0: it was made. An
        epoch that began then has one more."""
        self.commit = max(self.commit_found, known.commit if known else 0)
        if self.epoch_began is None:
            return
        known_epoch = known.epoch if known else 0
        ended = identity.epoch if identity else known_epoch
        self.epoch = new_epoch(max(self.epoch, known_epoch), self._clock.now_ms())
        self.commit += 1
        begin_epoch(
            self._db,
            LogIdentity(self.log_id, self.epoch, self.commit, location),
            self.epoch_began,
            ended,
            None if identity else known,
        )

    def _rewrite_sidecar(self) -> None:
        known = Known(self.log_id, self.epoch, self.commit, VERSION, self._page_bytes)
        known.streams = {stream.id: stream for stream in self._state.streams.values()}
        known.counters = self._state.counters
        known.sources = self._positions
        known.frames = dict(read_frames(self._db))
        known.consumers = self._state.consumers
        self._sidecar.rewrite(known)

    # salvage

    @property
    def is_salvaging(self) -> bool:
        """Are rows of a damaged log still being read?

        Until then no frames are formed: an earlier reading may yet be found.
        """
        return self._salvage is not None

    @property
    def has_to_catch_up(self) -> bool:
        """Is a damaged log still to be read, or are stamps to be repaired?"""
        return self.is_salvaging or self._repair.is_due

    def catch_up(self) -> None:
        """Do a part of that, in one transaction."""
        if self.is_salvaging:
            self.salvage()
            return
        draft = self._state.copy()
        with transaction(self._db), sound_rows():
            more = self._repair.go_on(draft)
        self._state = draft
        if not more:
            self._repair.end()

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
        self._failpoint("salvaged")

    def _take_over(self, row: SavedRow) -> bool:
        streams, consumers = self._state.streams.values(), self._state.consumers.values()
        wanted = needed(self._db, row, streams, consumers)
        return wanted is not None and take_over(self._db, row, wanted)

    def _end_salvage(self) -> None:
        """End the salvage: readings that were not found are gaps.

        A range that was given up, but whose readings were found, is not.
        """
        assert self._salvage is not None
        draft = self._state.copy()
        with transaction(self._db):
            forget_gaps_of_what_is_there(self._db)
            for key in draft.unsent:
                self._frames.frame_out(draft, key)
            lost = len(draft.change.formed)
            self._db.executemany(
                "INSERT OR REPLACE INTO counters VALUES (?, ?)", draft.counters.items()
            )
            self._failpoint("salvage ends")
        self._failpoint("salvage ended")
        self._salvage.delete()
        log.warning(
            "a damaged log was saved as far as it could be read; %d frames were not found", lost,
            extra={"event": "log.salvaged", "frames_lost": lost},
        )  # fmt: skip
        self._salvage = None
        self._state = load(self._db, self._rows, is_salvaging=self.is_salvaging)
        self._rewrite_sidecar()

    # what the writer asks

    @property
    def stored_bytes(self) -> int:
        """Bytes that count for the quota."""
        return self._state.stored_bytes

    def can_frame(
        self, paused: frozenset[str] = frozenset(), filling: frozenset[str] = frozenset()
    ) -> bool:
        """Does a stream wait for a frame, and may it have one more in flight?"""
        if self.is_salvaging or self._repair.holds_frames():
            return False
        return self._window.has_room(self._state, paused, filling)

    def admits_any(self, streams: Sequence[str], paused: frozenset[str] = frozenset()) -> bool:
        """Whether one of these streams may have one more frame in flight."""
        return not self.is_salvaging and self._window.admits_any(self._state, streams, paused)

    def has_unframed(self, paused: frozenset[str] = frozenset()) -> bool:
        """Whether anything waits for room in the window."""
        return has_waiting(self._state, paused)

    @property
    def stopped_lanes(self) -> frozenset[Lane]:
        """Lanes that are full and whose sources must wait."""
        return self._retention.stopped_lanes(self._state)

    @property
    def dropping_lanes(self) -> frozenset[Lane]:
        """Lanes that are full and lose what comes next."""
        return self._retention.dropping_lanes(self._state)

    @property
    def stream_names(self) -> frozenset[str]:
        """The names of all streams."""
        return frozenset(self._state.streams)

    @property
    def stream_count(self) -> int:
        """How many streams there are; never fewer."""
        return len(self._state.streams)

    def unframed(self, stream: str) -> int:
        """Readings of a stream that are not framed yet."""
        found = self._state.streams.get(stream)
        return found.last - found.framed if found else 0

    def streams_of(self, lanes: frozenset[Lane]) -> frozenset[str]:
        """The streams of these lanes."""
        return (
            frozenset(name for name in self._state.streams if self._limits.lane(name) in lanes)
            if lanes
            else frozenset()
        )

    def last(self, stream: str) -> int:
        """The last position of a stream; 0 where it has none yet."""
        found = self._state.streams.get(stream)
        return found.last if found else 0

    def consumer(self, name: str) -> ConsumerState | None:
        """A consumer as of its last commit."""
        return self._state.consumers.get(name)

    @property
    def consumers(self) -> Mapping[str, ConsumerState]:
        """All consumers by name."""
        return self._state.consumers

    def register(self, name: str, streams: Sequence[str], *, at_end: bool) -> ConsumerState:
        """The consumer, made where it is new.

        What it did not read before begins at its end, or with the oldest that is still there.
        """
        before = self._state.consumers.get(name, ConsumerState(name, {}))
        followed = [*streams, *(one for one in self._state.streams if is_any_of(one, streams))]
        cursor: dict[str, int] = {}
        for stream in followed:
            known = before.position(stream)
            if known is None:
                known = self.last(stream) if at_end else self._before_oldest(stream)
            cursor[stream] = known
        if name not in self._state.consumers or cursor != before.cursor:
            self.apply(Work(registered=[replace(before, cursor=cursor)]))
        return self._state.consumers[name]

    def _before_oldest(self, stream: str) -> int:
        found = self._state.streams.get(stream)
        if found is None:
            return 0
        first = self._db.execute(
            "SELECT min(first) FROM batches WHERE stream = ?", (found.id,)
        ).fetchone()[0]
        # A damaged row may say anything.
        return found.last if first is None else min(max(0, int(first) - 1), found.last)

    def forget(self, name: str) -> None:
        """Remove a consumer, and the readings that only it needed."""
        if name in self._state.consumers:
            self.apply(Work(forgotten=[name]))

    def read(
        self, stream: str, after: int, *, readings_max: int, bytes_max: int
    ) -> tuple[list[RawBatch | Missed], int]:
        """What a consumer that stands at `after` reads next, and where it stands then.

        Nothing while a damaged log is being read.
        """
        found = self._state.streams.get(stream)
        if found is None or found.last <= after or self.is_salvaging:
            return [], after
        return rows_after(self._db, found, after, readings_max=readings_max, bytes_max=bytes_max)

    @property
    def counters(self) -> Mapping[str, int]:
        """Readings lost, by reason, since the log was made."""
        return self._state.counters

    def backlog(self) -> tuple[int, int]:
        """(readings accepted and not acknowledged, of them in frames)."""
        return backlog(self._db, self._state.streams.values())

    def given_up(self) -> int:
        """Places of lost readings in the `backlog` that the cloud has not been told about."""
        with sound_rows():
            return sum(given_up(self._db).values())

    def oldest_at(self) -> int | None:
        """Wall clock in ms of the oldest unacknowledged acceptance; None: all are acknowledged."""
        return oldest_at(self._db, self._state.streams.values())

    def position(self, source: str) -> str | None:
        """The position of a source when its last readings were accepted.

        From memory: any thread may ask, whatever the disk does.
        """
        return self._positions.get(source)

    # the transaction

    def apply(self, work: Work) -> Done:
        """Do `work` in one durable transaction.

        Frames in the answer may be sent: their bytes are kept.
        """
        draft = self._state.copy()
        commit = self.commit + 1
        with transaction(self._db):
            clocks = self._repair.note(commit)
            for name, readings in work.readings.items():
                self._insert(
                    draft,
                    name,
                    self._repair.in_time(readings),
                    commit,
                    is_promised=name in work.promised,
                )
            self._db.executemany(
                "INSERT OR REPLACE INTO sources VALUES (?, ?)", work.positions.items()
            )
            draft.change.sources |= work.positions
            for name, reasons in work.lost.items():
                for reason, count in reasons.items():
                    self._lose(draft, name, reason, count)
            with sound_rows():
                for key, rejected in work.freed:
                    self._frames.free(draft, key, rejected)
                self._retention.take_consumers(draft, work, commit)
                self._retention.keep_consumer_bytes(draft)
                self._retention.keep_quotas(draft, self._repair.age_ms)
            if work.sending and not self.is_salvaging and not self._repair.holds_frames():
                frame_bytes = min(
                    self._limits.bytes_max, work.frame_bytes or self._limits.bytes_max
                )
                with sound_rows():
                    self._window.fill(draft, work.paused, work.filling, frame_bytes)
            self._write_state(draft, commit)
            self._failpoint("inserted")
        self._failpoint("committed")
        self._state, self.commit = draft, commit
        self._repair.noted(clocks)
        self._say_unset(draft)
        self._positions |= work.positions
        self._sidecar.append(commit, draft.change)
        if self._sidecar.is_due:
            self._rewrite_sidecar()
        return Done(draft.frames, draft.dropped)

    def _say_unset(self, draft: Draft) -> None:
        if UNSET_CLOCK in draft.change.counters:
            log.error(
                "%d readings were framed with times from before the clock was set",
                draft.counters[UNSET_CLOCK],
                extra={"event": "log.unset_clock", "readings": draft.counters[UNSET_CLOCK]},
            )  # fmt: skip

    def _write_state(self, draft: Draft, commit: int) -> None:
        before = self._state.streams
        for name, stream in draft.streams.items():
            if before.get(name) is not stream:
                write_stream(self._db, stream)
                draft.change.streams.append(stream)
        changed = {
            name: value
            for name, value in draft.counters.items()
            if self._state.counters.get(name) != value
        }
        draft.change.counters |= changed
        counted = [
            ("commit", commit),
            *changed.items(),
            *(draft.sums.items() - self._state.sums.items()),
        ]
        self._db.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", counted)

    # accept

    def _insert(
        self,
        draft: Draft,
        name: str,
        readings: Sequence[Reading],
        commit: int,
        *,
        is_promised: bool,
    ) -> None:
        stream = draft.streams.get(name) or StreamState(_next_id(draft.streams), name)
        if self._stays_here(stream):
            self._retention.keep_here(draft, stream, readings, commit, self._repair.at_ms)
            return
        if (
            not is_promised
            and self._limits.quota(name) is AtQuota.DROP_NEWEST
            and self._retention.is_full(draft, name)
        ):
            self._lose(draft, name, FULL, len(readings))
            draft.dropped += len(readings)
            return
        found = batches_of(
            readings, readings_max=self._limits.readings_max, bytes_max=self._limits.bytes_max
        )
        last = self._rows.insert_batches(
            draft, stream, stream.last + 1, found, commit, self._repair.at_ms
        )
        draft.streams[name] = replace(stream, last=last)

    def _lose(self, draft: Draft, name: str, reason: str, count: int) -> None:
        """Give positions to readings that never came here, so that the cloud learns of the loss."""
        stream = draft.streams.get(name) or StreamState(_next_id(draft.streams), name)
        last = stream.last + count
        self._rows.give_up(stream.id, stream.last + 1, count, reason, after=stream.framed)
        draft.add(f"lost_{reason}", count)
        draft.streams[name] = (
            stream.kept_here(last) if self._stays_here(stream) else replace(stream, last=last)
        )

    def _stays_here(self, stream: StreamState) -> bool:
        """Is the stream not sent?

        Readings that waited when it was declared so are still sent, and those that come meanwhile:
        both have their numbers.
        """
        is_local = is_own(stream.name) or stream_and_thing(stream.name)[0] in self._limits.local
        return is_local and stream.framed == stream.last

    # housekeeping

    def checkpoint(self, *, shrink: bool = True) -> bool:
        """Copy the write-ahead log into the file and empty it; False where a reader is in the way.

        It keeps its space without `shrink`.
        """
        self._failpoint("checkpointing")
        how = "TRUNCATE" if shrink else "RESTART"
        busy, *_ = self._db.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        if not busy:
            self.wal.emptied()
        self._sidecar.sync()
        return not busy

    def give_back(self, keep_bytes: int) -> None:
        """Return some of the free space beyond `keep_bytes` to the file system.

        It is a script: SQLite frees one page per step, `execute` steps at once.
        """
        if self.free_bytes() > keep_bytes:
            self._db.executescript(
                f"PRAGMA incremental_vacuum({GIVE_BACK_BYTES // self._page_bytes})"
            )

    def free_bytes(self) -> int:
        """Free bytes of the file."""
        found: int = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        return found * self._page_bytes

    def close(self) -> None:
        """Close; SQLite checkpoints and removes the write-ahead log where nobody else reads."""
        try:
            self._db.close()
        finally:
            self._sidecar.close()


def _next_id(streams: Mapping[str, StreamState]) -> int:
    return 1 + max((stream.id for stream in streams.values()), default=0)


def _is_of_this_commit(known: Known | None, identity: LogIdentity | None) -> bool:
    """Was the sidecar written with the last commit of the log? Always, where the log is new."""
    if identity is None:
        return True
    return known is not None and (known.log_id, known.commit) == (identity.log_id, identity.commit)
