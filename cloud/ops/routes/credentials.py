"""Routes about the credentials of devices for the MQTT broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field, StringConstraints

from edgewake.cloud.ops.credentials.claims import Unclaimed
from edgewake.cloud.ops.credentials.desk import (
    Credential,
    CredentialDesk,
    NoAuthority,
    Taken,
    TooMany,
)
from edgewake.cloud.ops.routes.shared import DeviceName, Services
from edgewake.cloud.passwords import BadName
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.certificates.authority import REQUEST_CHARS_MAX, BadRequest

NAMES_MAX: Final = 1_000
"""The most devices of one request."""
REQUESTS_MAX: Final = 100
"""The most signing requests in one HTTP request, 400 bytes each; a body has at most 80,000."""
LIFE_MAX_S: Final = 30 * 86_400.0
"""The longest validity of a claim code, in seconds."""
PEM: Final = "application/x-pem-file"
Text = Annotated[str, StringConstraints(max_length=64)]
ClaimId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$")]
RequestText = Annotated[str, StringConstraints(max_length=REQUEST_CHARS_MAX)]


class Wanted(BaseModel):
    """Devices for which passwords are requested."""

    devices: list[Text] = Field(min_length=1, max_length=NAMES_MAX)
    replace: bool = False
    """Whether existing passwords are replaced; the old ones become invalid."""


class Signing(BaseModel):
    """A device and its signing request; the private key stays on the device."""

    device: Text
    request: RequestText
    """PKCS #10, PEM."""


class SigningWanted(BaseModel):
    """Devices for which certificates are requested."""

    items: list[Signing] = Field(min_length=1, max_length=REQUESTS_MAX)
    replace: bool = False
    """Whether existing certificates and passwords are replaced; the old ones become invalid."""


class Given(BaseModel):
    """A device's password, which is shown only once, or its certificate."""

    device: str
    password: str | None = None
    certificate: str | None = None
    """PEM."""
    until: int | None = None
    """When the certificate expires, ms since 1970 UTC."""


class Broker(BaseModel):
    """The addresses that devices send to; empty where none are configured."""

    host: str
    port: int


class GivenAll(BaseModel):
    """Credentials, and the addresses to use them at."""

    items: list[Given]
    broker: Broker | None
    http: str | None = None
    """Address at which a device with a password may send by HTTP; None: HTTP is off."""
    authority: str | None = None
    """The authority of the broker's certificate, PEM; None: the broker does not encrypt."""


class Certified(BaseModel):
    """A device with a valid certificate."""

    device: str
    until: int
    """ms"""


class Holders(BaseModel):
    """The devices that have a password, and the ones with a certificate."""

    devices: list[str]
    certificates: list[Certified]


class ClaimWanted(BaseModel):
    """A request for a claim code, with which devices enrol themselves."""

    count: int = Field(default=1, ge=1, le=10_000)
    """How many devices may use it."""
    life_s: float = Field(default=86_400, gt=0, le=LIFE_MAX_S)
    prefix: Text = ""
    """The prefix that their names must have."""


class ClaimGiven(BaseModel):
    """A claim code, which is shown only once."""

    code: str
    count: int
    until: int
    """ms"""
    fingerprint: str | None
    """SHA-256 of this installation's authority, with which a device verifies it."""
    server: str | None = None
    """Address at which a device uses the code; None: this address."""


class ClaimView(BaseModel):
    """A valid claim code; only its hash is stored."""

    id: str
    left: int
    """Devices that may still enrol with it."""
    until: int
    """ms"""
    prefix: str
    """How their names begin."""


class Claims(BaseModel):
    """All valid claim codes, at most a hundred, sorted by their end."""

    items: list[ClaimView]


class Enrolment(BaseModel):
    """A device's enrolment with a claim code."""

    code: Text
    device: Text
    request: RequestText = ""
    """A signing request (PKCS #10, PEM) for a certificate; without one it gets a password."""


def router(services: Services) -> APIRouter:
    """Makes the routes that issue and revoke credentials."""
    routes = APIRouter(tags=["credentials"])

    def desk() -> CredentialDesk:
        if services.credentials is None:
            raise Problem(
                409,
                "no_credentials",
                "this server gives devices no passwords: expected password_file in ops.toml "
                "(`edgewake up --listen` has it); with certificates see docs/production.md",
            )
        return services.credentials

    @routes.post("/v1/credentials", responses=problems(409, 422))
    async def add(wanted: Wanted) -> GivenAll:
        """Make a password for each device, for all or none."""
        with _as_problems():
            made = desk().add(wanted.devices, replace=wanted.replace)
        return _given(services, made)

    @routes.post("/v1/certificates", responses=problems(409, 422))
    async def sign(wanted: SigningWanted) -> GivenAll:
        """Issue a certificate for each device by its signing request, for all or none."""
        requests = {one.device: one.request for one in wanted.items}
        with _as_problems():
            made = desk().sign(requests, replace=wanted.replace)
        return _given(services, made)

    @routes.get("/v1/credentials", responses=problems(409))
    async def holders() -> Holders:
        """List the devices that have a password or a certificate."""
        found = desk()
        return Holders(
            devices=found.devices,
            certificates=[
                Certified(device=device, until=until)
                for device, until in found.certificates.items()
            ],
        )

    @routes.delete("/v1/credentials/{device}", status_code=204, responses=problems(404, 409))
    async def revoke(device: DeviceName) -> None:
        """Revoke a device's credential; the broker ends its connection within seconds."""
        if not desk().revoke(device):
            raise Problem(
                404,
                "no_such_credential",
                f"device {device!r} has neither a password nor a certificate",
            )

    @routes.post("/v1/claims", responses=problems(409, 422))
    async def claim(wanted: ClaimWanted) -> ClaimGiven:
        """Make a code with which devices get a password by themselves (`POST /v1/enrol`)."""
        with _as_problems():
            code, made = desk().offer(
                count=wanted.count, life_s=wanted.life_s, prefix=wanted.prefix
            )
        authority = desk().authority
        return ClaimGiven(
            code=code,
            count=made.left,
            until=made.until,
            fingerprint=None if authority is None else authority.fingerprint,
            server=services.enrolling_url or None,
        )

    @routes.get("/v1/claims", responses=problems(409))
    async def open_claims() -> Claims:
        """List valid claim codes, without the codes themselves."""
        return Claims(
            items=[
                ClaimView(id=one.id, left=one.left, until=one.until, prefix=one.prefix)
                for one in desk().claims
            ]
        )

    @routes.delete("/v1/claims/{claim_id}", status_code=204, responses=problems(404, 409))
    async def withdraw(claim_id: ClaimId) -> None:
        """Revoke a claim code. Devices that enrolled with it keep their credentials."""
        if not desk().withdraw(claim_id):
            raise Problem(
                404,
                "no_such_claim",
                f"no code {claim_id!r} is good (any more): it was used up, ended or taken back",
            )

    return routes


def enrolment(services: Services) -> APIRouter:
    """Makes the routes without a key: a claim code is the proof, and the authority is public."""
    routes = APIRouter(tags=["credentials"])

    @routes.post("/v1/enrol", responses=problems(403, 404, 409, 422))
    async def enrol(asked: Enrolment) -> GivenAll:
        """Issue a password, or a certificate, to a device that has a claim code."""
        if services.credentials is None:
            raise Problem(404, "no_credentials", "this server gives devices no passwords")
        with _as_problems():
            devices = services.tables.devices
            made = services.credentials.enrol(
                asked.code, asked.device, lambda n: n in devices, asked.request
            )
        return _given(services, [made])

    @routes.get(
        "/v1/authority",
        responses={200: {"content": {PEM: {}}, "description": "PEM"}, **problems(404)},
        response_class=Response,
    )
    async def authority() -> Response:
        """Return the certificate of this installation's authority."""
        found = None if services.credentials is None else services.credentials.authority
        if found is None:
            raise Problem(
                404,
                "no_authority",
                "this server signs no certificates: authority_dir of ops.toml is not set",
            )
        return Response(found.pem, media_type=PEM)

    return routes


def _given(services: Services, made: list[Credential]) -> GivenAll:
    is_certified = any(one.certificate for one in made)
    broker = services.certificate_broker if is_certified else services.broker
    host, _, port = broker.rpartition(":")
    found = None if services.credentials is None else services.credentials.authority
    return GivenAll(
        items=[
            Given(
                device=one.device,
                password=one.password or None,
                certificate=one.certificate or None,
                until=one.until_ms or None,
            )
            for one in made
        ],
        broker=Broker(host=host, port=int(port)) if host else None,
        http=None if is_certified else services.http_intake or None,
        authority=None if found is None else found.pem,
    )


@contextmanager
def _as_problems() -> Iterator[None]:
    try:
        yield
    except BadName as error:
        raise Problem(422, "device_name", str(error)) from error
    except Unclaimed as error:
        raise Problem(403, "claim", str(error)) from error
    except BadRequest as error:
        raise Problem(422, "signing_request", str(error)) from error
    except NoAuthority as error:
        raise Problem(409, "no_authority", str(error)) from error
    except (Taken, TooMany) as error:
        raise Problem(409, "taken" if isinstance(error, Taken) else "full", str(error)) from error
