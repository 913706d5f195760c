"""One subscription of a WebSocket: what is said about it next.

As `edgewake.cloud.access.session`, with credits: never more events are given than its client
allowed. `next` never waits. Gaps, checkpoints and answers need no credit: of these there are few.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from edgewake.cloud.access import socket_wire as wire
from edgewake.cloud.access.open_streams import NOT_BEHIND, OPEN_S, STATES, OpenStreams, Seen
from edgewake.cloud.access.session_state import Change, State, after
from edgewake.cloud.access.slow.policy import Policy, Wish
from edgewake.cloud.access.slow.watch import SlowWatch, Verdict
from edgewake.cloud.access.sockets.kept import KeptCursors
from edgewake.cloud.access.sockets.reading import Reading
from edgewake.cloud.log.following.cohort import Lost
from edgewake.cloud.log.following.subscriber import ViewEnded, ViewFailed
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import Full
from edgewake.cloud.log.request import OnGap, Request
from edgewake.cloud.log.subscription import Gap, Plan, Positions, Sight, Start, sight
from edgewake.cloud.rights.principal import Principal, holder
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

GAP_AGAIN_S: Final = 0.5
"""Pause after Kafka could not say what is kept of a range that is gone."""


@dataclass(frozen=True, slots=True)
class Room:
    """What all subscriptions of a socket share."""

    hub: Hub
    streams: OpenStreams
    reader: Principal
    clock: Clock
    wake: Callable[[], None]
    kept: KeptCursors
    is_blocked: Callable[[], bool]
    """Does the connection take nothing at the moment?"""
    unsent_bytes: Callable[[], int]
    """Written to the connection, and not taken by the client yet."""
    cut: Callable[[], None]
    """Ends the connection at once."""


class Channel:
    """Tells what comes next of one subscription, as far as its credits reach.

    A member of `OpenStreams`; `close` it.
    """

    streams = 1

    def __init__(
        self,
        name: str,
        asked: Request,
        chosen: Mapping[str, Any],
        allowed: int | None,
        client: str,
        room: Room,
        *,
        wished: Wish,
        kept_as: str | None = None,
    ) -> None:
        """A channel in its starting state.

        `chosen`: what its client asked for, which a change adds to; `kept_as`: the name under which
        it keeps a cursor; `wished`: what is done when it takes less than there is.
        """
        self.name = name
        self.chosen = dict(chosen)
        self.client = client
        self.reader = room.reader
        self.holder = holder(room.reader, client)
        self.sight: Sight | None = None
        self.state = State.STARTING
        self.is_busy = False
        """Is it being opened, changed or moved behind a gap? Then nothing is read."""
        self.why = ""
        """Why it ended."""
        self.sent_bytes = 0
        """Bytes of events that were sent."""
        self._asked = asked
        self._credits = allowed
        self._room = room
        self._reading: Reading | None = None
        self._waiting: deque[bytes] = deque()
        """Frames before the next events: at most a gap for each partition, and a few of our own."""
        self._announced: Positions | None = None
        """The last position that the client got without an event."""
        self._gap_task: asyncio.Task[None] | None = None
        self.kept_as = kept_as
        self._to_keep: str | None = None
        """The cursor that was acknowledged last and is not being kept yet."""
        self._is_leaving = False
        """Does its client want no more, and wait for its last acknowledgement?"""
        self._keeping: asyncio.Task[None] | None = None
        self.work: asyncio.Task[None] | None = None
        """Opens or changes it."""
        self._watch = SlowWatch(wished, room.clock.monotonic_s())
        self.slow: SlowWatch | None = self._watch

    # Opening and changing.

    async def open(self) -> None:
        """Open it, and say so.

        Raises what `Hub` raises, and SubscriptionTooLarge; then it must be closed.
        """
        self.is_busy = True
        if self.kept_as is not None:
            kept = await self._room.kept.cursor(self.holder, self.kept_as)
            self._asked = replace(self._asked, cursor=self._asked.cursor or kept)
        self._asked, plan, start, reading = await self._read(self._asked)
        if self.state is not State.STARTING:  # it was ended meanwhile, and said so
            reading.close()
            return
        self._reading = reading
        self._room.streams.metrics.started.labels(start.how).inc()
        self.is_busy = False
        if start.how == "stopped":
            self.say("subscribed", cursor=self._asked.cursor, start=start.how)
            self.finish("stopped")
            return
        cursor = self._first_cursor(plan, start)
        self.say("subscribed", cursor=cursor, start=start.how, credits=self._credits)
        self._announced = start.positions
        for found in plan.warnings(self._room.hub.catalogue.field_kinds):
            facts = {"field": found.field, "near": found.near} if found.field else {}
            self.say("warning", code=found.code, detail=found.detail, **facts)
        self._begin(start.gaps)
        if start.ends:
            self.finish("gap")

    async def change(self, wanted: Request, chosen: Mapping[str, Any], wished: Wish) -> None:
        """Go on with other streams, another filter, pace or policy from where it stands.

        Raises as `open` does; then it goes on as it was.
        """
        before = self._reading
        assert before is not None
        self.is_busy = True
        old = self.sight
        cursor = before.cursor()
        asked = replace(wanted, cursor=cursor, on_gap=self._asked.on_gap, goes_on=True)
        self._room.streams.release(self)
        try:
            asked, _, begins, reading = await self._read(asked)
        except BaseException:
            self._room.streams.release(self)
            if old is not None and self.state is not State.GONE:
                self._room.streams.reclaim(self, old)
            raise
        finally:
            self.is_busy = False
        if self.state in (State.ENDING, State.GONE):  # it was ended meanwhile, and said so
            reading.close()
            return
        before.close()
        self._asked, self._reading, self.chosen = asked, reading, dict(chosen)
        if wished != self._watch.wish:
            self.slow = self._watch = SlowWatch(wished, self._room.clock.monotonic_s())
        gaps = [gap for gap in begins.gaps if gap.event.fields["reason"] != "filter_changed"]
        changed = next((gap for gap in begins.gaps if gap not in gaps), None)
        self.say("changed", cursor=cursor if changed is None else self._encoded(changed))
        self._announced = None
        self._set(Change.FELL_BEHIND)
        self._begin(gaps)

    async def _read(self, asked: Request) -> tuple[Request, Plan, Start, Reading]:
        room = self._room
        try:
            async with asyncio.timeout(OPEN_S):
                asked = await room.hub.resolved(asked, room.reader)
                room.streams.claim(self, sight(asked.subscription, room.reader))
                plan = await room.hub.open(asked.subscription, room.reader)
                try:
                    start = await room.hub.start(plan, asked)
                    room.streams.admit(self, replays=start.how != "latest")
                    account = room.streams.held.account(self.holder)
                    reading = Reading(
                        room.hub,
                        plan,
                        start,
                        self._woken,
                        pace=asked.pace,
                        account=account,
                        clock=room.clock,
                    )
                    return asked, plan, start, reading
                except BaseException:
                    room.hub.close(plan)
                    raise
        except TimeoutError:
            raise Unavailable(f"Kafka did not say within {OPEN_S:.0f} s where to begin") from None

    def _begin(self, gaps: tuple[Gap, ...] | list[Gap]) -> None:
        for gap in gaps:
            self._say_gap(gap)
        if self.state is State.STARTING:
            self._set(Change.STARTED)
        self._woken()

    def _first_cursor(self, plan: Plan, start: Start) -> str:
        """The cursor where it begins: before the gaps that are sent next."""
        if start.gaps and self._asked.cursor is not None:
            return self._asked.cursor
        return self._room.hub.codec.encode(plan.cursor(start.positions))

    # What its client says.

    def allow(self, more: int, most: int) -> None:
        """Grant `more` credits; the client holds `most` at a time."""
        if self._credits is not None:
            self._credits = min(most, self._credits + more)
            self._woken()

    def acknowledge(self, cursor: str) -> None:
        """Keep a cursor; of several that come meanwhile the last one. Raises CursorError."""
        self._room.hub.codec.decode(cursor)
        self._to_keep = cursor
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name="socket-keeping")

    async def _keep(self) -> None:
        try:
            while self._to_keep is not None and self.kept_as is not None:
                cursor, self._to_keep = self._to_keep, None
                try:
                    await self._room.kept.keep(self.holder, self.kept_as, cursor)
                except Unavailable as error:
                    code = "full" if isinstance(error, Full) else "unavailable"
                    self.say("problem", code=code, detail=str(error), where="cursor")
                else:
                    self.say("acked", cursor=cursor)
                self._woken()
        finally:
            self._keeping = None
            if self._is_leaving:
                self.finish("unsubscribed")

    def leave(self) -> None:
        """End it, once what its client acknowledged is kept, or cannot be, and that is said."""
        if self._keeping is None:
            self.finish("unsubscribed")
        self._is_leaving = True

    # What is said.

    def say(self, kind: str, **facts: Any) -> None:
        """A message about this subscription."""
        self._waiting.append(wire.message(kind, id=self.name, **facts))

    def next(self) -> bytes | None:
        """The next frame; None where there is none now, or the subscription is over (`state`)."""
        if self._waiting:
            return self._waiting.popleft()
        reading = self._reading
        if reading is None or self.is_busy or self.state not in (State.BEHIND, State.LIVE):
            return None
        if self._credits == 0 or self._is_leaving:
            return None
        try:
            item = reading.next(self._credits)
        except ViewFailed as error:
            self.say("problem", code="subscription_failed", detail=str(error))
            self.finish("failed")
        except ViewEnded:
            self.finish("reopen")
        else:
            if isinstance(item, Lost):
                self.is_busy = True
                self._gap_task = asyncio.create_task(self._announce_gap(reading, item))
                self._gap_task.add_done_callback(self._gap_announced)
            elif item is None:
                self._note_where(reading)
            else:
                texts, count = item
                self._announced = None
                if self._credits is not None:
                    self._credits -= count
                left_out = reading.superseded()
                self._room.streams.metrics.superseded.labels("socket").inc(left_out)
                frame = wire.events(self.name, texts, left_out)
                self.sent_bytes += len(frame)
                return frame
        return self._waiting.popleft() if self._waiting else None

    def beat(self) -> bool:
        """It was silent for long: say how far it came, if that is news. Was it?"""
        reading = self._reading
        if reading is None or self.is_busy or not self._has_moved(reading):
            return False
        self._say_checkpoint(reading)
        return True

    def finish(self, why: str, **facts: Any) -> None:
        """End it; the client gets the reason and the cursor to continue from."""
        if self.state in (State.ENDING, State.GONE):
            return
        cursor = None if self._reading is None else self._reading.cursor()
        self.why = why
        self.say("end", reason=why, cursor=cursor, **facts)
        self._set(Change.END)
        self._woken()

    @property
    def has_ended(self) -> bool:
        """Is its last word given away?"""
        return self.state in (State.ENDING, State.GONE) and not self._waiting

    def close(self) -> None:
        """Leave the hub."""
        if self.state is State.GONE:
            return
        self._set(Change.LEFT)
        for task in (self._gap_task, self.work, self._keeping):
            if task is not None:
                task.cancel()
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        self._room.streams.remove(self)

    # As a member of OpenStreams.

    @property
    def place(self) -> object:
        is_behind = self._reading is not None and self.state is State.BEHIND
        return self._reading.place if self._reading is not None and is_behind else None

    def watch(self, now: float, *, stall_s: float) -> None:  # noqa: ARG002  (its socket stalls)
        """Tell a client that takes less than there is how far it is behind.

        Then do what it asked for.
        """
        reading = self._reading
        if reading is None or self.is_busy or self.state not in (State.BEHIND, State.LIVE):
            return
        is_full = self._credits == 0 or self._room.is_blocked()
        verdict = self._watch.look(now, is_full=is_full, behind=reading.behind)
        if verdict is None or self._waiting:
            return
        self._tell_behind(reading, now)
        if verdict is Verdict.ACT and self._act(reading, now):
            self._watch.has_acted()
            self._room.streams.metrics.slow_acts.labels(self._watch.wish.policy.value).inc()
        self._woken()

    def _tell_behind(self, reading: Reading, now: float) -> None:
        found = reading.behind()
        if found.records:
            facts = self._watch.told(found, now, reading.likely_events(found.records))
            waits_for = "credit" if self._credits == 0 else "connection"
            self.say("behind", **facts, credits=self._credits, waits_for=waits_for)

    def _act(self, reading: Reading, now: float) -> bool:
        """Was anything done? What cannot be done now is tried again."""
        match self._watch.wish.policy:
            case Policy.SKIP:
                gaps = reading.skip()
                for gap in gaps:
                    self._say_gap(gap)
                if gaps:
                    self._announced = reading.positions
                return bool(gaps)
            case Policy.CONFLATE:
                return reading.conflate(self._room.streams.conflations, self.holder)
            case Policy.END:
                self.finish("slow", **self._watch.told_last(now))
                return True
            case _:
                return False

    def end(self) -> None:
        """The server stops."""
        self.finish("server_stops")

    def abort(self) -> None:
        """Its socket is aborted, too."""

    def seen(self) -> Seen:
        """The state of the channel, for lists."""
        is_slow = self._credits == 0 or self._room.is_blocked()
        found = NOT_BEHIND
        if self._reading is not None and (self.state is State.BEHIND or is_slow):
            found = self._reading.behind()
        return Seen(
            protocol="websocket",
            state=STATES[self.state],
            behind=found,
            unsent_bytes=self._room.unsent_bytes(),
            sent_bytes=self.sent_bytes,
            slow=self._room.streams.words_of(self._watch),
            policy=self._watch.in_short(self._room.clock.monotonic_s()),
        )

    def expel(self, reason: str) -> None:
        """An operator ends it: say so with the reason. A client that takes nothing is cut off."""
        self.say("problem", code="operator", detail=reason or "an operator ended this subscription")
        self.finish("operator")
        if self._room.is_blocked():
            self._room.cut()

    def _note_where(self, reading: Reading) -> None:
        if not reading.is_live:
            if self.state is State.LIVE:
                self._set(Change.FELL_BEHIND)
        elif self.state is State.BEHIND:
            self._set(Change.CAUGHT_UP)
            if self._has_moved(reading):
                self._say_checkpoint(reading)

    def _has_moved(self, reading: Reading) -> bool:
        return self._announced is not reading.positions and self._announced != reading.positions

    def _say_checkpoint(self, reading: Reading) -> None:
        self._announced = reading.positions
        self.say("checkpoint", cursor=reading.cursor())

    def _say_gap(self, gap: Gap) -> None:
        self._room.streams.metrics.gaps.labels(gap.event.fields["reason"]).inc()
        self.say("gap", cursor=self._encoded(gap), data=dict(gap.event.fields))

    def _encoded(self, gap: Gap) -> str:
        return self._room.hub.codec.encode(gap.cursor)

    async def _announce_gap(self, reading: Reading, lost: Lost) -> None:
        while True:
            try:
                gap = await reading.gap(lost, self._asked.on_gap)
                break
            except Unavailable:
                await self._room.clock.sleep(GAP_AGAIN_S)
        self._announced = reading.positions
        self._say_gap(gap)

    def _gap_announced(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        self._gap_task = None
        self.is_busy = False
        error = task.exception()
        if error is not None:
            self.say("problem", code="subscription_failed", detail=repr(error))
            self.finish("failed")
        elif self._asked.on_gap is OnGap.STOP:
            self.finish("gap")
        self._woken()

    def _woken(self) -> None:
        self._room.wake()

    def _set(self, change: Change) -> None:
        before, self.state = self.state, after(self.state, change)
        if self.state is not before:
            self._room.streams.on_change(before, self.state)
