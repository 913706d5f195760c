"""Starts parts in order, restarts those that end or are silent, and stops them upstream first.

`run` returns when `stop` is set, with everything ended: sources, bridges, sequencer, analysis,
servers, Kafka, broker, within STOP_S, SIGKILL for what does not obey. It raises LocalError when a
part cannot be brought up at the start; a part that was ready once is started again for ever, while
the others go on. Nothing outlives this process, in whatever way it ends (see `guardian`).
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import orjson

from edgewake.deploy.parts.child import Child
from edgewake.deploy.parts.guardian import Guardian
from edgewake.deploy.parts.lifecycle import (
    QUICK_MAX,
    Event,
    State,
    after,
    ends_in_a_row,
    grace_s,
    is_given_up,
    restart_delay_s,
)
from edgewake.deploy.parts.part import Floor, Part
from edgewake.deploy.parts.part_log import PartLog
from edgewake.deploy.parts.start_watch import WINDOW_S, StartWatch, processor_s
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError

STOP_S: Final = 13.0
"""Seconds for stopping everything; the 15 that are promised leave room for the way out."""
CONFIG_ERROR_CODE: Final = 2
"""A part that ends so dislikes its configuration."""
LOOK_S: Final = 1.0
"""Seconds between two looks at the signs of life of a part."""
START_LOOK_S: Final = WINDOW_S / 2
"""Seconds between two looks at a start; each asks the system for all processes."""
SAID_CHARS_MAX: Final = 300
"""Characters of what a part said last, in a line about its end."""


class Keeper:
    """Keeps one part running."""

    def __init__(
        self, part: Part, logs: Path, guardian: Guardian, clock: Clock, rng: random.Random
    ) -> None:
        self.part = part
        self.state = State.STOPPED
        self.restarts = 0
        self.since_s = 0.0
        """When the running process was started, monotonic."""
        self.log = PartLog(logs / f"{part.name}.log")
        self.settled = asyncio.Event()
        """It was ready once, or it failed."""
        self.child: Child | None = None
        self.code: int | None = None
        """Exit code of the last end."""
        self.why_killed = ""
        """Why we killed the process that ended last; empty: we did not."""
        self.on_change: Callable[[Keeper], None] = lambda _keeper: None
        self._guardian = guardian
        self._clock = clock
        self._rng = rng
        self._was_ready = False
        self._ends = 0

    async def run(self, needs: Sequence[Keeper]) -> None:
        """Start when all of `needs` were ready once; restart until cancelled or given up."""
        for other in needs:
            await other.settled.wait()
        while True:
            await self._start()
            await self._live()
            if not await self._may_start_again():
                return
            self.restarts += 1

    async def stop(self, grace: float) -> None:
        """End it. `run` must have been cancelled before."""
        if self.child is not None:
            self.code = await self.child.stop(grace)
            self.child = None
        self._move(Event.STOP)
        self.log.close()

    def kill(self) -> None:
        """At once and without asking."""
        if self.child is not None:
            self.child.kill()

    def last_message(self) -> str:
        """The sentence of its last log line."""
        try:
            body = orjson.loads(self.log.last_line)
        except orjson.JSONDecodeError:
            return self.log.last_line
        return (
            str(body.get("text", self.log.last_line))
            if isinstance(body, dict)
            else self.log.last_line
        )

    async def _start(self) -> None:
        self.log.begin()
        self.why_killed = ""
        self._move(Event.START)
        self.since_s = self._clock.monotonic_s()
        try:
            self.child = await Child.start(self.part, self.log, self._guardian, self._clock)
        except OSError as error:
            self.child = None
            self.log.write(f"{self.part.command[0]} cannot be started: {error.strerror}".encode())

    async def _live(self) -> None:
        """Until the process ends, noting when it is ready."""
        child = self.child
        if child is None:
            return
        ending = asyncio.create_task(child.ended(), name=f"{self.part.name} end")
        ready = asyncio.create_task(child.ready.wait(), name=f"{self.part.name} ready")
        try:
            await self._watch_start(child, ending, ready)
            if ready.done():
                self._was_ready = True
                self._move(Event.READY)
                self.settled.set()
                await self._watch(child, ending)
            self.code = await asyncio.shield(ending)
            self.child = None
        finally:
            ready.cancel()

    async def _watch_start(
        self, child: Child, ending: asyncio.Task[int], ready: asyncio.Task[bool]
    ) -> None:
        """Until it is ready or ends, by itself or because it makes no progress."""
        watch = StartWatch(self.part.stalled_s, self._clock.monotonic_s())
        while not ending.done() and not ready.done():
            pause_s = min(START_LOOK_S, self.part.stalled_s)
            await asyncio.wait(
                [ending, ready], timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
            )
            why = watch.look(
                self._clock.monotonic_s(), words=child.words, work_s=processor_s(child.pid)
            )
            if why and not ending.done() and not ready.done():
                self._kill_because(child, why)
                return

    def _kill_because(self, child: Child, why: str) -> None:
        self.why_killed = f"{why}, killed"
        self.log.write(self.why_killed.encode())
        child.kill()

    async def _watch(self, child: Child, ending: asyncio.Task[int]) -> None:
        """Until the process ends, by itself or because it gave no sign of life."""
        looked_s = self._clock.monotonic_s()
        while not ending.done():
            await asyncio.wait([ending], timeout=LOOK_S)
            before_s, looked_s = looked_s, self._clock.monotonic_s()
            if looked_s - before_s > LOOK_S + child.silent_s_max / 2:
                child.excuse()  # we were stopped ourselves, and heard nobody
            elif child.silent_s() > child.silent_s_max and not ending.done():
                self._kill_because(child, f"no sign of life for {child.silent_s():.0f} s")
                return

    async def _may_start_again(self) -> bool:
        self._ends = ends_in_a_row(self._ends, self._clock.monotonic_s() - self.since_s)
        self._move(Event.ENDED)
        if is_given_up(
            self._ends,
            was_ready=self._was_ready,
            dislikes_its_configuration=self.code == CONFIG_ERROR_CODE,
        ):
            self._move(Event.GIVE_UP)
            self.settled.set()
            return False
        await self._clock.sleep(restart_delay_s(self._ends, self._rng.random()))
        return True

    def _move(self, event: Event) -> None:
        before, self.state = self.state, after(self.state, event)
        if before is not self.state:
            self.on_change(self)


class Supervisor:
    """All parts of one machine."""

    def __init__(
        self,
        parts: Sequence[Part],
        logs: Path,
        *,
        clock: Clock,
        rng: random.Random,
        stop_s: float = STOP_S,
    ) -> None:
        self._guardian = Guardian()
        self._clock = clock
        self._stop_s = stop_s
        self.keepers = {part.name: Keeper(part, logs, self._guardian, clock, rng) for part in parts}

    async def run(
        self,
        stop: asyncio.Event,
        *,
        when_ready: Callable[[], None] = lambda: None,
        alongside: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        """Start all, call `when_ready`, wait for `stop`, stop all. Raises LocalError.

        Tasks stop first, then the parts floor by floor.
        """
        problem = None
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_awaited(work()), name="alongside") for work in alongside
                ]
                tasks += [
                    group.create_task(keeper.run(self._needs(keeper)), name=keeper.part.name)
                    for keeper in self.keepers.values()
                ]
                problem = await self._wait_for_start(stop)
                if problem is None and not stop.is_set():
                    when_ready()
                    await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await self._stop_all()
            self._guardian.close()
        if problem is not None:
            raise LocalError(problem)

    def kill_all(self) -> None:
        """Kill everything now; `run` then returns at once."""
        for keeper in self.keepers.values():
            keeper.kill()

    def failed(self) -> list[Keeper]:
        """Parts that could not be brought up."""
        return [keeper for keeper in self.keepers.values() if keeper.state is State.FAILED]

    def _needs(self, keeper: Keeper) -> list[Keeper]:
        return [self.keepers[name] for name in keeper.part.after if name in self.keepers]

    async def _wait_for_start(self, stop: asyncio.Event) -> str | None:
        """Wait until all were ready once, or `stop` is set, or one failed: a sentence about it."""
        waits = {
            asyncio.create_task(keeper.settled.wait(), name=keeper.part.name)
            for keeper in self.keepers.values()
        }
        stopped = asyncio.create_task(stop.wait(), name="stop")
        try:
            while waits and not stopped.done():
                done, _ = await asyncio.wait({*waits, stopped}, return_when=asyncio.FIRST_COMPLETED)
                waits -= done
                if failed := self.failed():
                    return failure(failed[0])
        finally:
            for wait in (*waits, stopped):
                wait.cancel()
        return None

    async def _stop_all(self) -> None:
        deadline = self._clock.monotonic_s() + self._stop_s
        floors = [
            [keeper for keeper in self.keepers.values() if keeper.part.floor is floor]
            for floor in Floor
        ]
        for index, keepers in enumerate(floors):
            left = deadline - self._clock.monotonic_s()
            waits = [
                keeper.stop(
                    grace_s(keeper.part.stop_s, left_s=left, groups_left=len(floors) - index - 1)
                )
                for keeper in keepers
            ]
            await asyncio.gather(*waits)


def failure(keeper: Keeper) -> str:
    """One sentence about a part that could not be brought up."""
    often = "" if keeper.code == CONFIG_ERROR_CODE else f" {QUICK_MAX} times in a row"
    message = keeper.last_message() or "none"
    return (
        f"{keeper.part.name} {how_ended(keeper)}{often} and was never ready; its last message: "
        f"{message}; its log is {keeper.log.path}"
    )


def how_ended(keeper: Keeper) -> str:
    """A few words about its last end.

    A signal that came from elsewhere is the whole cause: nothing that the part said before is.
    """
    code = keeper.code or 0
    if keeper.why_killed:
        return f"hung ({keeper.why_killed})"
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"


def restart_line(keeper: Keeper) -> str:
    """The line about a part that ended and is started again.

    The cause is the signal, our own reason, or the part's last message.
    """
    said = keeper.last_message()[:SAID_CHARS_MAX]
    is_cause = (keeper.code or 0) >= 0 and not keeper.why_killed
    return f"{keeper.part.name} {how_ended(keeper)} and is started again" + (
        f": {said}" if said and is_cause else ""
    )


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


async def _awaited(work: Awaitable[None]) -> None:
    await work
