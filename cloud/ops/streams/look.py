"""How a stream's fields came in lately: their names, their times, and odd values. Pure.

A value that is not of its field's type is null in its reading. An agent, and a map, keep its text
beside it, in the field `<name>_odd`; a plain device's reading becomes a dead letter.
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
from edgewake.protocol.frames.record import Record
from edgewake.protocol.frames.stream import FieldInfo, Stream

SAMPLE_CHARS: Final = 200
_NAMED: Final = re.compile(r"field '([^']{1,64})'")
"""How a refusal names a field."""


class FieldLook(BaseModel):
    """A field of the stream with its latest values."""

    name: str
    path: str
    """What it was called when it came; empty: the same, or it came by an agent."""
    type: FieldType
    unit: str
    decided: bool
    """Has an operator decided its type? Else it is that of the first reading."""
    first_device: str
    values: int
    """Values in the readings that were looked at, null left out."""
    odd: int
    """Values of another type in the same time."""
    sample: str
    """The newest of them."""


class StreamLook(BaseModel):
    """A stream's fields, by the readings of the last minutes."""

    name: str
    minutes: int
    readings: int
    """Readings that were looked at."""
    devices: int
    own_times: int
    """The number of these readings that had their own time."""
    arrival_times: int
    """Readings that have the time of their arrival, for they said none."""
    refused: int
    """Dead letters of the stream among the last that were looked at."""
    fields: list[FieldLook]
    is_cut: bool
    """There were more readings than these."""


def look_at(
    stream: Stream,
    records: Iterable[Record],
    letters: Iterable[DeadLetterView],
    *,
    minutes: int,
    is_cut: bool,
) -> StreamLook:
    """`records`: of the last minutes, oldest first; `letters`: newest first."""
    values: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    samples: dict[str, str] = {}
    devices: set[str] = set()
    own = arrived = refused = 0
    for record in records:
        frame = record.frame
        if frame.gap is not None:
            continue
        devices.add(record.device)
        at_arrival = sum(t == record.received_at for t in frame.t)
        arrived, own = arrived + at_arrival, own + len(frame.t) - at_arrival
        for name, column in frame.fields.items():
            there = [value for value in column if value is not None]
            values[name] += len(there)
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
        readings=own + arrived,
        devices=len(devices),
        own_times=own,
        arrival_times=arrived,
        refused=refused,
        fields=[
            _field(name, info, values[name], odd[name], samples.get(name, ""))
            for name, info in stream.fields.items()
            if not (name.endswith(ODD) and name.removesuffix(ODD) in stream.fields)
        ],
        is_cut=is_cut,
    )


def _field(name: str, info: FieldInfo, values: int, odd: int, sample: str) -> FieldLook:
    return FieldLook(
        name=name,
        path=info.path,
        type=info.type,
        unit=info.unit,
        decided=info.revision > 0,
        first_device=info.first_device,
        values=values,
        odd=odd,
        sample=sample,
    )
