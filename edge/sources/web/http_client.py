"""One HTTP/1.1 request of the agent, bounded in redirects, headers, time and bytes.

Nothing is read ahead of its reader.

    async with answer(Request(parse_url("https://example.org/now")), tls) as got:
        async for piece in got.pieces(silence_s=30): …

The protocol is `h11`. Content codings are not asked for and not taken, so no small answer becomes a
large one. Redirects are followed REDIRECTS_MAX times, never from https to http, and credentials
stay with the host that they were meant for.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

import h11

from edgewake.edge.sources.address import BUFFER_BYTES, connected
from edgewake.protocol.backoff import retry_after_s
from edgewake.protocol.errors import RemoteError, Unavailable

REDIRECTS_MAX: Final = 5
"""Redirects of one request; more are a loop, or as good as one."""
HEAD_BYTES_MAX: Final = 16 * 1024
"""Bytes of an answer's head; an answer with more is refused."""
ANSWER_S: Final = 30.0
"""Seconds until the head of an answer is there."""
REDIRECT: Final = frozenset({301, 302, 303, 307, 308})
USER_AGENT: Final = "edgewake-agent"
RETRY_AFTER_MAX_S: Final = 3600.0
"""Seconds that a server's Retry-After counts at most: one that says a year by mistake is asked
again within the hour."""


@dataclass(frozen=True, slots=True)
class Request:
    """`headers`: name → value, sent as they are; `secret`: those that no other host gets.

    Without a `body` it is a GET, else a POST.
    """

    url: SplitResult
    headers: tuple[tuple[str, str], ...] = ()
    secret: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


def parse_url(text: str, *schemes: str) -> SplitResult:
    """An address of these schemes (http, https). Raises ValueError."""
    schemes = schemes or ("http", "https")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("expected ASCII without spaces: encode the rest with %")
    url = urlsplit(text)
    if url.scheme not in schemes:
        raise ValueError(
            "expected an address that begins with "
            f"{' or '.join(f'{scheme}://' for scheme in schemes)}"
        )
    if not url.hostname:
        raise ValueError("expected an address with a host")
    if url.username is not None:
        raise ValueError("expected no user name or password in the address: use token_file")
    _ = url.port  # raises ValueError
    return url


def port_of(url: SplitResult) -> int:
    """The port of a URL."""
    return url.port or (443 if url.scheme in ("https", "wss") else 80)


def target_of(url: SplitResult) -> str:
    """Path and query, as they are asked for."""
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


def host_of(url: SplitResult) -> str:
    """The header Host: name and port where it is not the usual one."""
    name = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
    return name if url.port is None else f"{name}:{url.port}"


def redirected(request: Request, location: str) -> Request:
    """Where a redirect leads. Raises RemoteError where it leads nowhere or out of TLS. Pure."""
    try:
        url = parse_url(urljoin(request.url.geturl(), location))
    except ValueError as error:
        raise RemoteError(
            f"{request.url.geturl()}: a redirect that leads nowhere: {error}"
        ) from error
    if request.url.scheme == "https" and url.scheme != "https":
        raise RemoteError(f"{request.url.geturl()}: a redirect from https to http is not followed")
    same = (url.scheme, url.hostname, port_of(url)) == (
        request.url.scheme,
        request.url.hostname,
        port_of(request.url),
    )
    return replace(request, url=url, secret=request.secret if same else ())


class Answer:
    """The head of an answer, and its body in pieces."""

    def __init__(
        self,
        status: int,
        headers: dict[str, str],
        protocol: h11.Connection,
        reader: asyncio.StreamReader,
    ) -> None:
        self.status = status
        self.headers = headers
        """Names in lower case; of several with one name the last."""
        self._protocol = protocol
        self._reader = reader

    async def pieces(self, *, silence_s: float) -> AsyncIterator[bytes]:
        """The body as it comes.

        Raises Unavailable when nothing comes for so long or it ends early.
        """
        while True:
            event = await _next(self._protocol, self._reader, silence_s, "nothing came")
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return

    async def body(self, *, bytes_max: int, time_s: float) -> bytes:
        """All of it. Raises RemoteError where it is longer, Unavailable where it takes longer."""
        parts = bytearray()
        try:
            async with asyncio.timeout(time_s):
                async for piece in self.pieces(silence_s=time_s):
                    parts += piece
                    if len(parts) > bytes_max:
                        raise RemoteError(f"an answer of more than {bytes_max} bytes")
        except TimeoutError as error:
            raise Unavailable(f"an answer that was not whole after {time_s:.0f} s") from error
        return bytes(parts)


def not_as_wanted(request: Request, got: Answer, now_ms: int, more: str = "") -> Unavailable:
    """The error for an unexpected answer, with the wait that the server asks for (Retry-After)."""
    wait_s = retry_after_s(got.headers.get("retry-after", ""), now_ms, max_s=RETRY_AFTER_MAX_S)
    return Unavailable(f"{request.url.geturl()}: HTTP {got.status}{more}", retry_after_s=wait_s)


@asynccontextmanager
async def answer(request: Request, tls: ssl.SSLContext | None) -> AsyncIterator[Answer]:
    """Ask, follow redirects, and yield the final answer.

    `tls`: for https. Raises Unavailable, RemoteError.
    """
    for _ in range(REDIRECTS_MAX + 1):
        url = request.url
        async with connected(
            url.hostname or "", port_of(url), tls=tls if url.scheme == "https" else None
        ) as (reader, writer):
            got = await ask(request, reader, writer)
            location = got.headers.get("location")
            if got.status not in REDIRECT or location is None:
                if got.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
                    raise RemoteError(
                        f"{url.geturl()}: an answer in a coding that was not asked for"
                    )
                yield got
                return
        request = redirected(request, location)
    raise RemoteError(f"{request.url.geturl()}: more than {REDIRECTS_MAX} redirects")


async def ask(
    request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Answer:
    """Ask once, on a connection that was made for this. Raises Unavailable, RemoteError."""
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    headers = [
        ("Host", host_of(request.url)),
        ("User-Agent", USER_AGENT),
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]
    headers += [] if request.body is None else [("Content-Length", str(len(request.body)))]
    encoded = [
        (name.encode(), value.encode())
        for name, value in (*headers, *request.headers, *request.secret)
    ]
    try:
        method = "GET" if request.body is None else "POST"
        sent = (
            protocol.send(
                h11.Request(method=method, target=target_of(request.url), headers=encoded)
            )
            or b""
        )
    except h11.LocalProtocolError as error:
        raise RemoteError(
            f"{request.url.geturl()}: a header that cannot be sent: {error}"
        ) from error
    sent += protocol.send(h11.Data(request.body)) or b"" if request.body else b""
    writer.write(sent + (protocol.send(h11.EndOfMessage()) or b""))
    try:
        async with asyncio.timeout(ANSWER_S):
            await writer.drain()
            return await _head(request.url, protocol, reader)
    except TimeoutError as error:
        raise Unavailable(f"{request.url.geturl()}: no answer within {ANSWER_S:.0f} s") from error


async def _head(url: SplitResult, protocol: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    while True:
        event = await _next(protocol, reader, ANSWER_S, "no answer")
        if isinstance(event, h11.Response):
            named = {
                name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers
            }
            return Answer(event.status_code, named, protocol, reader)
        if isinstance(event, h11.ConnectionClosed | h11.EndOfMessage):
            raise Unavailable(f"{url.geturl()}: closed without an answer")


async def _next(
    protocol: h11.Connection, reader: asyncio.StreamReader, time_s: float, what: str
) -> h11.Event:
    """The next event. Raises Unavailable, RemoteError."""
    data = None
    try:
        async with asyncio.timeout(time_s):
            while (event := protocol.next_event()) is h11.NEED_DATA:
                data = await reader.read(BUFFER_BYTES)
                protocol.receive_data(data)
    except h11.RemoteProtocolError as error:
        raise (
            Unavailable("closed in the middle of an answer")
            if data == b""
            else RemoteError(f"no HTTP/1.1: {error}")
        ) from error
    except TimeoutError as error:
        raise Unavailable(f"{what} for {time_s:.0f} s") from error
    assert not isinstance(event, type)
    return event
