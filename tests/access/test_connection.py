"""The connection under a request: what is written to one that was lost harms nobody."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from edgewake.cloud.access.connection import Connection


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
