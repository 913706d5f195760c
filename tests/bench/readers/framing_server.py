"""A WebSocket server that sends EVENTS texts to each client by one of uvicorn's implementations.

`python -m tests.bench.readers.framing_server KIND PORT CLIENTS EVENTS`: it begins once CLIENTS are
there, and prints the processor seconds of its sending when every client has closed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, Final

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgewake.cloud.access.connection import EXTENSION, Connection
from edgewake.cloud.access.sockets.protocol import SocketProtocol

TEXT: Final = '{"type":"events","data":"' + "x" * 174 + '"}'
FRAME: Final = b"\x81\x7e" + len(TEXT).to_bytes(2, "big") + TEXT.encode()
"""A text frame without a mask (RFC 6455, 5.2)."""
OURS: Final = "ours"
TURN: Final = 50
"""Events that are sent before others get their turn."""


class Http(HttpToolsProtocol):
    """Gives a handshake the extensions that our sockets need."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope["extensions"] = {EXTENSION: None}


class Sender:
    """The application: all clients get the same events."""

    def __init__(self, kind: str, clients: int, events: int) -> None:
        self._kind, self._events = kind, events
        self._missing, self._left = clients, clients
        self._all_are_here = asyncio.Event()
        self._began_s = 0.0
        self.is_over = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self._missing -= 1
        if self._missing == 0:
            self._began_s = time.process_time()
            self._all_are_here.set()
        await self._all_are_here.wait()
        if self._kind == OURS:
            await self._write(scope["extensions"][EXTENSION])
        else:
            await self._send(send)
        await receive()
        self._left -= 1
        if self._left == 0:
            print(time.process_time() - self._began_s, flush=True)
            self.is_over.set()

    async def _send(self, send: Any) -> None:
        for number in range(self._events):
            await send({"type": "websocket.send", "text": TEXT})
            if number % TURN == 0:
                await asyncio.sleep(0)

    async def _write(self, connection: Connection) -> None:
        writable = asyncio.Event()
        connection.on_writable = writable.set
        for number in range(self._events):
            while connection.is_paused:
                writable.clear()
                await writable.wait()
            connection.write(FRAME)
            if number % TURN == 0:
                await asyncio.sleep(0)


async def serve(kind: str, port: int, clients: int, events: int) -> None:
    """Serve until all clients have closed."""
    app = Sender(kind, clients, events)
    config = uvicorn.Config(
        app,
        port=port,
        http=Http,
        ws=SocketProtocol if kind == OURS else kind,
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        lifespan="off",
        log_level="warning",
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await app.is_over.wait()
    server.should_exit = True
    await serving


if __name__ == "__main__":
    kind, *numbers = sys.argv[1:]
    uvloop.run(serve(kind, *(int(one) for one in numbers)))
