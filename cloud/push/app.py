"""The proxy's HTTP side: leases are made, looked at, changed and ended.

Any proxy may be asked (`edgewake.cloud.push.peers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel

from edgewake.cloud.calls.endpoint import EndpointRefused
from edgewake.cloud.client_share import Clients
from edgewake.cloud.login.door import Door
from edgewake.cloud.login.reader import People
from edgewake.cloud.push.counting.watchers import TooManyFilters
from edgewake.cloud.push.peers import FORWARDED, Peers, passed_back
from edgewake.cloud.push.proxy import (
    Disabled,
    Elsewhere,
    KeyUsedBefore,
    NoSuchLease,
    NotAsked,
    Proxy,
    Standby,
    TooManyLeases,
)
from edgewake.cloud.push.waking.relay import WAIT_S_MAX, TooManyWaiting
from edgewake.cloud.rights.guard import Guard, ReaderAsks, cookie_of
from edgewake.cloud.rights.reader_door import ReaderDoor
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.rights.tickets import Tickets
from edgewake.cloud.web import http_part
from edgewake.cloud.web.app import application
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import let_anonymous_in, problems
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import CursorError, FilterError, Unavailable
from edgewake.protocol.leases.lease import LeaseChange, LeaseRequest, Subscription, WakePolicy
from edgewake.protocol.leases.lease_record import Lease, LeaseState

BODY_BYTES_MAX = 32 * 1024
"""Bytes of a request: a cursor of 4 KB, a filter and an address. Over it: 413."""


OPEN_PATHS: Final = frozenset({"/docs", "/openapi.json", "/healthz", "/readyz", "/metrics"})
OPEN_FOLDERS: Final = ("/docs/", "/v1/leases/")
"""A lease's own token opens it: no reader's right is required."""


class SubscriptionView(Subscription):
    """What a lease counts, of a publication its streams."""

    devices: tuple[str, ...] | None
    sample: float | None
    per: tuple[str, ...]


class LeaseView(BaseModel):
    """A lease as its client sees it. Times are ms since 1970 UTC."""

    id: str
    state: LeaseState
    subscription: SubscriptionView
    cursor: str
    endpoint_host: str
    wake: WakePolicy
    ttl_s: int
    created_at: int
    expires_at: int
    unseen_count: int
    """Events after the cursor, as far as they are counted."""
    due_at: int | None
    """When the next wake-up or try goes out (due, notified), or when a pause ends (paused)."""
    wakes: int
    last_wake_at: int | None
    unanswered: int
    """Wake-ups since the client last resumed."""
    failures: int
    disabled: str | None


class GrantedView(LeaseView):
    """A lease that was asked for, with what no other answer contains."""

    token: str
    """For the header `Authorization: Bearer`, and with the id (`ID.TOKEN`) for `Edgewake-Lease`."""
    secret: str
    """whsec_…, to verify wake-ups with."""


def _view(proxy: Proxy, lease: Lease) -> dict[str, Any]:
    values = {
        name: getattr(lease, name)
        for name in LeaseView.model_fields
        if name not in ("subscription", "unseen_count")
    }
    return values | {
        "subscription": {name: getattr(lease, name) for name in SubscriptionView.model_fields},
        "unseen_count": max(lease.count, proxy.unseen(lease.id).count),
    }


_bearer = HTTPBearer(auto_error=False, description="The token of the lease")


async def _token(
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> str:
    if credentials is None:
        raise Problem(
            401,
            "token_missing",
            "expected Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return credentials.credentials


Token = Annotated[str, Depends(_token)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=16,
        max_length=128,
        description=(
            "Chosen by you, unguessable, e.g. a UUID. A request repeated with it gets the lease "
            "of before, another 409."
        ),
    ),
]


T = TypeVar("T")
After = Annotated[int, Query(ge=0, le=2**53)]
WaitSeconds = Annotated[float, Query(ge=0, le=WAIT_S_MAX)]
SIGNATURE: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")
NO_STORE: Final = {"cache-control": "no-store"}


def make_app(
    proxy: Proxy,
    peers: Peers,
    registry: CollectorRegistry,
    *,
    progress: Callable[[], str],
    rights: Rights,
    people: People | None = None,
    clock: Clock,
    clients: Clients | None = None,
    allow_origins: Sequence[str] = (),
) -> FastAPI:
    """The application around a proxy.

    `progress` says what a proxy that is not ready waits for, `clients` who asks, `rights` for what.
    """
    clients = clients or Clients()
    app = application("Edgewake push proxy", description=__doc__ or "")
    app.add_middleware(http_part.BodyLimit, bytes_max=BODY_BYTES_MAX)
    _guard(app, rights, people, clock, clients)
    _let_others_ask(app, allow_origins)
    _answer_refusals(app)
    _pass_on(app, peers, clients)
    _let_clients_ask(app, proxy)

    @app.post(
        "/v1/leases",
        status_code=201,
        responses={
            200: {"model": GrantedView, "description": "A repeated request."},
            **problems(409, 422, 429),
        },
    )
    async def grant(
        http: Request,
        body: LeaseRequest,
        response: Response,
        reader: ReaderAsks,
        idempotency_key: IdempotencyKey = None,
    ) -> GrantedView:
        """Take a client over.

        When this is answered the lease is stored, and from your cursor on nothing is missed.
        """
        try:
            granted = await proxy.grant(
                body, idempotency_key, address=clients.of_request(http), reader=reader
            )
        except ValueError as error:  # the secret
            raise Problem(422, "secret", str(error)) from error
        except LookupError as error:
            raise Problem(422, "unknown_stream", str(error.args[0])) from error
        response.headers["Location"] = f"/v1/leases/{granted.lease.id}"
        response.status_code = 201 if granted.is_new else 200
        return GrantedView(
            **_view(proxy, granted.lease),
            token=granted.endpoint.token,
            secret=granted.endpoint.newest_secret,
        )

    @app.get("/v1/leases/{lease_id}", responses=problems(404))
    async def look(lease_id: str, token: Token) -> LeaseView:
        """The lease as it stands."""
        return LeaseView(**_view(proxy, proxy.get(lease_id, token)))

    @app.patch("/v1/leases/{lease_id}", responses=problems(404, 422, 429))
    async def change(lease_id: str, body: LeaseChange, token: Token) -> LeaseView:
        """Change the lease and renew its life: an empty object only renews it.

        With `cursor` you go to sleep again there.
        """
        try:
            return LeaseView(**_view(proxy, await proxy.change(lease_id, token, body)))
        except ValueError as error:  # the secret
            raise Problem(422, "secret", str(error)) from error

    @app.delete("/v1/leases/{lease_id}", status_code=204, responses=problems(404))
    async def end(lease_id: str, token: Token) -> None:
        """End the lease: after this answer no further wake-up is started."""
        await proxy.end(lease_id, token)

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> dict[str, str]:
        if not proxy.is_ready:
            raise Problem(503, "not_ready", progress())
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app


def _let_clients_ask(app: FastAPI, proxy: Proxy) -> None:
    """Serve those who are woken by asking."""

    @app.get(
        "/v1/leases/{lease_id}/wake",
        responses={
            204: {"description": "None came."},
            **problems(404, 409, 410, 429),
        },
    )
    async def wake(
        http: Request, lease_id: str, token: Token, after: After = 0, wait: WaitSeconds = 0
    ) -> Response:
        """Get the wake-up of a lease with the endpoint `relay`, signed as a call is, or 204.

        `after` is the number of the last one that you have, behind the last `_` of its
        `webhook-id`; with `wait` the answer comes when there is a later one.
        """
        waiting = proxy.relayed(lease_id, token, after=after, wait_s=wait)
        found = await while_there(http, waiting)
        if found is None:
            return Response(status_code=204, headers=NO_STORE)
        shown = {name: found.headers[name] for name in SIGNATURE}
        return Response(found.body, media_type="application/json", headers=shown | NO_STORE)

    @app.exception_handler(TooManyWaiting)
    async def too_many_waiting(_: Request, error: TooManyWaiting) -> Response:
        return Problem(429, "too_many_waiting", str(error), headers={"Retry-After": "5"}).response()

    @app.exception_handler(NotAsked)
    async def not_asked(_: Request, error: NotAsked) -> Response:
        return Problem(409, "not_a_relay", str(error)).response()

    @app.exception_handler(Disabled)
    async def disabled(_: Request, error: Disabled) -> Response:
        return Problem(410, "lease_disabled", str(error)).response()


def _guard(
    app: FastAPI, rights: Rights, people: People | None, clock: Clock, clients: Clients
) -> None:
    app.add_middleware(
        Guard,
        rights=rights,
        door=ReaderDoor(rights, clock),
        clients=clients,
        tickets=Tickets(clock, lambda: ""),
        open_paths=OPEN_PATHS,
        open_folders=OPEN_FOLDERS,
        reader=None if people is None else people.reader,
    )
    if people is not None:
        app.add_middleware(Door, desk=people.desk)
    if rights.anonymous is not None:
        let_anonymous_in(app)


def _let_others_ask(app: FastAPI, origins: Sequence[str]) -> None:
    """Pages of these sites may ask."""
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-None-Match"],
            expose_headers=["Location", "Retry-After", *SIGNATURE],
            max_age=3600,
        )


def _pass_on(app: FastAPI, peers: Peers, clients: Clients) -> None:
    """Pass a request for another proxy's lease on to it, once."""

    @app.exception_handler(Elsewhere)
    async def elsewhere(request: Request, error: Elsewhere) -> Response:
        try:
            url = None if FORWARDED in request.headers else await peers.url_of(error.partition)
            if url is None:
                raise Unavailable("what you ask for is being taken over by another proxy")
            target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            asking = peers.forward(
                url,
                request.method,
                target,
                _headers_of(request),
                await request.body(),
                client=clients.of_request(request),
                waits_s=error.waits_s,
            )
            answer = await while_there(request, asking)
        except Unavailable as away:
            return Problem(503, "standby", str(away), headers={"Retry-After": "2"}).response()
        if answer is None:
            return Response(status_code=204)  # nobody is there to read it
        return Response(answer.content, answer.status_code, passed_back(answer))


async def while_there(http: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Work for a client while it is connected; None where it has hung up.

    Then the work is cut off, and so is what another proxy does for us: it waits for nobody.
    """
    working = asyncio.create_task(work)
    gone: asyncio.Task[None] | None = None
    try:
        await http.body()  # who passes the request on has it then; what comes next is the hang-up
        gone = asyncio.create_task(_gone(http))
        waited: set[asyncio.Task[Any]] = {working, gone}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        if gone is not None:
            gone.cancel()


async def _gone(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _headers_of(request: Request) -> Mapping[str, str]:
    """The headers that prove the client's identity to another proxy.

    A session cookie was accepted here, and is sent on as a token.
    """
    cookie = cookie_of(request.scope)
    if cookie is None or "authorization" in request.headers:
        return request.headers
    return {**request.headers, "authorization": f"Bearer {cookie.decode('latin-1')}"}


def _answer_refusals(app: FastAPI) -> None:
    @app.exception_handler(Standby)
    async def standby(_: Request, error: Standby) -> Response:
        return Problem(503, "standby", str(error), headers={"Retry-After": "2"}).response()

    @app.exception_handler(KeyUsedBefore)
    async def used_before(_: Request, error: KeyUsedBefore) -> Response:
        return Problem(409, "idempotency_key", str(error)).response()

    @app.exception_handler(TooManyFilters)
    async def too_many_filters(_: Request, error: TooManyFilters) -> Response:
        return Problem(
            429, "too_many_filters", str(error), headers={"Retry-After": "60"}
        ).response()

    @app.exception_handler(TooManyLeases)
    async def too_many(_: Request, error: TooManyLeases) -> Response:
        return Problem(429, "too_many_leases", str(error), headers={"Retry-After": "60"}).response()

    @app.exception_handler(NoSuchLease)
    async def unknown(_: Request, error: NoSuchLease) -> Response:
        return Problem(404, "no_such_lease", str(error)).response()

    @app.exception_handler(EndpointRefused)
    async def endpoint(_: Request, error: EndpointRefused) -> Response:
        return Problem(422, "endpoint_refused", str(error)).response()

    @app.exception_handler(CursorError)
    async def cursor(_: Request, error: CursorError) -> Response:
        return Problem(422, f"cursor_{error.reason}", str(error)).response()

    @app.exception_handler(FilterError)
    async def refused_filter(_: Request, error: FilterError) -> Response:
        return Problem(422, "filter", str(error)).response()
