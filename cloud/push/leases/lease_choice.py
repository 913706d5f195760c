"""What a lease counts: streams, or those of a publication as it was when the lease was asked for.

A lease is counted by one condition, which an index finds, so a publication's own condition stands
in it, beside that of the right. Where the publication is changed the lease ends as by a right that
shows less (`edgewake.cloud.push.waking.lease_manager`), and its client asks for another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewake.cloud.push.leases import lease_rights
from edgewake.cloud.rights.principal import Principal
from edgewake.protocol.leases.lease import Subscription


@dataclass(frozen=True, slots=True)
class LeaseChoice:
    """A checked subscription with what is stored beside it."""

    wanted: Subscription
    """With the streams of its publication."""
    condition: str | None
    """What must hold beside the client's own filter."""
    right: str
    checked_as: Principal
    """Who must have a right to the streams, and the sets of the condition: through a publication
    nobody."""

    @property
    def counted(self) -> Subscription:
        """With the condition in its filter."""
        where = lease_rights.counted(self.wanted.where, self.condition)
        return self.wanted.model_copy(update={"where": where})
