"""Deliveries to webhooks, and groups that share streams, which are rows of `ew.leases`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from edgewake.protocol.leases import delivery_record, group_record
from edgewake.protocol.leases.delivery_record import Delivery
from edgewake.protocol.leases.group_record import Group


@dataclass(slots=True)
class SharedReads:
    """Deliveries and groups by id; refused events are only counted."""

    deliveries: dict[str, Delivery] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    letters: Counter[str] = field(default_factory=Counter)
    """Delivery → number of events that its endpoint refused."""
    _known: set[str] = field(default_factory=set)
    """Keys of the rows of refused events."""

    def put(self, key: str, value: bytes | None) -> None:
        """Stores a row, or removes it. Raises ValueError for an invalid one."""
        kind, _, name = key.partition("|")
        if f"{kind}|" == delivery_record.LETTER:
            self._count(key, name.partition("|")[0], is_there=value is not None)
        elif f"{kind}|" == delivery_record.DELIVERY:
            self.deliveries.pop(name, None)
            if value is not None:
                self.deliveries[name] = delivery_record.decode_delivery(value)
        elif f"{kind}|" == group_record.GROUP:
            self.groups.pop(name, None)
            if value is not None:
                self.groups[name] = group_record.decode(value)

    def _count(self, key: str, delivery: str, *, is_there: bool) -> None:
        if is_there is (key in self._known):
            return
        (self._known.add if is_there else self._known.discard)(key)
        self.letters[delivery] += 1 if is_there else -1
