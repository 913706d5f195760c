"""Routes about deliveries to webhooks and about groups.

Both are of all owners; only the deliveries that this server has at the push proxy can be made and
enabled here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
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
from edgewake.protocol.leases.delivery import NAME_PATTERN, DeliveryRequest
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


DeliveryName = Annotated[
    str,
    Path(alias="delivery", pattern=NAME_PATTERN, description="Id; a name where one is made"),
]
Changed = Annotated[
    str | None,
    Query(
        alias="id",
        description="Id of the delivery that is changed: refused where this name is not its own",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
    ),
]


class MadeDelivery(BaseModel):
    """A delivery that was just made or changed."""

    name: str
    state: DeliveryState
    endpoint_host: str
    secret: str | None
    """The secret that calls are signed with, where one was made; it is not shown again."""


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

    routes.include_router(_made_here(services))
    return routes


def _made_here(services: Services) -> APIRouter:
    """Makes the routes that make and enable deliveries."""
    routes = APIRouter()
    shared = services.tables.shared

    def proxy() -> PushProxy:
        if services.push is None:
            raise Problem(
                409,
                "no_push_proxy",
                "this server knows no push proxy: expected [push] with its url in ops.toml; "
                "`edgewake delivery apply FILE` asks a proxy itself",
            )
        return services.push

    async def our_name(delivery_id: str) -> str:
        """The name by which the proxy knows a delivery of ours.

        A name belongs to an owner: by the name of another's row the proxy would find one of ours.
        """
        found = shared.deliveries.get(delivery_id)
        if found is None:
            detail = f"unknown delivery {delivery_id!r}; GET /v1/deliveries lists them"
            raise Problem(404, "no_such_delivery", detail)
        name = await proxy().our_name(delivery_id)
        if name is None:
            detail = (
                f"delivery {found.name!r} belongs to a reader, who changes and enables it "
                "(edgewake delivery)"
            )
            raise Problem(409, "not_ours", detail)
        return name

    @routes.put("/v1/deliveries/{delivery}", responses=problems(404, 409, 412, 422, 429, 503))
    async def put(
        name: DeliveryName, wanted: DeliveryRequest, changed: Changed = None
    ) -> MadeDelivery:
        """Have every event of streams sent to a webhook, or change such a delivery of this server.

        It belongs to this server, not to a reader: what readers made is changed by them alone. With
        `id` it is changed; without it has to be new: 412 where the name is taken.
        """
        kept = name if changed is None else await our_name(changed)
        if kept != name:
            detail = f"delivery {changed!r} is named {kept!r}, not {name!r}: a name stays"
            raise Problem(409, "other_name", detail)
        body = wanted.model_dump_json(by_alias=True, exclude_unset=True).encode()
        found = await proxy().put(name, body, must_be_new=changed is None)
        return MadeDelivery.model_validate(dict(found))

    @routes.post("/v1/deliveries/{delivery}/enable", responses=problems(404, 409, 422, 503))
    async def enable(delivery: DeliveryId) -> MadeDelivery:
        """Try a delivery of this server again; one that ended continues where it stands."""
        found = await proxy().enable(await our_name(delivery))
        return MadeDelivery.model_validate({"secret": None, **found})

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
