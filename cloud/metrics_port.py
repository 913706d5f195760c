"""The port of a part without an API: GET /metrics, /healthz and /readyz, in its own thread.

So it answers while the part's main loop hangs. It has the protections of the other HTTP parts:
bounds on heads in bytes and seconds (`web_limits`), on connections (`web_connections`), and on the
names that a request may call it by (`web_host`).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import orjson
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from edgewake.cloud import process_metrics
from edgewake.cloud.web import log as web_log
from edgewake.cloud.web.connections import Connections
from edgewake.cloud.web.host import HostCheck
from edgewake.cloud.web.limits import LimitedProtocol

CONNECTIONS_MAX: Final = 64
"""Prometheus needs one; two of them, a person and a health check leave room."""
OWN_SHARE: Final = 0.5
"""A scraper and a health check of one machine are one address."""
BACKLOG: Final = 64


def serve(
    port: int | None,
    gather: Callable[[], Iterable[Metric]],
    *,
    part: str,
    certificates: Sequence[Path | None] = (),
    host: str = "127.0.0.1",
    is_alive: Callable[[], bool] = lambda: True,
    why_not_ready: Callable[[], str] = lambda: "",
) -> None:
    """Answer on `port` until the process ends; nothing where it is None.

    /healthz is 200 while `is_alive`, else 503: the loop that does the work hangs, and only another
    start helps. /readyz is 200 while there is nothing to `why_not_ready`, else 503 with that as
    `detail`: it works and is behind, or waits for somebody else. Raises OSError where the port is
    in use.
    """
    if port is None:
        return
    listener = socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=BACKLOG
    )
    registry = CollectorRegistry()
    registry.register(_Gathered(gather))
    process_metrics.register(registry, part, certificates=certificates)
    app = HostCheck(
        _app(registry, is_alive=is_alive, why_not_ready=why_not_ready), allows_bare_names=True
    )
    threading.Thread(
        target=asyncio.run, args=(_answer(app, listener),), name="metrics", daemon=True
    ).start()


async def _answer(app: ASGIApp, listener: socket.socket) -> None:
    """Serve with uvicorn's connections and without its server.

    Its loop would wake the process ten times a second.
    """
    web_log.bound_warnings()
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
    )
    config.load()
    state, connections = ServerState(), Connections(CONNECTIONS_MAX, share=OWN_SHARE)

    def made() -> LimitedProtocol:
        return LimitedProtocol(
            config=config, server_state=state, app_state={}, connections=connections
        )

    server = await asyncio.get_running_loop().create_server(made, sock=listener)
    await server.serve_forever()


def _app(
    registry: CollectorRegistry, *, is_alive: Callable[[], bool], why_not_ready: Callable[[], str]
) -> ASGIApp:
    def answer(path: str) -> Response:
        if path in ("/", "/metrics"):
            return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
        if path == "/healthz":
            found = {"status": "ok" if is_alive() else "hangs"}
        elif path == "/readyz":
            detail = why_not_ready()
            found = {"status": "not_ready", "detail": detail} if detail else {"status": "ok"}
        else:
            return Response(
                "here are /metrics, /healthz and /readyz\n", 404, media_type="text/plain"
            )
        return Response(
            orjson.dumps(found),
            200 if found["status"] == "ok" else 503,
            media_type="application/json",
        )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(scope["path"])(scope, receive, send)

    return app


class _Gathered(Collector):
    def __init__(self, gather: Callable[[], Iterable[Metric]]) -> None:
        self._gather = gather

    def collect(self) -> Iterable[Metric]:
        return self._gather()
