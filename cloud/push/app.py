"""The proxy's HTTP face: leases are made, looked at and ended."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel

from edgewake.cloud import web
from edgewake.cloud.push.endpoint import EndpointRefused
from edgewake.cloud.push.proxy import NoSuchLease, Proxy, Standby, TooManyLeases
from edgewake.cloud.web import Problem
from edgewake.protocol.errors import CursorError, FilterError
from edgewake.protocol.lease import Lease, LeaseRequest, Subscription, WakePolicy

BODY_BYTES_MAX = 32 * 1024
"""Bytes of a request: a cursor of 4 KB, a filter and an address. Over it: 413."""


class LeaseView(BaseModel):
    """A lease as its holder sees it."""

    id: str
    subscription: Subscription
    cursor: str
    url: str
    wake: WakePolicy
    created_at: int
    expires_at: int
    wakes: int
    last_wake_at: int | None
    failures: int
    retry_at: int | None
    disabled: str | None


class GrantedView(LeaseView):
    """A new lease. `token` and `secret` are said here and never again."""

    token: str
    secret: str | None
    """whsec_…, to verify wake-ups with; null where the request brought one."""


def _view(lease: Lease) -> dict[str, Any]:
    kept = lease.model_dump(include={"id", "created_at", "expires_at", "wakes", "last_wake_at", "failures", "retry_at", "disabled"})
    request = lease.request
    return kept | {
        "subscription": request.subscription,
        "cursor": request.cursor,
        "url": str(request.endpoint.url),
        "wake": request.wake,
    }


_bearer = HTTPBearer(auto_error=False, description="The token of the lease")


def _token(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> str:
    if credentials is None:
        raise Problem(401, "token_missing", "expected Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"})
    return credentials.credentials


Token = Annotated[str, Depends(_token)]


def make_app(proxy: Proxy, registry: CollectorRegistry) -> FastAPI:
    """The application around a proxy."""
    app = FastAPI(title="Edgewake push proxy", version="1", description=__doc__)
    web.install(app)
    app.add_middleware(web.BodyLimit, bytes_max=BODY_BYTES_MAX)
    _answer_refusals(app)

    @app.post("/v1/leases", status_code=201)
    async def grant(body: LeaseRequest, response: Response) -> GrantedView:
        """Take a client over. 201 says: the lease is kept, and from your cursor on nothing is missed."""
        try:
            granted = await proxy.grant(body)
        except ValueError as error:  # the secret
            raise Problem(422, "secret", str(error)) from error
        except LookupError as error:
            raise Problem(422, "unknown_stream", str(error.args[0])) from error
        response.headers["Location"] = f"/v1/leases/{granted.lease.id}"
        secret = granted.lease.secret if granted.secret_made else None
        return GrantedView(**_view(granted.lease), token=granted.token, secret=secret)

    @app.get("/v1/leases/{lease_id}")
    async def look(lease_id: str, token: Token) -> LeaseView:
        """The lease as it stands."""
        return LeaseView(**_view(proxy.get(lease_id, token)))

    @app.delete("/v1/leases/{lease_id}", status_code=204)
    async def end(lease_id: str, token: Token) -> None:
        """End the lease: after this answer no further wake-up is started."""
        await proxy.end(lease_id, token)

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> dict[str, str]:
        if not proxy.active:
            raise Problem(503, "standby", "another proxy has the leases, or Kafka is away")
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app


def _answer_refusals(app: FastAPI) -> None:
    @app.exception_handler(Standby)
    async def standby(_: Request, error: Standby) -> Response:
        return Problem(503, "standby", str(error), headers={"Retry-After": "2"}).response()

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
