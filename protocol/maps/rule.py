"""What a map file says, checked: values that `applying` works with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Final, NamedTuple

from edgewake.protocol.frames.event_time import AUTO
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.maps.path import Path
from edgewake.protocol.maps.text import Text
from edgewake.protocol.maps.topic import TopicTemplate

MAPS_MAX: Final = 256
"""Maps in a file, those of its presets too: a topic that is new is compared with each."""
FIELDS_MAX: Final = 256
"""Fields that one map names: as many as a reading may have."""
TAGS_MAX: Final = 32
"""Tags of one map."""
READINGS_MAX: Final = 1_000
"""Readings of one message; those after them are refused. Each is a record of its own in Kafka."""
MESSAGE_BYTES_MAX: Final = 1 << 20
"""Bytes of a message that is read: as of a frame."""
TOPICS_MAX: Final = 10_000
"""Topics whose maps are remembered; others are looked up each time."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Holds for an object, or does not."""

    path: Path | None
    part: str = ""
    """The part of the topic that is looked at in place of a path."""
    one_of: tuple[Scalar, ...] | None = None
    none_of: tuple[Scalar, ...] = ()
    exists: bool | None = None
    starts: str | None = None
    """Text that the value begins with."""


@dataclass(frozen=True, slots=True)
class TimeAt:
    """Where the time is, and how it is written."""

    paths: tuple[Path, ...]
    """The first that is there. None of them: it is found by the names and looks of all fields."""
    style: str = AUTO
    zone: tzinfo | None = None
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A value that gets a name of its own, and may be converted."""

    path: Path
    name: Text
    """`*` in it stands for the name that a star of the path stood for."""
    kind: FieldType | None = None
    is_time: bool = False
    scale: float | None = None
    offset: float = 0.0
    unit: str = ""
    values: Mapping[str, Scalar] = field(default_factory=dict)
    """Text as it came → what it is."""
    when: tuple[Condition, ...] = ()
    is_apart: bool = False
    """Does a list become a field for each of its items?"""
    is_plain: bool = True
    """Is the value taken as it is?"""


@dataclass(frozen=True, slots=True)
class Presence:
    """What says whether a device is there."""

    field: str
    """The field of its readings; true and false stand as they are."""
    words: Mapping[str, bool]
    """Text → is it there?"""

    def of(self, value: object) -> bool | None:
        """What a value says; None: nothing."""
        if isinstance(value, bool):
            return value
        return self.words.get(value) if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Map:
    """A `[[map]]` of the file."""

    name: str
    topic: TopicTemplate
    payload: str
    columns: tuple[str, ...] = ()
    separator: str = ","
    value: Text | None = None
    """Name of the field that a message has which is one value."""
    when: tuple[Condition, ...] = ()
    each: Path | None = None
    device: Text | None = None
    stream: Text | None = None
    presence: Presence | None = None
    """What says whether the device is there; None: nothing does."""
    seq: Path | None = None
    time: TimeAt | None = None
    fields: tuple[FieldRule, ...] = ()
    tags: Mapping[str, Text] = field(default_factory=dict)
    left_out: tuple[Path, ...] = ()
    keeps_others: bool = True
    is_ignored: bool = False


class Route(NamedTuple):
    """A map that takes a topic."""

    map: Map
    parts: Mapping[str, str]
    names: dict[str, tuple[str, str]]
    """Device and stream where the topic alone says both, by the prefix of devices."""


@dataclass(frozen=True, slots=True)
class Maps:
    """A map file. `route` remembers topics; nothing else in it ever changes."""

    maps: Sequence[Map]
    version: str
    """Hash of the file and its presets: the first 12 hexadecimal digits of a SHA-256."""
    filters: tuple[str, ...]
    """What is subscribed to."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """`[devices]`: a device's name as it came → ours."""
    _routes: dict[str, Sequence[Route]] = field(default_factory=dict, repr=False, compare=False)

    def route(self, topic: str) -> Sequence[Route]:
        """The maps of a topic in the file's order, with the parts that each reads in it."""
        known = self._routes.get(topic)
        if known is not None:
            return known
        matches = [(one, one.topic.match(topic)) for one in self.maps]
        found = tuple(Route(one, parts, {}) for one, parts in matches if parts is not None)
        if len(self._routes) < TOPICS_MAX:
            self._routes[topic] = found
        return found
