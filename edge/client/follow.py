"""Follow streams for ever: connect, resume by the last id, go to the next server when one is gone, and say what happens.

The place is the cursor: it moves with every event that was handed out and with ids that come without an event, and never before. Whoever
keeps `Follower.cursor` after he has worked an event off, and begins with it next time, gets every event once.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx
import orjson

from edgewake.edge.backoff import Backoff
from edgewake.edge.client.sse import Event, Parser, SseError
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.lease import Subscription

CONNECT_S: Final = 5.0
SILENCE_S: Final = 45.0
"""Three heartbeats: a connection that is silent for longer is taken for dead, and another one is made."""
BACKOFF_MIN_S: Final = 0.2
BACKOFF_MAX_S: Final = 15.0
PROBLEM_BYTES_MAX: Final = 64 * 1024
_FATAL: Final = frozenset({400, 401, 403, 404, 405, 406, 410, 422})
"""Trying again would not mend these. After a first success 404 is not among them: another server may not know a new stream yet."""


class FollowError(RemoteError):
    """The servers refuse what was asked; the text is the problem's detail."""


@dataclass(frozen=True, slots=True)
class Received:
    """One event. `kind` is empty for data, else gap, watermark or checkpoint; `text` is its JSON as sent, `cursor` the place after it."""

    kind: str
    text: str
    cursor: str

    @property
    def fields(self) -> Mapping[str, Any]:
        """The event as an object."""
        found: Mapping[str, Any] = orjson.loads(self.text)
        return found


@dataclass(frozen=True, slots=True)
class Connected:
    """A stream is open; `start` says where it began: latest, earliest, time, resumed or gap."""

    server: str
    start: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A stream ended or could not be opened; another attempt comes in `wait_s`."""

    server: str
    why: str
    wait_s: float


class Follower:
    """Follows one subscription. `servers` are base URLs, tried in turn; `start` counts only while there is no cursor."""

    def __init__(
        self,
        servers: Sequence[str],
        subscription: Subscription,
        *,
        cursor: str = "",
        start: str = "latest",
        on_notice: Callable[[Connected | Lost], None] = lambda _: None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not servers:
            raise ValueError("expected at least one server")
        self.cursor = cursor
        self._servers = [server.rstrip("/") for server in servers]
        self._subscription = subscription
        self._start = start
        self._on_notice = on_notice
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._backoff = Backoff(BACKOFF_MIN_S, BACKOFF_MAX_S, self._rng)
        self._retry_ms: int | None = None
        self._was_connected = False
        self._turn = 0

    async def events(self) -> AsyncGenerator[Received, None]:
        """Events without end. Raises FollowError where the servers refuse."""
        timeout = httpx.Timeout(CONNECT_S, read=SILENCE_S)
        async with httpx.AsyncClient(timeout=timeout) as http:
            while True:
                server = self._servers[self._turn % len(self._servers)]
                began = self._clock.monotonic_s()
                connected = False
                why = "the server ended the stream"
                try:
                    async for received in self._stream(http, server):
                        if received is None:
                            connected = True
                            continue
                        yield received
                except (httpx.HTTPError, SseError) as error:
                    why = f"{type(error).__name__} {error}".strip()
                self._turn += 1
                await self._pause(server, why, self._clock.monotonic_s() - began if connected else None)

    async def _stream(self, http: httpx.AsyncClient, server: str) -> AsyncIterator[Received | None]:
        """None once connected, then the events of one connection."""
        async with http.stream("GET", self._url(server), params=self._params(), headers=self._headers()) as response:
            if response.status_code != 200:
                await self._refused(response)
            start = response.headers.get("Edgewake-Start", "")
            if start != "later":
                self._was_connected = True
                self._on_notice(Connected(server, start))
                yield None
            parser = Parser(self.cursor)
            async for piece in response.aiter_raw():
                for event in parser.feed(piece):
                    received = _received(event)
                    yield received
                    self.cursor = event.id
                self.cursor = parser.last_event_id
                self._retry_ms = parser.retry_ms if parser.retry_ms is not None else self._retry_ms

    async def _refused(self, response: httpx.Response) -> None:
        """Raise FollowError for what is final, httpx.HTTPStatusError for what may pass."""
        body = b""
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > PROBLEM_BYTES_MAX:
                break
        detail = _detail(body) or response.reason_phrase
        if response.status_code in _FATAL and not (response.status_code == 404 and self._was_connected):
            raise FollowError(detail)
        raise httpx.HTTPStatusError(f"{response.status_code} {detail}", request=response.request, response=response)

    async def _pause(self, server: str, why: str, lasted_s: float | None) -> None:
        """Wait as the server said after a good connection (its `retry` is jittered), with a growing back-off after failures."""
        wait_s = self._backoff.next_s()
        if lasted_s is not None:
            self._backoff.held(lasted_s)
            wait_s = max(wait_s, (self._retry_ms or 0) / 1000)
        self._on_notice(Lost(server, why, wait_s))
        await self._clock.sleep(wait_s)

    def _url(self, server: str) -> str:
        streams = self._subscription.streams
        return f"{server}/v1/streams/{quote(streams[0])}/events" if len(streams) == 1 else f"{server}/v1/events"

    def _params(self) -> list[tuple[str, str | int | float | bool | None]]:
        streams = self._subscription.streams
        params: list[tuple[str, str | int | float | bool | None]] = [("stream", name) for name in streams if len(streams) > 1]
        params += [(name, value) for name in ("where", "select") if (value := getattr(self._subscription, name)) is not None]
        return params if self.cursor else [*params, ("from", self._start)]

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-store"}
        return headers | {"Last-Event-ID": self.cursor} if self.cursor else headers


def _received(event: Event) -> Received:
    return Received("" if event.type == "message" else event.type, event.data, event.id)


def _detail(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["detail"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
