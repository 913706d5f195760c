"""The operations API.

Every path but health, metrics and this description needs a key or a session.
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Response, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from edgewake.cloud.login import routes as login_routes
from edgewake.cloud.login.door import Door
from edgewake.cloud.ops.login import pages
from edgewake.cloud.ops.login.auth import Guard
from edgewake.cloud.ops.routes import (
    acks,
    alerts,
    boards,
    clients,
    credentials,
    dead_letters,
    deliveries,
    device_commands,
    devices,
    maps,
    named,
    overview,
    queries,
    requests,
    sql,
    streams,
    summaries,
    system,
)
from edgewake.cloud.ops.routes.shared import Services
from edgewake.cloud.web import http_part
from edgewake.cloud.web import pages as web_pages
from edgewake.cloud.web.app import application
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.ops.query import QUERY_CHARS_MAX

BODY_BYTES_MAX = 4 * QUERY_CHARS_MAX
LARGE_BODY_BYTES_MAX: Final = 1024 * 1024
LARGE_BODIES: Final = ("/v1/sets/", "/v1/certificates", "/v1/dead-letters/", "/v1/maps")
"""The most bytes of a body: a set of ten thousand devices, a hundred signing requests, a corrected
message, a map file.
"""


def make_app(services: Services) -> FastAPI:
    """Makes the application."""
    # The guard below decides before a body is read; these two only describe it in OpenAPI.
    key_in_openapi = [
        Security(HTTPBearer(auto_error=False)),
        Security(APIKeyHeader(name="X-API-Key", auto_error=False)),
    ]
    app = application("Edgewake operations", description=__doc__ or "")
    app.add_middleware(
        http_part.BodyLimit,
        bytes_max=BODY_BYTES_MAX,
        larger=dict.fromkeys(LARGE_BODIES, LARGE_BODY_BYTES_MAX),
    )
    people = services.access.people
    app.add_middleware(Guard, access=services.access)
    login_routes.add(app, None if people is None else people.desk, services.access.clients)
    if people is not None:
        app.add_middleware(Door, desk=people.desk)
    _add_health(app, services)
    pages.add(app, services.access)
    for routes in (
        overview,
        alerts,
        boards,
        named,
        maps,
        clients,
        deliveries,
        credentials,
        devices,
        device_commands,
        requests,
        streams,
        queries,
        dead_letters,
        acks,
        summaries,
        sql,
        system,
    ):
        app.include_router(routes.router(services), dependencies=key_in_openapi)
    app.include_router(credentials.enrolment(services))
    return app


def _add_health(app: FastAPI, services: Services) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> dict[str, str]:
        if not services.ready.is_set():
            raise Problem(
                503,
                "starting",
                "the tables are still being read, or Kafka does not answer: try again",
            )
        if why := services.health.why_not_ready():
            raise Problem(503, "not_ready", why)
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(services.metrics), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", include_in_schema=False)
    async def home() -> Response:
        return web_pages.document("ops.html")

    app.mount("/page", web_pages.PageFiles(directory=web_pages.folder()), name="page")
