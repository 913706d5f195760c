"""The HTTP side of an access server.

    GET /v1/streams                          streams and queries there are
    GET /v1/streams/{name}/events            one of them as SSE
    GET /v1/events?stream=a&stream=b         several in one
    GET /v1/latest/{name}                    the latest of each device or group, with the cursor to go on from
    GET /, /town, /page/…                    the pages
    GET /healthz, /readyz, /metrics

Reading needs no key yet. A server listens on the loopback by default; whoever makes it listen elsewhere lets everybody there read.

Errors are problem+json. What a client could mend by trying again is 503 with Retry-After; a browser (it sends Sec-Fetch-Mode) gets 200
with `retry` and the end instead, because any other status stops its EventSource for ever (WHATWG HTML 9.2.2).
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import FastAPI, Header, Query, Request
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from edgewake.cloud.access import latest_routes, page
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import connection_of
from edgewake.cloud.access.latest_stores import LatestStores
from edgewake.cloud.access.lease_reports import LeaseReport, LeaseReports
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStream, OpenStreams
from edgewake.cloud.access.session import Session
from edgewake.cloud.access.stream_response import EventStream, Later
from edgewake.cloud.log import subscription
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.log.hub import Full, Hub
from edgewake.cloud.log.subscription import RequestError, SubscriptionTooLarge
from edgewake.cloud.web import Problem
from edgewake.cloud.web_app import application
from edgewake.cloud.web_openapi import problems
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import CursorError, FilterError, Unavailable
from edgewake.protocol.lease_read import parse_name

log = logging.getLogger("edgewake.access")

OPEN_S: Final = 15.0
"""Seconds after which opening a stream is given up: Kafka's own time-outs are shorter."""
LATER: Final = 2
"""How many times longer than after a lost connection a browser waits that is refused."""
ALLOW: Final = {"Allow": "GET, HEAD, OPTIONS"}
EXPOSED: Final = ["Edgewake-Cursor", "Edgewake-Heartbeat", "Edgewake-Start", "Retry-After"]

OTHER_NAMES: Final = frozenset({"lastEventId", "lastEventID"})
"""What other servers' clients call `last_event_id`."""

SSE_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {"text/event-stream": {}},
        "description": "Events without end. `id` is the cursor; named events: `gap`, `watermark`, `checkpoint`, `warning`, `problem`.",
    },
    **problems(400, 404, 422),
}

Where = Annotated[str | None, Query(description="SQL condition on the event's fields, e.g. `speed_kmh > 50 AND device LIKE 'car-%'`.")]
Select = Annotated[str | None, Query(description="SQL columns to send, e.g. `device, speed_kmh / 3.6 AS speed_ms`.")]
From = Annotated[str | None, Query(alias="from", description="earliest, latest (default), an ISO 8601 time, or ms since 1970.")]
OnGap = Annotated[str | None, Query(description="After a gap go on at: earliest (default), latest; or stop.")]
Checkpoint = Annotated[
    str | None, Query(description="Progress without an event: `event: checkpoint` with data (event, default), or an id alone (id).")
]
Heartbeat = Annotated[
    str | None,
    Query(description="Seconds of silence after which a comment or the progress is sent, 5 to 300: the longer, the longer a radio sleeps."),
]
Cursor = Annotated[
    str | None, Query(alias="last_event_id", description="As the header Last-Event-ID, which wins. Also lastEventId, lastEventID.")
]
LeaseName = Annotated[
    str | None,
    Query(alias="lease", description="As the header Edgewake-Lease, `ID.TOKEN`: the push proxy wakes you no more while you read here."),
]
LeaseHeader = Annotated[str | None, Header(alias="Edgewake-Lease", description="Your lease at the push proxy, `ID.TOKEN`.")]
LastEventId = Annotated[str | None, Header(description="The cursor to go on from.")]


def build(
    config: AccessConfig, *, hub: Hub, streams: OpenStreams, latest: LatestStores, leases: LeaseReports, metrics: Metrics, clock: Clock
) -> FastAPI:
    """The application; `hub`, `streams`, `latest` and `leases` are run by the caller."""
    app = application("Edgewake access", description="Streams and results of continuous queries, exactly once, with a cursor.")
    if config.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allow_origins,
            allow_methods=["GET", "HEAD"],
            allow_headers=["Last-Event-ID", "Cache-Control", "Edgewake-Lease"],
            expose_headers=EXPOSED,
            max_age=3600,
        )
    _Events(app, hub=hub, streams=streams, leases=leases, metrics=metrics, clock=clock)
    app.include_router(latest_routes.router(latest))
    _add_operations(app, config, hub=hub, streams=streams, metrics=metrics)
    return app


class _Events:
    """The event streams."""

    def __init__(self, app: FastAPI, *, hub: Hub, streams: OpenStreams, leases: LeaseReports, metrics: Metrics, clock: Clock) -> None:
        self._hub, self._streams, self._leases, self._metrics, self._clock = hub, streams, leases, metrics, clock
        # FastAPI looks for the status in the arguments of the class, where it is not, and would fail to make the document.
        sse: Mapping[str, Any] = {"response_class": EventStream, "status_code": 200, "responses": SSE_ANSWERS}
        app.add_api_route("/v1/streams/{name}/events", self.one, methods=["GET"], **sse)
        app.add_api_route("/v1/events", self.several, methods=["GET"], **sse)
        for path, endpoint in (("/v1/streams/{name}/events", self.one), ("/v1/events", self.several)):
            app.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False)
            app.add_api_route(path, _options, methods=["OPTIONS"], include_in_schema=False)
            app.add_api_route(path, _not_allowed, methods=["POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)

    async def one(
        self,
        http: Request,
        name: str,
        where: Where = None,
        select: Select = None,
        start: From = None,
        on_gap: OnGap = None,
        checkpoint: Checkpoint = None,
        heartbeat: Heartbeat = None,
        last_event_id: LastEventId = None,
        cursor: Cursor = None,
        lease: LeaseName = None,
        lease_header: LeaseHeader = None,
    ) -> Response:
        """Follow one stream or query."""
        return await self.several(
            http, [name], where, select, start, on_gap, checkpoint, heartbeat, last_event_id, cursor, lease, lease_header
        )

    async def several(
        self,
        http: Request,
        stream: Annotated[list[str], Query(description="A stream or a query; up to 16.")],
        where: Where = None,
        select: Select = None,
        start: From = None,
        on_gap: OnGap = None,
        checkpoint: Checkpoint = None,
        heartbeat: Heartbeat = None,
        last_event_id: LastEventId = None,
        cursor: Cursor = None,
        lease: LeaseName = None,
        lease_header: LeaseHeader = None,
    ) -> Response:
        """Follow several streams and queries in one connection, with one cursor."""
        query = http.query_params
        asked: subscription.Request | None = None
        cursors = (last_event_id, cursor, query.get("lastEventId"), query.get("lastEventID"))
        try:
            _check_words(http)
            asked = subscription.request(
                stream,
                where=where,
                select=select,
                start=start,
                on_gap=on_gap,
                checkpoint=checkpoint,
                heartbeat=heartbeat,
                cursors=cursors,
            )
            return await self._open_or_leave(http, asked, _lease(lease_header or lease))
        except (RequestError, FilterError, CursorError, UnknownStream, Unavailable) as error:
            if isinstance(error, UnknownStream) and asked is not None and self._hub.has_stream(asked.cursor, error.name):
                error = Unavailable(f"stream {error.name!r} is not there at the moment")
            problem = problem_of(error, retry_after_s=self._streams.retry_after_s())
        except Exception as error:  # our own fault, which must not end a browser's stream either
            log.error("%s: %r", http.url.path, error, extra={"event": "http.error"}, exc_info=error)
            problem = Problem(500, "internal", "our fault; the log has it")
        self._metrics.refused.labels(problem.code).inc()
        if problem.status >= 500 and "sec-fetch-mode" in http.headers:
            return Later(LATER * self._streams.retry_ms())
        return problem.response()

    async def _open_or_leave(self, http: Request, asked: subscription.Request, lease: tuple[str, str] | None) -> Response:
        """Open a stream; given up at once when the client hangs up meanwhile, so that nothing is left of it."""
        stream = self._streams.add(connection_of(http.scope), heartbeat_s=asked.heartbeat_s)
        opening: asyncio.Task[Response] = asyncio.create_task(self._open(stream, asked, lease))
        try:
            waited: set[asyncio.Future[Any]] = {opening, stream.lost}
            await asyncio.wait(waited, timeout=OPEN_S, return_when=asyncio.FIRST_COMPLETED)
            if opening.done() and not stream.lost.done():
                return opening.result()
        except BaseException:
            await _abandon(opening)
            stream.close()
            raise
        await _abandon(opening)
        stream.close()
        if stream.lost.done():
            return Response(status_code=204)  # nobody is there to read it
        raise Unavailable(f"Kafka did not say within {OPEN_S:.0f} s where to begin")

    async def _open(self, stream: OpenStream, asked: subscription.Request, lease: tuple[str, str] | None) -> Response:
        plan = await self._hub.open(asked.subscription)
        try:
            start = await self._hub.start(plan, asked)
            if start.how == "stopped":
                self._hub.close(plan)
                stream.close()
                return Response(status_code=204, headers={"Edgewake-Start": "stopped"})  # the standard's word for "do not come back"
            self._streams.admit(replays=start.how != "latest")
            session = Session(
                self._hub,
                plan,
                start,
                on_gap=asked.on_gap,
                checkpoint_events=asked.checkpoint_events,
                clock=self._clock,
                on_change=self._streams.on_change,
            )
        except BaseException:
            self._hub.close(plan)
            raise
        report = None if lease is None else LeaseReport(self._leases, lease, plan.subscription.streams, session.cursor())
        return EventStream(stream, session, start, plan, hub=self._hub, streams=self._streams, metrics=self._metrics, lease=report)


def _lease(name: str | None) -> tuple[str, str] | None:
    found = None if not name else parse_name(name)
    if name and found is None:
        raise RequestError("lease", "lease: expected ID.TOKEN as the push proxy gave them")
    return found


def _check_words(http: Request) -> None:
    """A parameter that is not known is misspelt: without it the client would be given what it did not ask for. Raises RequestError."""
    known = {parameter.alias for parameter in http.scope["route"].dependant.query_params} | OTHER_NAMES
    for word in http.query_params:
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise RequestError("parameter", f"parameter {word[:40]!r} is not known; {hint}")


async def _abandon(opening: asyncio.Task[Response]) -> None:
    """Give up what is being opened, and what was opened in the same moment."""
    opening.cancel()
    await asyncio.wait({opening})
    if not opening.cancelled() and opening.exception() is None:
        opened = opening.result()
        if isinstance(opened, EventStream):
            opened.discard()


def problem_of(error: Exception, *, retry_after_s: int) -> Problem:
    """What to answer to a request that cannot be served."""
    match error:
        case UnknownStream():
            return Problem(404, "unknown_stream", str(error), near=error.near)
        case CursorError():
            return Problem(400, f"cursor_{error.reason}", str(error))
        case FilterError():
            return Problem(422, "filter", str(error))
        case SubscriptionTooLarge():
            return Problem(422, error.code, str(error))
        case RequestError():
            return Problem(400, error.code, str(error))
        case Full():
            return Problem(503, "full", str(error), headers={"Retry-After": str(retry_after_s)})
        case _:
            return Problem(503, "unavailable", str(error), headers={"Retry-After": str(retry_after_s)})


async def _options() -> Response:
    return Response(status_code=204, headers=ALLOW)


async def _not_allowed() -> Response:
    return Problem(405, "method_not_allowed", "streams are read with GET", headers=ALLOW).response()


def _add_operations(app: FastAPI, config: AccessConfig, *, hub: Hub, streams: OpenStreams, metrics: Metrics) -> None:
    @app.get("/v1/streams")
    async def catalogue() -> Response:
        """Lists all streams and queries."""
        if why := hub.catalogue.why_unreachable:
            raise Unavailable(why)
        return JSONResponse({"streams": hub.catalogue.describe()}, headers={"Cache-Control": "no-store"})

    @app.get("/v1/server", include_in_schema=False)
    async def server() -> Response:
        """Server name and address of the operations API (used by the page)."""
        return JSONResponse({"name": config.name, "ops_url": config.ops_url}, headers={"Cache-Control": "no-store"})

    @app.get("/healthz")
    async def healthz() -> Response:
        """The process lives."""
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        """Kafka answers and the server is not about to stop."""
        if why := "about to stop" if streams.draining else hub.catalogue.why_unreachable:
            raise Problem(503, "not_ready", why)
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        """Counters and gauges for Prometheus."""
        metrics.clients.set(len(streams))
        metrics.behind.set(streams.behind)
        metrics.views.set(len(hub.views))
        metrics.followed.set(len(hub.streams.by_name))
        metrics.tail_bytes.set(hub.streams.bytes)
        metrics.chunk_bytes.set(hub.chunks.bytes)
        metrics.cohorts.set(hub.cohorts_reading)
        metrics.records.set(hub.streams.records)
        metrics.unreadable.set(hub.decoder.unreadable)
        metrics.replayed.set(hub.replay.blocks_read)
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def live() -> Response:
        return page.document("live.html")

    @app.api_route("/town", methods=["GET", "HEAD"], include_in_schema=False)
    async def town() -> Response:
        return page.document("town.html")

    app.mount("/page", page.Page(directory=page.folder()), name="page")
