"""What a person who logged in may read: its groups' roles, with its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.desk import Desk
from edgewake.cloud.login.session import Session, roles_of
from edgewake.cloud.login.wiring import desk_of
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.principal import Grant, Principal, Proof, name_of, widest
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.rights.roles import NoRights, Roles
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.ops.proof import Kind

SHOWN_MAX: Final = 10
"""Groups that are told to who has no right."""


@dataclass(frozen=True, slots=True)
class People:
    """Those who log in, and what they may read."""

    desk: Desk
    reader: Callable[[Session], Principal]
    """Raises NoRights."""


def people_of(config: LoginConfig | None, rights: Rights, clock: Clock) -> People | None:
    """None where nobody can log in. Who logs out ends what is open by `rights`.

    Raises ConfigError.
    """
    desk = desk_of(config, clock)
    if config is None or desk is None:
        return None
    desk.on_end.append(rights.log_out)
    reader, roles = readers(config, rights.config), Roles(rights.config)
    rights.grants_of_login = lambda kept: _grants(config, roles, kept)
    return People(desk, reader)


def readers(config: LoginConfig, rights: RightsConfig) -> Callable[[Session], Principal]:
    """Return a function that gives a session its principal; it raises NoRights.

    Raises ConfigError where the roles of groups are not among those of `rights`, or need claims
    that are not kept.
    """
    roles = Roles(rights)
    for group, role in config.groups.items():
        if role not in roles:
            raise ConfigError(
                f"login.groups: {group!r} = {role!r}: unknown role; expected one of rights.roles"
            )
        missing = sorted(roles.claims(role) - set(config.claims))
        if missing:
            raise ConfigError(
                f"login.claims: the role {role!r} needs {missing[0]!r}: expected it to be named"
            )
    return lambda session: _principal(config, roles, session)


def _principal(config: LoginConfig, roles: Roles, session: Session) -> Principal:
    held = roles_of(config, session.groups)
    if not held:
        shown = ", ".join(session.groups[:SHOWN_MAX]) or "none"
        raise NoRights(
            f"you are logged in as {session.name}, and none of your groups ({shown}) may read here"
        )
    kept = {
        "groups": [group for group in session.groups if group in config.groups],
        "claims": session.claims,
    }
    digest = sha256(f"{session.id}\0{session.fresh_until}".encode()).digest()
    return Principal(
        name_of(config.issuer, session.subject),
        _grants(config, roles, kept),
        Proof(
            Kind.LOGIN,
            digest,
            issuer=config.issuer,
            subject=session.subject,
            token_id=session.id,
        ),
        widest([roles.limits(role) for role in held]),
        session.fresh_until,
        kept,
    )


def _grants(config: LoginConfig, roles: Roles, kept: Mapping[str, Any]) -> tuple[Grant, ...]:
    """What is allowed by groups and claims. Raises NoRights."""
    grants: tuple[Grant, ...] = ()
    for role in roles_of(config, kept["groups"]):
        grants += roles.grants(role, kept["claims"])
    return grants
