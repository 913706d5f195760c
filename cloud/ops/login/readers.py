"""Principals of `[rights]` at the operations API: the keys and tokens that access servers know.

Who has the action `operate` or `view` has the role of that name here; who has other grants is shown
what they reach, narrowed by each route.
"""

from __future__ import annotations

from edgewake.cloud.ops.login.keys import Holder, Role
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.cloud.rights.reader_door import ReaderDoor
from edgewake.cloud.rights.rights import End, Rights
from edgewake.cloud.rights.shown_keys import ShownKeys
from edgewake.cloud.rights.tokens import Lapsed, Refused, UnknownKey
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.ops.proof import Kind


class Readers:
    """Knows the principals. `rights.run` must run."""

    def __init__(self, rights: Rights, clock: Clock, shown: ShownKeys) -> None:
        """`shown`: what the door of the operations API's own keys counts."""
        self.rights = rights
        self._door = ReaderDoor(rights, clock, shown)

    async def find(self, credential: bytes, client: str) -> Holder | None:
        """The holder of a key or token that a client shows; None: nobody.

        Raises Problem where it showed too many wrong ones, and where what it shows is good no more.
        """
        try:
            return holder_of(await self._door.find(credential, client))
        except (Lapsed, UnknownKey) as error:
            raise _refused("key_refused", str(error)) from error
        except Refused:
            return None
        except Unavailable as error:
            raise Problem(503, "unavailable", str(error), headers={"Retry-After": "2"}) from error

    def ended(self, holder: Holder) -> Problem | None:
        """Why its right holds no longer; None while it does."""
        why = None if holder.principal is None else self.rights.end_of(holder.principal)
        return None if why is None else ended(why)


def holder_of(principal: Principal) -> Holder:
    """Who a principal is here.

    A reader's key may have the name of a key of the operations API; the audit log tells them apart.
    """
    is_key = principal.proof.kind is Kind.KEY
    name = f"{principal.name} (reader)" if is_key else principal.name
    return Holder(name, role_of(principal), principal.proof.digest, principal)


def role_of(principal: Principal) -> Role:
    """The role that its grants make."""
    if principal.holds(Action.OPERATE):
        return Role.OPERATE
    return Role.READ if principal.holds(Action.VIEW) else Role.GRANTS


def ended(why: End) -> Problem:
    """The right holds no longer."""
    return _refused(f"key_{why}", f"this key or token is {why}: come again with a new one")


def _refused(code: str, detail: str) -> Problem:
    return Problem(401, code, detail, headers={"WWW-Authenticate": "Bearer"})
