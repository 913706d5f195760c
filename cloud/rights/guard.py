"""Gives each request its principal, before anything else of it is looked at.

    Authorization: Bearer KEY-OR-TOKEN      programs
    the cookie `edgewake_reader`            browsers, whose EventSource sends no header
    nothing                                 the anonymous principal, where the configuration has one

What is wrong is refused with 401 and never taken for nothing. A route finds its principal by
`ReaderAsks`; one that the guard did not see has none, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp, Receive, Scope, Send

from edgewake.cloud.rights.principal import Principal
from edgewake.cloud.rights.rights import End, Refused, Rights
from edgewake.cloud.web import Problem
from edgewake.protocol.errors import Unavailable

COOKIE: Final = "edgewake_reader"
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
        open_paths: Iterable[str],
        open_folders: tuple[str, ...] = (),
    ) -> None:
        self._app, self._rights = app, rights
        self._open_paths, self._open_folders = frozenset(open_paths), open_folders

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._is_open(scope):
            return await self._app(scope, receive, send)
        try:
            scope.setdefault("state", {})[STATE] = await self._principal(scope)
        except Problem as problem:
            if scope["type"] == "websocket":
                return await send({"type": "websocket.close", "code": 1008})
            return await problem.response()(scope, receive, send)
        return await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"]
        return (
            path in self._open_paths
            or path.startswith(self._open_folders)
            or scope.get("method") == "OPTIONS"
        )

    async def _principal(self, scope: Scope) -> Principal:
        given = _credential(scope)
        if given is None:
            if self._rights.anonymous is None:
                raise unknown("key_missing", EXPECTED)
            return self._rights.anonymous
        try:
            return await self._rights.principal(given)
        except Refused as error:
            raise unknown("key_refused", str(error)) from error
        except Unavailable as error:
            raise Problem(503, "unavailable", str(error), headers={"Retry-After": "2"}) from error


def ended(why: End) -> Problem:
    """The right holds no longer."""
    return unknown(f"key_{why}", f"this key or token is {why}: come again with a new one")


def unknown(code: str, detail: str) -> Problem:
    """Who somebody is cannot be told."""
    return Problem(401, code, detail, headers={"WWW-Authenticate": "Bearer"})


def _credential(scope: Scope) -> bytes | None:
    """The key or token of a request; None where it has none. Raises Problem."""
    headers = [value for name, value in scope["headers"] if name == b"authorization"]
    if headers:
        scheme, _, given = headers[0].partition(b" ")
        if scheme.lower() != b"bearer" or len(headers) > 1:
            raise unknown("key_refused", EXPECTED)
        return bytes(given.strip())
    return cookie_of(scope)


def cookie_of(scope: Scope) -> bytes | None:
    """What the reader's cookie holds."""
    text = b"; ".join(value for name, value in scope["headers"] if name == b"cookie")
    if COOKIE.encode() not in text:
        return None
    try:
        cookies: SimpleCookie = SimpleCookie(text.decode("latin-1"))
    except CookieError:
        return None
    found = cookies.get(COOKIE)
    return None if found is None else found.value.encode("latin-1")


def principal_of(scope: Any) -> Principal:
    """The principal of a connection. Raises Problem where the guard gave it none."""
    found = (scope.get("state") or {}).get(STATE)
    if not isinstance(found, Principal):
        raise unknown("key_missing", EXPECTED)
    return found


_bearer: Final = HTTPBearer(auto_error=False, description="A key of the key file, or a token (JWT)")


def _reader(
    http: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    return principal_of(http.scope)


ReaderAsks = Annotated[Principal, Depends(_reader)]
"""A route's principal."""
