"""Routes about streams."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from edgewake.cloud.ops.catalogue_editor import StreamChange
from edgewake.cloud.ops.routes import PAGE_DEFAULT, After, Limit, Page, QueryName, Services, page_of
from edgewake.cloud.ops.tables import OpsTables
from edgewake.cloud.web import Problem
from edgewake.protocol import topics
from edgewake.protocol.stream import FieldInfo, Stream


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


def _view(tables: OpsTables, stream: Stream) -> StreamView:
    topic = topics.stream_topic(stream.name)
    samples = tables.offsets.get(topic)
    offsets = zip(samples[-1].first, samples[-1].next, strict=True) if samples else ()
    return StreamView(
        name=stream.name,
        description=stream.description,
        fields=stream.fields,
        topic=topic,
        partitions=[PartitionView(partition=p, first=first, next=end) for p, (first, end) in enumerate(offsets)],
        records_per_s=tables.records_per_s(topic),
        events_path=f"/v1/streams/{stream.name}/events",
    )


def router(services: Services) -> APIRouter:
    """List, show and change streams."""
    routes = APIRouter(tags=["streams"])
    tables = services.tables

    @routes.get("/v1/streams")
    async def streams(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[StreamView]:
        """Streams by name."""
        views = [_view(tables, stream) for _, stream in sorted(tables.streams.items())]
        return page_of(views, lambda s: s.name, after, limit)

    @routes.get("/v1/streams/{name}")
    async def stream(name: QueryName) -> StreamView:
        """One stream."""
        found = tables.streams.get(name)
        if found is None:
            raise Problem(404, "no_such_stream", f"no stream {name!r} is in the catalogue")
        return _view(tables, found)

    @routes.patch("/v1/streams/{name}")
    async def change(name: QueryName, body: StreamChange) -> StreamView:
        """Decide a field's type or unit, or describe the stream. After it, another type than the decided one is refused for good."""
        return _view(tables, await services.editor.change(name, body))

    return routes
