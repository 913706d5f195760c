"""GET /v1/ws: from a handshake to the socket's end."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import SOCKETS_PATH, connection_of
from edgewake.cloud.access.event_routes import problem_of
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStreams
from edgewake.cloud.access.sockets.kept import KeptCursors
from edgewake.cloud.access.sockets.socket import Closing, Socket
from edgewake.cloud.client_share import Clients
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.request import RequestError, parse_heartbeat
from edgewake.cloud.rights.guard import cookie_of, principal_of
from edgewake.cloud.rights.principal import Principal
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.origin import is_from_own_page
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.access")

PATH: Final = SOCKETS_PATH.decode()
SUBPROTOCOL: Final = "edgewake.v1"
"""Chosen where a client offers it; none is needed."""
PARAMETERS: Final = frozenset({"heartbeat"})
KEY: Final = re.compile(r"[A-Za-z0-9+/]{22}==")
BINARY: Final = Closing(1003, "messages are text: JSON objects")
OUR_FAULT: Final = Closing(1011, "our fault; the log has it")


class SocketRoutes:
    """The WebSockets of one server."""

    def __init__(
        self,
        config: AccessConfig,
        *,
        hub: Hub,
        streams: OpenStreams,
        metrics: Metrics,
        clients: Clients,
        kept: KeptCursors,
        clock: Clock,
    ) -> None:
        self._config, self._hub, self._streams = config, hub, streams
        self._metrics, self._clients, self._clock = metrics, clients, clock
        self._kept = kept

    def add_to(self, app: FastAPI) -> None:
        """Serve them."""
        app.router.routes.append(WebSocketRoute(PATH, self.serve, name="socket"))
        app.add_route(PATH, _no_handshake, methods=["GET"], include_in_schema=False)

    async def serve(self, web: WebSocket) -> None:
        """One WebSocket, from the handshake to its end."""
        try:
            self._check(web)
            socket = self._socket(web, principal_of(web.scope))
        except (RequestError, Unavailable, Problem) as error:
            refused = (
                error
                if isinstance(error, Problem)
                else problem_of(error, retry_after_s=self._streams.retry_after_s())
            )
            self._metrics.refused.labels(refused.code).inc()
            await web.send_denial_response(refused.response())
            return
        self._metrics.sockets.inc()
        try:
            offered = web.scope["subprotocols"]
            await web.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
            closing = await self._talk(web, socket)
            if closing is not None:
                await web.close(closing.code, closing.reason)
        except WebSocketDisconnect:
            pass  # it left before it was let in
        finally:
            socket.close()
            self._metrics.sockets.dec()

    def _check(self, web: WebSocket) -> None:
        """Check the origin of a request for a WebSocket. Raises RequestError and Problem.

        A browser asks nobody before it opens a WebSocket, and sends its cookies: so this checks
        what CORS checks for streams.
        """
        if not KEY.fullmatch(web.headers.get("sec-websocket-key", "")):
            detail = "Sec-WebSocket-Key: expected 16 bytes in base64 (RFC 6455, 4.1)"
            raise Problem(400, "websocket", detail)
        unknown = sorted(set(web.query_params) - PARAMETERS)
        if unknown:
            raise RequestError(
                "parameter",
                f"{unknown[0][:40]!r} is not known here: expected "
                f"{', '.join(sorted(PARAMETERS))}; streams are named in messages",
            )
        origin = web.headers.get("origin")
        if origin is None or is_from_own_page(dict(web.scope["headers"])):
            return
        allowed = self._config.allow_origins
        if "*" not in allowed and origin not in allowed:
            raise Problem(
                403,
                "origin",
                f"Origin {origin[:80]!r}: expected a page of this server, or one that its "
                "allow_origins names",
            )
        if cookie_of(web.scope) is not None:
            raise Problem(
                403,
                "foreign_page",
                "a cookie opens sockets only for pages of this server; others need a ticket",
            )

    def _socket(self, web: WebSocket, reader: Principal) -> Socket:
        """Raises RequestError and Full."""
        asked = web.query_params.get("heartbeat")
        return Socket(
            connection_of(web.scope),
            hub=self._hub,
            streams=self._streams,
            reader=reader,
            client=self._clients.of_request(web),
            heartbeat_s=self._config.heartbeat_s if asked is None else parse_heartbeat(asked),
            kept=self._kept,
            clock=self._clock,
        )

    async def _talk(self, web: WebSocket, socket: Socket) -> Closing | None:
        """Hear what the client says until one of us closes; how we close, None where it did."""
        hearing = asyncio.create_task(_hear(web, socket), name="socket-hearing")
        both: set[asyncio.Future[Closing | None] | asyncio.Future[Closing]] = {
            hearing,
            socket.closing,
        }
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return hearing.result() if hearing.done() else socket.closing.result()
        except Exception as error:
            log.error("%s: %r", PATH, error, extra={"event": "http.error"}, exc_info=error)
            return OUR_FAULT
        finally:
            hearing.cancel()
            await asyncio.wait({hearing})


async def _hear(web: WebSocket, socket: Socket) -> Closing | None:
    while not socket.closing.done():
        message = await web.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text = message.get("text")
        if text is None:
            return BINARY
        await socket.hear(text)
        await asyncio.sleep(0)  # messages that are here already would have the loop to themselves
    return await socket.closing


async def _no_handshake(_: Request) -> Response:
    detail = "this is a WebSocket's address: expected the handshake of RFC 6455"
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
    return Problem(426, "upgrade", detail, headers=headers).response()
