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
    """Notes that wait for it."""
    last_error: str
    """Error of the newest failed attempt, while notes wait."""


class MadeDestination(DestinationView):
    """A destination just kept."""

    secret: str | None
    """A webhook's secret, where one was made: it is not shown again."""


class TriedDestination(BaseModel):
    """What became of a test."""

    sent: bool
    error: str
    """Empty where it was sent."""


def router(services: Services) -> APIRouter:
    """Keep, show, try and forget destinations."""
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
        """Keep a webhook or an address of Apprise. It, its secret and headers are never shown."""
        by = request.state.holder.name
        row, secret = await desk.put_destination(name, body, by=by)
        response.headers["Cache-Control"] = "no-store"
        return MadeDestination(**view_destination(row).model_dump(), secret=secret)

    @routes.delete("/v1/destinations/{name}", status_code=204, responses=problems(404, 409))
    async def remove_destination(name: RuleName) -> None:
        """Forget a destination that no rule tells."""
        await desk.remove_destination(name)

    @routes.post("/v1/destinations/{name}/try", responses=problems(404))
    async def try_destination(name: RuleName, request: Request) -> TriedDestination:
        """Send a test now, and say what became of it."""
        tried = await desk.try_destination(name, by=request.state.holder.name)
        return TriedDestination(sent=tried.error is None, error=tried.error or "")

    return routes
