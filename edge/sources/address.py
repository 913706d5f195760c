"""Opens connections of sources: names are resolved in a thread, TLS is verified.

Each step has a time limit.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from edgewake.edge.daemon_thread import in_daemon_thread
from edgewake.protocol.errors import ConfigError, Unavailable

CONNECT_S: Final = 10.0
"""Seconds for name, TCP and TLS together."""
BUFFER_BYTES: Final = 64 * 1024
"""Bytes that are read ahead; then the other side has to wait."""


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """A context that trusts `ca_file`, or what the machine trusts. Raises ConfigError."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ca_file = {ca_file}: {error}") from error


@asynccontextmanager
async def connected(
    host: str, port: int, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, aborted at the end. Raises Unavailable."""
    where = f"{host}:{port}"
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await _open(host, port, tls)
    except TimeoutError as error:
        raise Unavailable(f"{where}: no connection within {CONNECT_S:.0f} s") from error
    except OSError as error:
        raise Unavailable(f"{where}: {_why(error)}") from error
    try:
        yield reader, writer
    except OSError as error:
        raise Unavailable(f"{where}: {_why(error)}") from error
    finally:
        writer.transport.abort()


async def resolved(host: str, port: int) -> list[str]:
    """Addresses of a name, in the order of preference. Raises OSError."""
    found = await in_daemon_thread(
        lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), name="resolve"
    )
    return [str(address[0]) for *_, address in found]


async def _open(
    host: str, port: int, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    problem: OSError = OSError("no address")
    for address in await resolved(host, port):
        try:
            return await asyncio.open_connection(
                address,
                port,
                ssl=tls,
                server_hostname=None if tls is None else host,
                limit=BUFFER_BYTES,
            )
        except OSError as error:
            problem = error
    raise problem


def _why(error: OSError) -> str:
    """In words: asyncio's have a number and a tuple."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    return error.strerror or str(error) or type(error).__name__
