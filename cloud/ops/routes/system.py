"""Routes about the system itself: parts, audit log, history, sessions, live changes, faults."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel
from sse_starlette import EventSourceResponse

from edgewake.cloud.ops.login.auth import LOGIN_PATH, cookie_name
from edgewake.cloud.ops.login.keys import Role
from edgewake.cloud.ops.login.pages import Ticket
from edgewake.cloud.ops.lookups.fault_control import FaultControl
from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    Limit,
    Page,
    Services,
    names_after,
    page_of,
)
from edgewake.cloud.ops.tables.audit_ring import AuditEntry
from edgewake.cloud.ops.tables.part_table import PartView
from edgewake.cloud.ops.tables.past import Happening
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.faults import FaultsView, Order


class TopicView(BaseModel):
    """A topic of Kafka."""

    name: str
    partitions: int
    records: int
    """Number of retained records."""
    written: int
    """Number of records since the topic was created."""


class AuditPage(BaseModel):
    """A page of entries, newest first."""

    items: list[AuditEntry]
    next: int | None
    """`before` of the next page; null at the end."""


class Me(BaseModel):
    """The caller."""

    name: str
    """The name that the audit log records."""
    role: Role
    """`read` may see everything; `operate` may also change it; `grants`: what a reader's grants
    allow."""
    live_url: str | None
    """The Live page, at the first access server that the configuration names."""


Kind = Literal["device", "loss", "query", "part", "repair", "request", "erasure"]


class HistoryPage(BaseModel):
    """A page of entries, newest first."""

    items: list[Happening]
    next: int | None
    """`before` of the next page; null at the end."""


def router(services: Services) -> APIRouter:
    """Makes the routes about the system."""
    routes = APIRouter()
    tables = services.tables

    @routes.get("/v1/parts", tags=["parts"])
    async def parts(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[PartView]:
        """List the parts of the system as the supervisor last saw them, or as each says itself.

        Without a supervisor each part tells of itself every 5 s, and one that has said nothing for
        20 s is `silent`. One that is gone for a day is forgotten.
        """
        return page_of(
            names_after(tables.parts, after),
            lambda name: tables.parts[name],
            limit=limit,
            total=len(tables.parts),
        )

    @routes.get("/v1/topics", tags=["topics"])
    async def kafka_topics() -> list[TopicView]:
        """List topics of streams, results, bridges and dead letters, with their numbers of records.

        Transaction markers count as records.
        """
        return [
            TopicView(
                name=name,
                partitions=len(found.next),
                records=sum(found.next) - sum(found.first),
                written=sum(found.next),
            )
            for name, found in sorted(tables.offsets.items())
        ]

    @routes.get("/v1/audit", tags=["audit"])
    async def audit(
        limit: Limit = PAGE_DEFAULT, before: Annotated[int | None, Query(ge=1, le=2**53)] = None
    ) -> AuditPage:
        """List changes, reads of dead letters and SQL queries with their users, newest first.

        The list covers all operations servers: the newest 10,000 entries of the last year. Each
        server's log has its own.
        """
        found = await services.audit.newest(before=before, limit=limit + 1)
        shown = found[:limit]
        return AuditPage(items=shown, next=shown[-1].number if len(found) > limit else None)

    @routes.get("/v1/history", tags=["history"])
    async def history(
        kind: Kind | None = None,
        name: Annotated[str | None, Query(max_length=64)] = None,
        limit: Limit = PAGE_DEFAULT,
        before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    ) -> HistoryPage:
        """List changes of devices, queries, parts, repairs and erasures, and losses, newest first.

        At most the newest 50,000 entries of the last 90 days are retained.
        """
        found = services.past.newest(kind=kind, name=name, before=before, limit=limit)
        return HistoryPage(items=found, next=found[-1].number if len(found) == limit else None)

    @routes.post("/v1/tickets", status_code=201, tags=["session"])
    async def ticket(request: Request) -> Ticket:
        """Make a link that logs a browser in with your key's name and role.

        It works once, within ten minutes.
        """
        return Ticket(
            path=f"{LOGIN_PATH}?ticket={services.access.tickets.issue(request.state.holder)}"
        )

    @routes.get("/v1/session", tags=["session"])
    async def session(request: Request) -> Me:
        """Show your name and role."""
        holder = request.state.holder
        live_url = next((f"{url.rstrip('/')}/" for url in services.access_urls), None)
        return Me(name=holder.name, role=holder.role, live_url=live_url)

    @routes.delete("/v1/session", status_code=204, tags=["session"])
    async def log_out(request: Request, response: Response) -> None:
        """End the session of the request's cookie, if there is one."""
        name = cookie_name(request.scope)
        services.access.sessions.use_up(request.cookies.get(name, ""))
        response.delete_cookie(name)

    @routes.get("/v1/live", tags=["live"], response_class=EventSourceResponse)
    async def live(
        request: Request,
        last_event_id: Annotated[str | None, Header(max_length=64)] = None,
    ) -> EventSourceResponse:
        """Stream changes of devices, requests, queries, parts and dead letters.

        The changes come as Server-Sent Events, until your key or session ends.
        """
        state = request.state
        return services.ring.response(
            last_event_id,
            holder=state.holder.name,
            is_allowed=state.is_allowed,
            ended=state.ended,
        )

    routes.include_router(_faults(services))
    return routes


def _faults(services: Services) -> APIRouter:
    """Makes the routes that list and inject faults."""
    routes = APIRouter(tags=["faults"])

    def control() -> FaultControl:
        if services.faults is None:
            detail = "fault injection is off: start the system with `edgewake up --faults`"
            raise Problem(404, "no_faults", detail)
        return services.faults

    @routes.get("/v1/faults", responses=problems(404, 503))
    async def look() -> FaultsView:
        """Show possible and past faults, and what the ledger finds lost, duplicated or wrong."""
        return await control().ask()

    @routes.post("/v1/faults", status_code=202, responses=problems(404, 409, 503))
    async def do(order: Order, request: Request) -> FaultsView:
        """Kill or freeze a part, or cut a link, of `edgewake up --faults`.

        A frozen part and a cut link recover after ten seconds; a killed part is started again. 409:
        a fault is in progress there, or the part does not run.
        """
        request.state.audit = f"{order.kind} {order.target}"
        return await control().ask(order)

    return routes
