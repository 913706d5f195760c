"""Decodes Kafka records into events, each with its bytes, once for all clients.

A record of `ew.s.*` holds many readings (or one gap), one of `ew.q.*` one result or watermark.
Event i of a record is always the same, on every server: a cursor counts on it. A record that cannot
be read is counted, and one event: a gap that says where it lies.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from edgewake.cloud.traces.events import Traced
from edgewake.protocol.frames import record as records
from edgewake.protocol.json_text import compact

log = logging.getLogger("edgewake.hub")

EVENT_BYTES_MAX: Final = 500_000
"""Bytes of an event's data; some SSE clients read no line over 512 KB. A larger one is replaced by
a gap event that says so."""
DATA: Final = ""
GAP: Final = "gap"
WATERMARK: Final = "watermark"
LOG_EVERY: Final = 1000
"""Unreadable records per line of log: a stream full of them must not fill the log."""
_DICT_BYTES: Final = 1000
"""Rough memory of a record's or an event's objects, for the bound of what is kept decoded."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `kind` is the SSE event name, empty for data.

    `fields` is the flat object, `data` the same as JSON in one line.
    """

    kind: str
    fields: Mapping[str, Any]
    data: bytes
    trace: Traced | None = None
    """The record is traced, and this server makes spans."""
    unselected: Mapping[str, Any] | None = None
    """The fields before a `select=`, by which things are told apart; None: `fields` are they."""


@dataclass(slots=True)
class Record:
    """A record as it came from Kafka, with its events once somebody asked for them."""

    offset: int
    timestamp: int
    """Kafka's time of the record, ms since 1970 UTC."""
    value: bytes
    is_result: bool
    is_watermark: bool = False
    order: int = 0
    """Its rank among the records of all partitions, ms: `timestamp`, made to grow with each tick of
    the hub. Readers merge by it."""
    name: str = ""
    """The name of its stream or query."""
    partition: int = 0
    trace: Traced | None = None
    decoded: Sequence[Event] | None = field(default=None, repr=False)


class Decoder:
    """Decodes records on demand and keeps the events of the latest ones, within `bytes_max`.

    The oldest go first.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: deque[tuple[Record, int]] = deque()
        """At most `bytes_max` bytes, but one record always."""
        self._bytes = 0
        self.unreadable = 0
        """Records that could not be read since the start."""

    def events(self, record: Record) -> Sequence[Event]:
        """The events of a record."""
        if record.decoded is None:
            found = self._decode(record)
            if record.trace is not None:
                found = [replace(one, trace=record.trace) for one in found]
            record.decoded = found
            self._remember(record)
        return record.decoded

    def _decode(self, record: Record) -> Sequence[Event]:
        try:
            return [_result_event(record)] if record.is_result else _stream_events(record)
        except (
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # somebody else's bytes, of any shape
            self.unreadable += 1
            if self.unreadable % LOG_EVERY == 1:
                facts = {
                    "event": "record.unreadable",
                    "error": repr(error)[:200],
                    "unreadable": self.unreadable,
                }
                log.warning("a record cannot be read; its readers get a gap", extra=facts)
            return (_unreadable(record),)

    def _remember(self, record: Record) -> None:
        assert record.decoded is not None
        size = (
            len(record.value)
            + _DICT_BYTES
            + sum(len(event.data) + _DICT_BYTES for event in record.decoded)
        )
        self._kept.append((record, size))
        self._bytes += size
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            oldest, freed = self._kept.popleft()
            oldest.decoded = None
            self._bytes -= freed


def _line(fields: Mapping[str, Any]) -> bytes:
    """JSON in one line, which is kept for the readers to come."""
    return compact(orjson.dumps(fields))


def project(event: Event, fields: Mapping[str, Any]) -> Event:
    """A data event reduced to these fields."""
    return Event(event.kind, fields, _line(fields), event.trace)


def selected(event: Event, columns: Mapping[str, Any]) -> Event:
    """A data event reduced to the columns of a `select=`."""
    return Event(event.kind, columns, _line(columns), event.trace, event.fields)


def _result_event(record: Record) -> Event:
    fields = orjson.loads(record.value)
    if not isinstance(fields, dict):
        raise TypeError(f"a result is an object, not {type(fields).__name__}")
    one_line = (
        record.value if b"\n" not in record.value and b"\r" not in record.value else _line(fields)
    )
    return _bounded(Event(WATERMARK if record.is_watermark else DATA, fields, one_line))


def _stream_events(record: Record) -> Sequence[Event]:
    decoded = records.decode(record.value)
    if decoded.frame.gap is not None:
        return [_device_gap(decoded)]
    return [_bounded(Event(DATA, reading, _line(reading))) for reading in records.readings(decoded)]


def _device_gap(record: records.Record) -> Event:
    gap = record.frame.gap
    assert gap is not None
    fields = {
        "scope": "device",
        "reason": gap.reason,
        "lost": gap.count,
        "stream": record.stream,
        "device": record.device,
        **({"via": record.via} if record.via else {}),
        "epoch": record.frame.epoch,
        "seq": record.frame.seq,
        "received_at": record.received_at,
    }
    return Event(GAP, fields, _line(fields))


def _unreadable(record: Record) -> Event:
    kind = "query" if record.is_result else "stream"
    fields = {
        "scope": "record",
        "reason": "unreadable",
        "lost": None,
        kind: record.name,
        "partition": record.partition,
        "offset": record.offset,
        "bytes": len(record.value),
    }
    return Event(GAP, fields, _line(fields))


def _bounded(event: Event) -> Event:
    if len(event.data) <= EVENT_BYTES_MAX:
        return event
    origin = {
        name: event.fields.get(name)
        for name in ("stream", "query", "device", "via", "epoch", "seq")
        if name in event.fields
    }
    fields = {"scope": "event", "reason": "oversize", "lost": 1, "bytes": len(event.data), **origin}
    return Event(GAP, fields, _line(fields))
