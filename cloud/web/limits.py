"""Bounds a connection in bytes and seconds before its request is understood.

uvicorn has no such bounds.

    head    HEAD_BYTES_MAX bytes of request line and headers, HEAD_S seconds for them;
            over it: 431, or the connection is closed
    body    BODY_S seconds from the head's end to the body's; over it: the connection is closed
    count   of one client, and of all together (`edgewake.cloud.web.connections`);
            over it: 503, and the connection is closed

All HTTP parts serve through `LimitedProtocol`. It extends uvicorn's own protocol class, which is
not a public interface: the version is pinned in pyproject.toml.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgewake.cloud.web.connections import Connections
from edgewake.cloud.web.problem import problem_body
from edgewake.cloud.web.tls import certificate_of

CERTIFICATE: Final = "certificate"
"""In a request's `state`: the certificate that its client showed."""
HEAD_BYTES_MAX: Final = 32 * 1024
"""Bytes of a request's head: a cursor of 4 KB twice, two filters, and a browser's own headers. Over
it: 431 and the end."""
HEAD_S: Final = 10.0
"""Seconds for a request's head, from the connection or its first byte on; a client that dribbles is
cut off."""
BODY_S: Final = 15.0
"""Seconds for a request's body, which is at most some hundred KB; a client that dribbles is cut
off."""


class LimitedProtocol(HttpToolsProtocol):
    """An HTTP protocol with bounds on the head and the body of a request."""

    def __init__(self, *args: Any, connections: Connections, **more: Any) -> None:
        super().__init__(*args, **more)
        self._connections_held = connections
        self._is_let_in = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if (shown := certificate_of(transport)) is not None:
            self.app_state = {**self.app_state, CERTIFICATE: shown}
        self._in_head = True
        self._head_bytes = 0
        self._due = self.loop.call_later(HEAD_S, transport.abort)
        refused = self._connections_held.refusal(self._peer())
        self._is_let_in = refused is None
        if refused is not None:
            transport.write(refused)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.leave()

    def leave(self) -> None:
        """The connection is gone: it counts no more."""
        self._due.cancel()
        if self._is_let_in:
            self._is_let_in = False
            self._connections_held.leave(self._peer())

    def data_received(self, data: bytes) -> None:
        if not self._is_let_in:
            return
        was_in_head = self._in_head
        super().data_received(data)
        # The parser reports a header only once it is whole, so one without an end is counted here,
        # by the chunks that ended in it.
        if was_in_head and self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self._wait(HEAD_S)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._wait(BODY_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._due.cancel()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a head that cannot be read, or 431 to one that is too large."""
        if self._head_bytes <= HEAD_BYTES_MAX:
            super().send_400_response(msg)
            return
        detail = f"request head: expected at most {HEAD_BYTES_MAX} bytes"
        body = problem_body(431, "head_too_large", detail)
        head = (
            "content-type: application/problem+json\r\ncontent-length: "
            f"{len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + head.encode() + body
        )
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Said to who asked (`edgewake.cloud.web.handshake`), and to nobody else."""

    def _peer(self) -> str | None:
        return self.client[0] if self.client else None

    def _wait(self, seconds: float) -> None:
        self._due.cancel()
        self._due = self.loop.call_later(seconds, self.transport.abort)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            # Httptools turns it into a parser error, which is answered above.
            raise ValueError("request head too large")
