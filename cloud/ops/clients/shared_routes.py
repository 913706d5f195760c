"""Routes that list, test and end deliveries to webhooks, and list and end groups."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel

from edgewake.cloud.ops.lookups.push_proxy import PushProxy
from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    Limit,
    Page,
    Services,
    names_after,
    page_of,
)
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases.delivery_record import Delivery, DeliveryState
from edgewake.protocol.leases.endpoint_kind import EndpointKind
from edgewake.protocol.leases.group_record import Group


class DeliveryLine(BaseModel):
    """A delivery without its address, secret and cursor. Times are ms since 1970."""

    id: str
    name: str
    """The name that its owner gave it; two owners may give the same."""
    is_ours: bool
    """Is it this server's, which may change and enable it? False too where the push proxy does not
    answer."""
    state: DeliveryState
    why: str | None
    """Why it ended."""
    streams: list[str]
    where: str | None
    select: str | None
    """The SELECT list of what an event contains; null: all fields."""
    on_gap: str
    """Where it continues after events that are no longer kept: earliest or latest."""
    endpoint_host: str
    kind: EndpointKind
    events_max: int
    """The most events of one call."""
    wait_s: float
    """Seconds that an event may wait for others to be sent with it."""
    events: int
    """Events that were delivered."""
    delivered_at: int | None
    failures: int
    """Failed attempts in a row."""
    failing_since: int | None
    next_at: int | None
    """When the next attempt is due."""
    error: str
    letters: int
    """Events that the endpoint refused permanently."""
    created_at: int
    tested_at: int | None
    """When an operator last tested its endpoint."""
    test_error: str
    """The error of that test; empty: it succeeded."""


DeliveryId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


GroupId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class TestView(BaseModel):
    """The outcome of a test call."""

    taken: bool
    error: str
    """The error; empty: the call succeeded."""
    endpoint_host: str


class GroupLine(BaseModel):
    """A group of clients that share streams, without its cursor. Times are ms since 1970 UTC."""

    id: str
    name: str
    streams: list[str]
    where: str | None
    held: int
    """Events that a client holds, or that wait to be delivered again."""
    events: int
    """Events that were completed, in total."""
    oldest_until: int | None
    """When the earliest of the held events is delivered again; null: none is held."""
    given_most: int
    """How often the held event was delivered that was delivered most often: one that no client
    completes holds the group up."""
    created_at: int


def router(services: Services) -> APIRouter:
    """Makes the routes that list and end deliveries and groups."""
    routes = APIRouter(tags=["clients"])
    shared = services.tables.shared

    @routes.get("/v1/deliveries")
    async def deliveries(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[DeliveryLine]:
        """List deliveries of all owners by id, with their progress and what delays them."""
        ours = await _ours(services.push)
        return page_of(
            names_after(shared.deliveries, after),
            lambda id_: _delivery(shared.deliveries[id_], shared.letters[id_], is_ours=id_ in ours),
            limit=limit,
            total=len(shared.deliveries),
        )

    @routes.post("/v1/deliveries/{delivery}/test", responses=problems(404, 503))
    async def test(delivery: DeliveryId, request: Request) -> TestView:
        """Test a delivery: its endpoint gets one signed call `edgewake.test` without an event."""
        desk = services.clients
        found = await desk.test_delivery(delivery, by=request.state.holder.name)
        return TestView(
            taken=found.test_error == "",
            error=found.test_error,
            endpoint_host=found.endpoint_host,
        )

    @routes.delete("/v1/deliveries/{delivery}", status_code=204, responses=problems(404, 503))
    async def end(delivery: DeliveryId, request: Request) -> None:
        """End a delivery, whoever made it, and forget what its endpoint refused."""
        await services.clients.end_delivery(delivery, by=request.state.holder.name)

    @routes.get("/v1/shares")
    async def groups(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[GroupLine]:
        """List groups of clients that share streams, of all owners, by id."""
        return page_of(
            names_after(shared.groups, after),
            lambda name: _group(shared.groups[name]),
            limit=limit,
            total=len(shared.groups),
        )

    @routes.delete("/v1/shares/{group}", status_code=204, responses=problems(404, 503))
    async def end_group(group: GroupId, request: Request) -> None:
        """End a group, whoever made it; what it did is forgotten, and its clients get 404."""
        await services.clients.end_group(group, by=request.state.holder.name)

    return routes


async def _ours(push: PushProxy | None) -> Collection[str]:
    """Ids of this server's deliveries; the list is shown without them, too."""
    if push is None:
        return ()
    try:
        return await push.our_names()
    except (Problem, Unavailable):
        return ()


def _delivery(found: Delivery, letters: int, *, is_ours: bool) -> DeliveryLine:
    names = DeliveryLine.model_fields.keys() - {"letters", "streams", "is_ours"}
    values = {name: getattr(found, name) for name in names}
    return DeliveryLine(**values, streams=list(found.streams), letters=letters, is_ours=is_ours)


def _group(found: Group) -> GroupLine:
    return GroupLine(
        id=found.id,
        name=found.name,
        streams=list(found.streams),
        where=found.where,
        held=len(found.held),
        events=found.events,
        oldest_until=min((one.until for one in found.held), default=None),
        given_most=max((one.count for one in found.held), default=0),
        created_at=found.created_at,
    )
