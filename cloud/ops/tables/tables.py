"""The in-memory tables of the operations API. No I/O.

They are the compacted tables, the last report of every part, and rates. `apply` takes one Kafka
record after another and returns the changes as live events; `look` finds what changed merely
because time passed. An invalid record is counted and skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from edgewake.cloud.ops.tables.alerts import AlertTable
from edgewake.cloud.ops.tables.client_table import ClientTable
from edgewake.cloud.ops.tables.device_commands import CommandTable
from edgewake.cloud.ops.tables.device_table import DeviceTable, Event
from edgewake.cloud.ops.tables.flow import Flow
from edgewake.cloud.ops.tables.name_index import NameIndex
from edgewake.cloud.ops.tables.part_table import PartTable
from edgewake.cloud.ops.tables.rates import StreamRates
from edgewake.cloud.ops.tables.requests import RequestTable
from edgewake.cloud.ops.tables.shared_reads import SharedReads
from edgewake.protocol import topics
from edgewake.protocol.downlink.downlink import ANSWERS, REQUESTS
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.dead_letter import DeadLetter, known_reason
from edgewake.protocol.frames.stream import NameKind, Stream, StreamTable, unit_in
from edgewake.protocol.leases import lease_record
from edgewake.protocol.leases.lease_record import Lease
from edgewake.protocol.ops.board import Board
from edgewake.protocol.ops.device import DeviceGaps, DeviceSeen
from edgewake.protocol.ops.device_note import DeviceNote
from edgewake.protocol.ops.erasure import Erasure, Report
from edgewake.protocol.ops.named_set import NamedSet
from edgewake.protocol.ops.preview import Preview
from edgewake.protocol.ops.problem import ProblemRecord
from edgewake.protocol.ops.publication import Publication
from edgewake.protocol.ops.pushed_maps import MapVersions
from edgewake.protocol.ops.query import Progress, Registration, units_of
from edgewake.protocol.ops.repair import Repair

ANSWERS_TOPIC: Final = topics.stream_topic(ANSWERS)
REQUESTS_TOPIC: Final = topics.stream_topic(REQUESTS)


@dataclass(frozen=True, slots=True)
class Change:
    """A Kafka record for `apply`."""

    topic: str
    key: str
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    offset: int = 0
    partition: int = 0


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """First retained offset and next offset to be written, per partition, at one moment."""

    first: tuple[int, ...]
    next: tuple[int, ...]


@dataclass
class OpsTables:
    """The compacted tables, every part's last report, and the offsets for rates."""

    names: StreamTable = field(default_factory=StreamTable)
    """The catalogue, including the names that queries claim."""
    streams: dict[str, Stream] = field(default_factory=dict)
    """The streams of the catalogue."""
    devices: DeviceTable = field(default_factory=DeviceTable)
    queries: dict[str, Registration] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    repairs: dict[str, Repair] = field(default_factory=dict)
    previews: dict[str, Preview] = field(default_factory=dict)
    alerts: AlertTable = field(default_factory=AlertTable)
    boards: dict[str, Board] = field(default_factory=dict)
    sets: dict[str, NamedSet] = field(default_factory=dict)
    """Named sets, which filters use."""
    publications: dict[str, Publication] = field(default_factory=dict)
    maps: MapVersions = field(default_factory=MapVersions)
    """Maps that an operator gave to all bridges."""
    notes: dict[str, DeviceNote] = field(default_factory=dict)
    """People's notes on devices."""
    problems: dict[str, ProblemRecord] = field(default_factory=dict)
    """Id → problem, also of ended ones."""
    erasures: dict[str, Erasure] = field(default_factory=dict)
    """Id → erasure, also of ended ones."""
    erased: dict[str, Report] = field(default_factory=dict)
    """`id|part` → what the lake or the analysis did of an erasure."""
    down: CommandTable = field(default_factory=CommandTable)
    """Commands and settings for devices."""
    requests: RequestTable = field(default_factory=RequestTable)
    """Requests of devices."""
    leases: dict[str, Lease] = field(default_factory=dict)
    lease_ids: NameIndex = field(default_factory=NameIndex)
    shared: SharedReads = field(default_factory=SharedReads)
    """Deliveries to webhooks and groups that share streams."""
    clients: ClientTable = field(default_factory=ClientTable)
    parts: PartTable = field(default_factory=PartTable)
    offsets: Mapping[str, TopicOffsets] = field(default_factory=dict)
    """Topic → its offsets, for topics that exist now."""
    unsequenced: int | None = None
    """Records of `ew.up` that are not sequenced yet; None: not known."""
    rates: StreamRates = field(default_factory=StreamRates)
    flow: Flow = field(default_factory=Flow)
    dead: Counter[str] = field(default_factory=Counter)
    """Reason → number of dead letters since this process started."""
    unreadable: int = 0
    read_to: dict[str, int] = field(default_factory=dict)
    """Table → offset of its last applied record, valid or not."""
    watched: dict[tuple[str, str], Callable[[bytes | None], None]] = field(default_factory=dict)
    """Table and key of a row that is being replaced → what takes its records."""
    is_loaded: bool = True
    """False while the tables are read from their beginning: old rows make neither events nor rates.
    """

    @property
    def passed(self) -> dict[str, int]:
        """Returns query topic → event time, ms, up to which its windows are final."""
        known = [(one, self.progress.get(name)) for name, one in self.queries.items()]
        return {
            one.topic: progress.watermark
            for one, progress in known
            if progress is not None
            and progress.watermark is not None
            and progress.updated_at >= one.registered_at
        }

    @property
    def units(self) -> dict[str, dict[str, str]]:
        """Returns stream or query → column → unit, of the columns that have one."""
        found = {
            name: {field: info.unit for field, info in stream.fields.items() if info.unit}
            for name, stream in self.streams.items()
        }
        for name, progress in self.progress.items():
            found[name] = units_of(progress.measures, partial(unit_in, self.streams))
        return {name: units for name, units in found.items() if units}

    @contextmanager
    def watching(self, topic: str, key: str, put: Callable[[bytes | None], None]) -> Iterator[None]:
        """Gives `put` all records of a key that are applied meanwhile."""
        self.watched[topic, key] = put
        try:
            yield
        finally:
            del self.watched[topic, key]

    def apply(self, change: Change, *, now: int) -> list[Event]:
        """Applies a record and returns its live events."""
        put = self.watched.get((change.topic, change.key))
        if put is not None:
            put(change.value)
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
            case topics.REPAIRS:
                return self._repair(change)
            case (
                topics.PREVIEWS
                | topics.BOARDS
                | topics.SETS
                | topics.PUBLICATIONS
                | topics.ERASURES
                | topics.NOTES
                | topics.PROBLEMS
            ):
                return self._asked(change)
            case topics.ALERT_RULES | topics.ALERTS:
                return self.alerts.put(change.key, change.value)
            case topics.DOWN | topics.CLIENTS | topics.ENDINGS | topics.MAPS:
                self._quietly(change)
                return ()
            case topics.REQUESTS:
                return self._request(change)
            case topics.DEAD:
                return self._dead_letter(change)
            case _:
                return self._of_stream(change, now)

    def _quietly(self, change: Change) -> None:
        """Applies rows that make no event."""
        put = {
            topics.DOWN: self.down.put,
            topics.CLIENTS: self.clients.put,
            topics.ENDINGS: self.clients.put_ending,
            topics.MAPS: self.maps.put,
        }[change.topic]
        put(change.key, change.value)

    def _of_stream(self, change: Change, now: int) -> Iterable[Event]:
        if change.topic == ANSWERS_TOPIC:
            self._answers(change)
        elif change.topic == REQUESTS_TOPIC:
            self._requests(change)
        else:
            return self._parts(change, now)
        return ()

    def _stream(self, change: Change) -> None:
        self.names.apply(change.key, change.value)
        row = self.names.get(change.key)
        if row is not None and row.kind is NameKind.STREAM:
            self.streams[change.key] = row
        else:
            self.streams.pop(change.key, None)

    def _lease(self, change: Change) -> None:
        if "|" in change.key:
            self.shared.put(change.key, change.value)
            return
        is_known = change.key in self.leases
        if change.value is None:
            self.leases.pop(change.key, None)
        else:
            self.leases[change.key] = lease_record.decode(change.value)
        if is_known and change.value is None:
            self.lease_ids.remove(change.key)
        elif not is_known and change.value is not None:
            self.lease_ids.add(change.key)

    def _asked(self, change: Change) -> Iterable[Event]:
        if change.topic == topics.ERASURES:
            return self._erasure(change)
        tables: dict[str, tuple[dict[str, Any], type[BaseModel]]] = {
            topics.PREVIEWS: (self.previews, Preview),
            topics.BOARDS: (self.boards, Board),
            topics.SETS: (self.sets, NamedSet),
            topics.PUBLICATIONS: (self.publications, Publication),
            topics.NOTES: (self.notes, DeviceNote),
            topics.PROBLEMS: (self.problems, ProblemRecord),
        }
        table, model = tables[change.topic]
        _put(table, model, change.key, change.value)
        return ()

    def _erasure(self, change: Change) -> Iterator[Event]:
        if "|" in change.key:
            _put(self.erased, Report, change.key, change.value)
            return
        _put(self.erasures, Erasure, change.key, change.value)
        row = self.erasures.get(change.key)
        if row is not None:
            yield {"kind": "erasure", "id": row.id, "step": row.step.value, "detail": row.detail}

    def _device(self, change: Change, now: int) -> Iterator[Event]:
        device, _, what = change.key.partition("|")
        if what == "gaps":
            if change.value is not None:
                gaps = DeviceGaps.from_json(change.value)
                yield from _loss(device, opened=gaps.opened, missing=gaps.missing)
            return
        before = self.devices.lost(device)
        event = self.devices.put(device, what, change.value, now=now)
        lost = self.devices.lost(device)
        if before is not None and lost is not None:
            # A new event log counts its losses from 0.
            yield from _loss(device, lost=lost - before if lost >= before else lost)
        if what.startswith("seen") and change.value is not None and self.is_loaded:
            self.rates.add(DeviceSeen.from_json(change.value))
        if event is not None:
            yield event

    def _query(
        self, change: Change, table: dict[str, Any], model: type[BaseModel]
    ) -> Iterator[Event]:
        before = self._query_facts(change.key)
        _put(table, model, change.key, change.value)
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

    def _repair(self, change: Change) -> Iterator[Event]:
        _put(self.repairs, Repair, change.key, change.value)
        if change.value is not None:
            repair = self.repairs[change.key]
            yield {
                "kind": "repair",
                "id": repair.id,
                "query": repair.query,
                "state": repair.state.value,
                "detail": repair.detail,
            }

    def _dead_letter(self, change: Change) -> Iterator[Event]:
        letter = DeadLetter.from_headers(change.headers)
        self.dead[known_reason(letter.reason)] += 1
        yield {
            "kind": "dead_letter",
            "offset": change.offset,
            "device": change.key,
            **letter.model_dump(),
        }

    def _request(self, change: Change) -> Iterator[Event]:
        self.requests.put(change.key, change.value)
        device, _, request_id = change.key.rpartition("|")
        row = self.requests.get(device, request_id)
        if row is not None:
            state = "open" if row.reply is None else row.reply.state.value
            yield {
                "kind": "request",
                "device": device,
                "id": request_id,
                "name": row.name,
                "state": state,
            }

    def _requests(self, change: Change) -> None:
        for place, reading in enumerate(
            () if change.value is None else records.readings(records.decode(change.value))
        ):
            try:
                self.requests.on_request(reading, change.partition, change.offset, place)
            except (ValueError, KeyError):
                self.unreadable += 1

    def _answers(self, change: Change) -> None:
        for reading in (
            () if change.value is None else records.readings(records.decode(change.value))
        ):
            self.down.on_answer(reading)

    def _parts(self, change: Change, now: int) -> Iterator[Event]:
        if change.value is not None:
            for reading in records.readings(records.decode(change.value)):
                yield from self.parts.put(reading, now=now)

    def look(self, *, now: int) -> tuple[list[Event], bool]:
        """Returns events of what became offline, silent or unknown, and whether more are due."""
        events, is_more = self.devices.look(now=now)
        self.clients.look(now)
        events.extend(self.parts.look(now=now))
        return events, is_more

    def sample(
        self,
        offsets: Mapping[str, TopicOffsets],
        sequenced: Mapping[int, int] | None = None,
        *,
        now_s: float,
    ) -> None:
        """Stores the offsets of all topics, and the counts from which rates are computed.

        `sequenced`: partition of `ew.up` → first offset that is not sequenced; None: not known.
        """
        self.offsets = offsets
        up = offsets.get(topics.UP)
        self.unsequenced = None if up is None or sequenced is None else _waiting(up, sequenced)
        self.rates.sample(now_s)
        self.flow.sample(
            now_s,
            received=sum(offsets[topics.UP].next) if topics.UP in offsets else 0,
            passed_on=self.rates.counts.total(),
            computed_per_s=sum(one.readings_per_s or 0.0 for one in self.progress.values()),
        )


def _waiting(up: TopicOffsets, sequenced: Mapping[int, int]) -> int:
    """Records of `ew.up` that no sequencer has passed on yet."""
    return sum(
        max(0, end - max(first, sequenced.get(partition, first)))
        for partition, (first, end) in enumerate(zip(up.first, up.next, strict=True))
    )


def _put(table: dict[str, Any], model: type[BaseModel], key: str, value: bytes | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = model.model_validate_json(value)


def _loss(device: str, **counts: int) -> Iterator[Event]:
    said = {name: count for name, count in counts.items() if count > 0}
    if said:
        yield {"kind": "loss", "device": device, **said}
