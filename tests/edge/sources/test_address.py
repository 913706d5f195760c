"""Connections of sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from edgewake.edge.sources import address
from edgewake.edge.sources.address import connected, resolved, tls_context
from edgewake.protocol.errors import ConfigError, Unavailable
from tests.services import free_ports


@pytest.fixture
def unused() -> int:
    (found,) = free_ports(1)
    return found


@asynccontextmanager
async def serving(hello: bytes = b"") -> AsyncIterator[int]:
    """A server that says so much and waits until its client is gone: its port."""
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hello)
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        gone.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, asyncio.timeout(10):
        yield server.sockets[0].getsockname()[1]
        await gone.wait()


async def test_a_connection_is_aborted_at_the_end() -> None:
    async with serving(b"hello") as port, connected("localhost", port) as (reader, _):
        assert await reader.readexactly(5) == b"hello"


async def test_nobody_there_is_away_and_named(unused: int) -> None:
    with pytest.raises(Unavailable, match=f"127.0.0.1:{unused}: "):
        async with connected("127.0.0.1", unused):
            raise AssertionError("nobody listens")


async def test_a_connection_that_breaks_while_it_is_used_is_away() -> None:
    async with serving() as port:
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}: broken"):
            async with connected("127.0.0.1", port):
                raise OSError("broken")


async def test_a_server_that_says_nothing_of_tls_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(address, "CONNECT_S", 0.2)
    async with serving() as port:
        with pytest.raises(Unavailable, match="no connection within 0 s"):
            async with connected("127.0.0.1", port, tls=tls_context(None)):
                raise AssertionError("there is no TLS")


async def test_a_name_has_addresses_or_is_an_error() -> None:
    assert "127.0.0.1" in await resolved("localhost", 80)
    with pytest.raises(OSError, match=r"not known|failure"):
        await resolved("no-such-host.invalid", 80)


def test_a_file_of_authorities_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for path in (tmp_path / "ca.pem", tmp_path / "gone.pem"):
        with pytest.raises(ConfigError, match=f"ca_file = {path}: "):
            tls_context(path)
