"""The connection under a request: what ASGI hides and a server of endless answers must know.

`Protocol` is uvicorn's, with a Connection put into each request's scope (`scope["extensions"]["edgewake.connection"]`), and a bound on
the request's head in bytes and time, which uvicorn does not have.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from typing import Any, Final

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION: Final = "edgewake.connection"
HEAD_BYTES_MAX: Final = 32 * 1024
"""Bytes of URL and headers: a cursor of 4 KB twice, two filters, and a browser's own headers. Over it: 400 and the end."""
HEAD_S: Final = 10.0
"""Seconds for a request's head from the connection or its first byte on; a client that dribbles is cut off."""
WRITE_HIGH_BYTES: Final = 64 * 1024
"""Bytes waiting in our own buffer above which a client is not written to."""


class Connection:
    """A connection's transport, as far as a stream needs it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.on_lost: Callable[[], None] | None = None

    def waiting(self) -> int:
        """Bytes written and not yet acknowledged by the other side."""
        return self._transport.get_write_buffer_size() + self._send_queue()

    def _send_queue(self) -> int:
        """SIOCOUTQ: bytes in the kernel's send queue (Linux)."""
        found = self._transport.get_extra_info("socket")
        if found is None or found.fileno() < 0:
            return 0
        answer = fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        return int(struct.unpack("i", answer)[0])

    def abort(self) -> None:
        """Close at once; what is buffered is dropped. The client ignores the torn event and resumes."""
        self._transport.abort()

    def is_lost(self) -> bool:
        """Is it closed or about to be?"""
        return self._transport.is_closing()


def connection_of(scope: Scope) -> Connection | None:
    """The request's connection; None where another server than ours runs the application."""
    found: Connection | None = scope.get("extensions", {}).get(EXTENSION)
    return found


class Protocol(HttpToolsProtocol):
    """See the module."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._connection = Connection(transport)
        self._head_bytes = 0
        self._head_due = self.loop.call_later(HEAD_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._head_due.cancel()
        if self._connection.on_lost is not None:
            self._connection.on_lost()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._head_due.cancel()
        self._head_due = self.loop.call_later(HEAD_S, self.transport.abort)
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope["extensions"] = {EXTENSION: self._connection}

    def on_url(self, url: bytes) -> None:
        self._take(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._take(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_due.cancel()
        super().on_headers_complete()

    def _take(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ValueError("request head too large")  # httptools turns it into a parser error, uvicorn that into a 400


def tune(listener: socket.socket, *, send_buffer_bytes: int, stall_s: float) -> None:
    """Set what accepted sockets inherit (Linux): a bounded send buffer, and the end of peers that vanished without a word.

    The kernel waits twice as long as we do for a reader that stalled, so that it is us who see and count it.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2 * stall_s * 1000))
