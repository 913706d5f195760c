"""The checked values of a map file, which `applying` works with. Pure."""

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
"""The most maps in a file with its presets: each new topic is compared with all of them."""
FIELDS_MAX: Final = 256
"""The most fields that one map names, which is what a reading may have."""
TAGS_MAX: Final = 32
"""The most tags of one map."""
READINGS_MAX: Final = 1_000
"""The most readings of one message; further ones are refused. Each is one record in Kafka."""
MESSAGE_BYTES_MAX: Final = 1 << 20
"""The most bytes of a message, as of a frame."""
TOPICS_MAX: Final = 10_000
"""The most topics whose maps are cached; those of others are looked up each time."""


KINDS: Final = ("object", "list", "value")
"""What a value of a message can be; whatever holds no others is a value."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that an object or a part of the topic fulfils or not."""

    path: Path | None
    part: str = ""
    """The part of the topic that is tested in place of a path."""
    one_of: tuple[Scalar, ...] | None = None
    none_of: tuple[Scalar, ...] = ()
    exists: bool | None = None
    starts: str | None = None
    """The text that the value must begin with."""
    kind: str | None = None
    """What the value must be: one of KINDS."""


@dataclass(frozen=True, slots=True)
class TimeAt:
    """Where the time stands in a message, and its format."""

    paths: tuple[Path, ...]
    """The first path that leads to a value counts.

    Empty: the time is recognised among all fields.
    """
    style: str = AUTO
    zone: tzinfo | None = None
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class FieldRule:
    """How one value is named and converted."""

    path: Path
    name: Text
    """A `*` in it is replaced by the name that a star of the path matched."""
    kind: FieldType | None = None
    is_time: bool = False
    scale: float | None = None
    offset: float = 0.0
    unit: str = ""
    values: Mapping[str, Scalar] = field(default_factory=dict)
    """The received text → the value in its place."""
    when: tuple[Condition, ...] = ()
    is_apart: bool = False
    """Whether a list becomes one field for each of its items."""
    is_plain: bool = True
    """Whether the value needs no conversion."""


@dataclass(frozen=True, slots=True)
class PresenceField:
    """The field that says whether a device is online."""

    field: str
    """The field of its readings; a value true or false needs no entry in `words`."""
    words: Mapping[str, bool]
    """The text of the field → whether the device is online."""

    def of(self, value: object) -> bool | None:
        """Returns whether a value says online; None where it says neither."""
        if isinstance(value, bool):
            return value
        return self.words.get(value) if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Map:
    """One `[[map]]` of the file."""

    name: str
    topic: TopicTemplate
    payload: str
    columns: tuple[str, ...] = ()
    separator: str = ","
    value: Text | None = None
    """Name of the field for a message that is one value."""
    when: tuple[Condition, ...] = ()
    each: Path | None = None
    device: Text | None = None
    stream: Text | None = None
    presence: PresenceField | None = None
    """The field that says whether the device is online; None: no field does."""
    seq: Path | None = None
    time: TimeAt | None = None
    fields: tuple[FieldRule, ...] = ()
    value_units: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Part of the topic → word there → unit of a message that is one value."""
    own_units: Mapping[str, str] = field(default_factory=dict)
    """Name of a field of the message → its unit, where nothing else of it is to change."""
    tags: Mapping[str, Text] = field(default_factory=dict)
    units: Path | None = None
    """The object of the message that has fields' names and their units."""
    left_out: tuple[Path, ...] = ()
    keeps_others: bool = True
    is_ignored: bool = False


class Route(NamedTuple):
    """A map that takes a topic."""

    map: Map
    parts: Mapping[str, str]
    names: dict[str, tuple[str, str]]
    """Prefix of devices → device and stream, cached where the topic alone names both."""


@dataclass(frozen=True, slots=True)
class Maps:
    """A compiled map file. Only its caches of topics change."""

    maps: Sequence[Map]
    version: str
    """Hash of the file and its presets: the first 12 hexadecimal digits of a SHA-256."""
    filters: tuple[str, ...]
    """The topic filters to subscribe to."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """`[devices]`: a device's received name → its name in Edgewake."""
    devices: dict[tuple[str, str], str] = field(default_factory=dict, repr=False, compare=False)
    """Topic and prefix of devices → the device that the topic names, cached by `device_of`."""
    _routes: dict[str, Sequence[Route]] = field(default_factory=dict, repr=False, compare=False)

    def route(self, topic: str) -> Sequence[Route]:
        """Returns the maps of a topic in the file's order, with the parts each finds in it."""
        known = self._routes.get(topic)
        if known is not None:
            return known
        matches = [(one, one.topic.match(topic)) for one in self.maps]
        found = tuple(Route(one, parts, {}) for one, parts in matches if parts is not None)
        if len(self._routes) < TOPICS_MAX:
            self._routes[topic] = found
        return found
