"""What a person who logged in may read: its groups' roles, with its claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.desk import Desk
from edgewake.cloud.login.session import Session, roles_of
from edgewake.cloud.login.wiring import desk_of
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.principal import Grant, Limits, Principal, Proof
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.rights.roles import NoRights, Roles
from edgewake.cloud.rights.tokens import NAME_CHARS_MAX
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
    return People(desk, readers(config, rights.config))


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
    grants: tuple[Grant, ...] = ()
    for role in held:
        grants += roles.grants(role, session.claims)
    digest = sha256(f"{session.id}\0{session.fresh_until}".encode()).digest()
    return Principal(
        f"{config.issuer}#{session.subject}"[:NAME_CHARS_MAX],
        grants,
        Proof(
            Kind.LOGIN,
            digest,
            issuer=config.issuer,
            subject=session.subject,
            token_id=session.id,
        ),
        _widest([roles.limits(role) for role in held]),
        session.fresh_until,
    )


def _widest(limits: list[Limits]) -> Limits:
    """For each limit the most that one of several roles allows."""
    streams = [one.streams for one in limits if one.streams is not None]
    leases = [one.leases for one in limits if one.leases is not None]
    return Limits(
        max(streams) if len(streams) == len(limits) else None,
        max(leases) if len(leases) == len(limits) else None,
        max(one.lease_s for one in limits),
    )
