"""Who may use the operations API: decided before anything of a request's body is read.

A program sends its key (`Authorization: Bearer KEY` or `X-API-Key: KEY`); a browser has the cookie
of a session (see sessions.py). A cookie comes along with whatever page makes the browser ask, so a
request that changes something must then come from a page of our own: `Origin` is ours, and
`Sec-Fetch-Site` says same-origin where the browser sends it. Every change is logged with the name
of the key's holder, and so is who read a dead letter or asked in SQL: both show what devices sent.
A right is looked at once more before the answer, so a key that was removed meanwhile gets nothing;
what stays open (`/v1/live`) asks `scope["state"]["is_allowed"]` again and again.

Principals of `[rights]` (a reader's key, a token) come in by the same header, and by the login:
what their grants do not reach `reach.py` refuses, and what they do reach a route narrows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgewake.cloud.client_share import Clients
from edgewake.cloud.login import routes as login_routes
from edgewake.cloud.login.door import STATE
from edgewake.cloud.login.session import Session
from edgewake.cloud.ops.login.key_door import KeyDoor
from edgewake.cloud.ops.login.keys import Holder, Keys
from edgewake.cloud.ops.login.people import People
from edgewake.cloud.ops.login.reach import SAFE_METHODS, refusal
from edgewake.cloud.ops.login.readers import Readers
from edgewake.cloud.ops.login.sessions import Passes
from edgewake.cloud.ops.lookups.asked_by import ASKED_BY
from edgewake.cloud.web.cookies import cookie_of
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.origin import is_from_own_page

log = logging.getLogger("edgewake.ops")

LOGIN_PATH: Final = "/in"
ENROL_PATH: Final = "/v1/enrol"
"""The path for devices that have a claim code and no key."""
AUTHORITY_PATH: Final = "/v1/authority"
"""The path of the authority's certificate: public, and asked for before a client can trust
anybody."""
OPEN_PATHS: Final = frozenset(
    {"/healthz", "/readyz", "/metrics", "/openapi.json", LOGIN_PATH, ENROL_PATH, AUTHORITY_PATH}
    | login_routes.OPEN_PATHS
)
FILES: Final = "/page/"
"""Scripts and styles of the pages: the same for everybody, and nothing of the system is in them."""
PAGES: Final = frozenset({"/", "/docs"})
"""What people open: without a session they are led to the login."""
QUESTIONS: Final = frozenset({"/v1/sql", "/v1/queries:preview"})
"""Reads with a body."""
TRIALS: Final = frozenset({"/v1/queries:check", "/v1/alerts:check"})
"""Change nothing, and a page asks them with every pause in somebody's typing: not audited."""
AUDITED_READS: Final = ("/v1/dead-letters",)
"""Beside changes and SQL, which is a POST."""
LOGGED_CHARS_MAX: Final = 200
"""Characters of a path, or of a detail, in the audit log."""


@dataclass(frozen=True, slots=True)
class Access:
    """Keys, who shows them, and the tickets and sessions that were given to their holders."""

    keys: Keys
    door: KeyDoor
    """Where a client shows one of them."""
    clients: Clients
    """Tells clients apart."""
    tickets: Passes
    sessions: Passes
    people: People | None = None
    """Those who log in at an identity provider."""
    readers: Readers | None = None
    """The principals of `[rights]`."""

    async def find(self, key: bytes, client: str) -> Holder | None:
        """The holder of a key or token that a client shows; None: nobody.

        Raises Problem where it showed too many wrong ones, or what holds no longer.
        """
        if self.readers is None or self.keys.find(key) is not None:
            return self.door.find(key, client)
        return await self.readers.find(key, client)

    def ended(self, holder: Holder) -> Problem | None:
        """Why a holder's right holds no longer, beside its login's; None while it does."""
        if holder.principal is None:
            return None if self.keys.is_valid(holder) else _unknown()
        return None if self.readers is None else self.readers.ended(holder)


class Guard:
    """ASGI: see the module. Routes find the Holder in `scope["state"]["holder"]`."""

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["path"]):
            return await self._app(scope, receive, send)
        headers = dict(scope["headers"])
        try:
            by_key = await self._by_key(scope, headers)
            holder = by_key or self._by_cookie(scope) or self._by_login(scope)
        except Problem as problem:
            if scope["method"] == "GET" and scope["path"] in PAGES:
                return await RedirectResponse(LOGIN_PATH, 303)(scope, receive, send)
            return await problem.response()(scope, receive, send)
        if holder is None:
            if scope["method"] == "GET" and scope["path"] in PAGES:
                return await RedirectResponse(LOGIN_PATH, 303)(scope, receive, send)
            return await _unknown().response()(scope, receive, send)
        state = scope.setdefault("state", {})
        state["holder"] = holder
        ASKED_BY.set(holder.name)
        state["ended"] = lambda: (
            self._access.ended(holder)
            or (None if by_key is not None or self._is_in(scope, holder) else _unknown())
        )
        state["is_allowed"] = lambda: state["ended"]() is None
        state["ended_meanwhile"] = lambda: self._ended_meanwhile(scope, holder)
        refused = _refusal(scope, headers, holder, is_by_cookie=by_key is None)
        if scope["method"] in SAFE_METHODS or scope["path"] in QUESTIONS:
            send = _while_allowed(scope, send)
        is_read = scope["method"] in SAFE_METHODS or scope["path"] in TRIALS
        if is_read and refused is None and not scope["path"].startswith(AUDITED_READS):
            return await self._app(scope, receive, send)
        if refused is not None:
            _audit(scope, holder, refused.status)
            return await refused.response()(scope, receive, send)
        return await self._app(scope, receive, _audited(scope, holder, send))

    async def _by_key(self, scope: Scope, headers: dict[bytes, bytes]) -> Holder | None:
        """Raises Problem where its client showed too many wrong ones, or what has ended."""
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            given = headers.get(b"x-api-key", b"")
        if not given:
            return None
        client = self._access.clients.of_request(HTTPConnection(scope))
        return await self._access.find(given.strip(), client)

    def _by_login(self, scope: Scope) -> Holder | None:
        """Raises Problem where a login's cookie proves nothing, or not enough."""
        people = self._access.people
        session = None if people is None else people.session_of(scope.get("state") or {})
        return None if people is None or session is None else people.holder(session)

    def _is_in(self, scope: Scope, holder: Holder) -> bool:
        """Does its session here still hold, or its login?"""
        return self._by_cookie(scope) == holder or self._still_logged_in(scope, holder)

    def _still_logged_in(self, scope: Scope, holder: Holder) -> bool:
        people = self._access.people
        session = None if people is None else scope["state"].get(STATE)
        if people is None or not isinstance(session, Session):
            return False
        return people.holds(session) and people.holder(session) == holder

    async def _ended_meanwhile(self, scope: Scope, holder: Holder) -> Problem | None:
        """Why the right to an answer under way is over; None while it holds.

        A login that fell due since it was begun is renewed, as at the next request.
        """
        ended: Problem | None = scope["state"]["ended"]()
        people, session = self._access.people, scope["state"].get(STATE)
        if ended is None or people is None or not isinstance(session, Session):
            return ended
        return self._access.ended(holder) if await people.is_still(session, holder) else ended

    def _by_cookie(self, scope: Scope) -> Holder | None:
        cookie = cookie_of(scope, cookie_name(scope))
        holder = None if cookie is None else self._access.sessions.find(cookie)
        return holder if holder is not None and self._access.ended(holder) is None else None


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(FILES)


def cookie_name(scope: Scope) -> str:
    """The session cookie's name, with the port in it.

    All ports of a host share cookies, and two systems may run on one machine.
    """
    server = scope.get("server")
    return f"edgewake_ops_{server[1] if server else 0}"


def _unknown() -> Problem:
    text = (
        "expected Authorization: Bearer KEY or X-API-Key: KEY with a key of the key file, or the "
        "cookie of a session"
    )
    return Problem(401, "key_missing", text, headers={"WWW-Authenticate": "Bearer"})


def _refusal(
    scope: Scope, headers: dict[bytes, bytes], holder: Holder, *, is_by_cookie: bool
) -> Problem | None:
    is_change = scope["method"] not in SAFE_METHODS
    if is_change and is_by_cookie and not is_from_own_page(headers):
        return Problem(
            403,
            "foreign_page",
            "a session's cookie changes things only from pages of this server: Origin is another "
            "one",
        )
    return refusal(holder, scope["method"], scope["path"])


def _while_allowed(scope: Scope, send: Send) -> Send:
    """Send the answer to a read, unless the right to it has ended meanwhile.

    A preview may take a minute.
    """
    is_refused = False

    async def checked(message: Message) -> None:
        nonlocal is_refused
        ended = None
        if message["type"] == "http.response.start":
            ended = await scope["state"]["ended_meanwhile"]()
        if ended is not None:
            is_refused = True
            await ended.response()(scope, _nothing, send)
        elif not is_refused:
            await send(message)

    return checked


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _audited(scope: Scope, holder: Holder, send: Send) -> Send:
    async def audited(message: Message) -> None:
        if message["type"] == "http.response.start":
            _audit(scope, holder, message["status"])
        await send(message)

    return audited


def _audit(scope: Scope, holder: Holder, status: int) -> None:
    path = scope["path"][:LOGGED_CHARS_MAX]
    facts: dict[str, Any] = {
        "event": "ops.audit",
        "holder": holder.name,
        "method": scope["method"],
        "path": path,
        "status": status,
    }
    detail = scope["state"].get("audit")
    if detail:
        text = str(detail)
        is_cut = len(text) > LOGGED_CHARS_MAX
        facts["detail"] = f"{text[: LOGGED_CHARS_MAX - 1]}…" if is_cut else text
    log.info("%s %s by %s: %d", scope["method"], path, holder.name, status, extra=facts)
