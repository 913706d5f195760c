"""What a person who logged in at an identity provider may do with the operations API.

A group has the role `read` or `operate`, or one of `[rights.roles]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from edgewake.cloud.login.desk import Desk, Over
from edgewake.cloud.login.door import STATE
from edgewake.cloud.login.session import Session, roles_of
from edgewake.cloud.ops.login.keys import KEY_ROLES, Holder, Role
from edgewake.cloud.ops.login.readers import role_of
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.principal import Grant, Limits, Principal, Proof, name_of, widest
from edgewake.cloud.rights.roles import NoRights, Roles
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.errors import ConfigError, Unavailable
from edgewake.protocol.ops.proof import Kind

SHOWN_MAX = 10
"""Groups that are told to who has no right."""


@dataclass(frozen=True, slots=True)
class People:
    """Gives a session its holder."""

    desk: Desk
    roles: Roles = field(default_factory=lambda: Roles(RightsConfig()))
    """The roles of `[rights]`."""

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        config = self.desk.config
        for group, role in config.groups.items():
            if role in KEY_ROLES:
                continue
            if role not in self.roles:
                raise ConfigError(
                    f"login.groups: {group!r} = {role!r}: expected read or operate: these are the "
                    "roles of the operations API; or one of rights.roles"
                )
            missing = sorted(self.roles.claims(role) - set(config.claims))
            if missing:
                raise ConfigError(
                    f"login.claims: the role {role!r} needs {missing[0]!r}: expected it to be named"
                )

    def session_of(self, state: dict[str, Any]) -> Session | None:
        """The session that a request brings. Raises Problem where its cookie proves nothing."""
        found = state.get(STATE)
        if isinstance(found, Problem):
            raise found
        return found if isinstance(found, Session) else None

    def holder(self, session: Session) -> Holder:
        """Who it is here. Raises Problem."""
        roles = roles_of(self.desk.config, session.groups)
        if not roles:
            shown = ", ".join(session.groups[:SHOWN_MAX]) or "none"
            raise Problem(
                403,
                "no_right",
                f"you are logged in as {session.name}, and none of your groups ({shown}) gives a "
                "right here",
            )
        # The name alone is what people call themselves; the subject is theirs for ever.
        name = session.name
        if session.subject != name:
            name += f" ({session.subject})"
        own = [role for role in roles if role not in KEY_ROLES]
        # A role of the operations API has no limits, and the widest counts.
        limits = (
            widest([self.roles.limits(role) for role in own])
            if len(own) == len(roles)
            else Limits()
        )
        principal = self._principal(session, own, limits)
        found = {Role(role) for role in roles if role in KEY_ROLES} | {role_of(principal)}
        role = next(one for one in (Role.OPERATE, Role.READ, Role.GRANTS) if one in found)
        return Holder(name, role, sha256(session.id.encode()).digest(), principal)

    def _principal(self, session: Session, roles: list[str], limits: Limits) -> Principal:
        """Raises Problem."""
        issuer, subject = self.desk.config.issuer, session.subject
        grants: tuple[Grant, ...] = ()
        try:
            for role in roles:
                grants += self.roles.grants(role, session.claims)
        except NoRights as error:
            raise Problem(403, "no_right", str(error)) from error
        proof = Proof(Kind.LOGIN, issuer=issuer, subject=subject, token_id=session.id)
        return Principal(name_of(issuer, subject), grants, proof, limits)

    async def is_still(self, session: Session, holder: Holder) -> bool:
        """Is a session still this holder's, by the provider where it is due to be asked?"""
        try:
            return self.holder(await self.desk.renewed(session)) == holder
        except (Over, Unavailable, Problem):
            return False

    def holds(self, session: Session) -> bool:
        """Does it still hold?"""
        return self.desk.holds(session)
