"""Routes about destinations of alerts."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from edgewake.cloud.alerts.destination import DestinationText
from edgewake.cloud.ops.routes.alerts import RuleName
from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    Limit,
    Page,
    Services,
    names_after,
    page_of,
)
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.alert import Destination


class DestinationView(BaseModel):
    """A destination, without its secrets."""

    name: str
    kind: str
    where: str
    changed_at: int
    changed_by: str
    waiting: int
    """How many notifications wait for it."""
    last_error: str
    """The error of the last attempt, while notifications wait."""


class MadeDestination(DestinationView):
    """A destination that was just stored."""

    secret: str | None
    """A webhook's new secret, which is not shown again."""


class TriedDestination(BaseModel):
    """The outcome of a test."""

    sent: bool
    error: str
    """The error; empty where the test was sent."""


def router(services: Services) -> APIRouter:
    """Makes the routes that store, list, test and remove destinations."""
    routes = APIRouter(tags=["alerts"])
    table, desk = services.tables.alerts, services.alerts

    def view_destination(row: Destination) -> DestinationView:
        waiting = [
            note
            for note in table.notes.values()
            if note.destination == row.name and note.state == "waiting"
        ]
        errors = [note.error for note in sorted(waiting, key=lambda one: -one.next_at)]
        return DestinationView(
            **row.model_dump(exclude={"sealed"}),
            waiting=len(waiting),
            last_error=next((error for error in errors if error), ""),
        )

    @routes.get("/v1/destinations")
    async def destinations(
        limit: Limit = PAGE_DEFAULT, after: After = None
    ) -> Page[DestinationView]:
        """List the destinations of alerts by name; addresses are not shown."""
        known = table.destinations
        return page_of(
            names_after(known, after),
            lambda name: view_destination(known[name]),
            limit=limit,
            total=len(known),
        )

    @routes.put("/v1/destinations/{name}", responses=problems(409))
    async def put_destination(
        name: RuleName, body: DestinationText, request: Request, response: Response
    ) -> MadeDestination:
        """Store a webhook or an address of Apprise. It, its secret and headers are never shown."""
        by = request.state.holder.name
        row, secret = await desk.put_destination(name, body, by=by)
        response.headers["Cache-Control"] = "no-store"
        return MadeDestination(**view_destination(row).model_dump(), secret=secret)

    @routes.delete("/v1/destinations/{name}", status_code=204, responses=problems(404, 409))
    async def remove_destination(name: RuleName) -> None:
        """Remove a destination that no rule uses."""
        await desk.remove_destination(name)

    @routes.post("/v1/destinations/{name}/try", responses=problems(404))
    async def try_destination(name: RuleName, request: Request) -> TriedDestination:
        """Send a test now and return its outcome."""
        tried = await desk.try_destination(name, by=request.state.holder.name)
        return TriedDestination(sent=tried.error is None, error=tried.error or "")

    return routes
