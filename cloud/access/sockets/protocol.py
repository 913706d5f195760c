"""A WebSocket's connection by the letter of RFC 6455: uvicorn's protocol on wsproto, with bounds.

wsproto decides without I/O and shares the connection with us: a frame that is made once for many
clients is written beside it, which the library `websockets` does not allow. It checks masks,
opcodes, fragments, UTF-8 and close codes; a violation is answered here with a close frame of its
code, as 7.1.7 asks, where uvicorn closes without one.

* MESSAGE_BYTES_MAX: bytes of a message, in however many fragments; over it: 1009.
* Pings: of those that came while nothing could be written, only the latest is answered (5.5.3
  allows it).
* CLOSE_S: seconds for the other side's close frame. What it sends meanwhile is read and dropped,
  because a connection that is closed with bytes unread is reset, and the close frame would be lost.

uvicorn's classes are not a public interface: the version is pinned in pyproject.toml.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import wsproto
from uvicorn.protocols.websockets.wsproto_impl import FrameTooLargeError, WSProtocol
from wsproto import events
from wsproto.connection import ConnectionState

from edgewake.cloud.access.connection import EXTENSION, Connection

MESSAGE_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a client's message: a filter with a list of ten thousand devices."""
CLOSE_S: Final = 2.0
TOO_LARGE: Final = 1009


class SocketProtocol(WSProtocol):
    """One connection by RFC 6455. `on_gone` is called when the connection is lost."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.on_gone: Callable[[], None] = lambda: None
        self.buffer.max_length = MESSAGE_BYTES_MAX
        self.close_timeout = CLOSE_S
        self._connection: Connection | None = None
        self._ping: events.Ping | None = None
        """The latest that waits for its answer."""
        self._is_garbled = False
        """What comes can be read no more."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = Connection(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.on_gone()
        if self._connection is not None and self._connection.on_lost is not None:
            self._connection.on_lost()

    def data_received(self, data: bytes) -> None:
        if not self._is_garbled:
            super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._connection is not None:
            self._connection.is_paused = True

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._connection is None:
            return
        self._connection.is_paused = False
        if self._ping is not None and not self.close_sent:
            self.transport.write(self.conn.send(self._ping.response()))
        self._ping = None
        if self._connection.on_writable is not None:
            self._connection.on_writable()

    def handle_connect(self, event: events.Request) -> None:
        super().handle_connect(event)
        extensions: dict[str, Any] = self.scope["extensions"]
        extensions[EXTENSION] = self._connection

    def handle_message(self, event: events.TextMessage | events.BytesMessage) -> None:
        try:
            self.buffer.extend(event)
        except FrameTooLargeError:
            self._fail(TOO_LARGE, f"a message has at most {MESSAGE_BYTES_MAX} bytes")
            return
        if event.message_finished:
            self.queue.put_nowait(self.buffer.to_message())
            self.buffer.clear()
            if not self.read_paused:
                self.read_paused = True
                self.transport.pause_reading()

    def handle_ping(self, event: events.Ping) -> None:
        if self._connection is not None and self._connection.is_paused:
            self._ping = event
        elif self.conn.state is ConnectionState.OPEN:
            super().handle_ping(event)

    def handle_close(self, event: events.CloseConnection) -> None:
        if self.conn.state is ConnectionState.OPEN and not self.close_sent:
            self._is_garbled = True  # wsproto found something wrong
            self._fail(int(event.code), event.reason or "")
        else:
            super().handle_close(event)

    def _fail(self, code: int, reason: str) -> None:
        """Say why, and drop what else comes (RFC 6455, 7.1.7)."""
        self.close_sent = True
        self.buffer.clear()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        if self.transport.is_closing():
            return
        self.transport.write(
            self.conn.send(wsproto.events.CloseConnection(code=code, reason=reason))
        )
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
