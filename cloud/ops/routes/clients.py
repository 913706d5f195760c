"""Routes about clients: list and end those that read, and the leases of those that sleep."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel

from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    AskedStream,
    Limit,
    Page,
    Services,
    page_of,
)
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.leases.lease_record import Lease, LeaseState
from edgewake.protocol.ops.open_client import ID_PATTERN, OpenClient

ClientId = Annotated[str, Path(pattern=ID_PATTERN)]
LeaseId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Reason = Annotated[
    str, Query(max_length=200, description="Text for the client, e.g. why and until when.")
]


class ClientView(OpenClient):
    """A client, and the server that it reads from."""

    server: str


class ServerView(BaseModel):
    """An access server, and how many clients it serves."""

    server: str
    at: int
    """Time of its report, ms since 1970 UTC."""
    total: int
    told: int
    """How many clients it reported: the 1000 farthest behind where it has more."""


class ClientsPage(Page[ClientView]):
    """A page of clients, sorted by id."""

    servers: list[ServerView]


class LeaseView(BaseModel):
    """A lease without its secrets."""

    id: str
    streams: list[str]
    where: str | None
    endpoint: str
    """Host of the endpoint; its path may be a secret."""
    created_at: int
    expires_at: int
    state: LeaseState
    count: int
    """Events after its client's cursor at the last wake-up."""
    wakes: int
    last_wake_at: int | None
    unanswered: int
    """Wake-ups since its client resumed last."""
    failures: int
    due_at: int | None
    """When the next wake-up or try goes out (due, notified), or when a pause ends (paused)."""
    disabled: str | None


class WakeView(BaseModel):
    """The outcome of a wake-up."""

    taken: bool
    """Whether the endpoint accepted it; if not, it is retried like every wake-up."""
    lease: LeaseView


def _lease_view(lease: Lease) -> LeaseView:
    values = {
        name: getattr(lease, name)
        for name in LeaseView.model_fields
        if name not in ("streams", "endpoint")
    }
    return LeaseView(**values, streams=list(lease.streams), endpoint=lease.endpoint_host)


def router(services: Services) -> APIRouter:
    """Makes the routes that list and end clients and leases."""
    routes = APIRouter()
    tables, desk = services.tables, services.clients

    @routes.get("/v1/clients", tags=["clients"])
    async def clients(
        limit: Limit = PAGE_DEFAULT,
        after: Annotated[str | None, Query(max_length=128)] = None,
        stream: AskedStream = None,
        principal: Annotated[str | None, Query(max_length=200)] = None,
        state: Literal["opening", "waiting", "behind", "live", "ending"] | None = None,
    ) -> ClientsPage:
        """List the clients that read now, by what access servers reported in the last seconds."""
        found = {
            client.id: (server, client)
            for server, client in tables.clients.all()
            if (stream is None or stream in client.streams)
            and (principal is None or client.principal == principal)
            and (state is None or client.state == state)
        }
        page = page_of(
            sorted(name for name in found if after is None or name > after),
            lambda name: _client_view(*found[name]),
            limit=limit,
            total=len(found),
        )
        servers = [
            ServerView(server=name, at=one.at, total=one.total, told=len(one.clients))
            for name, one in sorted(tables.clients.servers.items())
        ]
        return ClientsPage(items=page.items, next=page.next, total=page.total, servers=servers)

    @routes.delete(
        "/v1/clients/{client}", status_code=204, tags=["clients"], responses=problems(404, 503)
    )
    async def end_client(client: ClientId, request: Request, reason: Reason = "") -> None:
        """End an open stream.

        Its client gets `event: end` with the reason `operator`, keeps its cursor and may connect
        again. To prevent that, revoke its key too.
        """
        if reason:
            request.state.audit = f"told: {reason}"
        await desk.end_client(client, by=request.state.holder.name, reason=reason)

    @routes.get("/v1/leases", tags=["leases"])
    async def leases(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[LeaseView]:
        """List leases of sleeping clients by id, without their secrets."""
        ids = tables.lease_ids.after(after)
        return page_of(
            ids, lambda id_: _lease_view(tables.leases[id_]), limit=limit, total=len(tables.leases)
        )

    @routes.delete(
        "/v1/leases/{lease}", status_code=204, tags=["leases"], responses=problems(404, 503)
    )
    async def end_lease(lease: LeaseId, request: Request) -> None:
        """End a lease: its client is not woken any more and gets 404 when it asks for the lease."""
        await desk.end_lease(lease, by=request.state.holder.name)

    @routes.post("/v1/leases/{lease}/wake", tags=["clients"], responses=problems(404, 409, 503))
    async def wake(lease: LeaseId, request: Request) -> WakeView:
        """Send a sleeping client an ordinary wake-up now, whatever its policy says.

        409: it reads, is being called, or its endpoint is disabled.
        """
        found, is_taken = await desk.wake_lease(lease, by=request.state.holder.name)
        return WakeView(taken=is_taken, lease=_lease_view(found))

    return routes


def _client_view(server: str, client: OpenClient) -> ClientView:
    return ClientView(**client.model_dump(), server=server)
