"""The routes of webhook deliveries, on the push proxy: any proxy may be asked."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, FastAPI, Header, Path, Query, Request, Response
from pydantic import BaseModel

from edgewake.cloud.calls.webhook import Outcome, Taken
from edgewake.cloud.client_share import Clients
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.log.named import UnknownPublication
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.push.deliveries.courier import Courier
from edgewake.cloud.push.deliveries.deliveries import (
    Deliveries,
    DeliveryExists,
    NoSuchDelivery,
    TooManyDeliveries,
)
from edgewake.cloud.rights.guard import ReaderAsks
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.leases.delivery import (
    NAME_PATTERN,
    DeliveryRequest,
    SecretChange,
)
from edgewake.protocol.leases.delivery_record import DeliveryState, Letter
from edgewake.protocol.leases.endpoint_kind import EndpointKind

NO_STORE: Final = {"Cache-Control": "no-store"}
Name = Annotated[str, Path(pattern=NAME_PATTERN)]
MustBeNew = Annotated[
    Literal["*"] | None,
    Header(alias="If-None-Match", description="`*`: make a new one, and change none."),
]
Number = Annotated[int, Path(ge=1)]
WantedId = Annotated[
    str | None,
    Query(alias="id", pattern=r"^[A-Za-z0-9_-]{1,64}$", description="The one of this id alone."),
]


class DeliveryView(BaseModel):
    """A delivery as its owner sees it. Times are ms since 1970 UTC."""

    id: str
    """The id that stands in the webhook-id of each call."""
    name: str
    state: DeliveryState
    why: str | None
    """Why it ended."""
    trouble: str
    """What keeps it from reading at the moment, e.g. that a stream is not there."""
    streams: tuple[str, ...]
    where: str | None
    select: str | None
    publication: str | None
    devices: tuple[str, ...] | None
    sample: float | None
    on_gap: str
    endpoint_host: str
    kind: EndpointKind
    events_max: int
    wait_s: float
    max_rate: float | None
    cursor: str
    """Everything before it was taken, or is a dead letter."""
    batches: int
    events: int
    """Events that were delivered."""
    delivered_at: int | None
    failures: int
    """Failed attempts in a row."""
    failing_since: int | None
    next_at: int | None
    """When it is tried again."""
    error: str
    """What the last attempt failed by."""
    letters: int
    """Dead letters."""
    old_secret_until: int | None
    created_at: int
    changed_at: int


class MadeView(DeliveryView):
    """With what is shown once."""

    secret: str | None
    """whsec_…, where one was made."""


class LetterView(BaseModel):
    """An event that the endpoint refused."""

    number: int
    event: Any
    cursor: str
    error: str
    made_at: int
    tries: int
    """Replays that failed."""


class CallView(BaseModel):
    """The outcome of a call."""

    taken: bool
    error: str | None


def view_of(courier: Courier) -> dict[str, Any]:
    """The values of a DeliveryView."""
    more = {"trouble": courier.trouble, "letters": len(courier.letters)}
    stored = courier.delivery
    names = [name for name in DeliveryView.model_fields if name not in more]
    return {name: getattr(stored, name) for name in names} | more


def _letter_view(letter: Letter) -> LetterView:
    return LetterView(
        number=letter.number,
        event=orjson.loads(letter.event),
        cursor=letter.cursor,
        error=letter.error,
        made_at=letter.made_at,
        tries=letter.tries,
    )


def _call_view(outcome: Outcome) -> CallView:
    if isinstance(outcome, Taken):
        return CallView(taken=True, error=None)
    return CallView(taken=False, error=outcome.why)


def add_to(app: FastAPI, deliveries: Deliveries, clients: Clients) -> None:
    """Serve them."""
    app.include_router(_router(deliveries, clients))
    app.include_router(_letters_router(deliveries, clients))

    @app.exception_handler(NoSuchDelivery)
    async def no_such(_: Request, error: NoSuchDelivery) -> Response:
        return Problem(404, "no_such_delivery", str(error)).response()

    @app.exception_handler(DeliveryExists)
    async def exists(_: Request, error: DeliveryExists) -> Response:
        return Problem(412, "delivery_exists", str(error)).response()

    @app.exception_handler(TooManyDeliveries)
    async def too_many(_: Request, error: TooManyDeliveries) -> Response:
        headers = {"Retry-After": "60"}
        return Problem(429, "too_many_deliveries", str(error), headers=headers).response()

    @app.exception_handler(UnknownStream)
    async def unknown(_: Request, error: UnknownStream) -> Response:
        return Problem(422, "unknown_stream", str(error)).response()

    @app.exception_handler(UnknownPublication)
    async def unpublished(_: Request, error: UnknownPublication) -> Response:
        return Problem(422, "unknown_publication", str(error)).response()

    @app.exception_handler(RequestError)
    async def wrong(_: Request, error: RequestError) -> Response:
        return Problem(422, error.code, str(error)).response()


def _router(deliveries: Deliveries, clients: Clients) -> APIRouter:
    routes = APIRouter()

    @routes.put(
        "/v1/deliveries/{name}",
        responses={
            201: {"model": MadeView, "description": "A new one."},
            **problems(412, 422, 429),
        },
    )
    async def put(
        http: Request,
        name: Name,
        body: DeliveryRequest,
        response: Response,
        reader: ReaderAsks,
        if_none_match: MustBeNew = None,
    ) -> MadeView:
        """Have every event of streams sent to an endpoint, or change how.

        When this is answered it is stored, and from its cursor on nothing is missed.
        """
        client = clients.of_request(http)
        courier, secret, is_new = await deliveries.put(
            name, body, reader, client, must_be_new=if_none_match is not None
        )
        response.status_code = 201 if is_new else 200
        return MadeView(**view_of(courier), secret=secret)

    @routes.get("/v1/deliveries")
    async def listed(
        http: Request, reader: ReaderAsks, wanted: WantedId = None
    ) -> dict[str, list[DeliveryView]]:
        """Your deliveries; with `id` the one of that id, where it is yours."""
        found = deliveries.listed(reader, clients.of_request(http))
        if wanted is not None:
            found = [courier for courier in found if courier.delivery.id == wanted]
        return {"deliveries": [DeliveryView(**view_of(courier)) for courier in found]}

    @routes.get("/v1/deliveries/{name}", responses=problems(404))
    async def one(http: Request, name: Name, reader: ReaderAsks) -> DeliveryView:
        """One of them, as it stands."""
        return DeliveryView(**view_of(deliveries.get(name, reader, clients.of_request(http))))

    @routes.delete("/v1/deliveries/{name}", status_code=204, responses=problems(404))
    async def remove(http: Request, name: Name, reader: ReaderAsks) -> None:
        """End it: after this answer no further call is begun."""
        await deliveries.remove(name, reader, clients.of_request(http))

    @routes.post("/v1/deliveries/{name}/enable", responses=problems(404, 422))
    async def enable(http: Request, name: Name, reader: ReaderAsks) -> DeliveryView:
        """Try it again now; one that ended goes on from where it stands, with your right."""
        courier = await deliveries.enable(name, reader, clients.of_request(http))
        return DeliveryView(**view_of(courier))

    @routes.post("/v1/deliveries/{name}/secret", responses=problems(404, 422))
    async def change_secret(
        http: Request, name: Name, body: SecretChange, reader: ReaderAsks
    ) -> MadeView:
        """Sign with another secret; for `keep_old_s` each call is signed with both."""
        client = clients.of_request(http)
        courier, made = await deliveries.change_secret(name, body, reader, client)
        return MadeView(**view_of(courier), secret=made)

    @routes.post("/v1/deliveries/{name}/test", responses=problems(404))
    async def test(http: Request, name: Name, reader: ReaderAsks) -> CallView:
        """Call the endpoint once, without an event: `edgewake.test`."""
        return _call_view(await deliveries.test(name, reader, clients.of_request(http)))

    return routes


def _letters_router(deliveries: Deliveries, clients: Clients) -> APIRouter:
    routes = APIRouter()

    @routes.get("/v1/deliveries/{name}/letters", responses=problems(404))
    async def letters(http: Request, name: Name, reader: ReaderAsks) -> dict[str, list[LetterView]]:
        """Its dead letters: events that the endpoint refused, the oldest first."""
        found = deliveries.get_shown(name, reader, clients.of_request(http)).letters.values()
        ordered = sorted(found, key=lambda letter: letter.number)
        return {"letters": [_letter_view(letter) for letter in ordered]}

    @routes.post("/v1/deliveries/{name}/letters/{number}/replay", responses=problems(404))
    async def replay(http: Request, name: Name, number: Number, reader: ReaderAsks) -> CallView:
        """Send a dead letter once more, with the webhook-id that it had; taken, it is gone."""
        client = clients.of_request(http)
        return _call_view(await deliveries.replay(name, number, reader, client))

    @routes.delete(
        "/v1/deliveries/{name}/letters/{number}", status_code=204, responses=problems(404)
    )
    async def drop(http: Request, name: Name, number: Number, reader: ReaderAsks) -> None:
        """Forget a dead letter."""
        await deliveries.drop_letter(name, number, reader, clients.of_request(http))

    return routes
