"""Readers of POSTed streams, on httpx."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from tests.access.world import Event, Parser
from tests.feeds import DEADLINE_S


@dataclass
class Posted:
    """An open stream; all it was sent."""

    answer: httpx.Response
    heard: list[Event] = field(default_factory=list)
    parser: Parser = field(default_factory=Parser)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    has_ended: bool = False

    async def read(self) -> None:
        """Until the server ends it."""
        try:
            async for piece in self.answer.aiter_raw():
                self.heard += self.parser.feed(piece)
                self.news.set()
        finally:
            self.has_ended = True
            self.news.set()

    async def until(self, count: int, *, kind: str = "message") -> list[dict[str, Any]]:
        """The events of a kind, once there are `count` of them."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.of(kind)) < count:
                await self._more()
        return self.of(kind)

    async def have(self, row: tuple[str, int]) -> None:
        """Hear until this reading was there."""
        async with asyncio.timeout(DEADLINE_S):
            while row not in places(self.of()):
                await self._more()

    async def until_ended(self) -> None:
        """The server ended it."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.has_ended:
                self.news.clear()
                await self.news.wait()

    async def _more(self) -> None:
        assert not self.has_ended, self.heard
        self.news.clear()
        await self.news.wait()

    def of(self, kind: str = "message") -> list[dict[str, Any]]:
        """The data of the events of a kind."""
        return [orjson.loads(one.data) for one in self.heard if one.type == kind]

    @property
    def cursor(self) -> str:
        """Where it stands."""
        return self.parser.last_event_id


@asynccontextmanager
async def posted(
    base: str, path: str, body: dict[str, Any], **headers: str
) -> AsyncIterator[Posted]:
    """POST for a stream."""
    asked = {"Accept": "text/event-stream"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    async with (
        httpx.AsyncClient(base_url=base, timeout=DEADLINE_S) as client,
        client.stream("POST", path, json=body, headers=asked) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        found = Posted(answer)
        reading = asyncio.create_task(found.read())
        try:
            yield found
        finally:
            reading.cancel()
            await asyncio.wait([reading])


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """(device, n) of readings."""
    return [(row["device"], int(row["n"])) for row in rows]
