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
    has_ended: bool = False

    def __post_init__(self) -> None:
        self._pieces = self.answer.aiter_raw()

    async def until(self, count: int, *, kind: str = "message") -> list[dict[str, Any]]:
        """The events of a kind, once there are `count` of them."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.of(kind)) < count:
                self.heard += self.parser.feed(await anext(self._pieces))
        return self.of(kind)

    async def for_s(self, seconds: float) -> None:
        """Hear for so long, or to its end."""
        try:
            async with asyncio.timeout(seconds):
                while not self.has_ended:
                    self.heard += self.parser.feed(await anext(self._pieces))
        except StopAsyncIteration:
            self.has_ended = True
        except TimeoutError:
            pass

    async def have(self, row: tuple[str, int]) -> None:
        """Hear until this reading was there."""
        async with asyncio.timeout(DEADLINE_S):
            while row not in places(self.of()):
                self.heard += self.parser.feed(await anext(self._pieces))

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
        yield Posted(answer)


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """(device, n) of readings."""
    return [(row["device"], int(row["n"])) for row in rows]
