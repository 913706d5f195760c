"""What a person who logged in at an identity provider may do with the operations API."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from edgewake.cloud.login.desk import Desk
from edgewake.cloud.login.door import STATE
from edgewake.cloud.login.session import Session, roles_of
from edgewake.cloud.ops.login.keys import Holder, Role
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.errors import ConfigError

SHOWN_MAX = 10
"""Groups that are told to who has no right."""


@dataclass(frozen=True, slots=True)
class People:
    """Gives a session its holder."""

    desk: Desk

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        for group, role in self.desk.config.groups.items():
            if role not in set[str](Role):
                raise ConfigError(
                    f"login.groups: {group!r} = {role!r}: expected read or operate: these are the "
                    "roles of the operations API"
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
        role = Role.OPERATE if Role.OPERATE in roles else Role.READ
        return Holder(name, role, sha256(session.id.encode()).digest())

    def holds(self, session: Session) -> bool:
        """Does it still hold?"""
        return self.desk.holds(session)
