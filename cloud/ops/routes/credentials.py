"""Routes about what devices prove themselves with at the MQTT broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import APIRouter
from pydantic import BaseModel, Field, StringConstraints

from edgewake.cloud.ops.credentials.claims import Unclaimed
from edgewake.cloud.ops.credentials.desk import Credential, CredentialDesk, Taken, TooMany
from edgewake.cloud.ops.credentials.passwords import BadName
from edgewake.cloud.ops.routes.shared import DeviceName, Services
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems

NAMES_MAX: Final = 1_000
"""Devices of one request."""
LIFE_MAX_S: Final = 30 * 86_400.0
"""Seconds that a claim code may be good for."""
Text = Annotated[str, StringConstraints(max_length=64)]


class Wanted(BaseModel):
    """Devices that are to have a password."""

    devices: list[Text] = Field(min_length=1, max_length=NAMES_MAX)
    replace: bool = False
    """Also those that have one already: a new one, and the old one is worth nothing then."""


class Given(BaseModel):
    """A device's password; it is shown this once."""

    device: str
    password: str


class Broker(BaseModel):
    """Where devices send to; empty where nobody said it."""

    host: str
    port: int


class GivenAll(BaseModel):
    """Passwords, and where to send with them."""

    items: list[Given]
    broker: Broker | None


class Holders(BaseModel):
    """Who has a password."""

    devices: list[str]


class ClaimWanted(BaseModel):
    """A code by which devices come in by themselves."""

    count: int = Field(default=1, ge=1, le=10_000)
    """For so many devices."""
    life_s: float = Field(default=86_400, gt=0, le=LIFE_MAX_S)
    prefix: Text = ""
    """How their names begin."""


class ClaimGiven(BaseModel):
    """A claim code; it is shown this once."""

    code: str
    count: int
    until: int
    """ms"""


class Enrolment(BaseModel):
    """What a device with a code asks."""

    code: Text
    device: Text


def router(services: Services) -> APIRouter:
    """Give passwords, take them back; let devices in that have a code."""
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
        """A password for each device, all or none."""
        with _as_problems():
            made = desk().add(wanted.devices, replace=wanted.replace)
        return _given(services, made)

    @routes.get("/v1/credentials", responses=problems(409))
    async def holders() -> Holders:
        """Who has one."""
        return Holders(devices=desk().devices)

    @routes.delete("/v1/credentials/{device}", status_code=204, responses=problems(404, 409))
    async def revoke(device: DeviceName) -> None:
        """Take a password back: the broker ends the device's connection within seconds."""
        if not desk().revoke(device):
            raise Problem(404, "no_such_credential", f"device {device!r} has no password")

    @routes.post("/v1/claims", responses=problems(409, 422))
    async def claim(wanted: ClaimWanted) -> ClaimGiven:
        """A code by which devices get a password by themselves (`POST /v1/enrol`)."""
        with _as_problems():
            code, made = desk().offer(
                count=wanted.count, life_s=wanted.life_s, prefix=wanted.prefix
            )
        return ClaimGiven(code=code, count=made.left, until=made.until)

    return routes


def enrolment(services: Services) -> APIRouter:
    """The one route that needs no key: its code is proof enough."""
    routes = APIRouter(tags=["credentials"])

    @routes.post("/v1/enrol", responses=problems(403, 404, 409, 422))
    async def enrol(asked: Enrolment) -> GivenAll:
        """A password for a device that has a claim code."""
        if services.credentials is None:
            raise Problem(404, "no_credentials", "this server gives devices no passwords")
        with _as_problems():
            devices = services.tables.devices
            made = services.credentials.enrol(asked.code, asked.device, lambda n: n in devices)
        return _given(services, [made])

    return routes


def _given(services: Services, made: list[Credential]) -> GivenAll:
    host, _, port = services.broker.rpartition(":")
    return GivenAll(
        items=[Given(device=one.device, password=one.password) for one in made],
        broker=Broker(host=host, port=int(port)) if host else None,
    )


@contextmanager
def _as_problems() -> Iterator[None]:
    try:
        yield
    except BadName as error:
        raise Problem(422, "device_name", str(error)) from error
    except Unclaimed as error:
        raise Problem(403, "claim", str(error)) from error
    except (Taken, TooMany) as error:
        raise Problem(409, "taken" if isinstance(error, Taken) else "full", str(error)) from error
