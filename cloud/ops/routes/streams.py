"""Routes about streams, and erasures: of a stream, or of the readings of one device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from confluent_kafka import Message
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel

from edgewake.cloud.ops.letters import dead_letters
from edgewake.cloud.ops.letters.dead_letters import Filter
from edgewake.cloud.ops.lookups import recent
from edgewake.cloud.ops.lookups.gaps import Gaps, find
from edgewake.cloud.ops.lookups.kafka_lookup import KafkaSession
from edgewake.cloud.ops.lookups.retention import Retention
from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    DeviceName,
    Limit,
    Page,
    QueryName,
    Services,
    names_after,
    page_of,
    reader_of,
    some_devices,
    stream_of,
)
from edgewake.cloud.ops.services.catalogue_editor import StreamChange
from edgewake.cloud.ops.services.stream_look import StreamLook, look_at
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.frame import TIME_MS_MAX
from edgewake.protocol.frames.record import Record
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.names import DEVICE_PATTERN
from edgewake.protocol.ops.erasure import Erasure

LETTERS_LOOKED_AT: Final = 500
"""The number of newest dead letters among which those of one stream are counted."""
NOBODY: Final = "-"
"""No device has this name: what is hidden of one is looked for as long as what is not there."""
DeviceQuery = Annotated[str | None, Query(pattern=f"^{DEVICE_PATTERN.pattern}$")]


class PartitionView(BaseModel):
    """The offsets of a partition, which count records and about one marker per transaction."""

    partition: int
    first: int
    """First retained offset."""
    next: int
    """Offset of the next record."""


class StreamView(BaseModel):
    """A stream."""

    name: str
    description: str
    fields: dict[str, FieldInfo]
    topic: str
    partitions: list[PartitionView]
    records_per_s: float | None
    """Records a second over the last 30 s, as the sequencer counts them; a record is a frame of one
    or many readings."""
    readings_per_s: float | None
    """Readings a second over the same 30 s."""
    events_path: str
    """The path of its readings on an access server."""
    events_urls: list[str]
    """Their URL on each access server that this API's configuration names."""


def _view(services: Services, stream: Stream, reader: Principal | None = None) -> StreamView:
    """`reader`: to whose grants it is narrowed; None: to nobody's."""
    tables, path = services.tables, f"/v1/streams/{stream.name}/events"
    scope = None if reader is None else reader.scope(Action.READ, stream.name)
    if scope is not None:
        return StreamView(
            name=stream.name,
            description=stream.description,
            fields={
                name: FieldInfo.model_validate(scope.cut_told(info.model_dump()))
                for name, info in stream.fields.items()
                if scope.shows_field(name)
            },
            topic=topics.stream_topic(stream.name),
            partitions=[],
            records_per_s=None,
            readings_per_s=None,
            events_path=path,
            events_urls=[url.rstrip("/") + path for url in services.access_urls],
        )
    topic = topics.stream_topic(stream.name)
    found = tables.offsets.get(topic)
    offsets = zip(found.first, found.next, strict=True) if found else ()
    return StreamView(
        name=stream.name,
        description=stream.description,
        fields=stream.fields,
        topic=topic,
        partitions=[
            PartitionView(partition=p, first=first, next=end)
            for p, (first, end) in enumerate(offsets)
        ],
        records_per_s=tables.rates.per_s(stream.name),
        readings_per_s=tables.rates.readings_per_s(stream.name),
        events_path=path,
        events_urls=[url.rstrip("/") + path for url in services.access_urls],
    )


def _seen(services: Services, reader: Principal | None) -> list[str]:
    """The streams that somebody may know of."""
    return [
        name for name in services.tables.streams if reader is None or reader.may(Action.READ, name)
    ]


def _looked_for(name: str, device: str | None, reader: Principal | None) -> str | None:
    """The device whose gaps are looked for. Raises Problem where who sees some names none."""
    scope = None if reader is None else reader.scope(Action.READ, name)
    if scope is None or scope.sees(device):
        return device
    if device is None:
        raise some_devices(name, "?device=DEVICE")
    return NOBODY


def _look(
    services: Services, session: KafkaSession, stream: Stream, *, begin: int, minutes: int
) -> StreamLook:
    topic = topics.stream_topic(stream.name)
    found, _, is_cut = recent.read(session, {topic: stream.name}, {}, begin=begin)
    page = dead_letters.page(
        session, services.letters, before=None, limit=LETTERS_LOOKED_AT, wanted=Filter()
    )
    return look_at(
        stream,
        _records(message for _, message in found),
        (letter for letter in page.items if letter.received_at >= begin),
        minutes=minutes,
        is_cut=is_cut,
        times_of=services.tables.devices.times,
    )


def _records(found: Iterable[Message]) -> Iterator[Record]:
    """Decodes the records of a topic, skipping foreign ones."""
    for message in found:
        try:
            decoded = record.decode(message.value() or b"{}")
        except (KeyError, TypeError, ValueError):
            continue
        yield decoded


ERASURE_ID: Final = "^[0-9a-z-]{1,64}$"
ErasureId = Annotated[str, Path(pattern=ERASURE_ID)]


def router(services: Services) -> APIRouter:
    """Makes the routes about streams and erasures."""
    routes = APIRouter()
    routes.include_router(_streams(services))
    routes.include_router(_erasures(services))
    return routes


def _streams(services: Services) -> APIRouter:
    """Makes the routes about streams."""
    routes = APIRouter(tags=["streams"])
    tables = services.tables

    @routes.get("/v1/streams")
    async def streams(
        request: Request, limit: Limit = PAGE_DEFAULT, after: After = None
    ) -> Page[StreamView]:
        """List streams by name: all, or those that grants name, with their fields."""
        reader = reader_of(request)
        seen = _seen(services, reader)
        return page_of(
            names_after(seen, after),
            lambda name: _view(services, tables.streams[name], reader),
            limit=limit,
            total=len(seen),
        )

    @routes.get("/v1/streams/{name}", responses=problems(404))
    async def stream(name: QueryName, request: Request) -> StreamView:
        """Show a stream."""
        reader = reader_of(request)
        return _view(services, stream_of(services, name, reader), reader)

    @routes.get("/v1/streams/{name}/gaps", responses=problems(404, 503))
    async def gaps(
        name: QueryName,
        request: Request,
        device: DeviceQuery = None,
        limit: Limit = PAGE_DEFAULT,
        since: Annotated[
            int | None, Query(ge=0, le=TIME_MS_MAX, description="ms since 1970 UTC")
        ] = None,
    ) -> Gaps:
        """List gaps, newest first: readings that were lost or are missing, of one device or all.

        The newest 20,000 records of each partition are scanned, or those since a time. Who has
        grants of some devices names one of them; another one has no gaps.
        """
        reader = reader_of(request)
        stream_of(services, name, reader)
        wanted = _looked_for(name, device, reader)
        return await services.lookup.run(lambda session: find(session, name, wanted, limit, since))

    @routes.get("/v1/streams/{name}/look", responses=problems(404))
    async def look(name: QueryName, minutes: Annotated[int, Query(ge=1, le=60)] = 15) -> StreamLook:
        """Show the fields received in the last minutes: original names, times and odd values."""
        found = stream_of(services, name)
        begin = services.clock.now_ms() - minutes * 60_000
        return await services.lookup.run(
            lambda session: _look(services, session, found, begin=begin, minutes=minutes)
        )

    @routes.get("/v1/streams/{name}/retention", responses=problems(404, 503))
    async def retention(name: QueryName, request: Request) -> Retention:
        """Show how long Kafka retains a stream's readings. The lake keeps its own."""
        stream_of(services, name, reader_of(request))
        return await services.retention.look(name)

    @routes.patch("/v1/streams/{name}", responses=problems(404, 409, 503))
    async def change(name: QueryName, body: StreamChange) -> StreamView:
        """Decide a field's type or unit, describe the stream, or change its retention.

        Frames with another type than the decided one are then refused permanently; a plain device's
        value is kept as text beside its field. Fields with their types may be declared of a stream
        that nobody has sent yet. Readings older than a shorter retention are removed permanently.
        """
        retention = body.retention_ms, body.retention_bytes
        if retention != (None, None) or not body.fields:
            found = stream_of(services, name)
        if retention != (None, None) and body.is_of_the_catalogue:
            # Before the catalogue is written: what Kafka refuses would leave half of it done.
            await services.retention.check(name, *retention)
        if body.is_of_the_catalogue:
            found = await services.editor.change(name, body)
        if retention != (None, None):
            await services.retention.change(name, *retention)
        return _view(services, found)

    return routes


def _erasures(services: Services) -> APIRouter:
    """Makes the routes that ask for erasures and show how far they are."""
    routes = APIRouter(tags=["erasures"])
    rows, desk = services.tables.erasures, services.eraser

    @routes.delete("/v1/streams/{name}", status_code=202, responses=problems(404, 409, 503))
    async def erase_stream(
        name: QueryName,
        request: Request,
        queries: Annotated[
            bool, Query(description="Remove the queries that read it, too.")
        ] = False,
    ) -> Erasure:
        """Erase a stream for good: its readings, query results, summaries, and files of the lake.

        Without `queries=true` it is refused while a query reads it. What its devices send later
        begins a new stream.
        """
        return await desk.ask_stream(name, with_queries=queries, by=request.state.holder.name)

    @routes.delete("/v1/devices/{device}/readings", status_code=202, responses=problems(409, 503))
    async def erase_readings(device: DeviceName, request: Request) -> Erasure:
        """Erase all that a device has sent until now, for good.

        Others' readings that lie before its last one in the same partition leave Kafka with it;
        the lake keeps them.
        """
        return await desk.ask_device(device, by=request.state.holder.name)

    @routes.get("/v1/erasures")
    async def erasures(
        limit: Limit = PAGE_DEFAULT,
        after: Annotated[str | None, Query(pattern=ERASURE_ID)] = None,
    ) -> list[Erasure]:
        """Erasures under way, and the last that ended; the newest first.

        `after` is the id of the last one shown.
        """
        found = sorted(rows.values(), key=lambda row: (row.asked_at, row.id), reverse=True)
        ids = [row.id for row in found]
        behind = ids.index(after) + 1 if after in ids else 0
        return found[behind : behind + limit]

    @routes.get("/v1/erasures/{erasure}", responses=problems(404))
    async def one(erasure: ErasureId) -> Erasure:
        """How far one is, and what is left."""
        found = rows.get(erasure)
        if found is None:
            raise Problem(404, "no_such_erasure", f"no erasure {erasure!r} is remembered")
        return found

    return routes
