"""Routes about continuous queries."""

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
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.preview import ROWS_MAX
from edgewake.protocol.ops.query import QUERY_CHARS_MAX


class QueryText(BaseModel):
    """A query file."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=QUERY_CHARS_MAX)]


class PreviewAsked(QueryText):
    """A query file, and over what."""

    minutes: Annotated[int, Field(ge=1, le=1440)] = 10
    """Minutes of Kafka's records to compute over."""
    rows: Annotated[int, Field(ge=1, le=ROWS_MAX)] = 100
    """Results at most."""


ADD_ANSWERS: Final = {
    200: {"description": "This very text is registered already.", "model": QueryView},
    **problems(409),
}


def router(services: Services) -> APIRouter:
    """List, show, register, pause, resume and remove queries."""
    routes = APIRouter(tags=["queries"])
    tables, registry = services.tables, services.registry

    @routes.get("/v1/queries")
    async def queries(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[QueryView]:
        """Registered queries by name."""
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

        201: new, it is starting; 200: this very text is registered already; 409: the name is taken.
        """
        view, new = await registry.add(body.text)
        response.headers["Location"] = f"/v1/queries/{view.name}"
        response.status_code = 201 if new else 200
        return view

    @routes.post("/v1/queries:check")
    async def check(body: QueryText) -> CheckedQuery:
        """Read a query file against the streams that there are, and register nothing.

        422 names all that is wrong with it.
        """
        return registry.check(body.text)

    @routes.post("/v1/queries:preview", responses=problems(409, 429, 503))
    async def preview(body: PreviewAsked, request: Request) -> PreviewRows:
        """Return what a query file gives over recent readings of its stream.

        Nothing is registered, running queries go on.
        """
        registry.check(body.text)
        holder = request.state.holder.name
        return await services.previews.ask(
            body.text, minutes=body.minutes, rows_max=body.rows, holder=holder
        )

    @routes.get("/v1/queries/{name}", responses=problems(404))
    async def query(name: QueryName) -> QueryView:
        """One query, with its text."""
        return registry.view(registry.get(name), with_text=True)

    @routes.get("/v1/queries/{name}/plan", responses=problems(404, 422))
    async def plan(name: QueryName) -> CheckedQuery:
        """Tell its class and why, what it costs to plan, and what is done with a reading."""
        return registry.explain(name)

    @routes.put("/v1/queries/{name}", responses=problems(404, 409))
    async def replace(name: QueryName, body: QueryText) -> QueryView:
        """Put another text in its place, in one step: its name stays taken, others go on.

        The same text again changes nothing.
        """
        view, _ = await registry.replace(name, body.text)
        return view

    @routes.delete("/v1/queries/{name}", status_code=204, responses=problems(404, 409))
    async def remove(name: QueryName) -> None:
        """Remove a query; its results can be read for another hour."""
        await registry.remove(name)

    @routes.post("/v1/queries/{name}/pause", responses=problems(404, 409))
    async def pause(name: QueryName) -> QueryView:
        """Stop computing.

        Its open windows will lack the readings that come until it is resumed, and say so; an
        isolated query computes them then.
        """
        return await registry.set_paused(name, True)

    @routes.post("/v1/queries/{name}/resume", responses=problems(404, 409))
    async def resume(name: QueryName) -> QueryView:
        """Compute again. Rows of windows that began before say `"complete":false`."""
        return await registry.set_paused(name, False)

    return routes
