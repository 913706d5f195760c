"""A client of /v1/ws on the library `websockets`, which shares nothing with ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.access.world import Server
from tests.feeds import DEADLINE_S


class Talk:
    """One socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[dict[str, Any]] = []
        """All messages, in their order."""
        self.closed: tuple[int, str] | None = None

    async def say(self, kind: str, name: str = "a", /, **more: Any) -> None:
        """Say something about a subscription; `from_` is the key from."""
        facts = {key.rstrip("_"): value for key, value in more.items()}
        await self.socket.send(orjson.dumps({"type": kind, "id": name, **facts}).decode())

    async def hear(self) -> dict[str, Any]:
        """The next message."""
        try:
            found: dict[str, Any] = orjson.loads(await self.socket.recv())
        except ConnectionClosed:
            self.closed = self.socket.close_code or 0, self.socket.close_reason or ""
            raise
        self.heard.append(found)
        return found

    async def until(self, *kinds: str, within_s: float = DEADLINE_S) -> dict[str, Any]:
        """The next message of one of these kinds; others are passed."""
        async with asyncio.timeout(within_s):
            while True:
                found = await self.hear()
                if found["type"] in kinds:
                    return found

    async def take(self, count: int, name: str = "a") -> list[dict[str, Any]]:
        """The next events of a subscription, at least so many."""
        events: list[dict[str, Any]] = []
        while len(events) < count:
            found = await self.until("events")
            if found["id"] == name:
                events += found["events"]
        return events

    async def until_closed(self) -> tuple[int, str]:
        """How the server closes."""
        with contextlib.suppress(ConnectionClosed):
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    await self.hear()
        assert self.closed is not None
        return self.closed


@asynccontextmanager
async def talk(server: Server, query: str = "", **more: Any) -> AsyncIterator[Talk]:
    """An open socket."""
    url = f"ws://127.0.0.1:{server.port}/v1/ws{query}"
    async with connect(url, compression=None, max_size=None, **more) as socket:
        yield Talk(socket)


def places(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """(device, n) of readings."""
    return [(one["data"]["device"], int(one["data"]["n"])) for one in events if "event" not in one]
