"""A lease: a sleeping client's subscription and cursor, held by the push proxy (`ew.leases`, key: lease id)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, field_validator, model_validator

STREAMS_PER_SUBSCRIPTION_MAX = 16
"""Streams in one subscription; each adds positions to the cursor. More: 422."""


class Subscription(BaseModel):
    """Which events a client wants: what the query string of the SSE endpoint says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    streams: Annotated[tuple[str, ...], Field(min_length=1, max_length=STREAMS_PER_SUBSCRIPTION_MAX)]
    where: str | None = None
    select: str | None = None


class Webhook(BaseModel):
    """Where to wake the client: Standard Webhooks (standardwebhooks.com), signed with `secret`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["webhook"] = "webhook"
    url: AnyHttpUrl
    secret: str | None = None
    """whsec_… with 24 to 64 bytes; made by the proxy and returned once where it is missing."""


class Urgency(StrEnum):
    """How much a wake-up matters (RFC 8030, 5.3): `high` is sent in quiet hours too, `low` is repeated less often."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class QuietHours(BaseModel):
    """A daily time without wake-ups, [start, end) on the wall clock of a time zone; it may pass midnight."""

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
    """Wake when so many events wait."""
    max_wait_s: Annotated[float, Field(ge=0, le=86_400)] = 0
    """Wake for fewer events when the oldest waited so long; 0: wait for min_events whatever it takes when min_events > 1."""
    min_interval_s: Annotated[float, Field(ge=0, le=86_400)] = 5
    """Least time between two wake-ups."""
    urgency: Urgency = Urgency.NORMAL
    """How much a wake-up matters; it is sent with the wake-up."""
    quiet: QuietHours | None = None
    """When nobody is to be woken, unless `urgency` is high; what came meanwhile wakes at its end."""
    preview_events: Annotated[int, Field(ge=0, le=10)] = 1
    """Events put into the wake-up, as far as 3 KB go."""


class LeaseRequest(BaseModel):
    """Body of POST /v1/leases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subscription: Subscription
    cursor: str
    endpoint: Webhook
    wake: WakePolicy = WakePolicy()
    ttl_s: Annotated[int, Field(ge=60, le=2_592_000)] = 604_800
    """Life of the lease; at its end it is dropped and said in the metrics. Default 7 days, the default retention of streams."""


class PendingWake(BaseModel):
    """A wake-up fixed before its first attempt, so that every attempt, by whichever proxy, has the same id and the same bytes."""

    model_config = ConfigDict(frozen=True)

    number: int
    """1 for the lease's first wake-up; the webhook-id is made of lease id and number."""
    body: str
    """The JSON that is signed and sent, at most 3 KB."""
    to: str
    """Cursor after the last event that it counts."""
    count: int
    """Events between the client's cursor and `to`."""
    capped: bool = False
    """There are more than `count`."""
    made_at: int


class Lease(BaseModel):
    """A lease as it is kept. The cursor moves on only after the wake-up that covers it was taken by the endpoint."""

    model_config = ConfigDict(frozen=True)

    id: str
    token_hash: str
    """SHA-256 of the bearer token that may read or end the lease."""
    request: LeaseRequest
    secret: str
    created_at: int
    expires_at: int
    wakes: int = 0
    last_wake_at: int | None = None
    failures: int = 0
    """Failed wake-ups in a row."""
    failing_since: int | None = None
    """When the first of them failed; None: none did."""
    disabled: str | None = None
    """Why the endpoint is not tried any more (410, too many failures); None while it is."""
    woken_to: str | None = None
    """Cursor up to which the client was told; None before the first wake-up."""
    waiting: int = 0
    """Events between the client's cursor and `woken_to`."""
    waiting_capped: bool = False
    """There are more than `waiting`."""
    pending: PendingWake | None = None
    """The wake-up that is being tried; None between wake-ups."""
    retry_at: int | None = None
    """When `pending` is tried again, ms since 1970 UTC; None: now."""
