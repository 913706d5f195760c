"""Every device that the cloud has heard of, for fleets of a hundred thousand. No I/O.

Reports are kept as the bytes that they came in, and a view is made only of what is shown. A device
that is online has one entry in a heap: the moment at which it becomes offline or silent if nothing
is heard of it. So neither a record nor a look at the time costs more in a large fleet than in a
small one.

A thing behind a gateway has a report for each gateway that sent for it, and is shown behind the one
that brought its newest reading. When a gateway comes or goes, `look` goes over its things.

At `devices_max` the device that was not heard of for longest is dropped from the table and counted;
its rows stay on `ew.devices`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from edgewake.cloud.ops.tables.contested import Contested
from edgewake.cloud.ops.tables.devices import (
    DeviceView,
    Presence,
    joined,
    presence,
    quiet_at,
    reason,
    view,
)
from edgewake.cloud.ops.tables.name_index import NameIndex
from edgewake.protocol.ops.device import DeviceSeen, DeviceStatus, is_overtaken

DEVICES_MAX: Final = 200_000
"""Devices in the table, about one KB each."""
WAYS_MAX: Final = 8
"""Gateways that a thing came by and that are remembered; the one that is longest ago goes."""
LOOKED_AT_MAX: Final = 250
"""Devices that one look at the time goes over; a fleet that goes offline at once is announced in
several."""

OLD_S: Final = 60.0
"""Age of the oldest reading not acknowledged, from which on a device counts as waiting: less
is the way itself."""

Event = dict[str, Any]


class Mark(StrEnum):
    """What devices are looked for by, beside their presence."""

    WAITING = "waiting"
    """An agent whose readings have waited for a minute and more."""
    LOST = "lost"
    """An agent that has given readings up."""
    AGENT = "agent"
    PLAIN = "plain"
    """It has no agent of ours."""


class Sort(StrEnum):
    """The order of a list of devices; those that are equal stand by name."""

    NAME = "name"
    HEARD = "heard"
    """Who was heard of last comes first."""
    WAITING = "waiting"
    """Who has most readings that wait comes first."""
    LOST = "lost"
    """Who has lost most comes first."""


def _marks_of(status: DeviceStatus | None) -> frozenset[Mark]:
    if status is None or status.plain:
        return frozenset({Mark.PLAIN})
    found = {Mark.AGENT}
    if (status.oldest_unacked_s or 0.0) > OLD_S:
        found.add(Mark.WAITING)
    if status.lost_readings:
        found.add(Mark.LOST)
    return frozenset(found)


def _waiting_step(status: DeviceStatus | None) -> int:
    """0 while nothing waits, then one more for each four times as many readings.

    So a backlog that grows for days is told in a dozen steps, for its past.
    """
    if status is None or (status.oldest_unacked_s or 0.0) <= OLD_S:
        return 0
    return 1 + max(0, status.backlog_readings or 0).bit_length() // 2


@dataclass(slots=True)
class _Entry:
    status: bytes | None = None
    seen: dict[str, bytes] = field(default_factory=dict)
    """By gateway; by the empty text where it sends by itself."""
    via: str = ""
    presence: Presence = Presence.SILENT
    streams: frozenset[str] = frozenset()
    notable: int = 0
    """Hash of what is worth an event when it changes."""
    is_scheduled: bool = False
    heard: int = 0
    """When its last record came, ms."""
    marks: frozenset[Mark] = frozenset()
    waiting: int = 0
    lost: int = 0
    version: str = ""

    def place(self, name: str, sort: Sort) -> tuple[int, str]:
        """Where it stands in a list of this order."""
        by = {Sort.NAME: 0, Sort.HEARD: self.heard, Sort.WAITING: self.waiting}
        return -by.get(sort, self.lost), name

    def reports(self) -> tuple[DeviceStatus | None, DeviceSeen | None]:
        status = None if self.status is None else DeviceStatus.from_json(self.status)
        return status, joined(map(DeviceSeen.from_json, self.seen.values()))

    def keep_seen(self, gateway: str, value: bytes | None) -> None:
        if value is None:
            self.seen.pop(gateway, None)
            return
        self.seen[gateway] = value
        if len(self.seen) > WAYS_MAX:
            ways = {name: DeviceSeen.from_json(one) for name, one in self.seen.items()}
            del self.seen[min(ways, key=lambda name: ways[name].newest or 0)]


class DeviceTable:
    """The table. Times are ms since 1970 UTC."""

    def __init__(self, devices_max: int = DEVICES_MAX) -> None:
        self._devices_max = devices_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """In the order in which they were heard of last."""
        self._names = NameIndex()
        self._names_of = {state: NameIndex() for state in Presence}
        self._names_with = {mark: NameIndex() for mark in Mark}
        self.marked: Counter[Mark] = Counter()
        """Devices by mark."""
        self._quiet_at: list[tuple[int, str]] = []
        self._things: dict[str, set[str]] = {}
        """By gateway, those that are behind it now."""
        self._to_look_at: dict[str, None] = {}
        """Things whose gateway came or went."""
        self.contested = Contested()
        """Things that two gateways send for at once."""
        self.versions: Counter[str] = Counter()
        """Devices by the version of their agent, those that say one."""
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

        `what` is status, seen, or seen|gateway; None removes it.
        """
        entry = self._entries.get(device) or _Entry()
        before = (entry.status, dict(entry.seen))
        if what == "status":
            if (
                value is not None
                and entry.status is not None
                and _is_overtaken(value, entry.status)
            ):
                return None
            entry.status = value
        try:
            if what != "status":
                entry.keep_seen(what.partition("|")[2], value)
            status, seen = entry.reports()
        except ValueError:
            entry.status, entry.seen = before
            raise
        if status is None and seen is None:
            return self.remove(device)
        if what != "status" and value is not None:
            self.contested.note(DeviceSeen.from_json(value))
        if seen is not None:
            entry.heard = seen.last_seen
            self._is_behind(device, entry, seen.via)
        if device not in self._entries:
            self._make_room()
            self._entries[device] = entry
            self._names.add(device)
            self._count(device, entry.presence, 1)
        self._entries.move_to_end(device)
        self._mark(device, entry, _marks_of(status))
        self._runs(entry, "" if status is None else status.version)
        entry.waiting = 0 if status is None else status.backlog_readings or 0
        entry.lost = 0 if status is None else status.lost_readings or 0
        if seen is not None and not entry.streams.issuperset(seen.streams):
            entry.streams = entry.streams.union(seen.streams)
        notable = hash(
            (
                status and (status.epoch, status.lost_readings, status.version),
                _waiting_step(status),
                entry.streams,
                entry.via,
            )
        )
        is_changed = before == (None, {}) or notable != entry.notable
        entry.notable = notable
        is_changed |= self._update(device, entry, status, seen, now)
        return self._event(device, entry, status, seen, now) if is_changed else None

    def _is_behind(self, device: str, entry: _Entry, via: str) -> None:
        """Note which gateway a thing is behind now."""
        if entry.via == via:
            return
        if (things := self._things.get(entry.via)) is not None:
            things.discard(device)
            if not things:
                del self._things[entry.via]
        entry.via = via
        if via:
            self._things.setdefault(via, set()).add(device)

    def _gateway(self, entry: _Entry) -> Presence | None:
        gateway = self._entries.get(entry.via) if entry.via else None
        return None if gateway is None or gateway.status is None else gateway.presence

    def _view(
        self,
        device: str,
        entry: _Entry,
        status: DeviceStatus | None,
        seen: DeviceSeen | None,
        now: int,
    ) -> DeviceView:
        why = reason(seen, entry.presence, self._gateway(entry), now=now)
        former = entry.seen.keys() - {entry.via, ""}
        return view(device, status, seen, entry.presence, entry.streams, former=former, why=why)

    def _event(
        self,
        device: str,
        entry: _Entry,
        status: DeviceStatus | None,
        seen: DeviceSeen | None,
        now: int,
    ) -> Event:
        shown = self._view(device, entry, status, seen, now)
        return {"kind": "device", **shown.model_dump(mode="json")}

    def keys_of(self, device: str) -> list[str]:
        """The keys of its rows."""
        entry = self._entries[device]
        ways = [f"{device}|seen|{gateway}" for gateway in entry.seen if gateway]
        return [f"{device}|status", f"{device}|seen", f"{device}|gaps", *ways]

    def lost(self, device: str) -> int | None:
        """Readings that its agent has given up by its last report; None: it made none yet."""
        entry = self._entries.get(device)
        return None if entry is None or entry.status is None else entry.lost

    def remove(self, device: str) -> Event | None:
        """Forget a device; the event, where it was known."""
        entry = self._entries.pop(device, None)
        if entry is None:
            return None
        self._is_behind(device, entry, "")
        self.contested.forget(device)
        self._to_look_at |= dict.fromkeys(self._things.get(device, ()))
        self._count(device, entry.presence, -1)
        self._mark(device, entry, frozenset())
        self._runs(entry, "")
        self._names.remove(device)
        return {"kind": "device", "device": device, "removed": True}

    def look(self, *, now: int) -> tuple[list[Event], bool]:
        """What became offline or silent; and is there more to look at now?"""
        events: list[Event] = []
        while self._to_look_at and len(events) < LOOKED_AT_MAX:
            device = next(iter(self._to_look_at))
            del self._to_look_at[device]
            events += self._look_at(device, now)
        for _ in range(LOOKED_AT_MAX - len(events)):
            if not self._quiet_at or self._quiet_at[0][0] >= now:
                return events, False
            _, device = heapq.heappop(self._quiet_at)
            entry = self._entries.get(device)
            if entry is not None:
                entry.is_scheduled = False
                events += self._look_at(device, now)
        return events, True

    def _look_at(self, device: str, now: int) -> list[Event]:
        entry = self._entries.get(device)
        if entry is None:
            return []
        status, seen = entry.reports()
        is_changed = self._update(device, entry, status, seen, now)
        return [self._event(device, entry, status, seen, now)] if is_changed else []

    def get(self, device: str, *, now: int) -> DeviceView | None:
        """The view of one device."""
        entry = self._entries.get(device)
        return None if entry is None else self._view(device, entry, *entry.reports(), now)

    def gateway_of(self, device: str) -> str:
        """The gateway that a thing is behind; empty for a device with its own connection."""
        entry = self._entries.get(device)
        return "" if entry is None else entry.via

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
        self, after: str | None, limit: int, state: Presence | None = None, *, now: int
    ) -> list[DeviceView]:
        """Up to `limit` devices behind `after`, by name."""
        names = self._names if state is None else self._names_of[state]
        page = (self.get(name, now=now) for name in islice(names.after(after), limit))
        return [found for found in page if found is not None]

    def find(
        self,
        after: str | None,
        limit: int,
        is_wanted: Callable[[str], bool],
        state: Presence | None = None,
        *,
        mark: Mark | None = None,
        stream: str | None = None,
        sort: Sort = Sort.NAME,
        version: str | None = None,
        now: int,
    ) -> tuple[list[DeviceView], int]:
        """Up to `limit` of the wanted devices after `after`, and how many there are.

        It looks at every name that has the mark. In another order than by name a page goes on
        behind where `after` stands now.
        """
        names = self._names if state is None else self._names_of[state]
        if mark is not None:
            names = self._names_with[mark]
        wanted = [
            name
            for name in names.after(None)
            if is_wanted(name)
            and (stream is None or stream in self._entries[name].streams)
            and (state is None or self._entries[name].presence is state)
            and (version is None or self._entries[name].version == version)
        ]
        if sort is Sort.NAME:
            behind = wanted if after is None else wanted[bisect_right(wanted, after) :]
            chosen = behind[:limit]
        else:
            chosen = self._sorted(wanted, after, limit, sort)
        shown = (self.get(name, now=now) for name in chosen)
        return [found for found in shown if found is not None], len(wanted)

    def _sorted(self, wanted: list[str], after: str | None, limit: int, sort: Sort) -> list[str]:
        last = self._entries.get(after) if after is not None else None
        begin = None if last is None or after is None else last.place(after, sort)
        places = (self._entries[name].place(name, sort) for name in wanted)
        behind = (place for place in places if begin is None or place > begin)
        return [name for _, name in heapq.nsmallest(limit, behind)]

    def names(self) -> Iterator[str]:
        """All names, in order. The table may not change meanwhile."""
        return self._names.after(None)

    def total(self, state: Presence | None = None) -> int:
        """The number of devices, in one state or in all."""
        return len(self._entries) if state is None else self.presences[state]

    def names_with(self, mark: Mark, limit: int) -> list[str]:
        """The first devices that have it, by name."""
        return list(islice(self._names_with[mark].after(None), limit))

    def _mark(self, device: str, entry: _Entry, marks: frozenset[Mark]) -> None:
        for mark in entry.marks - marks:
            self._names_with[mark].remove(device)
            self.marked[mark] -= 1
        for mark in marks - entry.marks:
            self._names_with[mark].add(device)
            self.marked[mark] += 1
        entry.marks = marks

    def _runs(self, entry: _Entry, version: str) -> None:
        """Note the version of a device's agent; empty: it says none."""
        if version == entry.version:
            return
        if entry.version:
            self.versions[entry.version] -= 1
            self.versions += Counter()  # without those that nobody runs any more
        if version:
            self.versions[version] += 1
        entry.version = version

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
        found = presence(status, seen, now=now, gateway=self._gateway(entry))
        is_changed = found is not entry.presence
        if is_changed:
            self._count(device, entry.presence, -1)
            self._count(device, found, 1)
            entry.presence = found
            self._to_look_at |= dict.fromkeys(self._things.get(device, ()))
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
