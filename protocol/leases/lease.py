"""What a client asks of the push proxy: a lease with its subscription, endpoint and wake policy.

How a lease is stored is `edgewake.protocol.leases.lease_record`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from edgewake.protocol.leases.chosen import Chosen
from edgewake.protocol.leases.endpoint_kind import EndpointKind
from edgewake.protocol.names import STREAMS_PER_SUBSCRIPTION_MAX

KEEP_OLD_S: Final = 86_400
"""Seconds for which an old secret signs beside the new one: a day to bring it to all receivers."""
KeepOldS: TypeAlias = Annotated[int, Field(ge=0, le=30 * 86_400)]


class Subscription(BaseModel):
    """Which events a client wants: what the query string of the SSE endpoint says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    streams: Annotated[
        tuple[str, ...], Field(min_length=1, max_length=STREAMS_PER_SUBSCRIPTION_MAX)
    ]
    where: str | None = None
    select: str | None = None


class Webhook(BaseModel):
    """Where to wake the client: Standard Webhooks (standardwebhooks.com), signed with `secret`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["webhook"] = "webhook"
    url: AnyHttpUrl
    kind: EndpointKind = EndpointKind.WEBHOOK
    headers: dict[str, str] | None = None
    """Headers of yours for each call, e.g. Authorization: at most 8, 2 KB together, never shown.
    Where they are missing in a PATCH they stay, as long as `url` does."""
    secret: str | None = None
    """whsec_… with 24 to 64 bytes; made by the proxy and returned once where it is missing."""
    keep_old_s: KeepOldS = KEEP_OLD_S
    """Seconds for which wake-ups are also signed with the old secret, when a PATCH has a new
    one."""


class Relay(BaseModel):
    """The proxy itself, for a client that nobody can call: it asks for its wake-ups."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["relay"]
    secret: str | None = None
    """As of a webhook: wake-ups are signed, so that a program beside the client may pass them
    on."""
    keep_old_s: KeepOldS = KEEP_OLD_S


def _type_of(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("type", "webhook"))
    return str(getattr(value, "type", "webhook"))


LeaseEndpoint: TypeAlias = Annotated[
    Annotated[Webhook, Tag("webhook")] | Annotated[Relay, Tag("relay")],
    Discriminator(
        _type_of,
        custom_error_type="endpoint_type",
        custom_error_message="expected an endpoint of type webhook or relay",
    ),
]
"""Without a `type` it is a webhook."""


class Urgency(StrEnum):
    """The urgency of a wake-up (RFC 8030, 5.3).

    `high` is sent in quiet hours too, `low` is repeated less often.
    """

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class QuietHours(BaseModel):
    """A daily time without wake-ups, [start, end) on the wall clock of a time zone.

    It may pass midnight.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", examples=["22:00"])]
    end: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", examples=["07:00"])]
    timezone: Annotated[str, Field(max_length=64, examples=["Europe/Berlin"])] = "UTC"
    """A name of the IANA time zone database."""

    @field_validator("timezone")
    @classmethod
    def _is_a_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, KeyError, OSError) as error:  # the name is looked up as a file
            raise ValueError(f"{name!r}: expected a time zone such as Europe/Berlin") from error
        return name

    @model_validator(mode="after")
    def _is_not_always(self) -> QuietHours:
        if self.start == self.end:
            raise ValueError("start and end are the same: expected a quiet time that ends")
        return self


class WakePolicy(BaseModel):
    """When to wake. A wake-up is a hint: the truth stays in the cursor."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_events: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Wake the client when this many events wait."""
    max_wait_s: Annotated[float, Field(ge=0, le=86_400)] = 0
    """Wake for fewer events when the oldest waited so long; 0: wait for min_events whatever it
    takes when min_events > 1."""
    min_interval_s: Annotated[float, Field(ge=0, le=86_400)] = 5
    """The shortest time between two wake-ups, s."""
    urgency: Urgency = Urgency.NORMAL
    """The urgency of its wake-ups, which is sent with each."""
    quiet: QuietHours | None = None
    """Hours without wake-ups, unless `urgency` is high; what came meanwhile wakes the client at
    their end."""
    preview_events: Annotated[int, Field(ge=0, le=10)] = 1
    """Events put into the wake-up, as far as 3 KB go."""


TTL_S: Final = (60, 30 * 86_400)
"""The shortest and longest life of a lease that is not renewed, s."""
TTL_DEFAULT_S: Final = 7 * 86_400
"""The default retention of streams: what a client slept through for longer is gone."""


class LeaseRequest(BaseModel):
    """Body of POST /v1/leases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subscription: Chosen
    cursor: str
    endpoint: LeaseEndpoint
    wake: WakePolicy = WakePolicy()
    ttl_s: Annotated[int, Field(ge=TTL_S[0], le=TTL_S[1])] = TTL_DEFAULT_S
    """Life of the lease in seconds; each PATCH starts it again, at its end the lease is dropped."""


class LeaseChange(BaseModel):
    """Body of PATCH /v1/leases/{id}: what is left out stays, and the lease's life starts again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cursor: str | None = None
    """The cursor that the client goes on with: earlier counts are dropped, and a wake-up that was
    due for them is not sent."""
    endpoint: LeaseEndpoint | None = None
    wake: WakePolicy | None = None
    ttl_s: Annotated[int, Field(ge=TTL_S[0], le=TTL_S[1])] | None = None
    enabled: Literal[True] | None = None
    """Call the endpoint again after it was given up; a new endpoint does that too."""
