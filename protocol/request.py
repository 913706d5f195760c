"""What a device asks the cloud for, and what it is told: request and reply, hours apart if need be.

A request is a reading of the stream `device_requests`, so it is kept on the device until the cloud has it, and comes once:

    {"t":…,"id":"r-17","name":"route","body":"to the depot","expires_s":86400}

`id` is chosen by whoever asks, another one for each request of a device; the same again is the same request. `name` says what is asked,
`body` is text of any kind (JSON usually), `expires_s` for how long a reply is worth something, from when a bridge received it.

The reply is a message `down/reply` of the downlink, and on the device one reading of the stream `ew_replies`, which never leaves it:

    {"t":…,"id":"r-17","state":"answered","body":"12.4 km","detail":""}

Each request gets one reply, also where nobody serves it or nobody answers in time: the cloud then says so itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from edgewake.protocol.down_message import Reply
from edgewake.protocol.downlink import BODY_CHARS_MAX, EXPIRES_S_MAX, REQUEST_FIELDS, REQUEST_ID_PATTERN
from edgewake.protocol.names import FIELD_PATTERN

EXPIRES_S: Final = 86_400
"""For how long a reply is worth something where the request does not say."""
REPLY_LIFE_MS: Final = 7 * 86_400_000
"""How long the cloud tries to bring a reply to its device. A device that sleeps longer does not get it."""
OPEN_MAX: Final = 100
"""Requests of one device that wait for their reply. One more is refused."""
ENDED_MAX: Final = 100
"""Requests of one device that have their reply and are remembered; the oldest go. Asked again under the same id, such a one is new."""

RequestId = Annotated[str, Field(pattern=REQUEST_ID_PATTERN)]


class Request(BaseModel):
    """One request, as a device's reading says it."""

    model_config = ConfigDict(frozen=True)

    id: RequestId
    name: Annotated[str, Field(pattern=f"^{FIELD_PATTERN.pattern}$")]
    body: Annotated[str, Field(max_length=BODY_CHARS_MAX)] = ""
    expires_s: Annotated[int, Field(ge=1, le=EXPIRES_S_MAX)] = EXPIRES_S


def request_of(fields: Mapping[str, Any]) -> Request:
    """A request from a reading's fields, others beside them. Raises ValueError (pydantic's)."""
    return Request.model_validate({name: fields[name] for name in REQUEST_FIELDS if fields.get(name) is not None})


class RequestRow(BaseModel):
    """A row of `ew.requests`, key `<device>|<id>`: a request that the cloud took, and what became of it."""

    model_config = ConfigDict(frozen=True)

    device: str
    id: RequestId
    name: str
    body: str
    received_at: int
    """When a bridge had it, ms since 1970 UTC."""
    expires_at: int
    """A reply is worth something until then, by the cloud's clock."""
    partition: int
    """Where it stands on the stream's topic, with `offset` and `place`: what stands before has been taken, and is not taken again."""
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
        return self.delivered_at is not None or (self.replied_at is not None and now_ms >= self.replied_at + REPLY_LIFE_MS)
