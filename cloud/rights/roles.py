"""Roles become grants: what stands in the configuration, with the claims of who asks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from edgewake.cloud.rights.config import (
    CLAIM,
    DEVICE_CLAIM,
    EVERYTHING,
    GrantConfig,
    RightsConfig,
    names,
)
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import ALL, LIMITS, Action, Grant, Limits
from edgewake.protocol.names import is_device

CLAIM_VALUES_MAX: Final = 10_000
"""Devices that a claim may name."""


class NoRights(Exception):
    """It cannot be told what somebody may do; `str` says why."""


class Roles:
    """The roles of one configuration."""

    def __init__(self, config: RightsConfig) -> None:
        self._roles = config.roles
        self._of_devices = [(Names.of(rule.devices), rule.role) for rule in config.devices]

    def __contains__(self, name: object) -> bool:
        return name == EVERYTHING or name in self._roles

    def claims(self, name: str) -> frozenset[str]:
        """The claims that a role needs."""
        if name == EVERYTHING:
            return frozenset()
        return frozenset().union(*(grant.claims() for grant in self._roles[name].grants))

    def limits(self, name: str) -> Limits:
        """Return a role's limits."""
        role = self._roles.get(name)
        if role is None:
            return Limits()
        return Limits(**{key: getattr(role, key) for key in LIMITS}, lease_s=role.lease_s)

    def grants(self, name: str, claims: Mapping[str, object]) -> tuple[Grant, ...]:
        """Return a role's grants, for who has these claims. Raises NoRights."""
        if name == EVERYTHING:
            return (ALL,)
        return tuple(granted(grant, claims) for grant in self._roles[name].grants)

    def grants_of_device(self, device: str) -> tuple[Grant, ...]:
        """What a device may follow: it reads, whatever else its roles allow."""
        return tuple(
            replace(grant, actions=frozenset({Action.READ}))
            for devices, role in self._of_devices
            if device in devices
            for grant in self.grants(role, {DEVICE_CLAIM: device})
            if Action.READ in grant.actions
        )


def granted(config: GrantConfig, claims: Mapping[str, object]) -> Grant:
    """The grant that a configuration makes of claims. Raises NoRights."""
    devices = config.devices
    if devices is not None and any(text.startswith(CLAIM) for text in devices):
        exact: set[str] = set()
        for claim in config.claims():
            exact |= _devices(claim, claims.get(claim))
        devices = (*(text for text in devices if not text.startswith(CLAIM)), *exact)
    return Grant(
        frozenset(config.actions),
        Names.of(config.streams),
        names(devices),
        names(config.fields),
        Names.of(config.publications),
        Names.of(config.sets),
    )


def _devices(claim: str, value: object) -> set[str]:
    """Return the devices that a claim names: one, or a list. A pattern is not a device."""
    values: Sequence[object] = [value] if isinstance(value, str) else ()
    if isinstance(value, list | tuple):
        values = value
    found = {one for one in values if isinstance(one, str) and is_device(one)}
    if not values or len(found) < len(set(map(str, values))) or len(found) > CLAIM_VALUES_MAX:
        raise NoRights(
            f"claim {claim!r}: expected the name of a device, or a list of up to "
            f"{CLAIM_VALUES_MAX} of them"
        )
    return found
