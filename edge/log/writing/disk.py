"""The store on a disk that fails: what is retried, how, and the log's state meanwhile.

* Disk full: the reserve file is given up, so that sending and deleting go on in its space; what
  they free goes back to the disk, and new readings wait until the reserve is back.
* An I/O error: that connection is never used again, for what a failed fsync left behind is unknown.
  The log is reopened, checkpointed (which writes and syncs every page once more), and only its
  commit number decides whether the work is done again.
* Damage: the files are set aside by the opener, a new log and epoch begin at once, and a part of
  what can still be read is carried over at a time.
* A reader that holds the write-ahead log: nothing is written beyond its bound.

Belongs to the writer's thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.damage.salvage import LOG_ERRORS, is_damage, is_full
from edgewake.edge.log.keeping.work import Done, Work
from edgewake.edge.log.state import LogState
from edgewake.edge.log.store import KEPT_FREE_BYTES, LogStore
from edgewake.edge.log.tables.schema import CHECKPOINT_BYTES, sound_rows
from edgewake.edge.log.writing.reserve import Reserve

log = logging.getLogger("edgewake.log")

RETRY_S: Final = 0.5
"""Wait before a full or broken disk is tried again: soon enough to accept within seconds after it
was mended."""
DAMAGE_MAX: Final = 3
"""Damaged logs in a row without a commit between them. More is not a page that broke but a program
or a disk: the agent stops."""

Question: TypeAlias = Callable[[LogStore], Any]


class LogDisk:
    """The writer's store, opened again when its disk fails. Methods raise what cannot be mended."""

    def __init__(
        self,
        opener: Callable[[BaseException | None], LogStore],
        directory: Path,
        config: LogConfig,
        *,
        stopping: threading.Event,
        on_renewed: Callable[[], None],
    ) -> None:
        """`opener` opens the store, again after an error, which it gets.

        `stopping`: a disk that fails is not waited for any more. `on_renewed` is called when
        another log has begun.
        """
        self._opener = opener
        self._reserve = Reserve(
            directory, config.reserve_bytes if config.mode.flags.is_durable else 0
        )
        self._wal_bytes_max = config.wal_bytes_max
        self._stopping = stopping
        self._on_renewed = on_renewed
        self._checkpoint_from = CHECKPOINT_BYTES
        self._salvage_from_s = 0.0
        self._damages = 0
        self.state = LogState.GOOD
        self.store = opener(None)
        if not self._reserve.keep():
            log.warning(
                "no space for a reserve of %d bytes",
                config.reserve_bytes,
                extra={"event": "log.no_reserve"},
            )

    # work

    def apply(self, work: Work) -> Done | None:
        """Do the work; None where the disk does not let us yet.

        It is FULL then, or it may let us the next time.
        """
        before = self.store.commit
        try:
            done = self.store.apply(work)
        except LOG_ERRORS as error:
            if is_full(error):
                self.say(LogState.FULL)
                self._reserve.give_up()
                return None
            self._open_again(error)
        else:
            self._damages = 0
            return done
        # It may have been stored after all.
        return Done((), 0) if self.store.commit_found > before else None

    def make_room(self, work: Work | None) -> Done | None:
        """On a full disk: use the reserve to shrink the write-ahead log and do what makes room.

        None: that did not go either.
        """
        try:
            self.store.checkpoint()
            done = Done((), 0) if work is None else self.store.apply(work)
        except LOG_ERRORS as error:
            if not is_full(error):
                self._open_again(error)
            return None
        # What was deleted is free within the file, and new readings pass through the write-ahead
        # log: that needs the disk's own space.
        self._give_back(keep_bytes=0)
        self._checkpoint(shrink=True)  # only a checkpoint shortens the files themselves
        return done

    def has_reserve(self) -> bool:
        """Is the reserve there (again)?

        Space that new readings took of it could never be freed again.
        """
        return self._reserve.keep()

    def answer(self, question: Question) -> Any:
        """Ask the store; once more where it turned out to be damaged.

        Raises sqlite3.Error, OSError.
        """
        try:
            with sound_rows():
                return question(self.store)
        except LOG_ERRORS as error:
            if not is_damage(error):
                raise
            self._open_again(error)
            return question(self.store)

    def salvage_is_due(self, now_s: float) -> bool:
        """Is a part of a damaged log to be carried over?"""
        return self.store.has_to_catch_up and now_s >= self._salvage_from_s

    def carry_over(self, now_s: float) -> bool:
        """That part, if there is one. Is all of it here now? Then consumers go on."""
        if not self.salvage_is_due(now_s):
            return False
        try:
            self.store.catch_up()
        except LOG_ERRORS as error:
            self._salvage_from_s = now_s + RETRY_S
            if not is_full(error):
                self._open_again(error)
            return False
        self.keep_short()
        return not self.store.is_salvaging

    # the write-ahead log

    def is_held_by_reader(self) -> bool:
        """Does a reader's snapshot keep the write-ahead log from shrinking?

        Then nothing is written until it is gone.
        """
        too_long = self.store.wal.reaches(self._wal_bytes_max)
        if too_long:
            self.say(LogState.WAITING)
        elif self.state is LogState.WAITING:
            self.say(LogState.GOOD)
        return too_long

    def keep_short(self) -> None:
        """After each commit: checkpoint where there is enough."""
        if self.store.wal.reaches(self._checkpoint_from):
            self._checkpoint()

    def upkeep(self) -> None:
        """Shrink files while nothing else is to do, a piece a turn: no reading waits long."""
        if self.store.wal.reaches(CHECKPOINT_BYTES):
            self._checkpoint()
        if self.state is not LogState.GOOD:
            return
        self._reserve.keep()
        self._give_back(keep_bytes=KEPT_FREE_BYTES)

    def _give_back(self, *, keep_bytes: int) -> None:
        try:
            self.store.give_back(keep_bytes)
        except LOG_ERRORS as error:
            if not is_full(error):
                self._open_again(error)

    def _checkpoint(self, *, shrink: bool = False) -> None:
        """Copy and empty the write-ahead log; shorten a file that a reader made longer than usual.

        Where a reader is in the way, it is not tried again before the log has grown as much once
        more.
        """
        try:
            done = self.store.checkpoint(
                shrink=shrink or self.store.wal.file_bytes > 2 * CHECKPOINT_BYTES
            )
        except LOG_ERRORS as error:
            if is_full(error):
                return
            self._open_again(error)
            done = True
        self._checkpoint_from = CHECKPOINT_BYTES + (0 if done else self.store.wal.file_bytes)

    # what it says, and its end

    def say(self, state: LogState) -> None:
        """Set the log's state from now on."""
        if state is not self.state:
            level = logging.INFO if state is LogState.GOOD else logging.ERROR
            log.log(level, "the event log is %s", state, extra={"event": f"log.{state}"})
        self.state = state

    def close(self) -> None:
        """Close the store. It raises nothing: all that was accepted is durable."""
        try:
            self.store.close()
        except LOG_ERRORS as error:
            log.error("closing the event log: %s", error, extra={"event": "log.close_failed"})

    def _open_again(self, error: Exception) -> None:
        """Never try again on the same connection.

        Blocks until the log can be opened, or it is stopped.
        """
        log.error("the event log's disk failed: %s", error, extra={"event": "log.io_error"})
        self.say(LogState.FAILING)
        with contextlib.suppress(*LOG_ERRORS):
            self.store.close()
        why: BaseException | None = error
        log_id = self.store.log_id
        while True:
            self._damages += why is not None and is_damage(why)
            if self._damages > DAMAGE_MAX:
                raise error
            try:
                self.store = self._opened(why)
            except LOG_ERRORS as again:
                log.error(
                    "the event log cannot be opened yet: %s", again, extra={"event": "log.io_error"}
                )
                if self._stopping.is_set():
                    raise
                why = again if is_damage(again) else None
                self._stopping.wait(RETRY_S)
            else:
                if self.store.log_id != log_id:
                    self._on_renewed()
                return

    def _opened(self, why: BaseException | None) -> LogStore:
        store = self._opener(why)
        try:
            store.checkpoint()
        except BaseException:
            with contextlib.suppress(*LOG_ERRORS):
                store.close()
            raise
        return store
