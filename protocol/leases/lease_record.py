"""A lease as it is stored: the records of `ew.leases`.

Key: lease id; partition: `partition_of` the id; compacted.

A frozen dataclass and not a pydantic model: a proxy holds a hundred thousand of them, and policies
and stream names that are the same are shared between them. Endpoint and secret are sealed
(`edgewake.cloud.calls.sealing`), so a reader of the topic can call nobody.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import orjson

from edgewake.protocol.leases.endpoint_kind import EndpointKind
from edgewake.protocol.leases.lease import Subscription, WakePolicy

PARTITIONS: Final = 8
"""Partitions of `ew.leases` and `ew.reads`, so at most 8 proxies share the work. Fixed: a lease's
id decides its partition."""

RELAY_HOST: Final = "(relay)"
"""In place of the host of an endpoint: no host has this name."""


class LeaseState(StrEnum):
    """The state of a lease; its transitions are in `edgewake.cloud.push.leases.lease_state`."""

    WAITING = "waiting"  # counts events; not enough for a wake-up yet
    DUE = "due"  # a wake-up goes out at `due_at`, for the first time or again after a failure
    CALLING = "calling"  # a wake-up is stored and its endpoint is being called
    # the endpoint took the wake-up; the client has not resumed, and is woken again at `due_at`
    NOTIFIED = "notified"
    PAUSED = "paused"  # the client reads, so nobody is woken
    DISABLED = "disabled"  # the endpoint is given up; the lease waits for a PATCH
    ENDED = "ended"  # over: deleted or expired


@dataclass(frozen=True, slots=True)
class PendingWake:
    """A wake-up, stored before its first attempt.

    So every attempt, by whichever proxy, has the same id and the same bytes.
    """

    number: int
    """1 for the lease's first wake-up; the webhook-id is made of lease id and number."""
    body: str
    """The JSON that is signed and sent, at most 3 KB."""
    made_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A stored lease. All times are ms since 1970 UTC."""

    id: str
    token_hash: str
    """SHA-256 of the bearer token that may read, change or end the lease."""
    request_hash: str
    """BLAKE2b of the request: a repeated POST with the same Idempotency-Key must be the same."""
    streams: tuple[str, ...]
    where: str | None = None
    select: str | None = None
    devices: tuple[str, ...] | None = None
    """These alone; None: all. They are counted by `condition`, and so are the next two."""
    sample: float | None = None
    """A share of all things; None: all."""
    per: tuple[str, ...] = ()
    """Fields that tell what a thing is."""
    cursor: str
    """The client's cursor; only the client moves it."""
    endpoint_host: str
    """For people and for fairness between hosts; the address itself is sealed. A relay has
    RELAY_HOST."""
    sealed: str
    """Address, secrets, token and the owner's headers."""
    kind: EndpointKind = EndpointKind.WEBHOOK
    old_secret_until: int | None = None
    """Until when a second secret signs, too."""
    wake: WakePolicy
    ttl_s: int
    created_at: int
    expires_at: int
    state: LeaseState = LeaseState.WAITING
    due_at: int | None = None
    """When the next wake-up or try goes out (due, notified), or when a pause ends (paused)."""
    counted_to: str | None = None
    """The cursor up to which `count` has counted; None: the client's own."""
    count: int = 0
    """Events between the client's cursor and `counted_to`."""
    gap: bool = False
    """Has retention removed part of that range?"""
    pending: PendingWake | None = None
    """The wake-up that is being tried."""
    relayed: PendingWake | None = None
    """The wake-up of a relay, which waits until the client asks."""
    wakes: int = 0
    last_wake_at: int | None = None
    unanswered: int = 0
    """Wake-ups that the endpoint accepted since the client last resumed."""
    failures: int = 0
    """Failed tries in a row."""
    failing_since: int | None = None
    """When the first of them failed; None: none did."""
    disabled: str | None = None
    """The reason why the endpoint was given up; None while it is in use."""
    client: str = ""
    """The client that asked for it, as a keyed hash of its address, or of its name where it proved
    one: leases of one client are bounded. Empty: not known."""
    right: str = ""
    """JSON: what it may see and by what it proved who it is; empty: everything, and nothing."""
    condition: str | None = None
    """What its right, publication, devices and sample add to `where`; nobody is shown it."""

    @property
    def is_relay(self) -> bool:
        """Does the client ask for its wake-ups?"""
        return self.endpoint_host == RELAY_HOST

    @property
    def subscription(self) -> Subscription:
        """The subscription of the client."""
        return Subscription(streams=self.streams, where=self.where, select=self.select)

    @property
    def partition(self) -> int:
        """The partition of `ew.leases` that it belongs to."""
        return partition_of(self.id)

    def but(self, **changes: Any) -> Lease:
        """Copy the lease with some values changed."""
        return replace(self, **changes)


def partition_of(lease_id: str) -> int:
    """The partition of a lease id."""
    return blake2b(lease_id.encode(), digest_size=2).digest()[0] % PARTITIONS


_SHARED: Final = ("right", "condition")
_WAKES: Final = ("pending", "relayed")


def encode(lease: Lease) -> bytes:
    """The record of a lease."""
    fields = {name: getattr(lease, name) for name in Lease.__slots__}
    fields["wake"] = lease.wake.model_dump(mode="json")
    for name in _WAKES:
        wake = fields[name]
        fields[name] = None if wake is None else asdict(wake)
    return orjson.dumps(fields)


def decode(record: bytes) -> Lease:
    """Read a record; raises ValueError.

    Unknown values are passed over, so that an older proxy reads what a newer one wrote.
    """
    try:
        found = orjson.loads(record)
        fields = {name: found[name] for name in Lease.__slots__ if name in found}
        for name in ("streams", "devices", "per"):
            if fields.get(name) is not None:
                fields[name] = _shared_names(tuple(fields[name]))
        fields["wake"] = _shared_policy(orjson.dumps(fields["wake"], option=orjson.OPT_SORT_KEYS))
        fields["state"] = LeaseState(fields["state"])
        for name in _SHARED:  # those of one client have the same, and may be long
            if fields.get(name):
                fields[name] = sys.intern(fields[name])
        if "kind" in fields:
            fields["kind"] = EndpointKind(fields["kind"])
        for name in _WAKES:
            if fields.get(name) is not None:
                fields[name] = PendingWake(**fields[name])
        return Lease(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a lease: {error!r}") from error


@lru_cache(4096)
def _shared_policy(text: bytes) -> WakePolicy:
    return WakePolicy.model_validate_json(text)


@lru_cache(4096)
def _shared_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return names
