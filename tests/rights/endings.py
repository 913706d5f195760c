"""Files of rights, and what is told when a right ends."""

from __future__ import annotations

from edgewake.cloud.rights.config import (
    GrantConfig,
    IssuerConfig,
    RoleConfig,
)
from edgewake.cloud.rights.principal import Principal
from edgewake.cloud.rights.rights import End, Rights
from tests.rights.forge import AUDIENCE, ISSUER

ROLES = {
    "cars": RoleConfig(grants=(GrantConfig(streams=("s",), devices=("$device",)),)),
    "guest": RoleConfig(grants=(GrantConfig(streams=("weather_*",)),)),
}

KEYS = """
# who reads
board   everything  everything-key-0001
anna    cars        annas-own-key-000002  car-7 car-8   # two cars
"""


def issuer(**more: object) -> IssuerConfig:
    return IssuerConfig.model_validate(
        {"issuer": ISSUER, "audience": AUDIENCE, "role": "guest"} | more
    )


class Ended:
    """What watches were told."""

    def __init__(self, rights: Rights) -> None:
        self.rights = rights
        self.said: list[tuple[str, End]] = []

    def watch(self, principal: Principal) -> None:
        self.rights.watch(principal, lambda why: self.said.append((principal.name, why)))

    def look(self) -> list[tuple[str, End]]:
        self.said.clear()
        self.rights.look()
        return self.said
