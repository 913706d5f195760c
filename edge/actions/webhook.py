"""An alert, posted to a server. One request a connection; of the answer only its first line counts, and no more than that is read.

Written here, because a client library weighs more than the agent does; it speaks HTTP/1.1 (RFC 9112) as far as one POST needs it. The
connection is made before the alert is called begun. A redirection is not followed: it could lead to anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

from edgewake.edge.actions.action import Act, ActionFailed
from edgewake.edge.actions.alert import Alert
from edgewake.edge.actions.config import WebhookActionConfig
from edgewake.edge.daemon_thread import in_daemon_thread

LINE_BYTES_MAX: Final = 1024
"""Bytes of the answer's first line. A longer one is no HTTP."""
PORTS: Final = {"http": 80, "https": 443}


class WebhookAction:
    """See the module."""

    def __init__(self, config: WebhookActionConfig) -> None:
        self._config = config
        parts = urlsplit(config.url)
        self._host, self._scheme = parts.hostname or "", parts.scheme
        self._port = parts.port or PORTS[parts.scheme]
        self._authority = parts.netloc
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[Act]:
        head = self._head()
        tls = ssl.create_default_context(cafile=self._config.ca_file) if self._scheme == "https" else None
        found = await in_daemon_thread(lambda: socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM), name="resolve")
        address = str(found[0][4][0])
        name = None if tls is None else self._host
        reader, writer = await asyncio.open_connection(address, self._port, ssl=tls, server_hostname=name, limit=LINE_BYTES_MAX)

        async def post(alert: Alert) -> None:
            body = alert.body()
            writer.write(f"{head}Idempotency-Key: {alert.id}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            _check(await reader.readline())

        try:
            yield post
        finally:
            writer.transport.abort()

    def _head(self) -> str:
        lines = [f"POST {self._target} HTTP/1.1", f"Host: {self._authority}", "Connection: close", "Content-Type: application/json"]
        lines += ["User-Agent: edgewake-agent", "Accept: */*"]
        if self._config.token_file is not None:
            token = self._config.token_file.read_text("ascii").partition("\n")[0].strip()
            lines.append(f"Authorization: Bearer {token}")
        return "".join(f"{line}\r\n" for line in lines)


def _check(line: bytes) -> None:
    version, _, rest = line.decode("latin-1").strip().partition(" ")
    status = rest.partition(" ")[0]
    if not version.startswith("HTTP/1.") or not status.isdecimal() or len(status) != 3:
        raise ActionFailed(f"the server's answer is no HTTP: {line[:80]!r}")
    if not status.startswith("2"):
        raise ActionFailed(f"the server answered {rest[:80]}")
