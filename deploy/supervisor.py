"""Starts parts in order, watches and restarts them, and stops them upstream first.

`run` returns when `stop` is set, with everything ended: sources, bridges, sequencer, analysis, servers, Kafka, broker, within STOP_S,
SIGKILL for what does not obey. It raises LocalError when a part cannot be brought up at the start; later failures are said and the
others go on. Nothing outlives this process, in whatever way it ends (see `guardian`).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import orjson

from edgewake.deploy.child import Child
from edgewake.deploy.guardian import Guardian
from edgewake.deploy.lifecycle import FAILURES_MAX, WINDOW_S, Event, State, after, grace_s, restart_delay_s
from edgewake.deploy.part import Floor, Part
from edgewake.deploy.part_log import PartLog
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError

STOP_S: Final = 13.0
"""Seconds for stopping everything; the 15 that are promised leave room for the way out."""
CONFIG_ERROR_CODE: Final = 2
"""A part that ends so dislikes its configuration: another start would not help."""


class Keeper:
    """Keeps one part running."""

    def __init__(self, part: Part, logs: Path, guardian: Guardian, clock: Clock, rng: random.Random) -> None:
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
        self.on_change: Callable[[Keeper], None] = lambda _keeper: None
        self._guardian = guardian
        self._clock = clock
        self._rng = rng
        self._ends: deque[float] = deque(maxlen=FAILURES_MAX)

    async def run(self, wanted: Sequence[Keeper]) -> None:
        """Start when all of `wanted` are ready, then again and again until cancelled or given up."""
        for other in wanted:
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

    def last_words(self) -> str:
        """The sentence of its last log line."""
        try:
            body = orjson.loads(self.log.last_line)
        except orjson.JSONDecodeError:
            return self.log.last_line
        return str(body.get("text", self.log.last_line)) if isinstance(body, dict) else self.log.last_line

    async def _start(self) -> None:
        self._move(Event.START)
        self.since_s = self._clock.monotonic_s()
        try:
            self.child = await Child.start(self.part, self.log, self._guardian)
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
            await asyncio.wait([ending, ready], timeout=self.part.ready_s, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                self._move(Event.READY)
                self.settled.set()
            elif not ending.done():
                self.log.write(b"not ready within %.0f s, killed" % self.part.ready_s)
                child.kill()
            self.code = await asyncio.shield(ending)
            self.child = None
        finally:
            ready.cancel()

    async def _may_start_again(self) -> bool:
        now = self._clock.monotonic_s()
        self._ends.append(now)
        self._move(Event.ENDED)
        delay = None if self.code == CONFIG_ERROR_CODE else restart_delay_s(self._ends, now, self._rng.random())
        if delay is None:
            self._move(Event.GIVE_UP)
            self.settled.set()
            return False
        await self._clock.sleep(delay)
        return True

    def _move(self, event: Event) -> None:
        before, self.state = self.state, after(self.state, event)
        if before is not self.state:
            self.on_change(self)


class Supervisor:
    """All parts of one machine."""

    def __init__(self, parts: Sequence[Part], logs: Path, *, clock: Clock, rng: random.Random) -> None:
        self._guardian = Guardian()
        self._clock = clock
        self.keepers = {part.name: Keeper(part, logs, self._guardian, clock, rng) for part in parts}

    async def run(
        self,
        stop: asyncio.Event,
        *,
        when_ready: Callable[[], None] = lambda: None,
        alongside: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        """Start all, call `when_ready`, wait for `stop`, stop all: tasks first, then the parts floor by floor. Raises LocalError."""
        problem = None
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_awaited(work()), name="alongside") for work in alongside]
                tasks += [group.create_task(keeper.run(self._wanted(keeper)), name=keeper.part.name) for keeper in self.keepers.values()]
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

    def hurry(self) -> None:
        """Kill everything now; `run` then returns at once."""
        for keeper in self.keepers.values():
            keeper.kill()

    def failed(self) -> list[Keeper]:
        """Parts that were given up."""
        return [keeper for keeper in self.keepers.values() if keeper.state is State.FAILED]

    def _wanted(self, keeper: Keeper) -> list[Keeper]:
        return [self.keepers[name] for name in keeper.part.after if name in self.keepers]

    async def _wait_for_start(self, stop: asyncio.Event) -> str | None:
        """Until all were ready once, or one failed (then: a sentence about it), or `stop` is set."""
        waits = {asyncio.create_task(keeper.settled.wait(), name=keeper.part.name) for keeper in self.keepers.values()}
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
        deadline = self._clock.monotonic_s() + STOP_S
        floors = [[keeper for keeper in self.keepers.values() if keeper.part.floor is floor] for floor in Floor]
        for index, keepers in enumerate(floors):
            left = deadline - self._clock.monotonic_s()
            waits = [keeper.stop(grace_s(keeper.part.stop_s, left_s=left, groups_left=len(floors) - index - 1)) for keeper in keepers]
            await asyncio.gather(*waits)


def failure(keeper: Keeper) -> str:
    """One sentence about a part that was given up."""
    how = f"ended with exit code {keeper.code}" if (keeper.code or 0) >= 0 else f"was ended by signal {-(keeper.code or 0)}"
    often = "" if keeper.code == CONFIG_ERROR_CODE else f" {FAILURES_MAX} times within {WINDOW_S:.0f} s"
    return f"{keeper.part.name} {how}{often}, last saying: {keeper.last_words() or 'nothing'}; its log is {keeper.log.path}"


async def _awaited(work: Awaitable[None]) -> None:
    await work
