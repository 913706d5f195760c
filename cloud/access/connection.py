"""The connection under a request: what ASGI hides and a server of endless answers must know.

`Protocol` is that of all HTTP parts, with a Connection put into each request's scope
(`scope["extensions"]["edgewake.connection"]`).
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
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from edgewake.cloud.web.limits import LimitedProtocol

EXTENSION: Final = "edgewake.connection"
ANSWER: Final = "edgewake.answer"
_NO_SCOPE: Final[Any] = {}
"""The scope of a request whose handler has returned."""
SOCKETS_PATH: Final = b"/v1/ws"
"""Where handshakes of WebSockets are heard; any other address refuses them in words."""
SEND_BUFFER_BYTES: Final = 128 * 1024
"""SO_SNDBUF of each connection, which the kernel doubles: what a reader that never reads may hold
in the kernel, and enough for a fast one between two writes."""
WRITE_HIGH_BYTES: Final = 64 * 1024
"""Bytes waiting in our own buffer above which a client is not written to."""


class Connection:
    """A connection's transport, as far as a stream needs it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_paused = False
        """Whether our own buffer is so full that nothing more should be written."""
        self.on_lost: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        """Called when `is_paused` ends."""

    def write(self, framed: bytes) -> None:
        """Write bytes as they are to be on the wire: `http_chunk` frames them. Never waits.

        What is written to a connection that was lost is dropped: `on_lost` tells it in a moment,
        and until then a transport of uvloop's would raise, into whatever turn writes.
        """
        if not self._transport.is_closing():
            self._transport.write(framed)

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
        """Close at once; what is buffered is dropped.

        The client ignores the torn event and resumes.
        """
        self._transport.abort()

    def is_lost(self) -> bool:
        """Is it closed or about to be?"""
        return self._transport.is_closing()


def connection_of(scope: Scope) -> Connection:
    """The request's connection. Only our own server puts it there."""
    found: Connection = scope["extensions"][EXTENSION]
    return found


class Answer:
    """The answer to one request, which may go on when the request's handler has returned.

    A handler that waits keeps the coroutines of everything that stands before it, some 40 KB, for
    as long as the answer lasts.
    """

    def __init__(self, protocol: Protocol, cycle: RequestResponseCycle) -> None:
        self._protocol, self._cycle = protocol, cycle

    def outlives_handler(self) -> None:
        """From now on the handler may return; `end` ends the answer.

        uvicorn counts what is not complete as a fault, unless nobody is there to be told.
        """
        self._cycle.disconnected = True
        scope, self._cycle.scope = self._cycle.scope, _NO_SCOPE
        if self._protocol.scope is scope:  # else it reads the client's next request already
            self._protocol.scope, self._protocol.headers = _NO_SCOPE, []

    def end(self) -> None:
        """Say that the body is complete; the connection goes on with its next request."""
        cycle, transport = self._cycle, self._cycle.transport
        cycle.response_complete = True
        if transport.is_closing():
            return
        transport.write(http_chunk(b""))
        if not cycle.keep_alive:
            transport.close()
        self._protocol.on_response_complete()


def answer_of(scope: Scope) -> Answer:
    """The request's answer. Only our own server puts it there."""
    found: Answer = scope["extensions"][ANSWER]
    return found


def http_chunk(data: bytes) -> bytes:
    """A piece of a chunked body (RFC 9112 7.1).

    Framed once, the same bytes go to all connections.
    """
    return b"%x\r\n%b\r\n" % (len(data), data)


class Protocol(LimitedProtocol):
    """Puts a Connection into the scope of each request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._connection = Connection(transport)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        scope: dict[str, Any] = cycle.scope  # type: ignore[assignment]
        scope["extensions"][ANSWER] = Answer(self, cycle)
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connection.is_paused = True

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connection.is_paused = False
        if self._connection.on_writable is not None:
            self._connection.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._connection.on_lost is not None:
            self._connection.on_lost()

    def _should_upgrade_to_ws(self) -> bool:
        is_there: bool = super()._should_upgrade_to_ws()
        return is_there and self.url.partition(b"?")[0] == SOCKETS_PATH

    def handle_websocket_upgrade(self) -> None:
        """The connection goes on as a WebSocket; it is counted here until it is lost."""
        super().handle_websocket_upgrade()
        self.transport.get_protocol().on_gone = self.leave  # type: ignore[attr-defined]

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope["extensions"] = {EXTENSION: self._connection}


def tune(listener: socket.socket, *, stall_s: float) -> None:
    """Set what accepted sockets inherit (Linux): a bounded send buffer, and the end of dead peers.

    The kernel waits twice as long as we do for a reader that stalled, so that it is us who see and
    count it.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2 * stall_s * 1000))
