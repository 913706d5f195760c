"""Follows streams: connects, resumes by the last cursor, fails over, and reports what happens.

    follower = Follower(["http://127.0.0.1:8700"], Subscription(streams=("vehicle_position",)),
    cursor=saved) async for received in follower.events():
        process(received)
        save(received.cursor)

Save `received.cursor` after processing the event; the next run begins with the one after it. So an
event that was processed is not given again, and one that was not is. A cursor is also given without
an event when `checkpoints` are asked for: filtered-out events moved it.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn
from urllib.parse import urljoin, urlsplit

import httpx
import orjson

from edgewake.edge.client.asked import Options, Published, asked
from edgewake.edge.client.credentials import Credentials, Refusals, may_follow, without_password
from edgewake.edge.client.sse import Event, Parser, SseError
from edgewake.protocol.backoff import Backoff, retry_after_s
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.cursor import TEXT_MAX
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.leases.lease import Subscription

CONNECT_S: Final = 5.0
HEAD_S: Final = 20.0
"""For an answer's head: a server may wait for Kafka before it answers."""
HEARTBEATS: Final = 3
"""A connection is taken for dead after this many silent heartbeats of the server (its header
Edgewake-Heartbeat)."""
SILENCE_S: Final = 45.0
"""Seconds of silence where the server's heartbeat interval is unknown; some proxies drop its
header."""
SILENCE_MAX_S: Final = 600.0
"""A heart that a server says to beat more seldom is not waited for: a dead connection is noticed by
then."""
BACKOFF_MIN_S: Final = 0.2
BACKOFF_MAX_S: Final = 15.0
RETRY_AFTER_MAX_S: Final = 300.0
"""A server's Retry-After counts up to here."""
RETRY_MAX_S: Final = 60.0
"""A stream's `retry` counts up to here."""
PROBLEM_BYTES_MAX: Final = 64 * 1024
REDIRECTS_MAX: Final = 5
"""In a row; each connection begins at the server's own address again."""
_FINAL: Final = frozenset({400, 401, 403, 404, 405, 406, 410, 421, 422})
"""Trying again would not mend these. After a first success 404 is not among them: another server
may not know a new stream yet."""

OnGap = Literal["earliest", "latest", "stop"]


class FollowError(RemoteError):
    """No server will do: the text is the problem's detail.

    `wrong_address` when what answered, if anything, is not an access server.
    """

    def __init__(self, detail: str, *, wrong_address: bool = False) -> None:
        super().__init__(detail)
        self.wrong_address = wrong_address


class NoStreamError(SseError):
    """A 200 answer without an event stream: from another program, or a network's login page."""


@dataclass(frozen=True, slots=True)
class Received:
    """One event as it was received.

    `kind` is empty for data, else gap, watermark, warning, conflated or checkpoint; `text` is its
    JSON as sent.
    """

    kind: str
    text: str
    cursor: str
    """The position after it."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The event as an object."""
        found: Mapping[str, Any] = orjson.loads(self.text)
        return found


@dataclass(frozen=True, slots=True)
class Connected:
    """A stream is open; `start` is where it began: latest, earliest, time, resumed or gap."""

    server: str
    start: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A stream ended or could not be opened; another attempt comes in `wait_s`."""

    server: str
    why: str
    wait_s: float


class Follower:
    """Follows one subscription, or a publication.

    `servers` are base URLs, tried in turn. `start` (earliest, latest, an ISO 8601 time, or ms since
    1970) counts only without a cursor. `on_gap` says how to go on after a gap; with "stop" the
    events end there. `checkpoints`: also give events of that kind. `options`: devices, a share of
    them, conflation, a rate. `credentials`: what is shown to the servers,
    `Credentials(token=TokenFile(path))` where the token is renewed; a name and password in an
    address are sent as HTTP Basic, and shown nowhere. `patient=False`: raise where no server of the
    first round can be one, instead of trying for ever. Raises ValueError for a server that is not a
    URL.
    """

    def __init__(
        self,
        servers: Sequence[str],
        subscription: Subscription | Published,
        *,
        cursor: str = "",
        options: Options | None = None,
        start: str = "latest",
        on_gap: OnGap | None = None,
        checkpoints: bool = False,
        credentials: Credentials | None = None,
        patient: bool = True,
        on_notice: Callable[[Connected | Lost], None] = lambda _: None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._credentials = credentials or Credentials()
        self._basic = dict(without_password(checked_address(server)) for server in servers)
        """The header of the name and password that were in a server's address."""
        self._servers = list(self._basic)
        if not servers:
            raise ValueError("expected at least one server")
        self._asked = asked(subscription, options or Options(), start, on_gap)
        self._cursor = cursor
        self._checkpoints = checkpoints
        self._patient = patient
        self._on_notice = on_notice
        self._clock = clock or SystemClock()
        self._backoff = Backoff(rng or random.Random(), first_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        self._was_connected = False
        self._refusals = Refusals(self._credentials, self._clock)
        self._turn = 0
        self._attempts = 0
        """Since a stream was open."""
        self._refused: dict[str, str] = {}
        """Servers that refused for good since a stream was open, with their reasons."""
        self._not_before_s: dict[str, float] = {}
        """When a server that asked for it (Retry-After) may be tried again."""

    async def events(self) -> AsyncGenerator[Received, None]:
        """Events without end; after `on_gap="stop"` they end with the gap.

        Raises FollowError where the servers refuse.
        """
        timeout = httpx.Timeout(CONNECT_S, read=None)
        async with httpx.AsyncClient(timeout=timeout, verify=self._credentials.context()) as http:
            while True:
                server, _ = self._next_server()
                self._turn = self._servers.index(server) + 1
                attempt = _Attempt(self._clock.monotonic_s())
                try:
                    async for received in self._stream(http, server, attempt):
                        yield received
                except (httpx.HTTPError, SseError, TimeoutError) as error:
                    attempt.why = f"{type(error).__name__} {error}".strip()
                    self._give_up_if_hopeless(server, error)
                if attempt.stopped:
                    return
                await self._pause(server, attempt)

    async def _stream(
        self, http: httpx.AsyncClient, server: str, attempt: _Attempt
    ) -> AsyncIterator[Received]:
        """The events of one connection."""
        self._attempts += 1
        response = await self._opened(http, server)
        try:
            if response.status_code == 204:
                attempt.stopped = True
                return
            if response.status_code != 200:
                await self._refuse(server, response)
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            check_unpacked(response)
            if kind != "text/event-stream":
                raise NoStreamError(
                    f"no stream of events but {kind or 'no type of content'}: is it an access "
                    "server?"
                )
            start = response.headers.get("Edgewake-Start", "")
            if start != "later":
                attempt.opened = self._was_connected = True
                self._refusals.let_in()
                self._attempts, self._refused = 0, {}
                self._on_notice(Connected(server, start))
            silence_s = silence_of(response.headers.get("Edgewake-Heartbeat", ""))
            async for received in self._received(response, silence_s, attempt):
                yield received
        finally:
            await response.aclose()

    async def _opened(self, http: httpx.AsyncClient, server: str) -> httpx.Response:
        """The answer of a server, or of where it redirects to. Raises as `_refuse` does."""
        request = self._request(http, server, server + self._asked.path, params=True)
        has_secrets = bool(
            self._credentials.head() or self._basic[server] or self._credentials.cert_file
        )
        shown = ""
        for _ in range(REDIRECTS_MAX):
            async with asyncio.timeout(HEAD_S):
                response = await http.send(request, stream=True)
            if not response.has_redirect_location:
                return response
            await response.aclose()
            try:
                target = urljoin(str(request.url), response.headers["Location"])
                shown = without_password(target)[0].partition("?")[0]
                is_followed = may_follow(str(request.url), target, has_secrets=has_secrets)
                _ = urlsplit(target).port  # raises ValueError beyond 65535
                request = self._request(http, server, target, params=False)
            except (ValueError, httpx.InvalidURL):
                await self._refuse(server, response, "redirects to an address that is not valid")
            if not is_followed:
                await self._refuse(
                    server,
                    response,
                    f"redirects to {shown}, which is not followed with what you send: name that "
                    "server",
                )
        return await self._refuse(
            server, response, f"redirects more than {REDIRECTS_MAX} times, last to {shown}"
        )

    async def _received(
        self, response: httpx.Response, silence_s: float, attempt: _Attempt
    ) -> AsyncIterator[Received]:
        parser = Parser(self._cursor)
        pieces = aiter(response.aiter_raw())
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise SseError(f"silent for {silence_s:.0f} s") from None
            for event in parser.feed(piece):
                self._cursor = _checked_cursor(event.id)
                if event.type != "checkpoint" or self._checkpoints:
                    yield _received(event)
            self._cursor = _checked_cursor(parser.last_event_id)
            attempt.retry_s = (
                None if parser.retry_ms is None else min(RETRY_MAX_S, parser.retry_ms / 1000)
            )

    async def _refuse(self, server: str, response: httpx.Response, why: str = "") -> NoReturn:
        """Raise FollowError where every server refuses permanently, else httpx.HTTPStatusError."""
        detail = why or await _told(response)
        if (why or _is_final(response.status_code)) and not self._may_mend(response):
            self._refused[server] = detail
            # All servers refuse; or all were asked twice, and those that did not refuse did not
            # answer.
            if len(self._refused) == len(self._servers) or self._attempts >= 2 * len(self._servers):
                raise FollowError(detail)
        wait_s = retry_after_s(
            response.headers.get("Retry-After", ""), self._clock.now_ms(), max_s=RETRY_AFTER_MAX_S
        )
        self._not_before_s[server] = self._clock.monotonic_s() + wait_s
        raise httpx.HTTPStatusError(
            f"{response.status_code} {detail}", request=response.request, response=response
        )

    def _may_mend(self, response: httpx.Response) -> bool:
        """May another attempt be answered otherwise, though this refusal is final as such?"""
        if response.status_code == 401:
            return self._refusals.may_mend(response.request.headers.get("Authorization", ""))
        return response.status_code == 404 and self._was_connected

    def _give_up_if_hopeless(self, server: str, error: Exception) -> None:
        """Raise FollowError where the first round found no server at all.

        A server that is away for a moment does not count.
        """
        if self._patient or self._was_connected or self._attempts < len(self._servers):
            return
        if any(isinstance(cause, socket.gaierror) for cause in _causes(error)):
            raise FollowError(f"{server}: no such host", wrong_address=True) from error
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
            raise FollowError(
                f"{server}: its certificate is not trusted: expected its authority in ca_file",
                wrong_address=True,
            ) from error
        if isinstance(error, NoStreamError | httpx.DecodingError):
            raise FollowError(f"{server}: {error}", wrong_address=True) from error
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            raise FollowError(
                f"{server}: what answers there does not speak HTTP; is it the right port?",
                wrong_address=True,
            ) from error

    def _next_server(self) -> tuple[str, float]:
        """The next server in turn that may be asked, and in how many seconds.

        Where all asked for time, it is the first that may be asked again.
        """
        now = self._clock.monotonic_s()
        in_turn = [
            self._servers[(self._turn + i) % len(self._servers)] for i in range(len(self._servers))
        ]
        waits = {server: max(0.0, self._not_before_s.get(server, now) - now) for server in in_turn}
        server = min(waits, key=lambda server: waits[server])
        return server, waits[server]

    async def _pause(self, server: str, attempt: _Attempt) -> None:
        """Wait with a growing back-off, and at least as long as the server asked (`retry`).

        Jitter keeps clients from coming back all at once.
        """
        if attempt.opened:
            self._backoff.lasted(self._clock.monotonic_s() - attempt.began_s)
        wait_s = max(self._backoff.next_s(), attempt.retry_s or 0.0, self._next_server()[1])
        self._on_notice(Lost(server, attempt.why, wait_s))
        await self._clock.sleep(wait_s)

    def _request(
        self, http: httpx.AsyncClient, server: str, url: str, *, params: bool
    ) -> httpx.Request:
        return http.build_request(
            self._asked.method,
            url,
            params=list(self._asked.params) if params and self._asked.params else None,
            json=self._asked.body,
            headers=self._headers(server),
        )

    def _headers(self, server: str) -> dict[str, str]:
        headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Cache-Control": "no-store",
        }
        headers |= self._basic[server] | self._credentials.head()
        return headers | {"Last-Event-ID": self._cursor} if self._cursor else headers


@dataclass(slots=True)
class _Attempt:
    """One connection, from the attempt to its end."""

    began_s: float
    opened: bool = False
    stopped: bool = False
    retry_s: float | None = None
    why: str = "the server ended the stream"


def _is_final(status: int) -> bool:
    """Is the status permanent?

    Among the successful ones only 200 has events, as for a browser (WHATWG HTML, 9.2.3).
    """
    return status in _FINAL or 200 < status < 300


async def _told(response: httpx.Response) -> str:
    """The reason why an answer is not a stream, in the server's words."""
    body = b""
    async with asyncio.timeout(HEAD_S):
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > PROBLEM_BYTES_MAX:
                break
    said = detail_of(body)
    if not said and 200 < response.status_code < 300:
        return f"answered {response.status_code}, which is not a stream of events"
    return said or response.reason_phrase


def checked_address(server: str) -> str:
    """A server's base URL; raises ValueError."""
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = server.rpartition("@")[2]  # before it a password may stand
        cure = f"http://{shown}" if "://" not in server else "http://127.0.0.1:8700"
        raise ValueError(f"{shown!r} is not an address of a server: expected one such as {cure}")
    return server.rstrip("/")


def _received(event: Event) -> Received:
    return Received("" if event.type == "message" else event.type, event.data, event.id)


def detail_of(body: bytes) -> str:
    """What a problem of a server says (RFC 9457); nothing where it says nothing."""
    try:
        return str(orjson.loads(body)["detail"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""


def check_unpacked(response: httpx.Response) -> None:
    """Raises httpx.DecodingError where an answer was packed, though it was asked for as it is.

    It is not unpacked: a few bytes could become as many megabytes.
    """
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise httpx.DecodingError(
            f"packed as {coding[:40]}, though it was asked for as it is: expected a proxy between "
            "that compresses nothing here",
            request=response.request,
        )


def silence_of(heartbeat: str) -> float:
    """Seconds of silence after which a connection is dead. Pure.

    `heartbeat`: seconds between two heartbeats, as the server states them.
    """
    try:
        beat_s = float(heartbeat)
    except ValueError:
        return SILENCE_S
    return min(SILENCE_MAX_S, max(1.0, HEARTBEATS * beat_s)) if math.isfinite(beat_s) else SILENCE_S


def _checked_cursor(cursor: str) -> str:
    """A cursor as our servers make them, which a header can carry.

    Raises SseError: the connection ends, the cursor before it stays.
    """
    if len(cursor) > TEXT_MAX or not cursor.isascii() or not cursor.isprintable() or " " in cursor:
        raise SseError(f"what is sent as an id is not a cursor: {cursor[:80]!r}")
    return cursor


def _causes(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
