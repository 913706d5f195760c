"""Calls of leases, kept, and events for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.push.counting.tally import Counter
from tests.push.builders import NOW


@dataclass
class Calls:
    """Which leases called."""

    ids: list[str] = field(default_factory=list)

    def counter(self, lease_id: str = "1", **more: Any) -> Counter:
        return Counter(lease_id, streams=("s",), on_change=self.ids.append, **more)


def use_up(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def event(n: int, kind: str = DATA, device: str = "a") -> Event:
    fields = {"n": n, "device": device, "received_at": NOW - 1000 + n}
    return Event(kind, fields, orjson.dumps(fields))
