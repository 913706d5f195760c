"""A group of clients that share streams, as it is stored: a row `group|<id>` of `ew.leases`.

It is on the partition of its owner (`edgewake.protocol.leases.delivery_record`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeAlias

import orjson

GROUP: Final = "group|"

Place: TypeAlias = tuple[int, int, int, int]
"""The place of an event: stream of the subscription, partition, and the position (offset, index)
behind it."""


@dataclass(frozen=True, slots=True)
class Held:
    """An event that a client took, or that waits for its next turn."""

    place: Place
    count: int
    """How often it was handed out."""
    until: int
    """When it may be handed out again, ms since 1970 UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A stored group. Times are ms since 1970 UTC."""

    id: str
    owner: str
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
    cursor: str
    """Everything before it is done."""
    done: tuple[Place, ...] = ()
    """Events behind the cursor that are done."""
    held: tuple[Held, ...] = ()
    events: int = 0
    """Events that are done, all together."""
    right: str = ""
    created_at: int
    used_at: int
    """When it was stored last, which each take and acknowledgement does, and who only waits does
    each half minute."""

    @property
    def key(self) -> str:
        """The key of its row."""
        return GROUP + self.id

    def but(self, **changes: Any) -> Group:
        """Copy the group with some values changed."""
        return replace(self, **changes)


def encode(group: Group) -> bytes:
    """The record of a group."""
    found = asdict(group)
    found["held"] = [[*one.place, one.count, one.until] for one in group.held]
    return orjson.dumps(found)


def decode(record: bytes) -> Group:
    """Read one; raises ValueError. Unknown values are passed over."""
    try:
        told = orjson.loads(record)
        found = {name: told[name] for name in Group.__slots__ if name in told}
        found["streams"] = tuple(found["streams"])
        found["per"] = tuple(found.get("per", ()))
        if found.get("devices") is not None:
            found["devices"] = tuple(found["devices"])
        found["done"] = tuple(_place(one) for one in found.get("done", ()))
        found["held"] = tuple(
            Held(_place(one[:4]), int(one[4]), int(one[5])) for one in found.get("held", ())
        )
        return Group(**found)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"not a group: {error!r}") from error


def _place(found: Any) -> Place:
    stream, partition, offset, index = map(int, found)
    return stream, partition, offset, index
