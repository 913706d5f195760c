"""Serves the agent's page and its metrics, in a process of its own.

So the agent pays nothing for them, and a dead agent can be inspected.

`/` for people, `/metrics` for Prometheus, on the loopback only: from elsewhere through ssh. The log
is opened for reading. A name that another page's DNS makes of this address is refused (Host).
"""

from __future__ import annotations

import io
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from edgewake.edge import status as status_file
from edgewake.edge.log.damage.audit import latest
from edgewake.edge.page import metrics, page
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError

log = logging.getLogger("edgewake.agent")

HOST: Final = "127.0.0.1"
HTTP_PORT: Final = 80
REQUEST_S: Final = 5.0
"""Seconds that a whole request may take to come, and an answer to go: who sends a byte now and then
is cut like who sends nothing."""
REQUESTS_MAX: Final = 8
"""Requests at once; one more is closed."""
KEPT_S: Final = 1.0
"""Seconds for which an answer serves all who ask: many browsers read the log no oftener than
one."""


class PageServer(ThreadingHTTPServer):
    """Binds when it is made. Raises LocalError."""

    daemon_threads = True
    request_queue_size = REQUESTS_MAX

    def __init__(self, directory: Path, port: int, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._room = threading.BoundedSemaphore(REQUESTS_MAX)
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, str]] = {}
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise LocalError(f"{HOST}:{port}: {error.strerror}") from error
        self.names = _names(self.server_port)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Ignore a client that has gone; log anything else as our fault."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request could not be answered", extra={"event": "page.failed"})

    def text(self, path: str) -> str:
        """The page or the metrics, at most KEPT_S old. Raises LocalError."""
        with self._lock:
            made_s, text = self._kept.get(path, (float("-inf"), ""))
            now_s = self._clock.monotonic_s()
            if now_s - made_s >= KEPT_S:
                text = ANSWERS[path][1](self._directory, self._clock.now_ms())
                self._kept[path] = (now_s, text)
            return text


def _names(port: int) -> frozenset[str]:
    """What a browser calls us; the port of http goes without saying (RFC 9110, 7.2)."""
    hosts = (HOST, "localhost")
    return frozenset(
        {f"{host}:{port}" for host in hosts} | (set(hosts) if port == HTTP_PORT else set())
    )


def _page(directory: Path, now_ms: int) -> str:
    status = status_file.read(directory, now_ms=now_ms)
    # The log has newer ones than the status, where it has any.
    return page.render(status, status.get("latest", {}) | latest(directory))


def _metrics(directory: Path, now_ms: int) -> str:
    return metrics.exposition(status_file.read(directory, now_ms=now_ms))


ANSWERS: Final[dict[str, tuple[str, Callable[[Path, int], str]]]] = {
    "/": ("text/html; charset=utf-8", _page),
    "/metrics": (metrics.CONTENT_TYPE, _metrics),
}
"""Path → content type, and who makes it."""


class _Until(io.RawIOBase):
    """What comes in on a connection, until its time is over."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        super().__init__()
        self._connection = connection
        self._until_s = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises TimeoutError."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request did not come in time")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: PageServer
    timeout = REQUEST_S
    server_version = "edgewake-agent"
    sys_version = ""

    def setup(self) -> None:
        """Bound the time of the whole request."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Until(self.connection, self.timeout))

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if self.headers.get("Host") not in self.server.names:
            self._say(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "ask for 127.0.0.1")
        elif path not in ANSWERS:
            self._say(HTTPStatus.NOT_FOUND, "text/plain", "there are / and /metrics")
        else:
            try:
                self._say(HTTPStatus.OK, ANSWERS[path][0], self.server.text(path))
            except LocalError as error:
                self._say(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", str(error))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """What the base class refuses: in our form, without a word of what was asked."""
        self._say(HTTPStatus(code), "text/plain", HTTPStatus(code).phrase)

    def _say(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.connection.settimeout(self.timeout)
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Connection": "close",
        }
        safe = {
            "Content-Security-Policy": page.POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        for name, value in (headers | safe).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A request for the page is not worth a line in the log."""
