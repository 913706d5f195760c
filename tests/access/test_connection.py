"""The connection under a request: what is written to one that was lost harms nobody."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from edgewake.cloud.access.connection import (
    Answer,
    Connection,
    Protocol,
    answer_of,
    connection_of,
    http_chunk,
)
from edgewake.cloud.web.connections import Connections
from tests.services import PATIENCE_S


async def lost() -> asyncio.Transport:
    """A transport of a connection that was torn off."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()

    class Sink(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            gone.set()

    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, _ = await loop.create_connection(Sink, "127.0.0.1", port)
    transport.abort()
    await gone.wait()
    await asyncio.sleep(0)
    server.close()
    return transport


def test_what_is_written_to_a_connection_that_was_lost_is_dropped() -> None:
    """The control: uvloop's transport raises, and whoever writes in a turn of all would end all."""

    async def control() -> None:
        (await lost()).write(b"an event")

    async def ours() -> None:
        connection = Connection(await lost())
        assert connection.is_lost()
        connection.write(b"an event")

    with pytest.raises(RuntimeError, match="handler is closed"):
        uvloop.run(control())
    uvloop.run(ours())


class Endless:
    """An application whose answers go on when it has returned."""

    def __init__(self) -> None:
        self.going: list[tuple[Answer, Connection]] = []
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.running += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/short":
            await send({"type": "http.response.body", "body": b"short", "more_body": False})
        else:
            answer = answer_of(scope)
            answer.outlives_handler()
            self.going.append((answer, connection_of(scope)))
        self.running -= 1


async def test_an_answer_goes_on_when_its_handler_has_returned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What came behind it on the connection waits for its end, and is answered then."""
    app = Endless()
    config = uvicorn.Config(
        app,
        port=0,
        lifespan="off",
        log_config=None,
        http=partial(Protocol, connections=Connections()),  # type: ignore[arg-type]
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(PATIENCE_S):
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for path in ("/long", "/short"):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b"chunked" in await reader.readuntil(b"\r\n\r\n")
        while app.running or server.server_state.tasks:
            await asyncio.sleep(0.01)
        ((answer, connection),) = app.going
        for piece in (b"one", b"two"):
            connection.write(http_chunk(piece))
            assert await reader.readuntil(piece + b"\r\n") == http_chunk(piece)
        answer.end()
        assert await reader.readuntil(b"\r\n\r\n") == b"0\r\n\r\n"
        assert await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"chunked" in await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        while server.server_state.connections:
            await asyncio.sleep(0.01)
        app.going[-1][0].end()  # of a connection that is gone
        server.should_exit = True
        await serving
    assert "without completing" not in caplog.text
