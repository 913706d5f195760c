"""Sleeps: leaves a lease at the push proxy, and asks there until it is woken.

    sleeper = Sleeper(["http://127.0.0.1:8703"], subscription, place=Path("lease.json"))
    while True:
        cursor = read_to_the_live_end(cursor)
        woken = await sleeper.sleep(cursor)

For a program that nobody can call: behind a NAT, at home, on a laptop. It holds one connection,
over which nothing travels until its wake policy is met. A wake-up is a hint; the truth stays in the
cursor: who is woken reads from his own, and sleeps again where he stands.

Nothing is lost between reading and sleeping: the proxy counts from the cursor that it is told.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx

from edgewake.edge import durable_file
from edgewake.edge.client import lease
from edgewake.edge.client.asked import ALL, Options, Published
from edgewake.edge.client.credentials import Credentials, Refusals, without_password
from edgewake.edge.client.follow import (
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    CONNECT_S,
    HEAD_S,
    PROBLEM_BYTES_MAX,
    RETRY_AFTER_MAX_S,
    FollowError,
    Lost,
    check_unpacked,
    checked_address,
    detail_of,
)
from edgewake.edge.client.lease import BadAnswer, Kept, WakeUp
from edgewake.protocol.backoff import Backoff, retry_after_s
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.leases.lease import TTL_DEFAULT_S, Subscription, WakePolicy

WAIT_S: Final = 50
"""Seconds of one question: what proxies between cut is silent for a minute."""
RENEWALS: Final = 4
"""A lease is renewed in each fourth of its life while its client waits: three may fail."""
_AGAIN: Final = frozenset({408, 425, 429})
"""Refused for now; and so is every 5xx."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    shown: str
    """The header Authorization of the request."""

    @property
    def told(self) -> str:
        return detail_of(self.body) or f"answered {self.status}"


class _NotLetInError(FollowError):
    """What proves who asks is refused, which says nothing of what is asked."""


class Sleeper:
    """One lease of one program.

    `servers` are base URLs of push proxies; any of them may be asked. `options` has `devices`,
    `sample` and `per`: a wake-up has no pace. `wake` says what is enough to
    wake for. `place` keeps the lease for the next run; only one program may use the file. Without
    it each run leaves a lease behind, until `ttl_s` is over or `end` was called. `credentials`
    prove who asks for the lease; its own token opens it afterwards.

    Raises ValueError for a server that is not a URL, a wrong policy or option, ConfigError for a
    file that cannot be used.
    """

    def __init__(
        self,
        servers: Sequence[str],
        subscription: Subscription | Published,
        *,
        options: Options = ALL,
        wake: WakePolicy | None = None,
        ttl_s: int = TTL_DEFAULT_S,
        place: Path | None = None,
        credentials: Credentials | None = None,
        on_notice: Callable[[Lost], None] = lambda _: None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        new_key: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._credentials = credentials or Credentials()
        self._basic = dict(without_password(checked_address(server)) for server in servers)
        self._servers = list(self._basic)
        if not servers:
            raise ValueError("expected at least one server")
        self._wanted, self._options = subscription, options
        self._wake, self._ttl_s = wake or WakePolicy(), ttl_s
        self._request("")
        self._place = place
        self._on_notice = on_notice
        self._clock = clock or SystemClock()
        self._backoff = Backoff(rng or random.Random(), first_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        self._new_key = new_key
        self._turn = 0
        self._renewed_s = float("-inf")
        self._kept = self._read()
        self._refusals = Refusals(self._credentials, self._clock)
        if self._kept is not None and self._kept.is_granted:
            self._refusals.let_in()  # in a run before

    async def sleep(self, cursor: str) -> WakeUp:
        """Sleep at a cursor until there is a reason to read, however long a server is away.

        May be cancelled at any time, e.g. by `asyncio.timeout`, and called again. Raises
        FollowError where what is asked for is refused, ConfigError where the lease cannot be kept.
        """
        async with self._client() as http:
            kept = await self._standing(http, cursor)
            while True:
                asked_s = self._clock.monotonic_s()
                params = {"after": kept.number, "wait": WAIT_S}
                answer = await self._lease(http, kept, "GET", "/wake", params=params)
                why = "nothing, sooner than was asked for"
                if answer.status == 200:
                    try:
                        woken = lease.woken(answer.headers, answer.body, after=kept.number)
                        self._keep(replace(kept, number=woken.number, cursor=""))
                        return woken
                    except BadAnswer as error:
                        why = str(error)
                elif answer.status in (404, 410):
                    return await self._ended(http, kept, answer)
                elif answer.status != 204:
                    raise FollowError(answer.told)
                lasted_s = self._clock.monotonic_s() - asked_s
                self._backoff.lasted(lasted_s)
                if lasted_s < WAIT_S / 2:
                    # Two others have this lease, too, and each question ends an older one.
                    await self._pause(why)
                if self._clock.monotonic_s() - self._renewed_s > self._ttl_s / RENEWALS:
                    await self._renew(http, kept)

    async def end(self) -> None:
        """End the lease: nobody counts for this program any more. Raises FollowError."""
        if self._kept is not None:
            async with self._client() as http:
                await self._end(http, self._kept)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=CONNECT_S, verify=self._credentials.context())

    async def _end(self, http: httpx.AsyncClient, kept: Kept) -> None:
        if not kept.is_granted:  # it may be there all the same
            try:
                kept = await self._granted(http, kept)
            except FollowError:
                return
        answer = await self._lease(http, kept, "DELETE")
        if answer.status not in (204, 404):
            raise FollowError(answer.told)
        self._keep(None)

    async def _ended(self, http: httpx.AsyncClient, kept: Kept, answer: _Answer) -> WakeUp:
        """Its client reads, and learns there what is wrong; the next sleep has a lease again."""
        if answer.status == 410:
            await self._end(http, kept)
        self._keep(None)
        await self._pause(answer.told)
        return WakeUp(kept.number, ended=answer.told)

    async def _standing(self, http: httpx.AsyncClient, cursor: str) -> Kept:
        """The lease, at this cursor."""
        request = self._request(cursor)
        if self._kept is not None and not lease.is_same(self._kept, request):
            await self._end(http, self._kept)
        kept = self._kept or self._begun(request)
        if not kept.is_granted:
            try:
                kept = await self._granted(http, kept)
            except FollowError as error:
                if kept.request == request or isinstance(error, _NotLetInError):
                    raise
                # The cursor of a run before may be too old by now.
                kept = await self._granted(http, self._begun(request))
        if kept.cursor == cursor:
            return kept
        answer = await self._lease(http, kept, "PATCH", json={"cursor": cursor})
        if answer.status == 404:  # it ended while this program was away
            kept = await self._granted(http, self._begun(request))
        elif answer.status != 200:
            raise FollowError(answer.told)
        self._renewed_s = self._clock.monotonic_s()
        kept = replace(kept, cursor=cursor)
        self._keep(kept)
        return kept

    def _request(self, cursor: str) -> str:
        return lease.request_of(
            self._wanted, cursor, self._wake, ttl_s=self._ttl_s, options=self._options
        )

    def _begun(self, request: str) -> Kept:
        """A request that is kept before it is sent."""
        kept = Kept(self._new_key(), request)
        self._keep(kept)
        return kept

    async def _granted(self, http: httpx.AsyncClient, kept: Kept) -> Kept:
        """The lease of a request, which a run before may have sent, too."""
        own = {"Content-Type": "application/json", "Idempotency-Key": kept.key}

        def headers() -> Mapping[str, str]:
            return own | self._credentials.head()

        while True:
            answer = await self._answer(
                http, "POST", "/v1/leases", content=kept.request, headers=headers
            )
            if answer.status == 401:
                if not self._refusals.may_mend(answer.shown):
                    # The key stays: this request may be granted already, and its answer lost.
                    raise _NotLetInError(answer.told)
                await self._pause(answer.told)
                continue
            if answer.status not in (200, 201):
                self._keep(None)
                raise FollowError(answer.told)
            try:
                found = lease.granted(kept, answer.body)
            except BadAnswer as error:
                await self._pause(str(error))
                continue
            self._renewed_s = self._clock.monotonic_s()
            self._refusals.let_in()
            self._keep(found)
            return found

    async def _renew(self, http: httpx.AsyncClient, kept: Kept) -> None:
        """Let its life begin again; that it is gone is noticed by the next question."""
        answer = await self._lease(http, kept, "PATCH", json={})
        if answer.status == 200:
            self._renewed_s = self._clock.monotonic_s()

    async def _lease(
        self,
        http: httpx.AsyncClient,
        kept: Kept,
        method: str,
        more: str = "",
        *,
        params: Mapping[str, int] | None = None,
        json: Mapping[str, str] | None = None,
    ) -> _Answer:
        """What is answered about the lease: its own token opens it."""
        headers = {**self._credentials.headers, "Authorization": f"Bearer {kept.token}"}
        path = f"/v1/leases/{kept.id}{more}"
        return await self._answer(
            http, method, path, params=params, json=json, headers=lambda: headers
        )

    async def _answer(
        self,
        http: httpx.AsyncClient,
        method: str,
        path: str,
        *,
        headers: Callable[[], Mapping[str, str]],
        params: Mapping[str, int] | None = None,
        json: Mapping[str, str] | None = None,
        content: str | None = None,
    ) -> _Answer:
        """The first answer of a proxy that is there and does not ask to come again.

        `headers` are those of now: a token may be renewed while proxies are away.
        """
        while True:
            server = self._server
            request = http.build_request(
                method,
                server + path,
                params=params,
                json=json,
                content=content,
                headers={"Accept-Encoding": "identity", **self._basic[server], **headers()},
                timeout=httpx.Timeout(CONNECT_S, read=WAIT_S + HEAD_S),
            )
            wait_s = 0.0
            try:
                async with asyncio.timeout(WAIT_S + HEAD_S):
                    answer = await _sent(http, request)
                if answer.status < 500 and answer.status not in _AGAIN:
                    return answer
                why, told = answer.told, answer.headers.get("retry-after", "")
                wait_s = retry_after_s(told, self._clock.now_ms(), max_s=RETRY_AFTER_MAX_S)
            except (httpx.HTTPError, TimeoutError) as error:
                why = f"{type(error).__name__} {error}".strip()
            await self._pause(why, wait_s)

    @property
    def _server(self) -> str:
        return self._servers[self._turn % len(self._servers)]

    async def _pause(self, why: str, at_least_s: float = 0.0) -> None:
        """Wait with a growing back-off, and turn to the next proxy."""
        wait_s = max(self._backoff.next_s(), at_least_s)
        self._on_notice(Lost(self._server, why, wait_s))
        self._turn += 1
        await self._clock.sleep(wait_s)

    def _read(self) -> Kept | None:
        if self._place is None:
            return None
        try:
            durable_file.check(self._place)
            if not self._place.exists():
                return None
            with self._place.open("rb") as file:
                data = file.read(lease.KEPT_BYTES_MAX)
        except OSError as error:
            raise ConfigError(f"{self._place}: cannot be used: {error.strerror}") from error
        try:
            return lease.decode(data) if data else None
        except ValueError as error:
            raise ConfigError(f"{self._place}: {error}; remove it to ask for another") from error

    def _keep(self, kept: Kept | None) -> None:
        self._kept = kept
        if self._place is None:
            return
        try:
            durable_file.replace(self._place, b"" if kept is None else lease.encode(kept))
        except OSError as error:
            raise ConfigError(f"{self._place}: cannot be written: {error.strerror}") from error


async def _sent(http: httpx.AsyncClient, request: httpx.Request) -> _Answer:
    """An answer as far as PROBLEM_BYTES_MAX: a wake-up has 3 KB."""
    response = await http.send(request, stream=True)
    body = b""
    try:
        if response.is_success:
            check_unpacked(response)
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > PROBLEM_BYTES_MAX:
                raise httpx.DecodingError("an answer of more than 64 KB", request=request)
    finally:
        await response.aclose()
    shown = request.headers.get("Authorization", "")
    return _Answer(response.status_code, response.headers, body, shown)
