"""Logins begin and end here, and sessions are looked at: once for each request of a browser.

A session that is due is renewed at the request that finds it so, once for all requests that come
meanwhile. Where the provider is away it goes on for `stale_s`; where the provider says no it is
over at once. What was ended here is remembered here until it would have ended by itself; other
servers find out when they renew it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Final

import orjson

from edgewake.cloud.ciphers import Ciphers
from edgewake.cloud.login import box, session
from edgewake.cloud.login.box import Sealed
from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.failures import ProviderRefuses, Unusable, WrongProvider
from edgewake.cloud.login.session import Session
from edgewake.cloud.rights.tries import Tries
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.files.changing_file import ChangingFile

if TYPE_CHECKING:
    from edgewake.cloud.login.provider import Given, Provider

log = logging.getLogger("edgewake.login")

LOGIN_S: Final = 600
"""Seconds in which a person must have logged in at the provider."""
KNOWN_MAX: Final = 20_000
"""Sessions that are remembered as renewed, and as ended, and logins that are used; the oldest go
first."""
HOLD_S: Final = 15.0
"""Seconds for which a session goes on that the provider could not be asked about, until it is
asked again."""
TURN_S: Final = 5.0
"""Seconds for which a login waits for others from its address that the provider is asked of."""
LOOK_S: Final = 1.0
COOKIE_BYTES_MAX: Final = 3800
"""Bytes of a session in a cookie: browsers keep 4096 with its name and attributes."""
SESSION: Final = "session"
PENDING: Final = "login"


class LoginFailed(Exception):
    """A person could not be logged in; `str` says why, `status` is HTTP's."""

    def __init__(self, status: int, why: str, retry_s: int = 5) -> None:
        """`retry_s`: of a login that may be tried again."""
        super().__init__(why)
        self.status, self.retry_s = status, retry_s

    @property
    def is_for_now(self) -> bool:
        """May the same login be tried again?"""
        return self.status in (429, 503)


class Over(Exception):
    """A session that holds no longer; `str` says why."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A login that was begun, in the cookie of the browser that began it."""

    state: str
    nonce: str
    verifier: str
    next: str
    """Where the person goes on afterwards."""
    until: int
    """ms since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A person is sent to `address` with this cookie."""

    address: str
    state: str
    cookie: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A session that holds; `cookie` is its new one, where it was renewed."""

    session: Session
    cookie: str | None


class Desk:
    """Begins and ends logins, and looks at sessions. Raises ConfigError."""

    def __init__(
        self,
        config: LoginConfig,
        provider: Provider,
        clock: Clock,
        *,
        secret: Callable[[], str],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`secret`: a new one of 256 bits or more."""
        self.config = config
        self._provider, self._clock = provider, clock
        self._secret, self._random_bytes = secret, random_bytes
        self._keys: ChangingFile[Ciphers] = ChangingFile(
            config.session_key_file,
            box.parse_keys,
            what="keys of sessions",
            log=log,
            event="login.keys",
            key="session_key_file",
        )
        self._tries = Tries(clock)
        self._newest: OrderedDict[str, tuple[Session, str]] = OrderedDict()
        """Session → what it became here, and its cookie."""
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._used: OrderedDict[str, None] = OrderedDict()
        """Logins of which the provider was asked: who comes back once more makes nobody ask it
        again."""
        self._asking: dict[str, set[asyncio.Future[None]]] = {}
        """Client → its logins of which the provider is asked now; each is done when it ends."""
        self._renewing: dict[str, asyncio.Task[tuple[Session, str]]] = {}
        self.on_end: list[Callable[[str], None]] = []
        """Called with the id of each session that ends here."""

    async def run(self) -> None:
        """Look at the key file, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            if self._keys.look():
                log.info("keys of sessions read again", extra={"event": "login.keys"})

    async def begin(self, next_path: str, prompt: str | None) -> Begun:
        """Begin a login. Raises LoginFailed."""
        pending = Pending(
            state=self._secret(),
            nonce=self._secret(),
            verifier=self._secret(),
            next=next_path,
            until=self._clock.now_ms() + LOGIN_S * 1000,
        )
        try:
            address = await self._provider.address(
                state=pending.state, nonce=pending.nonce, verifier=pending.verifier, prompt=prompt
            )
        except (Unavailable, WrongProvider) as error:
            raise _failed(error) from error
        return Begun(address, pending.state, self._seal(PENDING, orjson.dumps(asdict(pending))))

    async def finish(
        self,
        *,
        state: str,
        code: str,
        issuer: str | None,
        refused: str,
        pending: str | None,
        client: str,
    ) -> tuple[Seen, str]:
        """The session of who comes back from the provider, and where to go on.

        `refused`: what the provider says in place of a code; `client`: who comes. Raises
        LoginFailed.
        """
        begun = self._pending(pending, state)
        try:
            if not await self._provider.is_own(issuer):
                raise LoginFailed(400, "the answer does not come from the login server asked")
            if refused:
                raise LoginFailed(403, f"the login server says no: {refused}")
            given = await self._exchange(begun, code, client)
            found = session.begun(
                self.config,
                given.word.claims,
                session_id=self._secret(),
                refresh=given.refresh,
                token_until=given.word.until,
                now=self._clock.now_ms(),
            )
        except (Unavailable, WrongProvider, ProviderRefuses, Unusable) as error:
            raise _failed(error) from error
        cookie = self._seal(SESSION, session.text_of(found))
        if len(cookie) > COOKIE_BYTES_MAX:
            raise LoginFailed(
                502,
                f"what the login server says of you needs {len(cookie)} bytes, and a cookie has "
                f"room for {COOKIE_BYTES_MAX}: have it send fewer groups",
            )
        _log("login.begun", found, f"{len(found.groups)} groups")
        return Seen(found, cookie), begun.next

    def _pending(self, text: str | None, state: str) -> Pending:
        try:
            begun = Pending(**orjson.loads(box.unseal(self._keys.value, PENDING, text or "")))
        except (Sealed, ValueError, TypeError) as error:
            raise LoginFailed(
                400, "this login was not begun in this browser, or is used already: begin again"
            ) from error
        if begun.state != state:
            raise LoginFailed(400, "this is the answer to another login: begin again")
        if begun.until <= self._clock.now_ms():
            raise LoginFailed(400, f"this login took more than {LOGIN_S // 60} min: begin again")
        if begun.state in self._used:
            raise LoginFailed(400, "this login is used already: begin again")
        return begun

    async def _exchange(self, begun: Pending, code: str, client: str) -> Given:
        """Ask the provider, once for each login; where it is away the same one may be tried again.

        Who has it refuse too often has to wait: a provider that is asked too much by one client
        of ours may refuse all of them. Raises as `Provider.exchange` does, and LoginFailed.
        """
        self._used[begun.state] = None
        while len(self._used) > KNOWN_MAX:
            self._used.popitem(last=False)
        try:
            await self._try(client)
        except (LoginFailed, Unavailable):
            self._used.pop(begun.state, None)
            raise
        ended = asyncio.get_running_loop().create_future()
        self._asking.setdefault(client, set()).add(ended)
        try:
            given = await self._provider.exchange(
                code=code, nonce=begun.nonce, verifier=begun.verifier
            )
        except Unavailable:
            self._used.pop(begun.state, None)
            self._tries.give_back(client)
            raise
        finally:
            ended.set_result(None)
            self._asking[client].discard(ended)
            if not self._asking[client]:
                del self._asking[client]
        self._tries.give_back(client)
        return given

    async def _try(self, client: str) -> None:
        """Spend a try of a client's. Raises LoginFailed, and Unavailable after TURN_S.

        The tries of logins under way are spent until they end well: who comes meanwhile waits for
        the end of one, so that many who log in at once from one address are not taken for wrong.
        """
        try:
            async with asyncio.timeout(TURN_S):
                while (wait_s := self._tries.take(client)) > 0:
                    under_way = self._asking.get(client)
                    if not under_way:
                        seconds = ceil(wait_s)
                        why = f"too many logins from your address failed: try again in {seconds} s"
                        raise LoginFailed(429, why, seconds)
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise Unavailable("many logins from your address are under way") from None

    async def look(self, text: str) -> Seen:
        """The session in a cookie. Raises Over, and Unavailable."""
        return await self._look(self._read(text))

    async def renewed(self, found: Session) -> Session:
        """What became of a session; the provider is asked where that is due.

        Raises Over, and Unavailable.
        """
        return (await self._look(found)).session

    async def _look(self, found: Session) -> Seen:
        newest = self._newest.get(found.id)
        cookie = None
        if newest is not None and newest[0].fresh_until > found.fresh_until:
            found, cookie = newest
        now = self._clock.now_ms()
        if found.id in self._ended:
            raise Over("you have logged out")
        if found.until <= now:
            raise Over("your login is over")
        if found.fresh_until > now:
            return Seen(found, cookie)
        return Seen(*await self._renew(found))

    def holds(self, found: Session) -> bool:
        """Does it still hold, as far as is known here without a question?"""
        newest = self._newest.get(found.id)
        until = found.fresh_until if newest is None else newest[0].fresh_until
        return found.id not in self._ended and until > self._clock.now_ms()

    def left_s(self, found: Session) -> int:
        """Seconds until it is over."""
        return max(0, (found.until - self._clock.now_ms()) // 1000)

    async def end(self, text: str) -> str:
        """End a session; return where the person logs out at the provider, empty if unknown."""
        try:
            found = self._read(text)
        except Over:
            return ""
        newest = self._newest.get(found.id)
        refresh = found.refresh if newest is None else newest[0].refresh
        self._forget(found, "logged out")
        try:
            await self._provider.end(refresh)
            return await self._provider.log_out()
        except (Unavailable, WrongProvider, ProviderRefuses) as error:
            _log("login.end", found, f"the provider was not told: {error}", logging.WARNING)
            return ""

    def _read(self, text: str) -> Session:
        try:
            return session.parse(box.unseal(self._keys.value, SESSION, text))
        except (Sealed, ValueError, TypeError, KeyError) as error:
            raise Over("this login is not known here") from error

    async def _renew(self, found: Session) -> tuple[Session, str]:
        running = self._renewing.get(found.id)
        if running is None:
            running = asyncio.create_task(self._ask(found), name="login-renewal")
            self._renewing[found.id] = running
            running.add_done_callback(lambda _: self._renewing.pop(found.id, None))
        return await asyncio.shield(running)

    async def _ask(self, found: Session) -> tuple[Session, str]:
        try:
            given = await self._provider.renew(found.refresh, found.subject)
            now = self._clock.now_ms()
            after = session.renewed(
                self.config, found, given.word.claims, refresh=given.refresh, now=now
            )
        except (ProviderRefuses, Unusable) as error:
            self._forget(found, f"not renewed: {error}")
            raise Over(f"the login server says no: {error}") from error
        except (Unavailable, WrongProvider) as error:
            after = self._held(found, error)
        if found.id in self._ended:
            raise Over("you have logged out")
        cookie = self._seal(SESSION, session.text_of(after))
        self._newest[found.id] = after, cookie
        self._newest.move_to_end(found.id)
        while len(self._newest) > KNOWN_MAX:
            self._newest.popitem(last=False)
        return after, cookie

    def _held(self, found: Session, why: Exception) -> Session:
        """The session for a little longer, unheard. Raises Unavailable."""
        now = self._clock.now_ms()
        last = min(found.until, found.checked_at + round(self._hold_s() * 1000))
        if now >= last:
            raise Unavailable(f"whether your login still holds cannot be told now: {why}")
        _log("login.held", found, str(why), logging.WARNING)
        return replace(found, fresh_until=min(last, now + round(HOLD_S * 1000)))

    def _hold_s(self) -> float:
        return self.config.renew_s + self.config.stale_s

    def _forget(self, found: Session, why: str) -> None:
        self._ended[found.id] = None
        while len(self._ended) > KNOWN_MAX:
            self._ended.popitem(last=False)
        self._newest.pop(found.id, None)
        _log("login.ended", found, why)
        for call in self.on_end:
            call(found.id)

    def _seal(self, purpose: str, content: bytes) -> str:
        return box.seal(self._keys.value, purpose, content, self._random_bytes)


def cookie_name(config: LoginConfig) -> str:
    """The name of the cookie: equal on all servers of one installation, unique to it."""
    of_client = sha256(f"{config.issuer}\0{config.client_id}".encode()).hexdigest()[:8]
    is_secret = config.url.startswith("https:")
    return f"{'__Host-' if is_secret else ''}edgewake_login_{of_client}"


def _failed(error: Exception) -> LoginFailed:
    if isinstance(error, Unavailable):
        return LoginFailed(503, str(error))
    if isinstance(error, ProviderRefuses):
        return LoginFailed(403, f"the login server refuses: {error}")
    log.error("login: %s", error, extra={"event": "login.wrong"})
    return LoginFailed(502, f"what the login server says cannot be used: {error}")


def _log(event: str, found: Session, what: str, level: int = logging.INFO) -> None:
    facts = {"event": event, "subject": found.subject}
    log.log(level, "%s: %s", found.subject, what, extra=facts)
