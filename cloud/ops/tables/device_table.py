"""Every device that the cloud has heard of, for fleets of a hundred thousand. No I/O.

Reports are kept as the bytes that they came in, and a view is made only of what is shown. A device
that is online has one entry in a heap: the moment at which it becomes offline or silent if nothing
is heard of it. So neither a record nor a look at the time costs more in a large fleet than in a
small one.

At `devices_max` the device that was not heard of for longest is dropped from the table and counted;
its rows stay on `ew.devices`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from edgewake.cloud.ops.tables.devices import DeviceView, Presence, presence, quiet_at, view
from edgewake.cloud.ops.tables.name_index import NameIndex
from edgewake.protocol.ops.device import DeviceSeen, DeviceStatus, is_overtaken

DEVICES_MAX: Final = 200_000
"""Devices in the table, about one KB each."""
LOOKED_AT_MAX: Final = 250
"""Devices that one look at the time goes over; a fleet that goes offline at once is announced in
several."""

Event = dict[str, Any]


@dataclass(slots=True)
class _Entry:
    status: bytes | None = None
    seen: bytes | None = None
    presence: Presence = Presence.SILENT
    streams: frozenset[str] = frozenset()
    notable: int = 0
    """Hash of what is worth an event when it changes."""
    is_scheduled: bool = False
    heard: int = 0
    """When its last record came, ms."""

    def reports(self) -> tuple[DeviceStatus | None, DeviceSeen | None]:
        status = None if self.status is None else DeviceStatus.from_json(self.status)
        return status, None if self.seen is None else DeviceSeen.from_json(self.seen)


class DeviceTable:
    """The table. Times are ms since 1970 UTC."""

    def __init__(self, devices_max: int = DEVICES_MAX) -> None:
        self._devices_max = devices_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """In the order in which they were heard of last."""
        self._names = NameIndex()
        self._names_of = {state: NameIndex() for state in Presence}
        self._quiet_at: list[tuple[int, str]] = []
        self.presences: Counter[Presence] = Counter()
        """Devices by presence."""
        self.dropped = 0
        """Devices that the bound cost."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, device: str) -> bool:
        return device in self._entries

    def put(self, device: str, what: str, value: bytes | None, *, now: int) -> Event | None:
        """Store a row of `ew.devices`; return an event where one is due. Raises ValidationError.

        `what` is status or seen; None removes it.
        """
        entry = self._entries.get(device) or _Entry()
        before = (entry.status, entry.seen)
        if what == "status":
            if (
                value is not None
                and entry.status is not None
                and _is_overtaken(value, entry.status)
            ):
                return None
            entry.status = value
        else:
            entry.seen = value
        try:
            status, seen = entry.reports()
        except ValueError:
            entry.status, entry.seen = before
            raise
        if status is None and seen is None:
            return self.remove(device)
        if seen is not None:
            entry.heard = seen.last_seen
        if device not in self._entries:
            self._make_room()
            self._entries[device] = entry
            self._names.add(device)
            self._count(device, entry.presence, 1)
        self._entries.move_to_end(device)
        if seen is not None and not entry.streams.issuperset(seen.streams):
            entry.streams = entry.streams.union(seen.streams)
        notable = hash(
            (status and (status.epoch, status.lost_readings, status.version), entry.streams)
        )
        is_changed = before == (None, None) or notable != entry.notable
        entry.notable = notable
        is_changed |= self._update(device, entry, status, seen, now)
        return (
            {
                "kind": "device",
                **view(device, status, seen, entry.presence, entry.streams).model_dump(mode="json"),
            }
            if is_changed
            else None
        )

    def remove(self, device: str) -> Event | None:
        """Forget a device; the event, where it was known."""
        entry = self._entries.pop(device, None)
        if entry is None:
            return None
        self._count(device, entry.presence, -1)
        self._names.remove(device)
        return {"kind": "device", "device": device, "removed": True}

    def look(self, *, now: int) -> tuple[list[Event], bool]:
        """What became offline or silent; and is there more to look at now?"""
        events: list[Event] = []
        for _ in range(LOOKED_AT_MAX):
            if not self._quiet_at or self._quiet_at[0][0] >= now:
                return events, False
            _, device = heapq.heappop(self._quiet_at)
            entry = self._entries.get(device)
            if entry is None:
                continue
            entry.is_scheduled = False
            status, seen = entry.reports()
            if self._update(device, entry, status, seen, now):
                events.append(
                    {
                        "kind": "device",
                        **view(device, status, seen, entry.presence, entry.streams).model_dump(
                            mode="json"
                        ),
                    }
                )
        return events, True

    def get(self, device: str) -> DeviceView | None:
        """One device."""
        entry = self._entries.get(device)
        return (
            None if entry is None else view(device, *entry.reports(), entry.presence, entry.streams)
        )

    def silent(self, before: int, stream: str | None) -> dict[str, int]:
        """Devices from which no record came since `before`, and when their last one did.

        `stream`: only those that send it. Devices that never sent a reading are left out.
        """
        return {
            device: entry.heard
            for device, entry in self._entries.items()
            if 0 < entry.heard < before and (stream is None or stream in entry.streams)
        }

    def page(
        self, after: str | None, limit: int, state: Presence | None = None
    ) -> list[DeviceView]:
        """Up to `limit` devices behind `after`, by name."""
        names = self._names if state is None else self._names_of[state]
        page = map(self.get, islice(names.after(after), limit))
        return [found for found in page if found is not None]

    def find(
        self,
        after: str | None,
        limit: int,
        is_wanted: Callable[[str], bool],
        state: Presence | None = None,
    ) -> tuple[list[DeviceView], int]:
        """Up to `limit` of the wanted devices after `after`, by name, and how many there are.

        It looks at every name.
        """
        names = self._names if state is None else self._names_of[state]
        wanted = [name for name in names.after(None) if is_wanted(name)]
        behind = wanted if after is None else wanted[bisect_right(wanted, after) :]
        page = [found for found in map(self.get, behind[:limit]) if found is not None]
        return page, len(wanted)

    def total(self, state: Presence | None = None) -> int:
        """How many there are."""
        return len(self._entries) if state is None else self.presences[state]

    def _count(self, device: str, state: Presence, change: int) -> None:
        self.presences[state] += change
        if change > 0:
            self._names_of[state].add(device)
        else:
            self._names_of[state].remove(device)

    def _update(
        self,
        device: str,
        entry: _Entry,
        status: DeviceStatus | None,
        seen: DeviceSeen | None,
        now: int,
    ) -> bool:
        """Set the presence; is it another one?"""
        found = presence(status, seen, now=now)
        is_changed = found is not entry.presence
        if is_changed:
            self._count(device, entry.presence, -1)
            self._count(device, found, 1)
            entry.presence = found
        if found is Presence.ONLINE and not entry.is_scheduled:
            entry.is_scheduled = True
            heapq.heappush(self._quiet_at, (quiet_at(status, seen), device))
        return is_changed

    def _make_room(self) -> None:
        while len(self._entries) >= self._devices_max:
            self.remove(next(iter(self._entries)))
            self.dropped += 1


def _is_overtaken(value: bytes, known: bytes) -> bool:
    return is_overtaken(DeviceStatus.from_json(value), DeviceStatus.from_json(known))
