"""What the operations API knows, kept in memory: the compacted tables, the last word of every part, rates. No I/O.

`apply` takes one Kafka record after another and says what changed, as live events; `sweep` finds what changed by mere time.
A record that cannot be read is counted and left out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from pydantic import BaseModel, ValidationError

from edgewake.cloud.ops.devices import DeviceView, Presence, view
from edgewake.protocol import lease_record, topics
from edgewake.protocol import record as records
from edgewake.protocol.dead_letter import DeadLetter
from edgewake.protocol.device import DeviceSeen, DeviceStatus
from edgewake.protocol.lease_record import Lease
from edgewake.protocol.query import Progress, Registration
from edgewake.protocol.stream import NameKind, Stream, StreamTable

PARTS_STREAM: Final = "part_status"
PARTS_MAX: Final = 200
"""Parts remembered; a new one beyond it is left out and counted as unreadable."""
PART_STALE_MS: Final = 10_000
"""The supervisor speaks every 2 s; a part not heard of for so long is `unknown`."""
RATE_SAMPLES: Final = 7
"""Samples that a rate is taken over: about 30 s."""

Event = dict[str, Any]
"""A live event: {"kind": device | query | part | dead_letter, …}."""


@dataclass(frozen=True, slots=True)
class Change:
    """One Kafka record, as `apply` takes it."""

    topic: str
    key: str
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    offset: int = 0


class PartView(BaseModel):
    """A part as the supervisor last saw it."""

    part: str
    state: str
    """starting, ready, restarting, stopped, failed; unknown when the supervisor is silent."""
    seen_at: int
    pid: int | None = None
    restarts: int | None = None
    rss_mib: float | None = None
    cpu_percent: float | None = None
    uptime_s: float | None = None


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """First offset kept and next offset to be written, per partition, at one moment."""

    at_s: float
    first: tuple[int, ...]
    next: tuple[int, ...]


@dataclass
class OpsTables:
    """The compacted tables, the last report of every part, and the offsets that rates are taken of."""

    names: StreamTable = field(default_factory=StreamTable)
    """The catalogue, with the names that queries claim."""
    streams: dict[str, Stream] = field(default_factory=dict)
    """The streams in it."""
    statuses: dict[str, DeviceStatus] = field(default_factory=dict)
    seen: dict[str, DeviceSeen] = field(default_factory=dict)
    queries: dict[str, Registration] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    parts: dict[str, PartView] = field(default_factory=dict)
    offsets: dict[str, deque[TopicOffsets]] = field(default_factory=dict)
    dead: Counter[str] = field(default_factory=Counter)
    """Dead letters by reason since this process started."""
    unreadable: int = 0
    read_to: dict[str, int] = field(default_factory=dict)
    """Offset of the last record of each table that was taken in, readable or not."""
    _presences: dict[str, Presence] = field(default_factory=dict)

    def apply(self, change: Change, *, now: int) -> list[Event]:
        """Take a record in; the events that it is."""
        self.read_to[change.topic] = max(change.offset, self.read_to.get(change.topic, -1))
        try:
            return list(self._apply(change, now))
        except (ValidationError, ValueError, KeyError, TypeError):
            self.unreadable += 1
            return []

    def _apply(self, change: Change, now: int) -> Iterable[Event]:
        match change.topic:
            case topics.STREAMS:
                self._stream(change)
                return ()
            case topics.LEASES:
                self._lease(change)
                return ()
            case topics.DEVICES:
                return self._device(change, now)
            case topics.QUERIES:
                return self._query(change, self.queries, Registration)
            case topics.PROGRESS:
                return self._query(change, self.progress, Progress)
            case topics.DEAD:
                return self._dead_letter(change)
            case _:
                return self._parts(change)

    def _stream(self, change: Change) -> None:
        self.names.apply(change.key, change.value)
        row = self.names.get(change.key)
        if row is not None and row.kind is NameKind.STREAM:
            self.streams[change.key] = row
        else:
            self.streams.pop(change.key, None)

    def _lease(self, change: Change) -> None:
        if change.value is None:
            self.leases.pop(change.key, None)
        else:
            self.leases[change.key] = lease_record.decode(change.value)

    def _device(self, change: Change, now: int) -> Iterator[Event]:
        device, _, what = change.key.rpartition("|")
        before = self._notable(device)
        if what == "status":
            _keep(self.statuses, DeviceStatus, device, change.value)
        else:
            _keep(self.seen, DeviceSeen, device, change.value)
        yield from self._device_event(device, before, now)

    def _device_event(self, device: str, before: object, now: int) -> Iterator[Event]:
        status, seen = self.statuses.get(device), self.seen.get(device)
        if status is None and seen is None:
            self._presences.pop(device, None)
            yield {"kind": "device", "device": device, "removed": True}
            return
        found = view(device, status, seen, now=now)
        was = self._presences.get(device)
        self._presences[device] = found.state
        if was is not found.state or before != self._notable(device):
            yield {"kind": "device", **found.model_dump(mode="json")}

    def _notable(self, device: str) -> object:
        """What of a device is worth an event when it changes; its backlog and times change all the time."""
        status, seen = self.statuses.get(device), self.seen.get(device)
        return status and (status.epoch, status.lost_readings, status.version), seen and seen.streams

    def _query(self, change: Change, table: dict[str, Any], model: type[BaseModel]) -> Iterator[Event]:
        before = self._query_facts(change.key)
        _keep(table, model, change.key, change.value)
        after = self._query_facts(change.key)
        if after != before:
            yield {"kind": "query", "name": change.key, **after}

    def _query_facts(self, name: str) -> Mapping[str, Any]:
        registration, progress = self.queries.get(name), self.progress.get(name)
        return {
            "registered": registration is not None,
            "paused": registration is not None and registration.paused,
            "state": progress and progress.state.value,
            "detail": progress.detail if progress else "",
        }

    def _dead_letter(self, change: Change) -> Iterator[Event]:
        letter = DeadLetter.from_headers(change.headers)
        self.dead[letter.reason] += 1
        yield {"kind": "dead_letter", "offset": change.offset, "device": change.key, **letter.model_dump()}

    def _parts(self, change: Change) -> Iterator[Event]:
        if change.value is None:
            return
        for reading in records.readings(records.decode(change.value)):
            part = PartView.model_validate(reading | {"seen_at": reading["received_at"]})
            before = self.parts.get(part.part)
            if before is None and len(self.parts) >= PARTS_MAX:
                raise ValueError("more parts than are remembered")
            self.parts[part.part] = part
            if before is None or (before.state, before.pid, before.restarts) != (part.state, part.pid, part.restarts):
                yield {"kind": "part", **part.model_dump(mode="json")}

    def sweep(self, *, now: int) -> list[Event]:
        """What became offline, silent or unknown because nothing was heard of it."""
        events: list[Event] = []
        for device in list(self._presences):
            events += self._device_event(device, self._notable(device), now)
        for name, part in self.parts.items():
            if now - part.seen_at > PART_STALE_MS and part.state != "unknown":
                self.parts[name] = stale = part.model_copy(update={"state": "unknown"})
                events.append({"kind": "part", **stale.model_dump(mode="json")})
        return events

    def devices(self, *, now: int) -> list[DeviceView]:
        """All devices by name."""
        names = sorted(self.statuses.keys() | self.seen.keys())
        return [view(name, self.statuses.get(name), self.seen.get(name), now=now) for name in names]

    def device(self, name: str, *, now: int) -> DeviceView | None:
        """One device."""
        status, seen = self.statuses.get(name), self.seen.get(name)
        return None if status is None and seen is None else view(name, status, seen, now=now)

    def sample(self, topic: str, offsets: TopicOffsets) -> None:
        """Remember a topic's offsets; rates come of several."""
        self.offsets.setdefault(topic, deque(maxlen=RATE_SAMPLES)).append(offsets)

    def records_per_s(self, topic: str) -> float | None:
        """How fast the topic grows; None before two samples. Marks of transactions count as records."""
        samples = self.offsets.get(topic)
        if not samples or len(samples) < 2 or len(samples[0].next) != len(samples[-1].next):
            return None
        first, last = samples[0], samples[-1]
        return max(0.0, (sum(last.next) - sum(first.next)) / (last.at_s - first.at_s))


def _keep(table: dict[str, Any], model: type[BaseModel], key: str, value: bytes | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = model.model_validate(orjson.loads(value))
