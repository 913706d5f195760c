"""Repairs stamps from before the machine's clock was set, before they are framed.

It does so once the clock is set, a piece a turn.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Final

from edgewake.edge.log.damage.clocks import Clocks, Span, repaired, repaired_body
from edgewake.edge.log.keeping.draft import Draft
from edgewake.edge.log.keeping.rows import LogRows
from edgewake.edge.log.tables.codec import Batch, Reading
from edgewake.edge.log.tables.streams import StreamState
from edgewake.protocol.clock import CLOCK_FLOOR_MS, Clock

log = logging.getLogger("edgewake.log")

REPAIR_BATCHES: Final = 500
"""Batches that are looked at in one turn: some milliseconds."""


class Repair:
    """The repair of one log.

    `clock_wait_s`: how long frames wait for the clock, from when somebody would send them.
    """

    def __init__(
        self, db: sqlite3.Connection, rows: LogRows, clock: Clock, boot: str, clock_wait_s: float
    ) -> None:
        self._db = db
        self._rows = rows
        self._clock = clock
        self._boot = boot
        self._clock_wait_s = clock_wait_s
        self._waiting_since_s: float | None = None
        self._done: dict[int, int] = {}
        """Up to which position each stream was looked at."""
        self._count = 0
        self.clocks = Clocks(tuple(_spans(db)))
        self.at_ms, self._monotonic_ms = 0, 0
        """What the clocks say in the transaction that goes on."""
        self._look()
        self._unset = self.clocks.unset(self._boot, self._monotonic_ms)
        self.is_pending = self._unset is not None
        """May there be stamps to repair?"""

    @property
    def is_due(self) -> bool:
        """Is the clock set, and something to repair?"""
        return self.is_pending and self._clock.now_ms() >= CLOCK_FLOOR_MS

    def holds_frames(self) -> bool:
        """Do frames wait for the repair? If the clock is never set, only for a time.

        It is asked while the uplink sends.
        """
        if not self.is_pending or self.is_due:
            return self.is_pending
        now_s = self._clock.monotonic_s()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        return now_s - self._waiting_since_s < self._clock_wait_s

    def _look(self) -> None:
        self.at_ms, self._monotonic_ms = self._clock.now_ms(), int(1000 * self._clock.monotonic_s())

    def age_ms(self, commit: int, accepted_at: int) -> int:
        """The time since a batch was accepted, whatever the wall clock did meanwhile."""
        return self.clocks.age_ms(commit, accepted_at, self._boot, self.at_ms, self._monotonic_ms)

    def note(self, commit: int) -> Clocks:
        """Read the clocks for a commit, at the beginning of its transaction.

        Pass them to `noted` when it is durable.
        """
        self._look()
        clocks = self.clocks.noted(commit, self._boot, self.at_ms, self._monotonic_ms)
        self.is_pending = self.is_pending or (self._boot != "" and self.at_ms < CLOCK_FLOOR_MS)
        if clocks is not self.clocks:
            span = clocks.spans[-1]
            self._db.execute(
                "INSERT OR REPLACE INTO clocks VALUES (?, ?, ?)",
                (span.commit, span.boot, span.offset_ms),
            )
            self._db.execute(
                "DELETE FROM clocks WHERE commit_number < ?", (clocks.spans[0].commit,)
            )
        return clocks

    def noted(self, clocks: Clocks) -> None:
        """The commit is durable."""
        if clocks is not self.clocks:
            self.clocks = clocks
            if self._boot and self.at_ms < CLOCK_FLOOR_MS:
                self._unset = clocks.spans[-1]

    def in_time(self, readings: Sequence[Reading]) -> Sequence[Reading]:
        """Readings that wait for their commit.

        Those stamped before the clock was set are repaired.
        """
        unset = self._unset
        if (
            unset is None
            or self.at_ms < CLOCK_FLOOR_MS
            or all(t >= CLOCK_FLOOR_MS for t, _ in readings)
        ):
            return readings
        shift_ms = self.at_ms - self._monotonic_ms - unset.offset_ms
        return [
            (repaired(t, unset.offset_ms + self._monotonic_ms, shift_ms), fields)
            for t, fields in readings
        ]

    def go_on(self, draft: Draft) -> bool:
        """Repair some batches, inside a transaction; False where nothing is left."""
        self._look()
        offset_ms = self.at_ms - self._monotonic_ms
        left = REPAIR_BATCHES
        for stream in tuple(draft.streams.values()):
            after = max(stream.framed, self._done.get(stream.id, 0))
            if left > 0 and after < stream.last:
                left -= self._repair(draft, stream, after, left, offset_ms)
        return left <= 0

    def _repair(
        self, draft: Draft, stream: StreamState, after: int, limit: int, offset_ms: int
    ) -> int:
        query = (
            "SELECT first, accepted_at, commit_number FROM batches WHERE stream = ? AND first > ? "
            "ORDER BY first LIMIT ?"
        )
        found = self._db.execute(query, (stream.id, after, limit)).fetchall()
        for first, accepted_at, commit in found:
            self._done[stream.id] = first
            if (
                accepted_at >= CLOCK_FLOOR_MS
                or self.clocks.ran_ms(commit, accepted_at, self._boot, self._monotonic_ms) is None
            ):
                continue
            shift_ms = self.clocks.shift_ms(commit, self._boot, offset_ms)
            if shift_ms is not None and shift_ms > 0:
                self._count += self._rewrite(draft, stream, first, commit, accepted_at, shift_ms)
        if len(found) < limit:
            self._done[stream.id] = stream.last
        return len(found)

    def _rewrite(
        self,
        draft: Draft,
        stream: StreamState,
        first: int,
        commit: int,
        accepted_at: int,
        shift_ms: int,
    ) -> int:
        sound = next(self._rows.sound_batches(stream, first, stream.last), None)
        if sound is None or sound[0] != first:
            return 0  # damaged: it becomes a gap when its turn comes
        batch = sound[2]
        body = repaired_body(batch.body, accepted_at, shift_ms)
        self._rows.replace_batch(
            draft,
            stream,
            first,
            Batch(batch.count, body),
            len(batch.body),
            commit,
            accepted_at + shift_ms,
        )
        return batch.count

    def end(self) -> None:
        """All of it is repaired."""
        self.is_pending, self._waiting_since_s = False, None
        self._done.clear()
        if self._count:
            log.warning(
                "the clock is set: %d readings from before have their times now", self._count,
                extra={"event": "log.stamps_repaired", "readings": self._count},
            )  # fmt: skip
        self._count = 0


def _spans(db: sqlite3.Connection) -> list[Span]:
    """What is not what the log wrote is as if nothing were known."""
    sound = "typeof(boot) = 'text' AND typeof(offset_ms) = 'integer'"
    return [
        Span(*row)
        for row in db.execute(
            f"SELECT commit_number, boot, offset_ms FROM clocks WHERE {sound} ORDER BY "  # noqa: S608
            "commit_number"
        )
    ]
