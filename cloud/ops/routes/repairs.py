"""Routes about repairs, which recompute closed windows from the log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    Limit,
    Page,
    QueryName,
    Services,
    page_of,
)
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.repair import Repair, RepairKind

TIME_MS_MAX = 253_402_300_799_999
"""The latest time that can be requested: the end of the year 9999."""
Time = Annotated[int, Field(ge=0, le=TIME_MS_MAX)]


class RepairRange(BaseModel):
    """The windows to recompute."""

    model_config = ConfigDict(extra="forbid")

    kind: RepairKind = RepairKind.REPAIR
    begin: Time
    """Event time, ms since 1970 UTC: the window that contains it is the first."""
    end: Time | None = None
    """Windows that begin at it or later are excluded; null: those that are open now, or that the
    query still holds."""


class RebuildWish(BaseModel):
    """Options of a rebuild."""

    model_config = ConfigDict(extra="forbid")

    lossy: bool = False
    """Whether open windows may lose readings that have expired in the log."""


def router(services: Services) -> APIRouter:
    """Makes the routes about repairs."""
    routes = APIRouter(tags=["queries"])
    tables, registry, desk = services.tables, services.registry, services.repairs

    @routes.post("/v1/queries/{name}/repairs", status_code=202, responses=problems(404, 409))
    async def repair(name: QueryName, body: RepairRange, request: Request) -> Repair:
        """Recompute closed windows from the log.

        Rows that differ are emitted with a higher revision. A second repair of the same windows
        changes nothing.
        """
        if body.kind is RepairKind.REBUILD:
            raise Problem(422, "kind", "use POST /v1/queries/{name}/rebuild to recompute a state")
        return await desk.ask(
            registry.get(name), body.kind, body.begin, body.end, by=request.state.holder.name
        )

    @routes.post("/v1/queries/{name}/rebuild", status_code=202, responses=problems(404, 409))
    async def rebuild(name: QueryName, body: RebuildWish, request: Request) -> Repair:
        """Discard a query's state and recompute it from the retained log.

        Only rows that differ are emitted again.
        """
        return await desk.ask(
            registry.get(name),
            RepairKind.REBUILD,
            0,
            None,
            by=request.state.holder.name,
            lossy=body.lossy,
        )

    @routes.get("/v1/queries/{name}/repairs")
    async def repairs(
        name: QueryName, limit: Limit = PAGE_DEFAULT, after: After = None
    ) -> Page[Repair]:
        """List the repairs of a query, also of a removed one, latest first.

        Each says who requested it, which windows were recomputed, and what changed.
        """
        ids = [one.id for one in desk.of(name)]
        behind = ids[ids.index(after) + 1 :] if after in ids else ids
        return page_of(
            behind, lambda repair_id: tables.repairs[repair_id], limit=limit, total=len(ids)
        )

    return routes
