"""Routes about continuous queries, and repairs, which recompute closed windows from the log."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    Limit,
    Page,
    QueryName,
    Services,
    names_after,
    page_of,
)
from edgewake.cloud.ops.services.previews import PreviewRows
from edgewake.cloud.ops.services.queries import CheckedQuery, QueryView
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.preview import ROWS_MAX
from edgewake.protocol.ops.query import QUERY_CHARS_MAX
from edgewake.protocol.ops.repair import Repair, RepairKind


class QueryText(BaseModel):
    """A query file."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=QUERY_CHARS_MAX)]


class PreviewAsked(QueryText):
    """A query file, and the time over which it is previewed."""

    minutes: Annotated[int, Field(ge=1, le=1440)] = 10
    """Minutes of records to compute over."""
    rows: Annotated[int, Field(ge=1, le=ROWS_MAX)] = 100
    """The most results."""


ADD_ANSWERS: Final = {
    200: {"description": "The identical text is registered already.", "model": QueryView},
    **problems(409),
}

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
    """Makes the routes about queries."""
    routes = APIRouter(tags=["queries"])
    tables, registry = services.tables, services.registry

    @routes.get("/v1/queries")
    async def queries(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[QueryView]:
        """List registered queries by name."""
        names = names_after(tables.queries, after)
        return page_of(
            names,
            lambda name: registry.view(tables.queries[name]),
            limit=limit,
            total=len(tables.queries),
        )

    @routes.post("/v1/queries", status_code=201, responses=ADD_ANSWERS)
    async def add(body: QueryText, response: Response) -> QueryView:
        """Register a query file.

        201: it is new and starts; 200: the identical text is registered already; 409: the name is
        taken.
        """
        view, new = await registry.add(body.text)
        response.headers["Location"] = f"/v1/queries/{view.name}"
        response.status_code = 201 if new else 200
        return view

    @routes.post("/v1/queries:check")
    async def check(body: QueryText) -> CheckedQuery:
        """Check a query file against the known streams without registering it.

        422 lists all its errors.
        """
        return registry.check(body.text)

    @routes.post("/v1/queries:preview", responses=problems(409, 429, 503))
    async def preview(body: PreviewAsked, request: Request) -> PreviewRows:
        """Compute a query file over recent readings of its stream.

        Nothing is registered, and running queries continue.
        """
        found = registry.check(body.text)
        holder = request.state.holder.name
        answer = await services.previews.ask(
            body.text, minutes=body.minutes, rows_max=body.rows, holder=holder
        )
        return answer.model_copy(update={"units": found.units})

    @routes.get("/v1/queries/{name}", responses=problems(404))
    async def query(name: QueryName) -> QueryView:
        """Show a query with its text."""
        return registry.view(registry.get(name), with_text=True)

    @routes.get("/v1/queries/{name}/plan", responses=problems(404, 422))
    async def plan(name: QueryName) -> CheckedQuery:
        """Show a query's execution and its reason, its planning cost, and its steps."""
        return registry.explain(name)

    @routes.put("/v1/queries/{name}", responses=problems(404, 409))
    async def replace(name: QueryName, body: QueryText) -> QueryView:
        """Replace a query's text in one step: its name stays taken, and other queries continue.

        An identical text changes nothing.
        """
        view, _ = await registry.replace(name, body.text)
        return view

    @routes.delete("/v1/queries/{name}", status_code=204, responses=problems(404, 409))
    async def remove(name: QueryName) -> None:
        """Remove a query; its results stay readable for an hour."""
        await registry.remove(name)

    @routes.post("/v1/queries/{name}/pause", responses=problems(404, 409))
    async def pause(name: QueryName) -> QueryView:
        """Pause a query.

        Its open windows lack the readings that come until it is resumed, and say so; an isolated
        query computes them when it resumes.
        """
        return await registry.set_paused(name, True)

    @routes.post("/v1/queries/{name}/resume", responses=problems(404, 409))
    async def resume(name: QueryName) -> QueryView:
        """Resume a query. Rows of windows that began before have `"complete":false`."""
        return await registry.set_paused(name, False)

    routes.include_router(_repairs(services))
    return routes


def _repairs(services: Services) -> APIRouter:
    """Makes the routes about repairs."""
    routes = APIRouter()
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
