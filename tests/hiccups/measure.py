"""One cell of the table: what clients see of a fault, and for how long after it is over."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from edgewake.simulators.clients import Event, Follower
from edgewake.simulators.ledger import Ledger
from tests.hiccups.faults import Cell, happen
from tests.hiccups.world import AGENTS, EVERY_S, STREAM, World
from tests.story.feeder import Feeder

QUERY = "hiccups_2s"
WINDOW_MS = 2_000
SQL = f"""-- name: {QUERY}
-- description: Short windows, so that it is soon seen whether they become final.
-- lateness: 1 second
SELECT device, count(*) AS readings, sum(value) AS total
FROM {STREAM}
GROUP BY window(event_time, '2 seconds'), device
"""
PER_SECOND = 20.0
PATIENCE_S = 120.0
"""What each cell is given at least, besides ten times the outage: a part that starts again needs it
on a busy machine."""
TIMES = 10
"""Nothing may be stuck after so many times the outage."""
FINAL_S = 60.0
"""Windows are final at most so many seconds after readings come and all parts are well again. A
window of two seconds and its lateness of one, four until a failed lane is tried again, two until
the sequencers are looked at again, and a batch: ten on an idle machine. What takes longer waits for
something that nobody knows of."""
BEGIN_S = 600.0
"""Until the first window is final: the start of everything, on a machine that is busy with more."""
TOLD_S = 6.0
"""From when on what stands is to say so."""


@dataclass
class Seen:
    """By the client."""

    mark_ms: int = 0
    """Readings of this time and later prove that all works again."""
    reading_s: dict[str, float] = field(default_factory=dict)
    """Device → when the first of them came."""
    final_s: float | None = None
    """When a window that holds one of them was told as final."""
    delivered: Counter[tuple[str, int]] = field(default_factory=Counter)
    watermark_ms: int = 0

    def on_event(self, _client: str, event: Event) -> None:
        """Of the stream or of the query."""
        body = json.loads(event.data)
        if event.name == "watermark":
            self.watermark_ms = max(self.watermark_ms, body["watermark"])
            if self.watermark_ms >= self.mark_ms + WINDOW_MS:
                self.final_s = self.final_s or time.monotonic()
        elif event.name == "message" and "query" not in body:
            self.delivered[body["device"], body["n"]] += 1
            if body["t"] >= self.mark_ms:
                self.reading_s.setdefault(body["device"], time.monotonic())

    def mark(self) -> None:
        """From now on."""
        self.mark_ms = time.time_ns() // 1_000_000
        self.reading_s.clear()
        self.final_s = None


@dataclass
class Row:
    """What was found. Seconds after the fault was over; None: not within the time."""

    cell: Cell
    readings_s: float | None = None
    final_s: float | None = None
    health_s: float | None = None
    said: dict[str, str] = field(default_factory=dict)
    """Part → the last reason that it gave for not being ready."""
    detail: str = ""
    """What the operations API said of the query while its windows stood."""
    ended: dict[str, int] = field(default_factory=dict)
    not_done: str = ""
    """Why the fault did not happen; then nothing was found out."""

    @property
    def is_stuck(self) -> bool:
        """Did something not come back?"""
        return None in (self.readings_s, self.final_s, self.health_s)

    @property
    def is_late(self) -> bool:
        """Were windows final long after everything else was well?"""
        if self.readings_s is None or self.final_s is None or self.health_s is None:
            return False
        return self.final_s > max(self.readings_s, self.health_s) + FINAL_S


class Measure:
    """Of one system that runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen = Seen()
        self._client = Follower(
            "client", world.servers, [STREAM, QUERY], self.seen.on_event, start="latest"
        )
        self.ledger = Ledger()
        self._feeder = Feeder(
            self.ledger, {agent: world.input_file(agent) for agent in AGENTS}, per_second=PER_SECOND
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Start everything, and wait until windows are final."""
        self.world.register(QUERY, SQL)
        await self.world.start_all()
        self._tasks = [
            asyncio.create_task(self._feeder.run()),
            asyncio.create_task(self.world.supervise()),
        ]
        self._client.wake()
        self.seen.mark()
        await self.world.until(lambda: self.seen.final_s, "windows are final", timeout_s=BEGIN_S)
        until_s = time.monotonic() + PATIENCE_S
        async with httpx.AsyncClient() as client:
            while unready := await self.world.unready(client):
                assert time.monotonic() < until_s, unready
                await asyncio.sleep(EVERY_S)

    async def end(self) -> None:
        """Stop the load."""
        self._feeder.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.sleep()

    async def row(self, cell: Cell) -> Row:
        """Let it happen, and look until all is well again or time is up."""
        row = Row(cell)
        ended = dict(self.world.ended)
        async with httpx.AsyncClient() as client:
            looking = asyncio.create_task(self._look_while(row, client))
            try:
                await happen(self.world, cell)
            except AssertionError as error:
                row.not_done = str(error)
            looking.cancel()
            self.seen.mark()
            healed_s = time.monotonic()
            until_s = healed_s + max(PATIENCE_S, TIMES * cell.seconds)
            while row.is_stuck and time.monotonic() < until_s:
                await self._look(row, client, healed_s)
                await asyncio.sleep(EVERY_S)
        row.ended = {
            name: count - ended.get(name, 0)
            for name, count in self.world.ended.items()
            if count > ended.get(name, 0)
        }
        return row

    async def _look_while(self, row: Row, client: httpx.AsyncClient) -> None:
        while True:
            row.said |= await self.world.unready(client)
            await self._ask_of_query(row)
            await asyncio.sleep(4 * EVERY_S)

    async def _look(self, row: Row, client: httpx.AsyncClient, healed_s: float) -> None:
        seen = self.seen
        if row.readings_s is None and len(seen.reading_s) == len(AGENTS):
            row.readings_s = max(seen.reading_s.values()) - healed_s
        if row.final_s is None and seen.final_s is not None:
            row.final_s = seen.final_s - healed_s
        unready = await self.world.unready(client)
        row.said |= unready
        if unready:  # a part says what is in its way after a few seconds only
            row.health_s = None
        elif row.health_s is None:
            row.health_s = time.monotonic() - healed_s
        if row.final_s is None and time.monotonic() - healed_s > TOLD_S:
            await self._ask_of_query(row)

    async def _ask_of_query(self, row: Row) -> None:
        found = (await self.world.queries()).get(QUERY, {})
        if found.get("detail"):
            row.detail = str(found["detail"])

    def lost_and_twice(self) -> tuple[int, int]:
        """Of what the client was to be shown since its first reading: readings that it did not get,
        and that it got twice.
        """
        first = {
            device: min((n for one, n in self.seen.delivered if one == device), default=0)
            for device in AGENTS
        }
        wanted = {
            (one.device, one.n)
            for one in self.ledger.readings.values()
            if one.n >= first[one.device]
        }
        return len(wanted - set(self.seen.delivered)), sum(
            1 for count in self.seen.delivered.values() if count > 1
        )

    async def until_all_came(self) -> None:
        """Stop writing, and wait until the client has everything."""
        self._feeder.stop()
        await self.world.until(
            lambda: self.lost_and_twice()[0] == 0,
            "every reading came",
            timeout_s=PATIENCE_S,
            every_s=0.5,
        )
