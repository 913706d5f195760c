"""A delivery as it is stored: rows of `ew.leases`, on the partition of their owner.

So the proxy that has that partition delivers, and no other
(`edgewake.cloud.push.leases.lease_member`).

    delivery|<id>            a Delivery: where it is sent, how far it came, the batch in hand
    letter|<id>|<number>     a Letter: an event that its endpoint refused, kept for a replay

Addresses and secrets are sealed, so a reader of the topic can call nobody.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

import orjson

from edgewake.protocol.leases.endpoint_kind import EndpointKind
from edgewake.protocol.leases.lease_record import partition_of

DELIVERY: Final = "delivery|"
LETTER: Final = "letter|"


class DeliveryState(StrEnum):
    """The state of a delivery."""

    ACTIVE = "active"
    """It delivers, or retries its endpoint."""
    ENDED = "ended"
    """It has stopped: gone, given up, or its right ended; `why` says which. Its owner may enable
    it, and it goes on from its cursor."""


@dataclass(frozen=True, slots=True)
class Pending:
    """The pending batch, stored before its first attempt.

    Each attempt, by whichever server, has the same id and the same events.
    """

    number: int
    """1 for the first; the webhook-id is made of the delivery's id, this number and the events."""
    to: str
    """The cursor behind its last event; it begins at the delivery's own."""
    made_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A stored delivery. All times are ms since 1970 UTC."""

    id: str
    owner: str
    """A keyed hash of its owner's name; of an anonymous client's address."""
    name: str
    streams: tuple[str, ...]
    where: str | None = None
    select: str | None = None
    publication: str | None = None
    """The publication through which `streams` are read."""
    devices: tuple[str, ...] | None = None
    """These alone; None: all."""
    sample: float | None = None
    """A share of all things; None: all."""
    per: tuple[str, ...] = ()
    """Fields that tell what a thing is."""
    on_gap: str = "earliest"
    cursor: str
    """Everything before it was accepted by the endpoint, or is a letter."""
    endpoint_host: str
    sealed: str
    """Address and secrets."""
    kind: EndpointKind = EndpointKind.WEBHOOK
    old_secret_until: int | None = None
    """Until when a second secret signs, too."""
    events_max: int = 100
    wait_s: float = 0.5
    max_rate: float | None = None
    """Events a second at most; None: as fast as the endpoint takes them."""
    state: DeliveryState = DeliveryState.ACTIVE
    why: str | None = None
    """The reason why it ended."""
    pending: Pending | None = None
    batches: int = 0
    """The number of the latest batch."""
    events_at_once: int | None = None
    """The size of the next batch, after a larger one was refused; None: `events_max`."""
    failures: int = 0
    """Failed attempts in a row."""
    failing_since: int | None = None
    next_at: int | None = None
    """The time of the next attempt."""
    error: str = ""
    """The failure of the last attempt."""
    events: int = 0
    """Events that were delivered."""
    delivered_at: int | None = None
    tested_at: int | None = None
    """When an operator had its endpoint called without an event, last."""
    test_error: str = ""
    """What that call failed by; empty: it was taken."""
    right: str = ""
    """JSON: what its owner may see and by what it proved who it is; empty: everything, nothing."""
    created_at: int
    changed_at: int

    @property
    def partition(self) -> int:
        """The partition of `ew.leases` that it belongs to."""
        return partition_of(self.owner)

    @property
    def key(self) -> str:
        """Key of its row."""
        return DELIVERY + self.id

    def but(self, **changes: Any) -> Delivery:
        """Copy the delivery with some values changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Letter:
    """An event that its endpoint refused. Times are ms since 1970 UTC."""

    delivery: str
    number: int
    """The number of its batch: its webhook-id stays the same when it is replayed."""
    event: str
    """JSON."""
    cursor: str
    """The cursor behind the event."""
    error: str
    made_at: int
    tries: int = 0
    """Replays that failed."""

    @property
    def key(self) -> str:
        """Key of its row."""
        return f"{LETTER}{self.delivery}|{self.number}"


def encode(row: Delivery | Letter) -> bytes:
    """The record of a row."""
    return orjson.dumps(asdict(row))


def decode_delivery(record: bytes) -> Delivery:
    """Read a delivery; raises ValueError. Unknown values are passed over."""
    found = _known(record, Delivery)
    try:
        found["streams"] = tuple(found["streams"])
        found["per"] = tuple(found.get("per", ()))
        if found.get("devices") is not None:
            found["devices"] = tuple(found["devices"])
        found["kind"] = EndpointKind(found["kind"])
        found["state"] = DeliveryState(found["state"])
        if found.get("pending") is not None:
            found["pending"] = Pending(**found["pending"])
        return Delivery(**found)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a delivery: {error!r}") from error


def decode_letter(record: bytes) -> Letter:
    """Read a letter; raises ValueError."""
    try:
        return Letter(**_known(record, Letter))
    except TypeError as error:
        raise ValueError(f"not a letter: {error!r}") from error


def _known(record: bytes, kind: type[Delivery | Letter]) -> dict[str, Any]:
    found = orjson.loads(record)
    if not isinstance(found, dict):
        raise ValueError("expected an object")
    return {name: found[name] for name in kind.__slots__ if name in found}
