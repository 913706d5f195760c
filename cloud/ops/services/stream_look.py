"""Summarizes how a stream's fields were received lately: names, times and odd values. Pure.

A value of another type than its field's is null in its reading, and its text is in the field
`<name>_odd`. Of a frame that has it throughout, and where that field cannot be, it is in a dead
letter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
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

SAMPLE_CHARS: Final = 200
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
    Its status says how times were found."""
    arrival_times: int
    """How many readings got their arrival time because they had none."""
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
) -> StreamLook:
    """Summarizes `records` of the last minutes, oldest first, and `letters`, newest first."""
    values: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    rounded: Counter[str] = Counter()
    samples: dict[str, str] = {}
    devices: set[str] = set()
    own = arrived = refused = of_agents = 0
    for record in records:
        frame = record.frame
        if frame.gap is not None:
            continue
        devices.add(record.device)
        if record.sent_at is not None:
            of_agents += len(frame.t)
        else:
            at_arrival = sum(t == record.received_at for t in frame.t)
            arrived, own = arrived + at_arrival, own + len(frame.t) - at_arrival
        for name, column in frame.fields.items():
            there = [value for value in column if value is not None]
            values[name] += len(there)
            rounded[name] += sum(map(is_rounded, there))
            base = name.removesuffix(ODD)
            if there and base != name and base in stream.fields:
                odd[base] += len(there)
                samples[base] = str(there[-1])[:SAMPLE_CHARS]
    end = topics.up("", stream.name).removeprefix(f"{topics.ROOT}/")
    for letter in letters:
        if not letter.topic.endswith(end):
            continue
        refused += 1
        found = _NAMED.search(letter.detail)
        if letter.reason == RejectReason.FIELD_TYPE and found is not None:
            odd[found[1]] += 1
            samples.setdefault(found[1], letter.preview[:SAMPLE_CHARS])
    return StreamLook(
        name=stream.name,
        minutes=minutes,
        readings=own + of_agents + arrived,
        devices=len(devices),
        own_times=own,
        agent_times=of_agents,
        arrival_times=arrived,
        refused=refused,
        fields=[
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
                values=values[name],
                odd=odd[name],
                rounded=rounded[name],
                sample=samples.get(name, ""),
            )
            for name, info in stream.fields.items()
            if not (name.endswith(ODD) and name.removesuffix(ODD) in stream.fields)
        ],
        is_cut=is_cut,
    )
