"""Routes about the system itself: leases, parts, and changes as they happen."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel
from sse_starlette import EventSourceResponse

from edgewake.cloud.ops.login.auth import LOGIN_PATH, cookie_name
from edgewake.cloud.ops.login.pages import Ticket
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
from edgewake.cloud.ops.tables.past import Happening
from edgewake.cloud.ops.tables.tables import PartView
from edgewake.protocol.leases.lease_record import Lease, LeaseState


class LeaseView(BaseModel):
    """A lease, without what would let one wake or read in its name."""

    id: str
    streams: list[str]
    where: str | None
    endpoint: str
    """Host of the endpoint; its path may be a secret."""
    created_at: int
    expires_at: int
    state: LeaseState
    count: int
    """Events after its client's cursor, as of its last wake-up."""
    wakes: int
    last_wake_at: int | None
    unanswered: int
    """Wake-ups since its client last resumed."""
    failures: int
    due_at: int | None
    """When the next wake-up or try goes out (due, notified), or when a pause ends (paused)."""
    disabled: str | None


class AuditPage(BaseModel):
    """Entries, the newest first."""

    items: list[AuditEntry]
    next: int | None
    """`before` of the next page; null at the end."""


Kind = Literal["device", "query", "part", "repair", "request", "erasure"]


class HistoryPage(BaseModel):
    """Entries, the newest first."""

    items: list[Happening]
    next: int | None
    """`before` of the next page; null at the end."""


def _lease_view(lease: Lease) -> LeaseView:
    values = {
        name: getattr(lease, name)
        for name in LeaseView.model_fields
        if name not in ("streams", "endpoint")
    }
    return LeaseView(**values, streams=list(lease.streams), endpoint=lease.endpoint_host)


def router(services: Services) -> APIRouter:
    """List leases and parts; follow changes."""
    routes = APIRouter()
    tables = services.tables

    @routes.get("/v1/leases", tags=["leases"])
    async def leases(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[LeaseView]:
        """Leases of sleeping clients by id, without their secrets."""
        ids = tables.lease_ids.after(after)
        return page_of(
            ids, lambda id_: _lease_view(tables.leases[id_]), limit=limit, total=len(tables.leases)
        )

    @routes.get("/v1/parts", tags=["parts"])
    async def parts(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[PartView]:
        """The parts of the system as the supervisor last saw them."""
        return page_of(
            names_after(tables.parts, after),
            lambda name: tables.parts[name],
            limit=limit,
            total=len(tables.parts),
        )

    @routes.get("/v1/audit", tags=["audit"])
    async def audit(
        limit: Limit = PAGE_DEFAULT, before: Annotated[int | None, Query(ge=1, le=2**53)] = None
    ) -> AuditPage:
        """List changes, reads of dead letters and questions in SQL with their users, newest first.

        They are those of this server, since it started. Its log has all.
        """
        found = services.audit.newest(before=before, limit=limit)
        is_more = bool(found) and found[-1].number > 1 and len(found) == limit
        return AuditPage(items=found, next=found[-1].number if is_more else None)

    @routes.get("/v1/history", tags=["history"])
    async def history(
        kind: Kind | None = None,
        name: Annotated[str | None, Query(max_length=64)] = None,
        limit: Limit = PAGE_DEFAULT,
        before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    ) -> HistoryPage:
        """List what happened to devices, queries, parts, repairs and erasures, the newest first.

        It is what this server saw since it started, at most its newest 50,000 entries.
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

    @routes.delete("/v1/session", status_code=204, tags=["session"])
    async def log_out(request: Request, response: Response) -> None:
        """End the session whose cookie comes with the request, if there is one."""
        name = cookie_name(request.scope)
        services.access.sessions.use_up(request.cookies.get(name, ""))
        response.delete_cookie(name)

    @routes.get("/v1/live", tags=["live"], response_class=EventSourceResponse)
    async def live(
        request: Request,
        last_event_id: Annotated[str | None, Header(max_length=64)] = None,
    ) -> EventSourceResponse:
        """Stream changes of devices, requests, queries, parts and dead letters as they happen.

        They are Server-Sent Events. The stream ends with your right.
        """
        state = request.state
        return services.ring.response(
            last_event_id, holder=state.holder.name, is_allowed=state.is_allowed
        )

    return routes
