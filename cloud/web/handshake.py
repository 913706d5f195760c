"""Refuses a WebSocket handshake with a reason, instead of an answer of another protocol."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from edgewake.cloud.web.problem import PROBLEM_TYPE, problem_body

DETAIL: Final = (
    "no WebSocket is spoken at this address, but at /v1/ws of an access server; here events are "
    "read by GET as text/event-stream (EventSource, curl -N), or in pages with limit="
)


class RefuseWebSockets:
    """ASGI: 400 for an `Upgrade: websocket` (RFC 6455, 4.1) that no part of the server accepted.

    Any other upgrade is an offer that we ignore.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = [
            value.strip().lower() for name, value in scope.get("headers", ()) if name == b"upgrade"
        ]
        if scope["type"] != "http" or b"websocket" not in wanted:
            await self._app(scope, receive, send)
            return
        answer = Response(
            problem_body(400, "websocket", DETAIL), 400, {"Connection": "close"}, PROBLEM_TYPE
        )
        await answer(scope, receive, send)
