"""One POST to one address over its own connection; only status and Retry-After are read.

A connection is never kept: it would escape the check of the address. The general HTTP clients take
ten times the processor time for this (`make bench-push` shows a wake-up's), and a proxy may have a
hundred thousand to send at once. The answer is parsed by httptools, as in uvicorn.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import httptools

from edgewake.cloud.calls.endpoint import Endpoint
from edgewake.protocol.errors import EdgewakeError

ANSWER_BYTES_MAX: Final = 65_536
"""The most bytes of an answer before its head has ended; more is not taken for an answer."""


class NotConnected(EdgewakeError):
    """No connection came about, so nothing was sent."""


class NotAnswered(EdgewakeError):
    """The request may have been taken, but was not answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The endpoint's answer."""

    status: int
    retry_after: str | None


async def post(
    target: Endpoint,
    address: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    tls: ssl.SSLContext,
    connect_timeout_s: float,
) -> Answer:
    """Send `body` to `target` at `address`.

    Raises NotConnected or NotAnswered; the time of the whole is the caller's to bound.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = loop.create_future()
    words = [
        f"POST {target.target} HTTP/1.1",
        f"host: {target.netloc}",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    words += [f"{name}: {value}" for name, value in headers.items()]
    request = ("\r\n".join(words) + "\r\n\r\n").encode() + body
    is_secure = target.scheme == "https"
    try:
        async with asyncio.timeout(connect_timeout_s):
            transport, _ = await loop.create_connection(
                lambda: _Exchange(request, answer),
                address,
                target.port,
                ssl=tls if is_secure else None,
                server_hostname=target.host if is_secure else None,
            )
    except TimeoutError as error:
        raise NotConnected(f"no connection within {connect_timeout_s:g} s") from error
    except (
        OSError,
        ValueError,
    ) as error:  # OSError: a certificate's too; ValueError: a name that no certificate can have
        raise NotConnected(f"no connection: {error}"[:200]) from error
    try:
        return await answer
    finally:
        # what the answer's body may be is not waited for, nor the endpoint's farewell
        transport.abort()


class _Exchange(asyncio.Protocol):
    """Writes the request, reads the answer's head."""

    def __init__(self, request: bytes, answer: asyncio.Future[Answer]) -> None:
        self._request = request
        self._answer = answer
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._bytes = 0
        self._retry_after: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._answer.done():
            return
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # 101: its head was read
        except httptools.HttpParserError as error:
            self._fail(f"no HTTP answer: {error}"[:200])
        if self._bytes > ANSWER_BYTES_MAX:
            self._fail(f"no answer in {ANSWER_BYTES_MAX} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser = None  # it and we would keep each other
        self._fail(f"the connection ended without an answer{f': {exc}' if exc else ''}"[:200])

    def _fail(self, why: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(NotAnswered(why))
            self._answer.exception()  # nobody may wait for it any more, or not yet

    # Called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer."""
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head has ended; one of 100 to 199 but 101 is followed by another."""
        status = self._parser.get_status_code() if self._parser is not None else 0
        if (status >= 200 or status == 101) and not self._answer.done():
            self._answer.set_result(Answer(status, self._retry_after))
