"""Routes about erasures: a stream with all that was made of it, or the readings of one device."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    DeviceName,
    Limit,
    QueryName,
    Services,
)
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.erasure import Erasure

ErasureId = Annotated[str, Path(pattern="^[0-9a-z-]{1,64}$")]


def router(services: Services) -> APIRouter:
    """Ask for erasures, and see how far they are."""
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
    async def erasures(limit: Limit = PAGE_DEFAULT) -> list[Erasure]:
        """Erasures under way, and the last that ended; the newest first."""
        found = sorted(rows.values(), key=lambda row: (row.asked_at, row.id), reverse=True)
        return found[:limit]

    @routes.get("/v1/erasures/{erasure}", responses=problems(404))
    async def one(erasure: ErasureId) -> Erasure:
        """How far one is, and what is left."""
        found = rows.get(erasure)
        if found is None:
            raise Problem(404, "no_such_erasure", f"no erasure {erasure!r} is remembered")
        return found

    return routes
