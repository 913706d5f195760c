"""The operations API. Every path but health, metrics and this description needs the key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import FastAPI, Header, Path, Query, Response, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from sse_starlette import EventSourceResponse

from edgewake.cloud import web
from edgewake.cloud.ops import acks, dead_letters
from edgewake.cloud.ops.acks import AckView
from edgewake.cloud.ops.auth import TICKET_LIFE_S, Guard, Tickets
from edgewake.cloud.ops.browse import Browser, OutOfRange
from edgewake.cloud.ops.dead_letters import DeadLetterPage
from edgewake.cloud.ops.devices import DeviceView, Presence
from edgewake.cloud.ops.live import Live
from edgewake.cloud.ops.queries import TEXT_CHARS_MAX, QueryView, Registry
from edgewake.cloud.ops.state import PartView, State
from edgewake.cloud.web import Problem
from edgewake.protocol import topics
from edgewake.protocol.ack import AckToken
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RejectReason, RemoteError
from edgewake.protocol.lease import Lease
from edgewake.protocol.names import DEVICE_PATTERN, STREAM_PATTERN
from edgewake.protocol.stream import FieldInfo, Stream

PAGE_DEFAULT = 100
PAGE_MAX = 500
"""Items of a list in one answer."""
BODY_BYTES_MAX = 4 * TEXT_CHARS_MAX
OFFSET_MAX = 2**62
"""Kafka's offsets are signed 64-bit; what is larger is refused before Kafka is asked."""

T = TypeVar("T", bound=BaseModel)


class Page(BaseModel, Generic[T]):
    """A part of a list, in order of name."""

    items: list[T]
    next: str | None
    """`after` of the next page; null at the end."""
    total: int


class PartitionView(BaseModel):
    """Offsets of one partition."""

    partition: int
    first: int
    next: int


class StreamView(BaseModel):
    """A stream."""

    name: str
    description: str
    fields: dict[str, FieldInfo]
    topic: str
    partitions: list[PartitionView]
    records_per_s: float | None
    """Growth of its topic; a record is a frame of one or many readings."""
    events_path: str


class LeaseView(BaseModel):
    """A lease, without what would let one wake or read in its name."""

    id: str
    streams: list[str]
    where: str | None
    endpoint: str
    """Host of the endpoint; its path may be a secret."""
    created_at: int
    expires_at: int
    wakes: int
    last_wake_at: int | None
    waiting: int
    failures: int
    retry_at: int | None
    disabled: str | None


class QueryText(BaseModel):
    """A query file."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=TEXT_CHARS_MAX)]


class Ticket(BaseModel):
    """For `GET /v1/live?ticket=…` where a header cannot be set, as in a browser's EventSource."""

    ticket: str
    expires_in_s: int = TICKET_LIFE_S


Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
After = Annotated[str | None, Query(max_length=64)]
QueryName = Annotated[str, Path(pattern=f"^{STREAM_PATTERN.pattern}$")]
DeviceName = Annotated[str, Path(pattern=f"^{DEVICE_PATTERN.pattern}$")]


@dataclass(frozen=True)
class Parts:
    """What the API stands on."""

    state: State
    registry: Registry
    browser: Browser
    live: Live
    tickets: Tickets
    clock: Clock
    metrics: CollectorRegistry
    ready: asyncio.Event


def _page(items: Sequence[T], name: Callable[[T], str], after: str | None, limit: int) -> Page[T]:
    rest = [item for item in items if after is None or name(item) > after]
    chosen = rest[:limit]
    return Page(items=chosen, next=name(chosen[-1]) if len(rest) > limit else None, total=len(items))


def _lease_view(lease: Lease) -> LeaseView:
    kept = lease.model_dump(include=set(LeaseView.model_fields) - {"streams", "where", "endpoint"})
    request = lease.request
    streams = list(request.subscription.streams)
    return LeaseView(**kept, streams=streams, where=request.subscription.where, endpoint=request.endpoint.url.host or "")


def _stream_view(state: State, stream: Stream) -> StreamView:
    topic = topics.stream_topic(stream.name)
    samples = state.offsets.get(topic)
    offsets = zip(samples[-1].first, samples[-1].next, strict=True) if samples else ()
    return StreamView(
        name=stream.name,
        description=stream.description,
        fields=stream.fields,
        topic=topic,
        partitions=[PartitionView(partition=p, first=first, next=end) for p, (first, end) in enumerate(offsets)],
        records_per_s=state.records_per_s(topic),
        events_path=f"/v1/streams/{stream.name}/events",
    )


def make_app(parts: Parts, key: str) -> FastAPI:
    """The application."""
    # The guard below decides before anything is read; these two say so in the OpenAPI document.
    described = [Security(HTTPBearer(auto_error=False)), Security(APIKeyHeader(name="X-API-Key", auto_error=False))]
    app = FastAPI(title="Edgewake operations", version="1", description=__doc__, docs_url=None, redoc_url=None)
    web.install(app)
    app.add_middleware(web.BodyLimit, bytes_max=BODY_BYTES_MAX)
    app.add_middleware(Guard, key=key, tickets=parts.tickets)
    _health(app, parts)
    for add in (_devices, _streams, _queries, _dead_letters, _rest, _live):
        add(app, parts, described)
    return app


def _health(app: FastAPI, parts: Parts) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> dict[str, str]:
        if not parts.ready.is_set():
            raise Problem(503, "starting", "the tables are not read yet, or Kafka is away")
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(parts.metrics), media_type=CONTENT_TYPE_LATEST)


def _devices(app: FastAPI, parts: Parts, described: Sequence[Any]) -> None:
    @app.get("/v1/devices", dependencies=described, tags=["devices"])
    async def devices(limit: Limit = PAGE_DEFAULT, after: After = None, state: Presence | None = None) -> Page[DeviceView]:
        """Devices by name."""
        found = [d for d in parts.state.devices(now=parts.clock.now_ms()) if state is None or d.state is state]
        return _page(found, lambda d: d.device, after, limit)

    @app.get("/v1/devices/{device}", dependencies=described, tags=["devices"])
    async def device(device: DeviceName) -> DeviceView:
        """One device."""
        found = parts.state.device(device, now=parts.clock.now_ms())
        if found is None:
            raise Problem(404, "no_such_device", f"nothing is known of device {device!r}")
        return found


def _streams(app: FastAPI, parts: Parts, described: Sequence[Any]) -> None:
    @app.get("/v1/streams", dependencies=described, tags=["streams"])
    async def streams(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[StreamView]:
        """Streams by name."""
        views = [_stream_view(parts.state, stream) for _, stream in sorted(parts.state.streams.items())]
        return _page(views, lambda s: s.name, after, limit)

    @app.get("/v1/streams/{name}", dependencies=described, tags=["streams"])
    async def stream(name: QueryName) -> StreamView:
        """One stream."""
        found = parts.state.streams.get(name)
        if found is None:
            raise Problem(404, "no_such_stream", f"no stream {name!r} is in the catalogue")
        return _stream_view(parts.state, found)


def _queries(app: FastAPI, parts: Parts, described: Sequence[Any]) -> None:
    state, registry = parts.state, parts.registry

    @app.get("/v1/queries", dependencies=described, tags=["queries"])
    async def queries(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[QueryView]:
        """Registered queries by name."""
        views = [registry.view(registration) for _, registration in sorted(state.queries.items())]
        return _page(views, lambda q: q.name, after, limit)

    @app.post("/v1/queries", status_code=201, dependencies=described, tags=["queries"])
    async def add(body: QueryText, response: Response) -> QueryView:
        """Register a query file. 201: new, it is starting; 200: this very text is registered already; 409: the name is taken."""
        view, new = await registry.add(body.text)
        response.headers["Location"] = f"/v1/queries/{view.name}"
        response.status_code = 201 if new else 200
        return view

    @app.get("/v1/queries/{name}", dependencies=described, tags=["queries"])
    async def query(name: QueryName) -> QueryView:
        """One query, with its text."""
        return registry.view(registry.get(name), with_text=True)

    @app.delete("/v1/queries/{name}", status_code=204, dependencies=described, tags=["queries"])
    async def remove(name: QueryName) -> None:
        """Remove a query; its results stay until they are too old."""
        await registry.remove(name)

    @app.post("/v1/queries/{name}/pause", dependencies=described, tags=["queries"])
    async def pause(name: QueryName) -> QueryView:
        """Stop computing; its place is kept."""
        return await registry.set_paused(name, True)

    @app.post("/v1/queries/{name}/resume", dependencies=described, tags=["queries"])
    async def resume(name: QueryName) -> QueryView:
        """Go on."""
        return await registry.set_paused(name, False)


Offset = Annotated[int, Path(ge=0, le=OFFSET_MAX)]


def _dead_letters(app: FastAPI, parts: Parts, described: Sequence[Any]) -> None:
    @app.get("/v1/dead-letters", dependencies=described, tags=["dead letters"])
    async def letters(
        limit: Annotated[int, Query(ge=1, le=100)] = 50,
        before: Annotated[int | None, Query(ge=0, le=OFFSET_MAX)] = None,
        reason: RejectReason | None = None,
        device: Annotated[str | None, Query(max_length=64)] = None,
    ) -> DeadLetterPage:
        """Refused messages, newest first. A filter looks at 5000 letters; `next` goes on from there."""
        why = None if reason is None else reason.value
        return await parts.browser.run(lambda b: dead_letters.page(b, before=before, limit=limit, reason=why, device=device))

    @app.get("/v1/dead-letters/{offset}", dependencies=described, tags=["dead letters"])
    async def letter(offset: Offset) -> Response:
        """The payload exactly as it came."""
        try:
            value, view = await parts.browser.run(lambda b: dead_letters.payload(b, offset))
        except OutOfRange as error:
            raise Problem(404, "no_such_dead_letter", str(error), low=error.low, high=error.high) from error
        # It is somebody's wrong bytes: never to be shown by a browser as what it claims to be.
        headers = {
            "Content-Disposition": f'attachment; filename="dead-letter-{offset}"',
            "X-Content-Type-Options": "nosniff",
            "X-Edgewake-Reason": view.reason if view.reason in set(RejectReason) else "unknown",
        }
        return Response(value, media_type="application/octet-stream", headers=headers)


def _rest(app: FastAPI, parts: Parts, described: Sequence[Any]) -> None:
    state = parts.state

    @app.get("/v1/leases", dependencies=described, tags=["leases"])
    async def leases(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[LeaseView]:
        """Leases of sleeping clients by id, without their secrets."""
        views = [_lease_view(lease) for _, lease in sorted(state.leases.items())]
        return _page(views, lambda view: view.id, after, limit)

    @app.get("/v1/acks/{token}", dependencies=described, tags=["acks"])
    async def ack(token: Annotated[str, Path(max_length=32)]) -> AckView:
        """What became of the frame that was acknowledged with this token."""
        try:
            parsed = AckToken.parse(token)
            found = await parts.browser.run(lambda b: acks.look_up(b, parsed))
        except RemoteError as error:
            raise Problem(422, "ack_token", str(error)) from error
        except OutOfRange as error:
            raise Problem(404, "no_such_frame", str(error), low=error.low, high=error.high) from error
        except LookupError as error:
            raise Problem(404, "no_such_frame", str(error.args[0])) from error
        return acks.with_queries(found, (p for name, p in state.progress.items() if name in state.queries))

    @app.get("/v1/parts", dependencies=described, tags=["parts"])
    async def all_parts(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[PartView]:
        """The parts of the system as the supervisor last saw them."""
        return _page([part for _, part in sorted(state.parts.items())], lambda part: part.part, after, limit)


def _live(app: FastAPI, parts: Parts, described: Sequence[Any]) -> None:
    @app.post("/v1/tickets", status_code=201, dependencies=described, tags=["live"])
    async def ticket() -> Ticket:
        """A ticket for one live stream, to be used within 30 s."""
        return Ticket(ticket=parts.tickets.issue())

    @app.get("/v1/live", dependencies=described, tags=["live"], response_class=EventSourceResponse)
    async def live(
        last_event_id: Annotated[str | None, Header(max_length=64)] = None,
        ticket: Annotated[str | None, Query(description="From POST /v1/tickets; used up")] = None,  # noqa: ARG001  (the guard's)
    ) -> EventSourceResponse:
        """Changes of devices, queries, parts and dead letters as they happen (Server-Sent Events)."""
        return parts.live.response(last_event_id)
