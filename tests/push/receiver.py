"""A real HTTP server that receives webhooks, for tests: what it answers is told to it, what it got
is kept.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from standardwebhooks.webhooks import Webhook

from tests.services import PATIENCE_S

Answer = tuple[int, dict[str, str]]


@dataclass
class Received:
    """One call."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def signed(self, secret: str) -> dict[str, Any]:
        """The body, its signature checked whatever the time of it: for clocks that are not
        today's.
        """
        at = datetime.fromtimestamp(int(self.headers["webhook-timestamp"]), UTC)
        assert (
            Webhook(secret).sign(self.id, at, self.body.decode())
            == self.headers["webhook-signature"]
        )
        found: dict[str, Any] = json.loads(self.body)
        return found

    def verified(self, secret: str) -> dict[str, Any]:
        """The body, its signature checked by the library."""
        return Webhook(secret).verify(self.body, self.headers)


@dataclass
class Receiver:
    """Where to call, what came, and what to answer."""

    port: int = 0
    scheme: str = "http"
    calls: list[Received] = field(default_factory=list)
    connections: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    answer: Callable[[int], Answer | None] = lambda n: (204, {})
    """Number of the call from 0 → status and headers; None: never answer."""

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = {
                k.lower(): v
                for k, _, v in (line.partition(": ") for line in head.split("\r\n")[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.calls.append(Received(headers, body))
            answer = self.answer(len(self.calls) - 1)
            if answer is None:
                await reader.read()
            else:
                status, more = answer
                lines = [
                    f"HTTP/1.1 {status} X",
                    "content-length: 0",
                    *(f"{k}: {v}" for k, v in more.items()),
                ]
                writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    async def got(self, count: int, *, timeout_s: float = PATIENCE_S) -> list[Received]:
        """Wait for so many calls."""
        async with asyncio.timeout(timeout_s):
            while len(self.calls) < count:
                await asyncio.sleep(0.01)
        return self.calls


@asynccontextmanager
async def receiving(*, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Run one on the loopback."""
    receiver = Receiver(scheme="https" if tls else "http")
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for writer in list(receiver.open):
            writer.transport.abort()
        await server.wait_closed()
