"""One group at work.

It reads its streams into a window while somebody takes, and stores each take and each
acknowledgement before it is answered.

A server that dies is followed by one that reads the row: what was done stays done, what was held
stays held until its time is over, with its count; the rest is read from Kafka again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.following.subscriber import Subscriber, ViewEnded
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.reader import Step
from edgewake.cloud.log.request import OnGap, Request, RequestError
from edgewake.cloud.log.resume import LOSSES
from edgewake.cloud.log.steps import Steps, item
from edgewake.cloud.log.subscription import Plan, Start
from edgewake.cloud.log.wanted import Wanted
from edgewake.cloud.push.chosen import check_unpaced, check_whole, kept
from edgewake.cloud.push.deliveries.courier import Writer
from edgewake.cloud.push.groups.window import Given, Window
from edgewake.cloud.push.guarded_tasks import Spawn
from edgewake.cloud.push.leases import lease_rights
from edgewake.cloud.push.leases.lease_writer import NotOwner
from edgewake.cloud.rights.principal import Action
from edgewake.protocol.clock import Clock, sleep_or
from edgewake.protocol.errors import CursorError, FilterError, Unavailable
from edgewake.protocol.leases.group_record import Group, encode

log = logging.getLogger("edgewake.groups")

IDLE_S: Final = 60.0
"""Seconds without a take after which a group's streams are followed no longer for it."""
AGAIN_S: Final = 1.0
"""Between attempts to read while Kafka, or a stream, is away."""
LOOK_S: Final = 0.5
"""How often who waits looks at the clock: for events whose time is over."""
KEEP_S: Final = 30.0
"""Seconds after which progress without a take is stored, while somebody asks."""
READY_S: Final = 8.0
"""Seconds that a take waits until the group's streams can be read; below what it may wait for
events, and below the time that a request may take."""
GAPS_MAX: Final = 100
"""Gaps that wait for the next take; of more the newest."""

OTHER_PLACES: Final = LOSSES - {"retention"}
"""Losses after which a position is another event. What retention deleted is passed over, and all
other places are what they were.
"""
WRONG: Final = (
    Unavailable,
    UnknownStream,
    ViewEnded,
    CursorError,
    FilterError,
    RequestError,
)
"""What keeps a group from its streams for a while, and no other group from its own."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer to a take."""

    events: Sequence[Given]
    gaps: Sequence[bytes]
    """Lost ranges of the streams, reported once, to whoever takes next."""


class Sharing:
    """Shares the events of one group among its members."""

    def __init__(self, group: Group, writer: Writer, hub: Hub, clock: Clock) -> None:
        self.group = group
        self.trouble = ""
        """What keeps it from reading, if something does."""
        self._writer, self._hub, self._clock = writer, hub, clock
        self._window: Window | None = None
        self._plan: Plan | None = None
        self._gaps: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._asked_s = float("-inf")
        self._news = asyncio.Condition()
        self._room = asyncio.Event()
        self._is_closed = False
        """Is it being deleted?"""
        self._is_dirty = False
        """Was there something that could not be stored?"""
        self._kept_s = clock.monotonic_s()
        self._lock = asyncio.Lock()
        """Takes and acknowledgements are stored one after the other."""
        self.waiting = 0
        """Clients that wait for events."""

    @property
    def held(self) -> int:
        """Events that somebody has."""
        return len(self.group.held) if self._window is None else self._window.held

    @property
    def oldest(self) -> tuple[str, int] | None:
        """Token and count of the oldest event that is not done, while its streams are read."""
        return None if self._window is None else self._window.oldest

    async def take(
        self,
        most: int,
        *,
        wait_s: float,
        hold_s: float,
        done: Sequence[str],
        start: Spawn,
        is_there: Callable[[], Awaitable[bool]],
    ) -> Taken:
        """Events for one client, after what it says is done. Raises Unavailable and NotOwner.

        `is_there`: does the client wait for the answer? What it is not there for stays.
        """
        self.waiting += 1
        right = self.group.right
        try:
            if done:
                await self.acknowledge(done, (), 0.0, start)
            else:
                await self._until_open(start)
            ends_s = self._clock.monotonic_s() + wait_s
            while True:
                self._asked_s = self._clock.monotonic_s()
                found = await self._take(most, hold_s)
                if found.events or found.gaps or self._clock.monotonic_s() >= ends_s:
                    return found
                await self._wait_for_news()
                # Who waits was let in by what the group showed then: it comes again, and is asked.
                if self.group.right != right or not await is_there():
                    return Taken((), ())
        finally:
            self.waiting -= 1

    async def _until_open(self, start: Spawn) -> None:
        """Until its streams are read. Raises Unavailable."""
        self._asked_s = self._clock.monotonic_s()
        if self._is_closed:
            raise Unavailable("the group is being deleted")
        if self._task is None or self._task.done():
            self._task = start(self._run(), f"group-{self.group.id}")
        ready_s = self._asked_s + READY_S
        while self._window is None or not self._window.is_complete:
            await self._wait_for_news()
            if self._clock.monotonic_s() > ready_s:
                raise Unavailable(self.trouble or "its streams are still being opened")

    async def acknowledge(
        self, done: Sequence[str], release: Sequence[str], after_s: float, start: Spawn
    ) -> tuple[int, int]:
        """How many were done now, and released. Raises Unavailable and NotOwner."""
        await self._until_open(start)
        async with self._lock:
            window = self._window
            if window is None:
                raise Unavailable("its streams are being reopened; try again")
            finished = window.finish(done)
            at = self._clock.now_ms() + round(after_s * 1000)
            released = window.release(release, at=at)
            if finished or released or self._is_dirty:
                self.group = self.group.but(events=self.group.events + finished)
                await self._store(window)
        self._room.set()
        async with self._news:
            self._news.notify_all()
        return finished, released

    async def widen(self, right: str) -> None:
        """Show what this right shows, from where it stands. Raises Unavailable and NotOwner."""
        async with self._lock:
            if self._is_closed:
                raise Unavailable("the group is being deleted")
            group = self.group.but(right=right, used_at=self._clock.now_ms())
            await self._writer.put_row(group.key, encode(group))
            self.group = group
        self._room.set()  # who reads opens its streams again

    async def close(self) -> None:
        """Read no more, and store nothing more: a client may be taking."""
        self._is_closed = True
        async with self._lock:  # what is being stored is stored before
            pass
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def reopen(self) -> None:
        """It could not be deleted."""
        self._is_closed = False

    def abandon(self) -> None:
        """Stop at once, without waiting for deliveries."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _take(self, most: int, hold_s: float) -> Taken:
        async with self._lock:
            window = self._window
            if window is None:
                return Taken((), ())
            gaps = tuple(self._gaps)
            now = self._clock.now_ms()
            given = window.take(most, round(hold_s * 1000), now=now)
            if given or self._is_dirty:
                await self._store(window)
            # Not before: where that fails nobody is told, and more may have come meanwhile.
            self._gaps = [gap for gap in self._gaps if gap not in gaps]
            return Taken(given, gaps)

    async def _store(self, window: Window) -> None:
        """Raises Unavailable and NotOwner; then it may be stored all the same."""
        if self._is_closed:
            raise Unavailable("the group is being deleted")
        if self._plan is None:
            raise Unavailable("its streams are being reopened; try again")
        cursor = self._hub.codec.encode(self._plan.cursor(window.floor))
        self.group = self.group.but(
            cursor=cursor,
            done=window.done,
            held=tuple(window.all_held),
            used_at=self._clock.now_ms(),
        )
        self._is_dirty = True
        await self._writer.put_row(self.group.key, encode(self.group))
        self._is_dirty = False

    async def _keep_progress(self, window: Window) -> None:
        """What came so far without an event for the group is not read again after a death."""
        now_s = self._clock.monotonic_s()
        # A gap that nobody was told of yet is found again after a death.
        if now_s - self._kept_s < KEEP_S or self._gaps:
            return
        async with self._lock:
            self._kept_s = now_s
            await self._store(window)

    async def _wait_for_news(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S), self._news:
                await self._news.wait()

    # Reading

    async def _run(self) -> None:
        try:
            while self._clock.monotonic_s() - self._asked_s < IDLE_S:
                try:
                    await self._read()
                    self.trouble = ""
                except WRONG as error:
                    self.trouble = str(error)
                    await self._clock.sleep(AGAIN_S)
        except NotOwner:
            pass  # the next take is answered by who has it
        finally:
            self._window = None

    async def _read(self) -> None:
        """Until nobody takes any more."""
        group = self.group
        wanted = kept(self._hub, group)
        _check_published(group, wanted)
        reader = lease_rights.reader_of(group.right, group.streams, Action.READ)
        plan = await self._hub.open(wanted, reader, is_kept=True)
        try:
            asked = Request(plan.subscription, group.cursor, goes_on=True)
            start = await self._hub.start(plan, asked)
            async with self._lock:
                self._begin(plan, start)
            async with self._news:
                self._news.notify_all()
            subscriber = self._hub.subscribe(plan, Steps(), start.positions, self._room.set)
            try:
                await self._follow(subscriber, group.right)
            finally:
                subscriber.close()
        finally:
            async with self._lock:
                self._window = self._plan = None
            self._hub.close(plan)

    def _begin(self, plan: Plan, start: Start) -> None:
        """A window; what is known of places counts only where these are what they were."""
        group = self.group
        is_same = not any(gap.event.fields["reason"] in OTHER_PLACES for gap in start.gaps)
        self._gaps = [*self._gaps, *(item(gap.event) for gap in start.gaps)][-GAPS_MAX:]
        self._plan = plan
        self._window = Window(
            start.positions, group.done if is_same else (), group.held if is_same else ()
        )

    async def _follow(self, subscriber: Subscriber[Sequence[Step]], right: str) -> None:
        """Until nobody takes any more, or the group shows what another right does."""
        window = self._window
        assert window is not None
        while self._clock.monotonic_s() - self._asked_s < IDLE_S and self.group.right == right:
            self._room.clear()
            is_reading = window.has_room
            found = subscriber.next() if is_reading else None
            if found is None:
                if is_reading:
                    window.passed(subscriber.positions)
                    await self._keep_progress(window)
                await sleep_or(self._clock, LOOK_S, self._room)
                continue
            if isinstance(found, Chunk):
                for step in found.content or ():
                    window.add(step.stream, step.partition, step.position, item(step.event))
            else:
                gap = await self._hub.gap(subscriber, found, OnGap.EARLIEST)
                self._gaps = [*self._gaps, item(gap.event)][-GAPS_MAX:]
            window.passed(subscriber.positions)
            async with self._news:
                self._news.notify_all()


def _check_published(group: Group, wanted: Wanted) -> None:
    """Raises RequestError where an operator made of a publication what a group cannot share.

    Tokens and places count its streams: with others they would mean other events.
    """
    check_whole(wanted.publication, "a group")
    check_unpaced(wanted.publication)
    if wanted.streams != group.streams:
        raise RequestError(
            "publication",
            f"publication {group.publication!r} is of other streams now: delete {group.name}, and "
            "make it again `after` its cursor",
        )
