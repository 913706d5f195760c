"""Finds which presets and maps would read a broker's messages. Pure.

Its input is the topics with some messages of each. Presets are tried first: the one that gives
readings of most topics takes them, then the next. The remaining topics are grouped by shape: topics
with the same number of levels and the same first level become one map, and the levels in which
they differ become its device and its value.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import orjson

from edgewake.protocol.errors import ConfigError, EdgewakeError
from edgewake.protocol.frames.event_time import looks_like
from edgewake.protocol.json_text import is_meant_as_json, parse
from edgewake.protocol.maps import presets
from edgewake.protocol.maps.applying import Outcome, apply
from edgewake.protocol.maps.compiling import compile_maps, compile_presets
from edgewake.protocol.maps.names import stream_name
from edgewake.protocol.maps.rule import Maps
from edgewake.protocol.topics import ROOT

TOPICS_MAX: Final = 5_000
"""The most topics that are kept; messages of further topics are only counted."""
SAMPLES_MAX: Final = 4
"""The most different messages kept of a topic: a single one might be an exception."""
SAMPLE_BYTES_MAX: Final = 64 * 1024
"""The most bytes of a message that is kept; of a longer one only the topic is."""
BYTES_MAX: Final = 64 << 20
"""The most bytes of all messages that are kept."""
SPARKPLUG: Final = "spBv1.0"
"""The first level of Sparkplug B's topics."""
PROPOSALS_MAX: Final = 64
"""The most maps that are proposed beside presets."""
Samples: TypeAlias = Mapping[str, Sequence[bytes]]
"""Topic → messages of it."""
_TIMES: Final = ("t", "ts", "time", "timestamp", "tst", "date", "datetime", "last_seen")
"""Names of times."""
_IDS: Final = frozenset({
    "id", "gw", "gateway", "device", "node", "seq", "sequence", "version", "count", "n",
})  # fmt: skip
"""Words in the names of numbers that say which message or device it is, and measure nothing."""
_WORD: Final = re.compile(r"(?<=[a-z0-9])[A-Z]")
"""Where a word begins within a name."""
_SCALAR, _OBJECT, _BINARY = "one value", "an object", "binary"


@dataclass(slots=True)
class Survey:
    """The messages received so far, by topic."""

    topics: dict[str, list[bytes]] = field(default_factory=dict)
    """Topic → its messages; empty where all were too long."""
    messages: int = 0
    unseen: int = 0
    """How many messages came on topics beyond TOPICS_MAX."""
    held: int = 0
    """Bytes of the messages that are kept, at most BYTES_MAX."""

    def add(self, topic: str, payload: bytes) -> None:
        """Adds a message; an empty one, which only clears a retained message, is ignored."""
        if not payload:
            return
        self.messages += 1
        if topic not in self.topics and len(self.topics) >= TOPICS_MAX:
            self.unseen += 1
            return
        samples = self.topics.setdefault(topic, [])
        is_wanted = len(samples) < SAMPLES_MAX and payload not in samples
        if is_wanted and len(payload) <= SAMPLE_BYTES_MAX and self.held < BYTES_MAX:
            samples.append(payload)
            self.held += len(payload)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A preset or a new map that would read some topics."""

    name: str
    """Name of the preset; for a new map, its topic."""
    topics: tuple[str, ...]
    table: str = ""
    """TOML of the new map; empty for a preset."""


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a survey."""

    own: tuple[str, ...]
    """Devices that publish on Edgewake's own topics."""
    nodes: tuple[str, ...]
    """Nodes of Sparkplug B, `GROUP/NODE`: not maps but a host application reads them."""
    proposals: tuple[Proposal, ...]
    left: tuple[str, ...]
    """Topics without a proposal: their payload is binary, or PROPOSALS_MAX is reached."""

    @property
    def text(self) -> str:
        """Returns a map file with all proposals; empty where there are none."""
        named = [one.name for one in self.proposals if not one.table]
        tables = [one.table for one in self.proposals if one.table]
        if not named and not tables:
            return ""
        head = f"presets = {orjson.dumps(named).decode()}\n" if named else ""
        return "\n".join([head, *tables]).lstrip("\n")


def proposed(survey: Survey, *, now_ms: int) -> Found:
    """Proposes presets and maps for a survey. Never raises, whatever the messages hold."""
    own = {
        topic.split("/")[2]
        for topic in survey.topics
        if topic.startswith(f"{ROOT}/") and topic.count("/") >= 4
    }
    levels = [topic.split("/") for topic in survey.topics if topic.startswith(f"{SPARKPLUG}/")]
    nodes = {f"{one[1]}/{one[3]}" for one in levels if len(one) >= 4 and one[1] != "STATE"}
    others = (f"{ROOT}/", "ew/", "/ew/", f"{SPARKPLUG}/")
    left = {t: p for t, p in survey.topics.items() if not t.startswith(others)}
    proposals: list[Proposal] = []
    for name, topics in _by_presets(left, now_ms):
        proposals.append(Proposal(name, topics))
        for topic in topics:
            del left[topic]
    for topics in _groups(left)[:PROPOSALS_MAX]:
        made = _own_map(topics, left, now_ms)
        if made is not None:
            proposals.append(made)
            for topic in made.topics:
                del left[topic]
    return Found(tuple(sorted(own)), tuple(sorted(nodes)), tuple(proposals), tuple(sorted(left)))


def _by_presets(left: Samples, now_ms: int) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Returns each preset that reads something, with its topics, the best first."""
    takes = {name: _taken(compile_presets([name]), left, now_ms) for name in presets.names()}
    used: set[str] = set()
    while takes:
        # Take the map with the most topics that give readings, and of two equal ones the map that
        # names more topics to skip.
        name = max(takes, key=lambda one: (len(takes[one][0] - used), len(takes[one][1] - used)))
        reads, passes = takes.pop(name)
        if not reads - used:
            return
        topics = (reads | passes) - used
        used |= topics
        yield name, tuple(sorted(topics))


def _taken(maps: Maps, left: Samples, now_ms: int) -> tuple[set[str], set[str]]:
    """Returns the topics of which every message is read, and those that the maps ignore."""
    reads, passes = set(), set()
    for topic, samples in left.items():
        if not maps.route(topic):
            continue
        outcomes = [apply(maps, topic, one, now_ms) for one in samples]
        if any(map(_is_read, outcomes)):
            reads.add(topic)
        elif any(not one.refused for one in outcomes):
            passes.add(topic)
    return reads, passes


def _is_read(outcome: Outcome) -> bool:
    return bool(outcome.readings) and not outcome.refused


def _groups(left: Samples) -> list[tuple[str, ...]]:
    """Groups topics by shape and kind of message, the largest group first."""
    found: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for topic, samples in left.items():
        levels = topic.split("/")
        first = levels[0] or "/".join(levels[:2])
        found[(len(levels), first, _kind(samples))].append(topic)
    shapes = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [tuple(sorted(topics)) for (_, _, kind), topics in shapes if kind != _BINARY]


def _kind(samples: Sequence[bytes]) -> str:
    payload = samples[0] if samples else b""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return _BINARY
    if not text or "\0" in text:
        return _BINARY
    return _OBJECT if is_meant_as_json(payload) else _SCALAR


def _own_map(topics: tuple[str, ...], left: Samples, now_ms: int) -> Proposal | None:
    """Makes a map for these topics; None where none can be made that reads one of them."""
    levels = [topic.split("/") for topic in topics]
    varying = [at for at in range(1, len(levels[0])) if len({one[at] for one in levels}) > 1]
    is_scalar = _kind(left[topics[0]]) == _SCALAR
    device, value = _roles(len(levels[0]), varying, is_scalar=is_scalar)
    names = {at: f"part_{at}" for at in varying}
    if value is not None:
        names[value] = "value"
    if device is not None:
        names[device] = "device"
    template = "/".join(
        f"{{{names[at]}}}" if at in names else level for at, level in enumerate(levels[0])
    )
    table = _table(template, names, levels[0][0] or levels[0][1], left[topics[0]][0], is_scalar)
    try:
        maps = compile_maps(table, "proposed")
    except ConfigError:
        return None  # A template cannot express every level, for example one with a brace.
    reads = tuple(
        topic
        for topic in topics
        if any(_is_read(apply(maps, topic, one, now_ms)) for one in left[topic])
    )
    return Proposal(template, reads, table) if reads else None


def _roles(count: int, varying: Sequence[int], *, is_scalar: bool) -> tuple[int | None, int | None]:
    """Chooses the level that names the device, and the one that names the value."""
    last = count - 1
    if last == 0:
        return None, None
    if not is_scalar or last == 1:
        return (varying[-1] if varying else last), None
    before = [at for at in varying if at != last]
    return (before[-1] if before else last - 1), last


def _table(
    template: str, names: Mapping[int, str], first: str, sample: bytes, is_scalar: bool
) -> str:
    try:
        stream = stream_name(first)
    except ValueError:
        stream = "found"
    lines = ["[[map]]", f"topic  = {_quoted(template)}"]
    has_device = "device" in names.values()
    lines.append(f"device = {_quoted('{device}' if has_device else first)}")
    lines.append(f"stream = {_quoted(stream)}")
    if is_scalar:
        name = "{value}" if "value" in names.values() else "value"
        lines.append(f"value  = {_quoted(name)}")
    else:
        lines += _of_object(sample)
    tags = [name for name in names.values() if name.startswith("part_")]
    if tags:
        listed = ", ".join(f'{name} = "{{{name}}}"' for name in tags)
        lines.append(f"tags   = {{ {listed} }}")
    return "\n".join(lines) + "\n"


def _of_object(sample: bytes) -> list[str]:
    """Returns what a map says of each reading in a message, and of its time."""
    try:
        found = parse(sample)
    except orjson.JSONDecodeError:
        return []
    each, inner = _list_in(found)
    if not each:
        return ['time   = "auto"'] if _time_in(found) else []
    lines = [f"each   = {_quoted(each)}"]
    outside = _time_in(found)
    if _time_in(inner):
        lines.append('time   = "auto"')
    elif outside:
        lines.append(f"time   = {_quoted('$.' + outside)}")
    return lines


def _list_in(found: object) -> tuple[str, object]:
    """Returns the path of the one list of objects that is all an object says, and its first item.

    The path is empty where the object has none or more than one, or values of its own: a map takes
    either them or what is in a list.
    """
    own = found if isinstance(found, dict) else {}
    lists = [
        (name, value[0])
        for name, value in own.items()
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
    ]
    if len(lists) != 1:
        return "", None
    name, first = lists[0]
    when = _time_in(own)
    if any(_is_measured(one, value) for one, value in own.items() if one not in (name, when)):
        return "", None
    return (name if name.isidentifier() else f'"{name}"'), first


def _is_measured(name: str, value: object) -> bool:
    """Is it a number, or does it hold one, that is not the id of something?"""
    if isinstance(value, dict):
        return any(_is_measured(*one) for one in value.items())
    return isinstance(value, int | float) and _words(name).isdisjoint(_IDS)


def _words(name: str) -> frozenset[str]:
    """Returns the words of a name: of `gwId` and `gw_id` gw and id."""
    return frozenset(_WORD.sub(r"_\g<0>", name).lower().replace("-", "_").split("_"))


def _time_in(found: object) -> str:
    """Returns the name of the value of an object, or of a list's first one, that is its time."""
    if isinstance(found, list):
        found = found[0] if found else {}
    if not isinstance(found, dict):
        return ""
    try:
        for name, value in found.items():
            if name.lower() in _TIMES and looks_like(value):
                return str(name)
    except (EdgewakeError, ValueError, TypeError, OverflowError):
        return ""
    return ""


def _quoted(text: str) -> str:
    """Quotes a string for TOML, which accepts JSON's strings."""
    return orjson.dumps(text).decode()
