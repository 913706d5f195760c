"""Reads pages of a subscription up to the live end, from whichever server answers.

async for page in Pages(servers, Subscription(streams=("s",)), start="earliest").read(cursor):
process(page.lines)
save(page.cursor)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import httpx
import orjson

from edgewake.edge.client.asked import ALL, Options, Published, asked
from edgewake.edge.client.credentials import Credentials, Refusals, without_password
from edgewake.edge.client.follow import (
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    CONNECT_S,
    RETRY_AFTER_MAX_S,
    FollowError,
    Lost,
    check_unpacked,
    checked_address,
    detail_of,
)
from edgewake.protocol.backoff import Backoff, retry_after_s
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.cursor import TEXT_MAX
from edgewake.protocol.leases.lease import Subscription

LIMIT: Final = 500
"""Events of a page, at first and at most. Half as many after each time-out, down to one: what came
of a page that is not whole is lost, and a slow line would never bring one."""
SILENCE_S: Final = 30.0
"""A server may be silent for so long, also before its answer begins: it reads older records for
ten seconds before it says a word, and may wait for Kafka before that."""
PAGE_S: Final = 60.0
"""For a whole answer: of 4 MB, over a line of 1 Mbit/s; of one event of 400 KB, at 64 kbit/s."""
QUICK_PART: Final = 1 / 4
"""Part of PAGE_S: after a page that came within it, twice as many events are asked for, with time
to spare."""
PAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of an answer; a server sends 4 MB and the last event."""
AGAIN: Final = frozenset({408, 425, 429})
"""Refused for now; and so is every 5xx."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one answer brought."""

    lines: Sequence[bytes]
    """Events as JSON, as they were sent; one with `$event` is a gap or a watermark."""
    cursor: str
    """The position behind them."""
    is_live: bool
    """Is that all there is?"""


class Pages:
    """Reads pages of one subscription. Raises ValueError for a server that is not a URL."""

    def __init__(
        self,
        servers: Sequence[str],
        wanted: Subscription | Published,
        *,
        options: Options = ALL,
        start: str = "latest",
        credentials: Credentials | None = None,
        on_notice: Callable[[Lost], None] = lambda _: None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`start` counts only without a cursor."""
        self._credentials = credentials or Credentials()
        self._basic = dict(without_password(checked_address(server)) for server in servers)
        self._servers = list(self._basic)
        self._asked = asked(wanted, options, start, None)
        self._on_notice = on_notice
        self._clock = clock or SystemClock()
        self._refusals = Refusals(self._credentials, self._clock)
        self._backoff = Backoff(rng or random.Random(), first_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        self._turn = 0
        self._limit = LIMIT

    async def read(self, cursor: str) -> AsyncGenerator[Page, None]:
        """Pages from a cursor to the live end, however long the servers are away.

        Raises FollowError where what is asked for is refused.
        """
        verify = self._credentials.context()
        timeout = httpx.Timeout(CONNECT_S, read=SILENCE_S)
        async with httpx.AsyncClient(timeout=timeout, verify=verify) as http:
            while True:
                page = await self._page(http, cursor)
                yield page
                if page.is_live:
                    return
                cursor = page.cursor

    async def _page(self, http: httpx.AsyncClient, cursor: str) -> Page:
        while True:
            server = self._servers[self._turn % len(self._servers)]
            wait_s = 0.0
            began_s = self._clock.monotonic_s()
            try:
                async with asyncio.timeout(PAGE_S):
                    response, body = await self._answer(http, server, cursor)
                if response.status_code == 200:
                    check_unpacked(response)
                    page = _page_of(body)
                    self._backoff.reset()
                    self._refusals.let_in()
                    if self._clock.monotonic_s() - began_s <= PAGE_S * QUICK_PART:
                        self._limit = min(LIMIT, 2 * self._limit)
                    return page
                why = detail_of(body) or f"answered {response.status_code}"
                if not self._may_mend(response):
                    raise FollowError(why)
                told = response.headers.get("Retry-After", "")
                wait_s = retry_after_s(told, self._clock.now_ms(), max_s=RETRY_AFTER_MAX_S)
            except (TimeoutError, httpx.ReadTimeout):
                why = f"no whole page of {self._limit} events in time"
                self._limit = max(1, self._limit // 2)
            except (httpx.HTTPError, ValueError) as error:
                why = f"{type(error).__name__} {error}".strip()
            wait_s = max(self._backoff.next_s(), wait_s)
            self._on_notice(Lost(server, why, wait_s))
            self._turn += 1
            await self._clock.sleep(wait_s)

    def _may_mend(self, response: httpx.Response) -> bool:
        """May another attempt be answered otherwise?"""
        if response.status_code == 401:
            return self._refusals.may_mend(response.request.headers.get("Authorization", ""))
        return response.status_code >= 500 or response.status_code in AGAIN

    async def _answer(
        self, http: httpx.AsyncClient, server: str, cursor: str
    ) -> tuple[httpx.Response, bytes]:
        """An answer and its body. Raises httpx.HTTPError."""
        headers = {"Accept": "application/x-ndjson", "Accept-Encoding": "identity"}
        headers |= self._basic[server] | self._credentials.head()
        headers |= {"Last-Event-ID": cursor} if cursor else {}
        request = http.build_request(
            self._asked.method,
            server + self._asked.path,
            params=[*self._asked.params, ("limit", self._limit)],
            json=self._asked.body,
            headers=headers,
        )
        response = await http.send(request, stream=True)
        body = bytearray()
        try:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > PAGE_BYTES_MAX:
                    raise httpx.DecodingError("an answer of more than 16 MB", request=request)
        finally:
            await response.aclose()
        return response, bytes(body)


def _page_of(body: bytes) -> Page:
    """Raises ValueError where it is not a page of an access server."""
    *lines, last = body.splitlines() or [b""]
    end = orjson.loads(last or b"null")
    cursor = end.get("cursor") if isinstance(end, dict) and end.get("$event") == "end" else None
    if not isinstance(cursor, str) or not 0 < len(cursor) <= TEXT_MAX or not cursor.isascii():
        raise ValueError("no page of events: is it an access server?")
    return Page(lines, cursor, end.get("live") is True)
