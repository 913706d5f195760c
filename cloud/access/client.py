"""A client of the event stream: it is told the gaps, catches up from its own place, and joins the shared view.

    started ──▶ behind (its own reader: older records, then the tails) ──▶ live (the view's chunks, the same bytes for all)
                   ▲                                                        │
                   └──────────── was slow: its next chunk is gone ──────────┘

`next` gives the bytes to write; the caller writes them and asks again, so a client that does not take them costs nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from edgewake.cloud.access.sse import HEARTBEAT, Encoder
from edgewake.cloud.log.hub import Hub, Passed
from edgewake.cloud.log.reader import Reader
from edgewake.cloud.log.subscription import OnGap, Plan, Positions, Start
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

AGAIN_S: Final = 0.5
"""Pause after older records could not be had."""
TELL_S: Final = 1.0
"""A place that only filtered-out events moved is told at most so often."""


class Client:
    """One reader of the event stream. `close` it."""

    def __init__(self, hub: Hub, plan: Plan, start: Start, *, on_gap: OnGap, checkpoint_events: bool, clock: Clock) -> None:
        self.ends = start.ends
        """Said to end: at the next chunk's border."""
        self.is_behind = start.how != "latest"
        self._encoder = Encoder(hub.codec, plan, checkpoint_events=checkpoint_events)
        self.view = hub.view(plan, self._encoder.name, self._encoder)
        self.view.clients.add(self)
        self._hub = hub
        self._start = start
        self._on_gap = on_gap
        self._clock = clock
        self._reader: Reader | None = hub.reader(plan, start.positions) if self.is_behind else None
        self._number = self.view.end
        self._positions: Positions = start.positions
        self._wake: asyncio.Future[None] | None = None
        self._heartbeat_due = False
        self._told_s = clock.monotonic_s()

    def first(self) -> bytes:
        """What is said first: gaps, and the place, so that a client has a cursor before the first event."""
        if not self.is_behind:
            self._positions = self.view.positions
            self._number = self.view.end
        gaps = b"".join(self._encoder.gap(gap) for gap in self._start.gaps)
        return gaps or self._encoder.checkpoint(self._positions)

    def cursor(self) -> str:
        """Where it begins."""
        return self._encoder.cursor(self._start.positions if self.is_behind else self.view.positions)

    async def next(self) -> bytes | None:
        """The next bytes, a heartbeat when one is due, None at the end."""
        while not self.ends and not self.view.closed:
            if self._heartbeat_due:
                self._heartbeat_due = False
                return HEARTBEAT
            chunk = await self._catch_up() if self._reader is not None else self._live()
            if chunk:
                return chunk
            if chunk is None:
                await self._wait()
        return None

    def wake(self) -> None:
        """Something came, or changed."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def beat(self) -> None:
        """Say that a heartbeat is due."""
        self._heartbeat_due = True
        self.wake()

    def end(self) -> None:
        """End at the next chunk's border."""
        self.ends = True
        self.wake()

    def close(self) -> None:
        """Leave the view."""
        self.view.clients.discard(self)
        self.view.waiting.discard(self)
        self.view.behind.discard(self)
        self._hub.leave(self.view, self._encoder.name)

    def _live(self) -> bytes | None:
        """The view's next chunk; None at its end; empty when it is gone and the way goes on behind."""
        if self._number >= self.view.end:
            self.view.waiting.add(self)
            return None
        if self._number < self.view.start:
            self._reader = self._hub.reader(self.view.plan, self._positions)
            self.is_behind = True
            return b""
        chunk, self._number, self._positions = self.view.chunk(self._number)
        return chunk

    async def _catch_up(self) -> bytes | None:
        """A chunk of its own; None where the view must move first; empty when there is nothing to say yet."""
        assert self._reader is not None
        if self._reader.is_at(self.view.positions):
            return self._join()
        try:
            passed = await self._hub.next(self._reader, self._on_gap, until=self.view.positions)
        except Unavailable:
            await self._pause()
            return b""
        if passed.batch is None and not passed.gaps:
            # Ahead of this server's view: its Kafka reader has not come so far yet.
            self.view.behind.add(self)
            return None
        await asyncio.sleep(0)  # neither cached blocks nor a willing socket ever wait: others must have their turn
        return self._encoded(passed)

    def _encoded(self, passed: Passed) -> bytes:
        assert self._reader is not None
        positions = self._reader.positions
        if passed.gaps:
            self.ends = self._on_gap is OnGap.STOP
            return b"".join(self._encoder.gap(gap) for gap in passed.gaps)
        assert passed.batch is not None
        chunk = self._encoder.events(passed.batch)
        now = self._clock.monotonic_s()
        if passed.batch.untold and now - self._told_s >= TELL_S:
            self._told_s = now
            chunk += self._encoder.checkpoint(positions)
        return chunk

    def _join(self) -> bytes:
        """Go on with the view; the place is told once more, since events may have been filtered out on the way."""
        self._reader = None
        self.is_behind = False
        self._number = self.view.end
        self._positions = self.view.positions
        return self._encoder.checkpoint(self._positions)

    async def _wait(self) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S):
                await self._wait()
