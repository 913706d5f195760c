"""Summarizes how a stream's fields were received lately: names, times and odd values. Pure.

A value of another type than its field's is null in its reading, and its text is in the field
`<name>_odd`. Of a frame that has it throughout, and where that field cannot be, it is in a dead
letter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pydantic import BaseModel

from edgewake.cloud.ops.letters.dead_letters import DeadLetterView
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.field_names import ODD
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import is_rounded
from edgewake.protocol.frames.record import Record
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.ops.device import TimesSaid

SAMPLE_CHARS: Final = 200
TIMES_SHOWN: Final = 16
"""Ways in which times were found that are shown of a stream: its devices choose their names."""
_NAMED: Final = re.compile(r"field '([^']{1,64})'")
"""Matches the field's name in a refusal."""


class FieldLook(BaseModel):
    """A field of the stream and its latest values."""

    name: str
    path: str
    """The name as received, where it is another one."""
    type: FieldType
    unit: str
    other_unit: str
    """Another unit that was said of it, and who said it."""
    label: str
    """What its device calls it for people."""
    classes: str
    """What kind of value it is, in the words of Home Assistant."""
    decided: bool
    """Whether an operator decided its type; otherwise the first reading did."""
    first_device: str
    values: int
    """Number of values in the scanned readings, without null."""
    odd: int
    """Number of values of another type in the same time."""
    rounded: int
    """Number of whole numbers beyond 2^53 among the values, of which SQL and the lake lose digits.
    """
    sample: str
    """The newest value of another type."""


class TimeFound(BaseModel):
    """How the times of the stream's readings were found, where that was not `t` in ms."""

    how: str
    """The field and its form or unit, such as `ts (s)`; `arrival`: there was none."""
    by: str
    """`agent` or `bridge`."""
    readings: int | None
    """How many, at the agents of the scanned readings since each of them began; null at a
    bridge."""
    first_device: str
    """At a bridge the device that was the first to send it so; at an agent one of them."""


class StreamLook(BaseModel):
    """A stream's fields, according to the readings of the last minutes."""

    name: str
    minutes: int
    readings: int
    """Number of scanned readings."""
    devices: int
    own_times: int
    """How many of these readings had a time of their own."""
    agent_times: int
    """How many readings have the time that an agent said: their own, or that at which it got them.
    `times` says how many of which."""
    arrival_times: int
    """How many readings got their arrival time because they had none."""
    times: list[TimeFound]
    """The most frequent first, TIMES_SHOWN of them. What an agent read with a map is not among
    them: the map says where the time is."""
    refused: int
    """Number of the stream's dead letters among the scanned ones."""
    fields: list[FieldLook]
    is_cut: bool
    """Whether more readings exist that were not scanned."""


def look_at(
    stream: Stream,
    records: Iterable[Record],
    letters: Iterable[DeadLetterView],
    *,
    minutes: int,
    is_cut: bool,
    times_of: Callable[[Iterable[str]], Mapping[str, TimesSaid]] = lambda _: {},
) -> StreamLook:
    """Summarizes `records` of the last minutes, oldest first, and `letters`, newest first.

    `times_of`: what the agents of some devices say of times.
    """
    seen = _Seen(stream)
    for record in records:
        if record.frame.gap is None:
            seen.count(record)
    for letter in letters:
        seen.count_refused(letter)
    return StreamLook(
        name=stream.name,
        minutes=minutes,
        readings=seen.own + seen.of_agents + seen.arrived,
        devices=len(seen.devices),
        own_times=seen.own,
        agent_times=seen.of_agents,
        arrival_times=seen.arrived,
        times=_times(stream, times_of(seen.agents)),
        refused=seen.refused,
        fields=seen.fields(),
        is_cut=is_cut,
    )


class _Seen:
    """What was counted in a stream's records and dead letters."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._end = topics.up("", stream.name).removeprefix(f"{topics.ROOT}/")
        """How the topics end from which the stream's letters come."""
        self._values: Counter[str] = Counter()
        self._odd: Counter[str] = Counter()
        self._rounded: Counter[str] = Counter()
        self._samples: dict[str, str] = {}
        self.devices: set[str] = set()
        self.agents: set[str] = set()
        self.own = self.arrived = self.of_agents = 0
        """Readings by where their time is from."""
        self.refused = 0

    def count(self, record: Record) -> None:
        """Count the readings of a frame, and the values of each field."""
        frame = record.frame
        self.devices.add(record.device)
        if record.sent_at is not None:
            self.of_agents += len(frame.t)
            self.agents.add(record.via or record.device)
        else:
            at_arrival = sum(t == record.received_at for t in frame.t)
            self.arrived += at_arrival
            self.own += len(frame.t) - at_arrival
        for name, column in frame.fields.items():
            there = [value for value in column if value is not None]
            self._values[name] += len(there)
            self._rounded[name] += sum(map(is_rounded, there))
            base = name.removesuffix(ODD)
            if there and base != name and base in self._stream.fields:
                self._odd[base] += len(there)
                self._samples[base] = str(there[-1])[:SAMPLE_CHARS]

    def count_refused(self, letter: DeadLetterView) -> None:
        """Count a dead letter, if it is of this stream."""
        if not letter.topic.endswith(self._end):
            return
        self.refused += 1
        found = _NAMED.search(letter.detail)
        if letter.reason == RejectReason.FIELD_TYPE and found is not None:
            self._odd[found[1]] += 1
            self._samples.setdefault(found[1], letter.preview[:SAMPLE_CHARS])

    def fields(self) -> list[FieldLook]:
        """The stream's fields; one that holds the odd values of another is not among them."""
        fields = self._stream.fields
        return [
            FieldLook(
                name=name,
                path=info.path,
                type=info.type,
                unit=info.unit,
                other_unit=info.other_unit,
                label=info.label,
                classes=info.classes,
                decided=info.revision > 0,
                first_device=info.first_device,
                values=self._values[name],
                odd=self._odd[name],
                rounded=self._rounded[name],
                sample=self._samples.get(name, ""),
            )
            for name, info in fields.items()
            if not (name.endswith(ODD) and name.removesuffix(ODD) in fields)
        ]


def _times(stream: Stream, said: Mapping[str, TimesSaid]) -> list[TimeFound]:
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for device, times in sorted(said.items()):
        for how, readings in times.get(stream.name, {}).items():
            counts[how] += readings
            first.setdefault(how, device)
    of_agents = [
        TimeFound(how=how, by="agent", readings=count, first_device=first[how])
        for how, count in counts.most_common(TIMES_SHOWN)
    ]
    return of_agents + [
        TimeFound(how=how, by="bridge", readings=None, first_device=device)
        for how, device in stream.times.items()
    ]
