"""What the HTTP parts share: problem+json (RFC 9457), bounds on bodies, start and stop.

A problem's `type` is `urn:edgewake:problem:<code>`; `code` is a fixed identifier for programs,
`detail` a sentence for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import uvicorn
import uvloop
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgewake.cloud.web import log as web_log
from edgewake.cloud.web.connections import Connections
from edgewake.cloud.web.handshake import RefuseWebSockets
from edgewake.cloud.web.limits import LimitedProtocol
from edgewake.cloud.web.problem import PROBLEM_TYPE, problem_body
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import ConfigError, Unavailable
from edgewake.protocol.expectation import expectation
from edgewake.protocol.heartbeat import Heartbeat

log = logging.getLogger("edgewake.web")

GRACE_S: Final = 3
"""Seconds that open requests get at the stop; a part must be gone after 5."""
BACKLOG: Final = 2048
"""Connections that wait to be accepted: after a server's restart all of its clients come back at
once."""
HANDSHAKE_S: Final = 10.0
"""Seconds for TLS before the first byte of a request; the bound of connections counts who has it
behind him."""
FOUND_CHARS_MAX: Final = 100
"""Characters of a wrong value that are repeated."""
ERRORS_MAX: Final = 20
"""Validation errors told in one answer; the rest is counted."""


class Problem(Exception):
    """An error to be answered. `more` goes into the body beside the standard members."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.more = more

    def response(self) -> Response:
        """As an answer."""
        return Response(
            problem_body(self.status, self.code, self.detail, self.more),
            self.status,
            self.headers,
            PROBLEM_TYPE,
        )


def install(app: FastAPI) -> None:
    """Answer every error of `app` as a problem."""

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(
            error.status_code, f"http_{error.status_code}"
        )
        headers = (
            {"Allow": ", ".join(_methods(request))} if error.status_code == 405 else error.headers
        )
        return Problem(
            error.status_code,
            code,
            f"{request.method} {request.url.path}: {error.detail}",
            headers=headers,
        ).response()

    @app.exception_handler(RequestValidationError)
    async def validation(_: Request, error: RequestValidationError) -> Response:
        errors = [_field_error(e) for e in error.errors()[:ERRORS_MAX]]
        first, more = f"{errors[0]['where']}: {errors[0]['what']}", len(error.errors()) - 1
        return Problem(
            422, "invalid", first + (f"; and {more} more" if more else ""), errors=errors
        ).response()

    @app.exception_handler(Unavailable)
    async def unavailable(_: Request, error: Unavailable) -> Response:
        return Problem(503, "unavailable", str(error), headers={"Retry-After": "2"}).response()

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> Response:
        log.error(
            "%s %s: %r",
            request.method,
            request.url.path,
            error,
            extra={"event": "http.error"},
            exc_info=error,
        )
        return Problem(500, "internal", "our fault; the log has it").response()


def _field_error(error: Mapping[str, Any]) -> dict[str, str]:
    where = ".".join(str(part) for part in error["loc"])
    return {
        "where": where,
        "what": expectation(error),
        "found": repr(error.get("input"))[:FOUND_CHARS_MAX],
    }


def _methods(request: Request) -> list[str]:
    """The methods of a path, of all routes that match it; Starlette names only the first one's."""
    found: set[str] = set()
    for route in _leaves_of(request.app.routes):
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


def _leaves_of(routes: Iterable[BaseRoute]) -> Iterator[Route]:
    for route in routes:
        if isinstance(route, Route):
            yield route
        else:
            # FastAPI keeps the router that was included; its name for it is not public.
            yield from _leaves_of(
                getattr(getattr(route, "original_router", route), "routes", None) or ()
            )


class BodyLimit:
    """ASGI: refuse bodies over `bytes_max` with 413, whether declared or streamed.

    `larger`: the bytes of paths that begin so, where a route takes more than the others.
    """

    def __init__(
        self, app: ASGIApp, bytes_max: int, larger: Mapping[str, int] | None = None
    ) -> None:
        self._app = app
        self._bytes_max = bytes_max
        self._larger = larger or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        bytes_max = self._most(scope["path"])
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > bytes_max:
            return await self._refuse(bytes_max, scope, receive, send)
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > bytes_max:
                return await self._refuse(bytes_max, scope, receive, send)
        return await self._app(scope, _replay(body, receive), send)

    def _most(self, path: str) -> int:
        found = (most for begin, most in self._larger.items() if path.startswith(begin))
        return next(found, self._bytes_max)

    async def _refuse(self, bytes_max: int, scope: Scope, receive: Receive, send: Send) -> None:
        problem = Problem(
            413,
            "too_large",
            f"body: expected at most {bytes_max} bytes",
            headers={"Connection": "close"},
        )
        await problem.response()(scope, receive, send)


def _replay(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed


class _Server(uvicorn.Server):
    """uvicorn that says when it listens, and without signal handlers: the part has its own."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[], None],
        encrypted: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._encrypted = encrypted

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving: the first socket, of the loopback, is not encrypted.

        Uvicorn has one TLS context for all sockets.
        """
        if self._encrypted is None or sockets is None:
            await super().startup(sockets)
        else:
            await super().startup(sockets[:1])
            for one in sockets[1:]:
                self.servers.append(await self._serve_encrypted(one, self._encrypted))
        self._on_ready()

    async def _serve_encrypted(
        self, listener: socket.socket, encrypted: ssl.SSLContext
    ) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            partial(
                self.config.http_protocol_class,  # type: ignore[call-arg]  # as uvicorn calls it
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            ),
            sock=listener,
            ssl=encrypted,
            ssl_handshake_timeout=HANDSHAKE_S,
            backlog=self.config.backlog,
        )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises ConfigError where the port is taken or the address is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


def bind_all(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """A listening socket for each host, all on one port. Raises ConfigError.

    Port 0 takes one that is free at the first of them.
    """
    listeners: list[socket.socket] = []
    try:
        for host in hosts:
            listeners.append(bind(host, port))
            port = listeners[0].getsockname()[1]
    except ConfigError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


async def serve(
    app: ASGIApp,
    listener: socket.socket | Sequence[socket.socket],
    *,
    stop: asyncio.Event,
    on_ready: Callable[[], None],
    before_close: Callable[[], Awaitable[None]] | None = None,
    protocol: type[LimitedProtocol] = LimitedProtocol,
    grace_s: int = GRACE_S,
    connections: Connections | None = None,
    sockets: type[asyncio.Protocol] | None = None,
    encrypted: ssl.SSLContext | None = None,
) -> None:
    """Serve until `stop`; then await `before_close`, and let open requests end in `grace_s`.

    Connections are still served during `before_close`. `listener`: one, or several, of different
    addresses. `sockets`: serves the WebSockets that `protocol` lets through; None: they are
    refused. `encrypted`: TLS of all listeners but the first.
    """
    config = uvicorn.Config(
        RefuseWebSockets(app),
        http=partial(protocol, connections=Connections() if connections is None else connections),  # type: ignore[arg-type]  # called like the class
        ws="none" if sockets is None else sockets,
        ws_per_message_deflate=False,  # a kilobyte could unfold to a megabyte
        ws_ping_interval=None,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=grace_s,
    )
    # Its start messages do not belong to our events.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    web_log.bound_warnings()
    server = _Server(config, on_ready, encrypted)
    listeners = [listener] if isinstance(listener, socket.socket) else list(listener)
    serving = asyncio.create_task(server.serve(sockets=listeners), name="http")
    stopping = asyncio.create_task(stop.wait(), name="http-stop")
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if before_close is not None and not serving.done():
            await before_close()
    finally:
        server.should_exit = True
        stopping.cancel()
        await serving


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` at SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def named(name: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a background task of a part; its failure is logged by name, and ends the part."""
    try:
        await work
    except Exception as error:
        log.critical(
            "task %s died: %r",
            name,
            error,
            extra={"event": "task.died", "task": name},
            exc_info=error,
        )
        raise


def run_part(main: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
    """Run a part to its end and exit.

    0 after a stop, 2 for an unusable configuration, 1 for an error.
    """
    try:
        uvloop.run(Heartbeat(SystemClock()).beside(main()))
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201  (for people; the log may not be set up as they read it)
        sys.exit(2)
    except BaseExceptionGroup as group:
        for cause in _leaves(group):
            log.critical(
                "%s: %s", type(cause).__name__, cause, extra={"event": "part.died"}, exc_info=cause
            )
        sys.exit(1)
    sys.exit(0)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
