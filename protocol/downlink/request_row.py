"""A row of `ew.requests`: a device's request as the operations API knows it.

See `edgewake.protocol.downlink.request`.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from edgewake.protocol.downlink.down_message import Reply
from edgewake.protocol.downlink.downlink import REQUEST_ID_PATTERN

REPLY_LIFE_MS: Final = 7 * 86_400_000
"""How long the cloud tries to deliver a reply to its device. A device that sleeps longer does not
get it."""


class RequestRow(BaseModel):
    """A row of `ew.requests`, key `<device>|<id>`: a request and what became of it."""

    model_config = ConfigDict(frozen=True)

    device: str
    id: Annotated[str, Field(pattern=REQUEST_ID_PATTERN)]
    via: str = ""
    """The gateway that the request came by, and that the reply goes to, of a thing behind one."""
    name: str
    body: str
    received_at: int
    """When a bridge had it, ms since 1970 UTC."""
    expires_at: int
    """A reply is worth something until then, by the cloud's clock."""
    partition: int
    """Where it stands on the stream's topic, with `offset` and `place`: what stands before has been
    taken, and is not taken again."""
    offset: int
    place: int = 0
    """In its record, from 0."""
    reply: Reply | None = None
    replied_at: int | None = None
    replied_by: str = ""
    """Name of the key that it was answered with; empty: the cloud said it itself."""
    delivered_at: int | None = None
    """When the device said that it has the reply."""

    @property
    def position(self) -> tuple[int, int]:
        """On its partition."""
        return self.offset, self.place

    @property
    def is_open(self) -> bool:
        """Does it wait for its reply?"""
        return self.reply is None

    def is_settled_at(self, now_ms: int) -> bool:
        """Is nothing to be done about it any more?"""
        return self.delivered_at is not None or (
            self.replied_at is not None and now_ms >= self.replied_at + REPLY_LIFE_MS
        )
