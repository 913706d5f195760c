"""Gives each request its principal, before anything else of it is looked at.

    Authorization: Bearer KEY-OR-TOKEN      programs
    ?ticket=…                               once, within 30 s; it is taken out of the request's
                                            address, so that nothing behind here can log it
    the cookie `edgewake_reader`            browsers, whose EventSource sends no header; what
                                            changes something only from a page of this server
    the cookie of a login                   people, who logged in at an identity provider; what it
                                            proves was looked at before (edgewake.cloud.login)
    nothing                                 the anonymous principal, where the configuration has one

    Edgewake-Device: DEVICE                 beside the key or token of a bridge: it asks for this
                                            device, which has rights of its own

What is wrong is refused with 401 and never taken for nothing; who shows too many wrong keys or
tokens has to wait (429, edgewake.cloud.rights.shown_keys). A ticket has 32 random bytes, which
nobody guesses in its 30 s, and is not counted. A route finds its principal by
`ReaderAsks`; one that the guard did not see has none, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, urlencode

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from edgewake.cloud.client_share import Clients
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.cloud.rights.reader_door import ReaderDoor
from edgewake.cloud.rights.rights import End, Rights
from edgewake.cloud.rights.roles import NoRights
from edgewake.cloud.rights.shown_keys import TOO_MANY_TRIES
from edgewake.cloud.rights.tickets import Tickets
from edgewake.cloud.rights.tokens import Refused
from edgewake.cloud.web import cookies
from edgewake.cloud.web.host import is_local
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.origin import is_from_own_page
from edgewake.protocol.downlink.feed import DEVICE_HEADER
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.names import is_device
from edgewake.protocol.ops.proof import Kind

COOKIE: Final = "edgewake_reader"
TICKET: Final = "ticket"
"""The parameter."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD", None})
"""None: of a WebSocket."""
LOGIN: Final = "login"
"""Where what a login's cookie proves lies in `scope["state"]`: a session, or a Problem."""
_DEVICE: Final = DEVICE_HEADER.lower().encode()
STATE: Final = "principal"
"""Where a principal lies in `scope["state"]`."""
EXPECTED: Final = "expected Authorization: Bearer with a key or token"


class Guard:
    """ASGI: see the module.

    `open_paths` need no principal, nor do paths that begin with one of `open_folders`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        rights: Rights,
        door: ReaderDoor,
        clients: Clients,
        tickets: Tickets,
        open_paths: Iterable[str],
        open_folders: tuple[str, ...] = (),
        later: Callable[[], Response] | None = None,
        reader: Callable[[Any], Principal] | None = None,
    ) -> None:
        """`door`: where a key or token is shown; `clients` tells apart who shows it.

        `later`: the answer to a browser's EventSource, which 429 or 503 would stop permanently.

        `reader`: gives a session its principal; raises NoRights.
        """
        self._later, self._reader = later, reader
        self._app, self._rights, self._tickets = app, rights, tickets
        self._door, self._clients = door, clients
        self._open_paths, self._open_folders = frozenset(open_paths), open_folders

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._is_open(scope):
            return await self._app(scope, receive, send)
        try:
            found = await self._principal(scope)
            scope.setdefault("state", {})[STATE] = self._as_device(scope, found)
        except Problem as problem:
            return await self._answer(scope, problem)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _answer(self, scope: Scope, problem: Problem) -> Response:
        is_event_source = scope["path"].endswith("/events") and any(
            name == b"sec-fetch-mode" for name, _ in scope["headers"]
        )
        is_for_now = problem.status >= 500 or problem.status == TOO_MANY_TRIES
        if self._later is not None and is_for_now and is_event_source:
            return self._later()
        return problem.response()

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"]
        return (
            path in self._open_paths
            or path.startswith(self._open_folders)
            or scope.get("method") == "OPTIONS"
        )

    async def _principal(self, scope: Scope) -> Principal:
        ticket = _take_ticket(scope)
        given = credential_of(scope)
        if ticket is not None:
            return self._by_ticket(ticket, given)
        if given is None:
            given = cookie_of(scope)
            if given is None and (scope.get("state") or {}).get(LOGIN) is not None:
                return self._by_login(scope)
            is_change = scope.get("method") not in SAFE_METHODS
            if given is not None and is_change:
                _check_page(scope)
        if given is None:
            if self._rights.anonymous is None or (self._rights.is_local and not is_local(scope)):
                raise unknown("key_missing", EXPECTED)
            return self._rights.anonymous
        try:
            client = self._clients.of_request(HTTPConnection(scope))
            return await self._door.find(given, client)
        except Refused as error:
            raise unknown("key_refused", str(error)) from error
        except Unavailable as error:
            raise Problem(503, "unavailable", str(error), headers={"Retry-After": "2"}) from error

    def _as_device(self, scope: Scope, found: Principal) -> Principal:
        """The device that a bridge asks for; who asks, where none is named. Raises Problem."""
        named = [value for name, value in scope["headers"] if name == _DEVICE]
        if not named or found.proof.kind is Kind.ANONYMOUS:
            return found
        device = named[0].decode("latin-1")
        if len(named) > 1 or not is_device(device):
            raise Problem(400, "device", f"{DEVICE_HEADER}: expected the name of one device")
        if not found.holds(Action.FEED):
            raise Problem(
                403,
                "no_right",
                f"{found.name} may not ask for devices: expected a role with the action "
                f"{Action.FEED} (docs/rights.md)",
            )
        return self._rights.as_device(found, device)

    def _by_login(self, scope: Scope) -> Principal:
        found = scope["state"][LOGIN]
        if isinstance(found, Problem):
            raise found
        if scope.get("method") not in SAFE_METHODS:
            _check_page(scope)
        if self._reader is None:
            raise unknown("key_missing", EXPECTED)
        try:
            principal = self._reader(found)
        except NoRights as error:
            raise Problem(403, "no_right", str(error)) from error
        why = self._rights.end_of(principal)
        if why is not None:
            raise unknown(f"login_{why}", f"your login is {why}: log in again")
        return principal

    def _by_ticket(self, ticket: str | None, given: bytes | None) -> Principal:
        found = self._tickets.use_up(ticket or "")
        if found is None or given is not None:
            raise unknown("ticket_refused", "this ticket is not known, or used, or older than 30 s")
        why = self._rights.end_of(found)
        if why is not None:
            raise ended(why)
        return found


def _check_page(scope: Scope) -> None:
    """Raises Problem where not a page of ours makes a browser ask."""
    if not is_from_own_page(dict(scope["headers"])):
        raise Problem(403, "foreign_page", "a cookie changes things only from pages of this server")


def _take_ticket(scope: Scope) -> str | None:
    """The request's ticket, which its address has no longer then; empty for several."""
    query: bytes = scope["query_string"]
    if b"ticket" not in query:
        return None
    words = parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    found = [value for name, value in words if name == TICKET]
    if not found:
        return None
    kept = [(name, value) for name, value in words if name != TICKET]
    scope["query_string"] = urlencode(kept, encoding="latin-1").encode()
    return found[0] if len(found) == 1 else ""


def ended(why: End) -> Problem:
    """The right holds no longer."""
    return unknown(f"key_{why}", f"this key or token is {why}: come again with a new one")


def unknown(code: str, detail: str) -> Problem:
    """Who somebody is cannot be told."""
    return Problem(401, code, detail, headers={"WWW-Authenticate": "Bearer"})


def credential_of(scope: Scope) -> bytes | None:
    """The key or token in a request's header; None where it has none. Raises Problem."""
    headers = [value for name, value in scope["headers"] if name == b"authorization"]
    if headers:
        scheme, _, given = headers[0].partition(b" ")
        if scheme.lower() != b"bearer" or len(headers) > 1:
            raise unknown("key_refused", EXPECTED)
        return bytes(given.strip())
    return None


def cookie_of(scope: Scope) -> bytes | None:
    """What the reader's cookie holds."""
    found = cookies.cookie_of(scope, COOKIE)
    return None if found is None else found.encode("latin-1", "replace")


def principal_of(scope: Any) -> Principal:
    """The principal of a connection. Raises Problem where the guard gave it none."""
    found = (scope.get("state") or {}).get(STATE)
    if not isinstance(found, Principal):
        raise unknown("key_missing", EXPECTED)
    return found


_bearer: Final = HTTPBearer(auto_error=False, description="A key of the key file, or a token (JWT)")


async def _reader(
    http: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """Tell the principal in a coroutine: FastAPI runs anything else in a thread."""
    return principal_of(http.scope)


ReaderAsks = Annotated[Principal, Depends(_reader)]
"""A route's principal."""
