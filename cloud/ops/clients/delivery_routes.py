"""Routes that make and enable deliveries to webhooks, at the push proxy."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from edgewake.cloud.ops.clients.shared_routes import DeliveryId
from edgewake.cloud.ops.lookups.push_proxy import PushProxy
from edgewake.cloud.ops.routes.shared import Services
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.leases.delivery import NAME_PATTERN, DeliveryRequest
from edgewake.protocol.leases.delivery_record import DeliveryState

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
    """Makes the routes that make and enable deliveries."""
    routes = APIRouter(tags=["clients"])
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
