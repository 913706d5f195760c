"""The HTTP side of an access server.

    GET /v1/streams                          streams and queries there are
    GET /v1/streams/{name}/events            one of them as SSE, or a page of it
    GET /v1/events?stream=a&stream=b         several in one
    GET /v1/publications                     what operators put together, by its name
    GET /v1/publications/{name}/events       one of them, as a stream or a page
    GET /v1/publications/{name}/latest/{of}  the latest of one of its streams, or a copy (`sync`)
    POST …/events                            each of these with its words in a body: 10,000 devices
    GET /v1/ws                               a WebSocket: several subscriptions, with credits
    GET /v1/latest/{name}                    the latest of each device or group, with the cursor to
                                             go on from
    GET /v1/sync/{name}                      the same as a copy to keep: all rows, then what changed
    GET /v1/boards, /v1/boards/{name}        boards, with the cards that their reader may see
    GET /login, /login/…                     people log in, at an identity provider
    POST /v1/tickets, /v1/session            how a browser brings its right along
    GET /, /town, /page/…                    the pages
    GET /asyncapi.json                       what is said and heard by whatever protocol
    GET /healthz, /readyz, /metrics

Who may read what is `edgewake.cloud.rights`: each request has a principal, also one that proves
nothing. What a principal may not see is answered as what is not there. Errors are problem+json.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Final

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from edgewake.cloud.access import boards
from edgewake.cloud.access.asyncapi.document import document as asyncapi_document
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.event_routes import LATER, EventRoutes
from edgewake.cloud.access.latest import latest_routes, sync_routes
from edgewake.cloud.access.latest.latest_stores import LatestStores
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStreams
from edgewake.cloud.access.reports.lease_reports import LeaseReports
from edgewake.cloud.access.slow.policy import Policy
from edgewake.cloud.access.sockets.kept import KeptCursors
from edgewake.cloud.access.sockets.routes import SocketRoutes
from edgewake.cloud.access.stream_response import Later
from edgewake.cloud.client_share import Clients
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.login import routes as login_routes
from edgewake.cloud.login.door import Door
from edgewake.cloud.login.reader import People
from edgewake.cloud.rights import routes as rights_routes
from edgewake.cloud.rights.guard import Guard, ReaderAsks
from edgewake.cloud.rights.reader_door import ReaderDoor
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.rights.tickets import Tickets
from edgewake.cloud.web import http_part
from edgewake.cloud.web import pages as web_pages
from edgewake.cloud.web.app import application
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import let_anonymous_in
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

EXPOSED: Final = [
    "ETag",
    "Edgewake-Cursor",
    "Edgewake-Heartbeat",
    "Edgewake-Live",
    "Edgewake-Start",
    "Retry-After",
]
ASKED: Final = [
    "Authorization",
    "Cache-Control",
    "Content-Type",
    "Edgewake-Lease",
    "If-None-Match",
    "Last-Event-ID",
]
"""Headers that pages of other sites may send."""


OPEN_PATHS: Final = frozenset(
    {
        "/",
        "/town",
        "/docs",
        "/openapi.json",
        "/asyncapi.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/server",
    }
)
"""Paths without a principal: the pages, which show only what their reader may see, and the server's
state."""
OPEN_FOLDERS: Final = ("/page/", "/docs/")
BODY_BYTES_MAX: Final = 1024 * 1024
"""The largest body of a request, bytes: ten thousand devices, with a filter."""
TICKET_BYTES: Final = 32
"""Random bytes of a ticket."""


def build(
    config: AccessConfig,
    *,
    hub: Hub,
    streams: OpenStreams,
    latest: LatestStores,
    leases: LeaseReports,
    metrics: Metrics,
    rights: Rights,
    people: People | None = None,
    clock: Clock,
) -> FastAPI:
    """Build the application; the caller runs its services and the desk of `people`."""
    app = application(
        "Edgewake access",
        description="Streams and results of continuous queries, exactly once, with a cursor.",
    )
    clients = Clients(config.trusted_proxies)
    tickets = Tickets(clock, partial(secrets.token_urlsafe, TICKET_BYTES))
    app.add_middleware(http_part.BodyLimit, bytes_max=BODY_BYTES_MAX)  # it comes behind the guard
    _add_guard(
        app,
        config,
        rights=rights,
        people=people,
        clients=clients,
        tickets=tickets,
        clock=clock,
        retry_ms=streams.retry_ms,
    )
    EventRoutes(
        hub=hub,
        streams=streams,
        leases=leases,
        metrics=metrics,
        clients=clients,
        clock=clock,
        bodies=latest.bodies,
    ).add_to(app)
    SocketRoutes(
        config,
        hub=hub,
        streams=streams,
        metrics=metrics,
        clients=clients,
        kept=KeptCursors(config.kafka, config.name, clock),
        clock=clock,
    ).add_to(app)
    app.include_router(latest_routes.router(latest, clients))
    app.include_router(sync_routes.router(latest, streams, clients))
    app.include_router(boards.router(hub.catalogue))
    app.include_router(rights_routes.router(tickets, clients, clock))
    _add_operations(app, config, hub=hub, streams=streams, latest=latest, metrics=metrics)
    _add_pages(app)
    return app


def _add_guard(
    app: FastAPI,
    config: AccessConfig,
    *,
    rights: Rights,
    people: People | None,
    clients: Clients,
    tickets: Tickets,
    clock: Clock,
    retry_ms: Callable[[], int],
) -> None:
    """Let in who shows a key, a session or a ticket; and pages of other origins, where any may."""
    app.add_middleware(
        Guard,
        rights=rights,
        door=ReaderDoor(rights, clock),
        clients=clients,
        tickets=tickets,
        open_paths=OPEN_PATHS | login_routes.OPEN_PATHS,
        open_folders=OPEN_FOLDERS,
        later=lambda: Later(LATER * retry_ms()),
        reader=None if people is None else people.reader,
    )
    login_routes.add(app, None if people is None else people.desk, clients)
    if people is not None:
        app.add_middleware(Door, desk=people.desk)
    if config.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allow_origins,
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=ASKED,
            expose_headers=EXPOSED,
            max_age=3600,
        )
    if rights.anonymous is not None:
        let_anonymous_in(app)


def _add_operations(
    app: FastAPI,
    config: AccessConfig,
    *,
    hub: Hub,
    streams: OpenStreams,
    latest: LatestStores,
    metrics: Metrics,
) -> None:
    @app.get("/v1/streams")
    async def catalogue(reader: ReaderAsks) -> Response:
        """Lists all streams and queries."""
        if why := hub.catalogue.why_unreachable:
            raise Unavailable(why)
        return JSONResponse(
            {"streams": hub.catalogue.describe(reader)}, headers={"Cache-Control": "no-store"}
        )

    @app.get("/v1/publications")
    async def publications(reader: ReaderAsks) -> Response:
        """Lists the publications that you may read."""
        if why := hub.catalogue.why_unreachable:
            raise Unavailable(why)
        return JSONResponse(
            {"publications": hub.catalogue.describe_publications(reader)},
            headers={"Cache-Control": "no-store"},
        )

    @app.get("/v1/server", include_in_schema=False)
    async def server() -> Response:
        """Server name and address of the operations API (used by the page)."""
        return JSONResponse(
            {"name": config.name, "ops_url": config.ops_url}, headers={"Cache-Control": "no-store"}
        )

    @app.get("/healthz")
    async def healthz() -> Response:
        """Answers while the process lives."""
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        """Answers 200 while Kafka answers and the server is not stopping."""
        if why := "about to stop" if streams.draining else hub.catalogue.why_unreachable:
            raise Problem(503, "not_ready", why)
        return JSONResponse({"status": "ready"})

    @app.get("/asyncapi.json", include_in_schema=False)
    async def asyncapi() -> Response:
        """What streams, sockets, devices and webhooks say: an AsyncAPI 3 document."""
        return JSONResponse(asyncapi_document())

    @app.get("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        """Counters and gauges for Prometheus."""
        metrics.clients.set(len(streams))
        metrics.behind.set(streams.behind)
        slow = streams.slow_by_policy()
        for policy in Policy:
            metrics.slow.labels(policy.value).set(slow[policy])
        metrics.views.set(len(hub.views))
        metrics.followed.set(len(hub.streams.by_name))
        metrics.tail_bytes.set(hub.streams.bytes)
        metrics.chunk_bytes.set(hub.chunks.bytes)
        metrics.cohorts.set(hub.cohorts_reading)
        metrics.answer_bytes.set(latest.bodies.size)
        metrics.answers_cut.set(latest.bodies.cut)
        metrics.records.set(hub.streams.records)
        metrics.unreadable.set(hub.decoder.unreadable)
        metrics.replayed.set(hub.replay.blocks_read)
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _add_pages(app: FastAPI) -> None:
    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def live() -> Response:
        return web_pages.document("live.html")

    @app.api_route("/town", methods=["GET", "HEAD"], include_in_schema=False)
    async def town() -> Response:
        return web_pages.document("town.html")

    app.mount("/page", web_pages.PageFiles(directory=web_pages.folder()), name="page")
