"""What a client asks of webhook deliveries: every event of a stream, sent to its endpoint.

How a delivery is stored is `edgewake.protocol.leases.delivery_record`.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field

from edgewake.protocol.leases.chosen import Chosen
from edgewake.protocol.leases.endpoint_kind import EndpointKind
from edgewake.protocol.leases.lease import KEEP_OLD_S, KeepOldS

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
EVENTS_MAX: Final = 500
"""The bounds of the events of one call."""
WAIT_S_MAX: Final = 60.0


class DeliveryRequest(Chosen):
    """Body of PUT /v1/deliveries/{name}."""

    after: str | None = None
    """The cursor to begin behind, of whatever protocol; an existing delivery is moved there."""
    start: Annotated[str | int | None, Field(alias="from")] = None
    """Where to begin without `after`: latest (default), earliest, or a time; an existing delivery
    goes on where it is."""
    on_gap: Annotated[str, Field(pattern="^(earliest|latest)$")] = "earliest"
    """Where to go on when events are not kept any more; the gap itself is delivered, too."""
    url: AnyHttpUrl
    """The address that is called."""
    kind: EndpointKind = EndpointKind.WEBHOOK
    headers: dict[str, str] | None = None
    """Headers of yours for each call, e.g. Authorization: at most 8, 2 KB together, never shown.
    Where they are missing they stay, as long as `url` does."""
    secret: str | None = None
    """The secret, whsec_… with 24 to 64 bytes; one is made and shown once if it is missing and
    there was none."""
    events_max: Annotated[int, Field(ge=1, le=EVENTS_MAX)] = 100
    """The most events of one call."""
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.5
    """Seconds that an event may wait for others to be sent with it."""
    max_rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Events a second at most: the others wait in Kafka, and none is left out."""


class SecretChange(BaseModel):
    """Body of POST /v1/deliveries/{name}/secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret: str | None = None
    """The new secret; one is made and shown once if it is missing."""
    keep_old_s: KeepOldS = KEEP_OLD_S
    """Seconds for which calls are signed with the old one, too."""
