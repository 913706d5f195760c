"""One client's event stream: what is written to it next.

It begins with the gaps, or with the cursor where it begins, so that a client has one before its
first event. Then come chunks, the same bytes for all who stand at the same place. `next` never
waits: it gives framed bytes, or None, and `wake` is called when to ask again.

Progress that only filtered-out events made is announced in place of the heartbeat, so that a radio
may sleep in between. A heartbeat is a comment, which a browser's EventSource hides, or where it is
asked for an event named `heartbeat`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from edgewake.cloud.access import sse
from edgewake.cloud.access.connection import http_chunk
from edgewake.cloud.access.session_state import Change, State, after
from edgewake.cloud.access.slow.treated import Slots, Treated
from edgewake.cloud.access.slow.watch import SlowWatch
from edgewake.cloud.access.sse import Encoder
from edgewake.cloud.held_bytes import Account
from edgewake.cloud.log.following.behind import Behind
from edgewake.cloud.log.following.cohort import Lost
from edgewake.cloud.log.following.subscriber import ViewEnded, ViewFailed
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.request import OnGap
from edgewake.cloud.log.subscription import Plan, Positions, Start
from edgewake.cloud.log.wanted import FREE, Pace
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

AGAIN_S: Final = 0.5
"""Seconds to wait after Kafka could not say what is kept of a lost range."""
JOIN_BYTES: Final = 64 * 1024
"""Bytes up to which available chunks are joined for one write."""
FAILED_RETRY_MS: Final = 30_000
"""After its subscription failed a client would fail at the same event again: it should not try each
second."""


class Session:
    """`close` it. Raises Full or Unavailable where the hub cannot serve the plan."""

    def __init__(
        self,
        hub: Hub,
        plan: Plan,
        start: Start,
        *,
        on_gap: OnGap,
        checkpoint_events: bool,
        heartbeat_events: bool,
        pace: Pace = FREE,
        account: Account,
        clock: Clock,
        on_change: Callable[[State, State], None],
        on_superseded: Callable[[int], None],
    ) -> None:
        """Make a session that is to be started.

        `on_change` is given the states before and after each change, `on_superseded` how many
        events more conflation left out.
        """
        self.state = State.STARTING
        self.wake: Callable[[], None] = lambda: None
        self.has_failed = False
        self._hub = hub
        self._plan = plan
        self._on_gap = on_gap
        self._checkpoint_events = checkpoint_events
        self._heartbeat_events = heartbeat_events
        self._clock = clock
        self._on_change = on_change
        self._on_superseded = on_superseded
        self._encoder = Encoder(hub.codec, plan, hub.traces)
        self._subscriber = Treated(
            hub,
            plan,
            self._encoder,
            start.positions,
            self._woken,
            pace=pace,
            account=account,
            clock=clock,
        )
        self._waiting: list[bytes] = []
        """Framed bytes that come before the next chunk: at most a gap for each partition, and a few
        events of our own."""
        self._gap_task: asyncio.Task[None] | None = None
        self._heartbeat_is_due = False
        self._announced: Positions | None = None
        """The position of the last cursor that the client was given; None after events, which end
        where they end."""
        self._start = start

    @property
    def place(self) -> object:
        """Equal for all who stand at the same place of the same view."""
        return self._subscriber.place

    @property
    def is_calm(self) -> bool:
        """Has its announced cursor been written? Then the client has it."""
        return not self._waiting and self._is_movable

    def cursor(self) -> str:
        """The cursor behind the last event that was sent."""
        return self._encoder.cursor(self._subscriber.positions)

    def start(self, *, retry_ms: int) -> None:
        """Write the retry time, the gaps or the cursor, and warnings about suspicious filters."""
        gaps = b"".join(self._encoder.gap(gap) for gap in self._start.gaps)
        warnings = b"".join(map(sse.warning, self._plan.warnings(self._hub.catalogue.field_kinds)))
        self._put(sse.HEARTBEAT + sse.retry(retry_ms) + (gaps or self._checkpoint()) + warnings)
        self._change(Change.STARTED)
        if self._start.ends:
            self.end()

    def next(self) -> bytes | None:
        """The next bytes to write, framed.

        None when there are none now, or the session is over (`state`).
        """
        if self._waiting:
            self._heartbeat_is_due = False  # any bytes are a sign of life
            return self._waiting.pop(0)
        if self.state not in (State.BEHIND, State.LIVE):
            return None
        found = None if self._gap_task is not None else self._next_chunks()
        if found is None and self._heartbeat_is_due and self.state in (State.BEHIND, State.LIVE):
            found = http_chunk(self._sign_of_life())
        if found is not None:
            self._heartbeat_is_due = False
        return found

    def beat(self) -> None:
        """The next bytes, whatever they are, or a comment, since a heartbeat is due."""
        self._heartbeat_is_due = True
        self._woken()

    def say(self, words: bytes) -> None:
        """Write an event of our own before whatever comes next."""
        self._put(words)

    def tell_behind(self, watch: SlowWatch) -> None:
        """Announce how far it is behind, if it is, and what is done about it."""
        found = self.behind()
        if found.records:
            events = self._subscriber.likely_events(found.records)
            self._put(sse.behind(watch.told(found, self._clock.monotonic_s(), events)))

    def behind(self) -> Behind:
        """How far it is behind; nothing where its view ends at the next event."""
        return self._subscriber.behind(self._subscriber.positions)

    def skip(self) -> int:
        """Jump to the live end; returns the number of gaps announced.

        None where it cannot be moved now.
        """
        if not self._is_movable:
            return 0
        gaps = self._subscriber.skip_to_live(self._subscriber.positions)
        for gap in gaps:
            self._put(self._encoder.gap(gap))
        if gaps:
            self._announced = self._subscriber.positions
        return len(gaps)

    def conflate(self, slots: Slots, client: str) -> bool:
        """Give the latest of each thing alone until that is all there is.

        False where that cannot be done now.
        """
        return self._is_movable and self._subscriber.conflate(
            self._subscriber.positions, slots, client
        )

    @property
    def _is_movable(self) -> bool:
        return self._gap_task is None and self.state in (State.BEHIND, State.LIVE)

    def end(self) -> None:
        """End once the queued bytes are written."""
        self._change(Change.END)
        self._woken()

    def close(self) -> None:
        """Leave the hub."""
        if self.state is not State.GONE:
            self._change(Change.LEFT)
            if self._gap_task is not None:
                self._gap_task.cancel()
            self._subscriber.close()

    def _next_chunks(self) -> bytes | None:
        parts: list[bytes] = []
        size = 0
        while size < JOIN_BYTES:
            try:
                item = self._subscriber.next()
            except ViewFailed as error:
                self._fail(str(error))
                break
            except ViewEnded:
                self.end()
                break
            if isinstance(item, Lost):
                # Kafka is asked what is kept, which takes a while; `next` never waits, so a task
                # does, and nothing is read of the stream meanwhile.
                self._gap_task = asyncio.get_running_loop().create_task(self._announce_gap(item))
                self._gap_task.add_done_callback(self._gap_announced)
                break
            if item is None:
                self._note_where(parts)
                break
            if item.content is not None:
                parts.append(item.content)
                size += len(item.content)
                self._announced = None
                left_out = self._subscriber.superseded()
                if left_out:
                    self._on_superseded(left_out)
                    parts.append(http_chunk(sse.conflated(left_out)))
        if not parts:
            return self._waiting.pop(0) if self._waiting else None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _note_where(self, parts: list[bytes]) -> None:
        """Note that nothing is at hand.

        A client that is live from now on gets its cursor, if nothing was shown to it lately.
        """
        if not self._subscriber.is_live:
            if self.state is State.LIVE:
                self._change(Change.FELL_BEHIND)
        elif self.state is State.BEHIND:
            self._change(Change.CAUGHT_UP)
            if self._has_moved() and not parts:
                parts.append(http_chunk(self._checkpoint()))

    async def _announce_gap(self, lost: Lost) -> None:
        while True:
            try:
                gap = await self._hub.gap(self._subscriber, lost, self._on_gap)
                break
            except Unavailable:
                await self._clock.sleep(AGAIN_S)
        self._announced = self._subscriber.positions
        self._put(self._encoder.gap(gap))

    def _gap_announced(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        self._gap_task = None
        error = task.exception()
        if error is not None:
            self._fail(repr(error))
        elif self._on_gap is OnGap.STOP:
            self.end()
        self._woken()

    def _fail(self, why: str) -> None:
        self.has_failed = True
        self._put(
            sse.problem("subscription_failed", f"the subscription cannot be served: {why}")
            + sse.retry(FAILED_RETRY_MS)
        )
        self.end()

    def _has_moved(self) -> bool:
        return (
            self._announced is not self._subscriber.positions
            and self._announced != self._subscriber.positions
        )

    def _checkpoint(self) -> bytes:
        self._announced = self._subscriber.positions
        return self._encoder.checkpoint(self._announced, as_event=self._checkpoint_events)

    def _sign_of_life(self) -> bytes:
        progress = self._checkpoint() if self._has_moved() else b""
        if self._heartbeat_events:
            return progress + sse.heartbeat_event(self._clock.now_ms())
        return progress or sse.HEARTBEAT

    def _put(self, words: bytes) -> None:
        self._waiting.append(http_chunk(words))

    def _woken(self) -> None:
        self.wake()

    def _change(self, change: Change) -> None:
        before, self.state = self.state, after(self.state, change)
        if self.state is not before:
            self._on_change(before, self.state)
