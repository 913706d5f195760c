"""The table of all known devices, for fleets of a hundred thousand. No I/O.

Reports stay encoded as received, and a view is made only of devices that are shown. A device that
is online has one entry in a heap: the moment at which it becomes offline or silent unless something
is heard of it. So neither a record nor a check of the time costs more in a large fleet than in a
small one.

A thing behind a gateway has a report for each gateway that sent for it, and is shown behind the one
that brought its newest reading. When a gateway comes or goes, `look` updates its things.

At `devices_max` the device that was silent for longest is dropped from the table and counted; its
rows stay on `ew.devices`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from edgewake.cloud.ops.tables.contested import Contested
from edgewake.cloud.ops.tables.devices import (
    DevicePresence,
    DeviceView,
    joined,
    presence,
    quiet_at,
    reason,
    view,
)
from edgewake.cloud.ops.tables.name_index import NameIndex
from edgewake.cloud.rights.names import Names
from edgewake.protocol.ops.device import DeviceSeen, DeviceStatus, TimesSaid, is_overtaken

DEVICES_MAX: Final = 200_000
"""The most devices in the table, about one KB each."""
WAYS_MAX: Final = 8
"""The most gateways remembered of a thing; the one used longest ago is dropped."""
LOOKED_AT_MAX: Final = 250
"""The most devices that one check of the time updates; a fleet that goes offline at once takes
several."""

OLD_S: Final = 60.0
"""Age of the oldest unacknowledged reading, in ms, from which a device counts as waiting: less is
normal latency."""

Event = dict[str, Any]


class Mark(StrEnum):
    """Properties by which devices are found, besides their presence."""

    WAITING = "waiting"
    """An agent whose readings have waited for a minute or more."""
    HELD = "held"
    """An agent that was asked to wait with a stream."""
    LOST = "lost"
    """An agent that has lost readings."""
    AGENT = "agent"
    PLAIN = "plain"
    """A device without an agent."""


class Sort(StrEnum):
    """The order of a list of devices; equal ones are sorted by name."""

    NAME = "name"
    HEARD = "heard"
    """The device that was heard of last comes first."""
    WAITING = "waiting"
    """The device with most waiting readings comes first."""
    LOST = "lost"
    """The device with most lost readings comes first."""


def _marks_of(status: DeviceStatus | None) -> frozenset[Mark]:
    if status is None or status.plain:
        return frozenset({Mark.PLAIN})
    found = {Mark.AGENT}
    if (status.oldest_unacked_s or 0.0) > OLD_S:
        found.add(Mark.WAITING)
    if status.waits:
        found.add(Mark.HELD)
    if status.lost_readings:
        found.add(Mark.LOST)
    return frozenset(found)


def _waiting_step(status: DeviceStatus | None) -> int:
    """Returns 0 while nothing waits, and one more for each fourfold number of readings.

    So a backlog that grows for days makes a dozen events for the history.
    """
    if status is None or (status.oldest_unacked_s or 0.0) <= OLD_S:
        return 0
    return 1 + max(0, status.backlog_readings or 0).bit_length() // 2


@dataclass(slots=True)
class _Entry:
    status: bytes | None = None
    seen: dict[str, bytes] = field(default_factory=dict)
    """Gateway → report; the empty text stands for the device's own connection."""
    via: str = ""
    presence: DevicePresence = DevicePresence.SILENT
    streams: frozenset[str] = frozenset()
    notable: int = 0
    """Hash of the properties whose change makes an event."""
    is_scheduled: bool = False
    heard: int = 0
    """When its last record arrived, ms."""
    marks: frozenset[Mark] = frozenset()
    waiting: int = 0
    lost: int = 0
    version: str = ""

    def place(self, name: str, sort: Sort) -> tuple[int, str]:
        """Returns its key for sorting."""
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
    """All known devices. Times are ms since 1970 UTC."""

    def __init__(self, devices_max: int = DEVICES_MAX) -> None:
        self._devices_max = devices_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """Name → device, in the order in which they were heard of last."""
        self._names = NameIndex()
        self._names_of = {state: NameIndex() for state in DevicePresence}
        self._names_with = {mark: NameIndex() for mark in Mark}
        self.marked: Counter[Mark] = Counter()
        """Mark → devices."""
        self._quiet_at: list[tuple[int, str]] = []
        self._things: dict[str, set[str]] = {}
        """Gateway → devices that are behind it now."""
        self._to_look_at: dict[str, None] = {}
        """Things whose gateway came or went and that must be updated."""
        self.contested = Contested()
        """Finds things that two gateways send for at once."""
        self.versions: Counter[str] = Counter()
        """Version of the agent → devices that report it."""
        self.presences: Counter[DevicePresence] = Counter()
        """Presence → number of devices."""
        self.dropped = 0
        """How many devices were dropped at the bound."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, device: str) -> bool:
        return device in self._entries

    def put(self, device: str, what: str, value: bytes | None, *, now: int) -> Event | None:
        """Stores a row of `ew.devices`; returns an event if one is due. Raises ValidationError.

        `what` is status, seen, or seen|gateway; a value None removes it.
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
        """Notes the gateway that a thing is behind now."""
        if entry.via == via:
            return
        if (things := self._things.get(entry.via)) is not None:
            things.discard(device)
            if not things:
                del self._things[entry.via]
        entry.via = via
        if via:
            self._things.setdefault(via, set()).add(device)

    def _gateway(self, entry: _Entry) -> DevicePresence | None:
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
        """Returns the keys of a device's rows."""
        entry = self._entries[device]
        ways = [f"{device}|seen|{gateway}" for gateway in entry.seen if gateway]
        return [f"{device}|status", f"{device}|seen", f"{device}|gaps", *ways]

    def lost(self, device: str) -> int | None:
        """Returns how many readings its agent has reported lost; None without a report."""
        entry = self._entries.get(device)
        return None if entry is None or entry.status is None else entry.lost

    def remove(self, device: str) -> Event | None:
        """Forgets a device; returns an event if it was known."""
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
        """Returns events of devices that became offline or silent, and whether more are due now."""
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
        """Returns the view of a device."""
        entry = self._entries.get(device)
        return None if entry is None else self._view(device, entry, *entry.reports(), now)

    def times(self, devices: Iterable[str]) -> dict[str, TimesSaid]:
        """Returns what the agents of these devices say of how times were found."""
        found: dict[str, TimesSaid] = {}
        for device in devices:
            entry = self._entries.get(device)
            if entry is not None and entry.status is not None:
                said = DeviceStatus.from_json(entry.status).times
                if said is not None:
                    found[device] = said
        return found

    def gateway_of(self, device: str) -> str:
        """Returns the gateway that a thing is behind; empty for one with its own connection."""
        entry = self._entries.get(device)
        return "" if entry is None else entry.via

    def silent(self, before: int, stream: str | None) -> dict[str, int]:
        """Return devices without a record since `before`, and when their last one came.

        With `stream` only those that send it. Devices that never sent a reading are skipped.
        """
        return {
            device: entry.heard
            for device, entry in self._entries.items()
            if 0 < entry.heard < before and (stream is None or stream in entry.streams)
        }

    def page(
        self, after: str | None, limit: int, state: DevicePresence | None = None, *, now: int
    ) -> list[DeviceView]:
        """Returns up to `limit` devices after `after`, sorted by name."""
        names = self._names if state is None else self._names_of[state]
        page = (self.get(name, now=now) for name in islice(names.after(after), limit))
        return [found for found in page if found is not None]

    def find(
        self,
        after: str | None,
        limit: int,
        is_wanted: Callable[[str], bool],
        state: DevicePresence | None = None,
        *,
        mark: Mark | None = None,
        stream: str | None = None,
        sort: Sort = Sort.NAME,
        version: str | None = None,
        among: Iterable[str] | None = None,
        now: int,
    ) -> tuple[list[DeviceView], int]:
        """Returns up to `limit` of the wanted devices after `after`, and their total number.

        It scans every name with the mark, or known names `among` which they are, sorted. In another
        order than by name, a page continues after the current position of `after`.
        """
        if among is None:
            names = self._names if state is None else self._names_of[state]
            among = (names if mark is None else self._names_with[mark]).after(None)
        wanted = [
            name
            for name in among
            if is_wanted(name)
            and (mark is None or mark in self._entries[name].marks)
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

    def streams_of(self, device: str) -> frozenset[str]:
        """The streams that a device sends on; none of one that is not known."""
        entry = self._entries.get(device)
        return frozenset() if entry is None else entry.streams

    def tally(
        self, devices: Iterable[str]
    ) -> tuple[Counter[DevicePresence], Counter[Mark], Counter[str]]:
        """How many of these known devices there are by presence, by mark and by version."""
        found = [self._entries[device] for device in devices]
        return (
            Counter(entry.presence for entry in found),
            Counter(mark for entry in found for mark in entry.marks),
            Counter(entry.version for entry in found if entry.version),
        )

    def names(self) -> Iterator[str]:
        """Returns all names, sorted. The table must not change meanwhile."""
        return self._names.after(None)

    def names_in(self, names: Names) -> list[str]:
        """Returns the known devices of a set, sorted; it looks at no others, nearly.

        A pattern costs as many as there are with its beginning.
        """
        found = {name for name in names.exact if name in self._entries}
        before = None
        for prefix in sorted(pattern.partition("*")[0] for pattern in names.patterns):
            if before is None or not prefix.startswith(before):
                before = prefix
                found.update(name for name in self._names.beginning_with(prefix) if name in names)
        return sorted(found)

    def total(self, state: DevicePresence | None = None) -> int:
        """Returns the number of devices, in one state or in all."""
        return len(self._entries) if state is None else self.presences[state]

    def names_with(self, mark: Mark, limit: int) -> list[str]:
        """Returns the first devices with a mark, sorted by name."""
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
        """Notes the version of a device's agent; empty: it reports none."""
        if version == entry.version:
            return
        if entry.version:
            self.versions[entry.version] -= 1
            self.versions += Counter()  # Versions that no device runs any more are removed.
        if version:
            self.versions[version] += 1
        entry.version = version

    def _count(self, device: str, state: DevicePresence, change: int) -> None:
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
        """Updates the presence. Returns whether it changed."""
        found = presence(status, seen, now=now, gateway=self._gateway(entry))
        is_changed = found is not entry.presence
        if is_changed:
            self._count(device, entry.presence, -1)
            self._count(device, found, 1)
            entry.presence = found
            self._to_look_at |= dict.fromkeys(self._things.get(device, ()))
        if found is DevicePresence.ONLINE and not entry.is_scheduled:
            entry.is_scheduled = True
            heapq.heappush(self._quiet_at, (quiet_at(status, seen), device))
        return is_changed

    def _make_room(self) -> None:
        while len(self._entries) >= self._devices_max:
            self.remove(next(iter(self._entries)))
            self.dropped += 1


def _is_overtaken(value: bytes, known: bytes) -> bool:
    return is_overtaken(DeviceStatus.from_json(value), DeviceStatus.from_json(known))
