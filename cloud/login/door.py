"""Gives each request its browser's session before a guard asks for it.

It also gives the browser the session's new cookie.

What the guards find in `scope["state"]["login"]`: a Session; a Problem, where what the cookie holds
proves nothing (any more), or nobody can tell now; nothing where there is no cookie. A cookie that
proves nothing is taken away with the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgewake.cloud.login.desk import Desk, Over, Seen, cookie_name
from edgewake.cloud.web.cookies import cookie_of
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.errors import Unavailable

STATE: Final = "login"
UNASKED: Final = frozenset({"/healthz", "/readyz", "/metrics", "/login", "/login/callback"})
"""Paths at which a session does not matter."""
FILES: Final = "/page/"
START: Final = frozenset({"http.response.start", "websocket.accept"})
AGAIN_S: Final = 5


class Door:
    """ASGI: see the module."""

    def __init__(self, app: ASGIApp, *, desk: Desk) -> None:
        self._app, self._desk = app, desk
        self._name = cookie_name(desk.config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_asked = scope["type"] in ("http", "websocket") and not (
            scope["path"] in UNASKED or scope["path"].startswith(FILES)
        )
        text = cookie_of(scope, self._name) if is_asked else None
        if text is None:
            return await self._app(scope, receive, send)
        state = scope.setdefault("state", {})
        try:
            seen = await self._desk.look(text)
        except Over as error:
            state[STATE] = Problem(
                401, "login_over", f"{error}: log in again", headers={"WWW-Authenticate": "Bearer"}
            )
            send = _with(send, lambda response: drop(response, self._desk))
        except Unavailable as error:
            state[STATE] = Problem(
                503, "unavailable", str(error), headers={"Retry-After": str(AGAIN_S)}
            )
        else:
            state[STATE] = seen.session
            if seen.cookie is not None:
                send = _with(send, lambda response: keep(response, self._desk, seen))
        return await self._app(scope, receive, send)


def keep(response: Response, desk: Desk, seen: Seen) -> None:
    """Have the browser keep a session."""
    if seen.cookie is None:
        return
    response.set_cookie(
        cookie_name(desk.config),
        seen.cookie,
        max_age=desk.left_s(seen.session),
        path="/",
        secure=is_secret(desk),
        httponly=True,
        samesite="lax",  # a link in a mail leads into the pages, as who is logged in
    )


def drop(response: Response, desk: Desk) -> None:
    """Have the browser forget its session."""
    response.delete_cookie(
        cookie_name(desk.config), "/", secure=is_secret(desk), httponly=True, samesite="lax"
    )


def is_secret(desk: Desk) -> bool:
    """Do browsers come by TLS?"""
    return desk.config.url.startswith("https:")


def _with(send: Send, change: Callable[[Response], None]) -> Send:
    """`send`, with the cookies that `change` puts into a response."""
    response = Response()
    change(response)
    cookies = [pair for pair in response.raw_headers if pair[0] == b"set-cookie"]

    async def sent(message: Message) -> None:
        if message["type"] in START:
            message = {**message, "headers": [*message.get("headers", ()), *cookies]}
        await send(message)

    return sent
