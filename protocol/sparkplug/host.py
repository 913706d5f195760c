"""A host application of Sparkplug B 3.0: it interprets the messages of edge nodes. No I/O.

A node's birth declares its metrics by name, type and alias, and later messages are decoded by that.
A device's birth declares its own, in place of all that it declared before.
Messages are numbered (`seq`, 0 to 255). One that comes too early waits `reorder_s` for those before
it. After that time, or where a birth is missing or an alias is unknown, the node is asked for a
rebirth. A death that belongs to an earlier birth than the last (`bdSeq`) is ignored.

A value that its node calls bad or stale (the property `Quality`) is null, as a measurement is that
could not be made; its text is in `<name>_odd`. With the death of a node or device all its metrics
are stale: a reading of that moment has null for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames.field_names import ODD, ODD_CHARS_MAX, free_name
from edgewake.protocol.sparkplug.payload import (
    TEMPLATE,
    Metric,
    Payload,
    Template,
    decoded,
    value_of,
)

NAMESPACE: Final = "spBv1.0"
STATE: Final = "STATE"
TYPES: Final = frozenset({"NBIRTH", "NDATA", "NDEATH", "DBIRTH", "DDATA", "DDEATH"})
COMMANDS: Final = frozenset({"NCMD", "DCMD"})
SEQUENCE: Final = 256
NODES_MAX: Final = 1_000
"""The most edge nodes. A further one replaces the longest known node that is offline; where all are
online it is refused."""
DEVICES_MAX: Final = 1_000
"""The most devices of one node that are online."""
NODE_METRICS_MAX: Final = 50_000
"""The most metrics of one node and its devices, some 300 bytes each."""
ALL_METRICS_MAX: Final = 500_000
"""The most metrics of all nodes together."""
WAITING_MAX: Final = 128
"""The most messages of a node that wait for an earlier one: half of all sequence numbers."""
REBIRTH_S: Final = 10.0
"""Seconds between two requests for a rebirth to one node."""
BD_SEQ: Final = "bdSeq"
_OWN: Final = ("Node Control/", "Device Control/")


class Reading(NamedTuple):
    """The values of a node or device at one moment."""

    thing: str
    """`group/node` or `group/node/device`."""
    t: int
    values: dict[str, Any]
    is_historical: bool
    units: Mapping[str, str] = MappingProxyType({})
    """Name of a value → its unit, where its metric says it: mostly at birth."""
    is_stale: bool = False
    """Whether the values are null because their node or device is gone."""


class ThingPresence(NamedTuple):
    """A node or device went online or offline."""

    thing: str
    is_online: bool
    t: int


class Rebirth(NamedTuple):
    """Requests a rebirth by a message to this topic."""

    topic: str


class Odd(NamedTuple):
    """Something was wrong with a message, named by a fixed phrase so that it can be counted."""

    what: str
    is_lost: bool = False
    """Whether a message is lost by it."""
    topic: str = ""
    """The topic of an earlier message; empty: the message is the one that just came."""


Event: TypeAlias = Reading | ThingPresence | Rebirth | Odd


class Address(NamedTuple):
    """A topic."""

    group: str
    kind: str
    node: str
    device: str

    @property
    def thing(self) -> str:
        """Returns `group/node` or `group/node/device`."""
        return "/".join(filter(None, (self.group, self.node, self.device)))

    @property
    def topic(self) -> str:
        """Returns the topic that it was parsed from."""
        levels = (NAMESPACE, self.group, self.kind, self.node, self.device)
        return "/".join(filter(None, levels))


def address_of(topic: str) -> Address | None:
    """Parses a topic; None where it does not belong to a node or device."""
    levels = topic.split("/")
    if levels[0] != NAMESPACE or len(levels) not in (4, 5) or not all(levels):
        return None
    device = levels[4] if len(levels) == 5 else ""
    if levels[2] not in TYPES | COMMANDS or (levels[2][0] == "D") != bool(device):
        return None
    return Address(levels[1], levels[2], levels[3], device)


def is_node_life(topic: str) -> bool:
    """Returns whether a message is a node's birth or death.

    No other message repeats these, while a lost birth or death of a device is repeated at its
    node's next birth.
    """
    address = address_of(topic)
    return address is not None and address.kind in ("NBIRTH", "NDEATH")


@dataclass(slots=True)
class _Message:
    address: Address
    payload: Payload


@dataclass(slots=True)
class _Node:
    is_online: bool = False
    is_born: bool = False
    """Whether it has a birth that no death followed."""
    bd_seq: int | None = None
    """The number of the last birth; None: it had none, so any death may belong to it."""
    seq: int = -1
    """The number of the last message in order."""
    devices: set[str] = field(default_factory=set)
    """The devices that are online."""
    types: dict[tuple[str, str], int] = field(default_factory=dict)
    """(device, name) → data type."""
    aliases: dict[int, tuple[str, str]] = field(default_factory=dict)
    waiting: dict[int, _Message] = field(default_factory=dict)
    """Sequence number → message that came too early, at most WAITING_MAX."""
    waits_since_s: float | None = None
    asked_s: float = -1e9
    """When a rebirth was requested last."""


class Host:
    """The state of all nodes."""

    def __init__(self, reorder_s: float) -> None:
        self._reorder_s = reorder_s
        self._nodes: dict[tuple[str, str], _Node] = {}
        self._metrics = 0
        """The number of metrics of all nodes."""

    def message(self, topic: str, data: bytes, now_ms: int, now_s: float) -> list[Event]:
        """Interprets a message. Never raises."""
        address = address_of(topic)
        if address is None:
            return [Odd("messages on topics outside of Sparkplug")]
        if address.kind in COMMANDS:
            return []
        try:
            payload = decoded(data)
        except Rejected as error:
            return [Odd(error.detail, is_lost=True)]
        key = (address.group, address.node)
        node = self._nodes.get(key)
        if node is None:
            if len(self._nodes) >= NODES_MAX and not self._forget_one():
                return [Odd(f"more than {NODES_MAX} edge nodes", is_lost=True)]
            node = self._nodes[key] = _Node()
        one = _Message(address, payload)
        if address.kind == "NBIRTH":
            return self._node_birth(node, one, now_ms, now_s)
        if address.kind == "NDEATH":
            return self._node_death(node, one, now_ms)
        if not node.is_online:
            return [
                Odd("messages without a birth before them", is_lost=True),
                *_ask(node, address, now_s),
            ]
        return self._in_order(node, one, now_ms, now_s)

    def _forget_one(self) -> bool:
        """Forgets the longest known node that is offline, if there is one."""
        for key, node in self._nodes.items():
            if not node.is_online:
                self._metrics -= len(node.types)
                del self._nodes[key]
                return True
        return False

    def _why_no_more(self, node: _Node, one: _Message) -> str | None:
        """Returns which bound a birth exceeds, or None."""
        device, known = one.address.device, node.types
        if device and device not in node.devices and len(node.devices) >= DEVICES_MAX:
            return f"more than {DEVICES_MAX} devices of one node"
        names = (name for metric in one.payload.metrics for name in _names(metric))
        new = len({(device, name) for name in names} - known.keys())
        if len(known) + new > NODE_METRICS_MAX:
            return f"more than {NODE_METRICS_MAX} metrics of one node"
        if self._metrics + new > ALL_METRICS_MAX:
            return f"more than {ALL_METRICS_MAX} metrics of all nodes"
        return None

    def due(self, now_s: float) -> list[Event]:
        """Requests rebirths of nodes whose missing message did not come in time."""
        found: list[Event] = []
        for (group, name), node in self._nodes.items():
            since_s = node.waits_since_s
            if since_s is not None and now_s - since_s >= self._reorder_s:
                for one in node.waiting.values():
                    topic = one.address.topic
                    found.append(Odd("messages after one that is missing", True, topic))
                self._forget_order(node)
                found += _ask(node, Address(group, "NDATA", name, ""), now_s)
        return found

    def _forget_order(self, node: _Node) -> None:
        """Stops checking the order of messages until the next birth."""
        node.is_online = False
        node.waiting.clear()
        node.waits_since_s = None

    def _forget_metrics(self, node: _Node, device: str) -> None:
        """Forgets what a device declared: its next birth may give an alias to another metric."""
        if device not in node.devices:
            return
        known = [one for one in node.types if one[0] == device]
        for one in known:
            del node.types[one]
        node.aliases = {alias: one for alias, one in node.aliases.items() if one[0] != device}
        self._metrics -= len(known)

    def _node_birth(self, node: _Node, one: _Message, now_ms: int, now_s: float) -> list[Event]:
        payload = one.payload
        if payload.seq is None or not 0 <= payload.seq < SEQUENCE:
            return [
                Odd("NBIRTH without a seq of 0 to 255", is_lost=True),
                *_ask(node, one.address, now_s),
            ]
        found: list[Event] = []
        for device in sorted(node.devices):  # Each device has its own birth after its node's.
            thing = one.address._replace(device=device).thing
            found.append(ThingPresence(thing, False, payload.t or now_ms))
        node.is_online = True
        node.seq = payload.seq
        node.devices.clear()
        self._metrics -= len(node.types)
        node.types.clear()
        node.aliases.clear()
        node.waiting.clear()
        node.waits_since_s = None
        node.is_born, node.bd_seq = True, _bd_seq(payload)
        if node.bd_seq is None:
            found.append(Odd("NBIRTH without a bdSeq: each death counts as the last birth's"))
        found.append(ThingPresence(one.address.thing, True, payload.t or now_ms))
        return found + self._born(node, one, now_ms)

    def _born(self, node: _Node, one: _Message, now_ms: int) -> list[Event]:
        """Remembers what a birth declares and returns its values."""
        found: list[Event] = []
        device = one.address.device
        if (why := self._why_no_more(node, one)) is not None:
            return [Odd(why, is_lost=True)]
        before = len(node.types)
        for metric in one.payload.metrics:
            if not metric.name:
                found.append(Odd("metrics without a name in a birth"))
                continue
            known = (device, metric.name)
            node.types[known] = metric.datatype
            for name, inner in _inside(metric.name, metric):
                node.types[device, name] = inner.datatype
            alias = metric.alias
            if alias is not None and node.aliases.setdefault(alias, known) != known:
                found.append(Odd("aliases that two metrics share"))
        self._metrics += len(node.types) - before
        return found + self._values(node, one, now_ms)[0]

    def _node_death(self, node: _Node, one: _Message, now_ms: int) -> list[Event]:
        """Uses the host's time: a death carries the time of its node's connection."""
        if not node.is_born:
            return []
        bd_seq, born = _bd_seq(one.payload), node.bd_seq
        if born is not None and (bd_seq is None or _is_older(bd_seq, born)):
            return [Odd("deaths that belong to an earlier birth")]
        found: list[Event] = []
        for device in sorted(node.devices):
            found += _gone(node, one.address._replace(device=device), now_ms)
        node.devices.clear()
        node.is_born, node.bd_seq = False, None
        self._forget_order(node)
        return [*found, *_gone(node, one.address, now_ms)]

    def _in_order(self, node: _Node, one: _Message, now_ms: int, now_s: float) -> list[Event]:
        seq = one.payload.seq
        if seq is None or not 0 <= seq < SEQUENCE:
            return [Odd(f"{one.address.kind} without a seq of 0 to 255", is_lost=True)]
        if seq != (node.seq + 1) % SEQUENCE:
            is_old = (node.seq - seq) % SEQUENCE < SEQUENCE // 2
            if is_old:
                return [Odd("repeated messages")]
            if len(node.waiting) >= WAITING_MAX:
                return [Odd("messages after one that is missing", is_lost=True)]
            node.waiting[seq] = one
            if node.waits_since_s is None:
                node.waits_since_s = now_s
            return []
        found = self._take(node, one, now_ms, now_s)
        while node.is_online and (following := node.waiting.pop(_next(node), None)) is not None:
            found += self._take(node, following, now_ms, now_s)
        node.waits_since_s = now_s if node.waiting else None
        return found

    def _take(self, node: _Node, one: _Message, now_ms: int, now_s: float) -> list[Event]:
        assert one.payload.seq is not None
        node.seq = one.payload.seq
        address = one.address
        t = one.payload.t or now_ms
        if address.kind == "DBIRTH":
            self._forget_metrics(node, address.device)
            if (why := self._why_no_more(node, one)) is not None:
                return [Odd(why, is_lost=True)]
            node.devices.add(address.device)
            return [ThingPresence(address.thing, True, t), *self._born(node, one, now_ms)]
        if address.device and address.device not in node.devices:
            return [
                Odd("messages of a device before its birth", is_lost=True),
                *_ask(node, address, now_s),
            ]
        if address.kind == "DDEATH":
            gone = _gone(node, address, t)
            self._forget_metrics(node, address.device)
            node.devices.discard(address.device)
            return gone
        found, is_unknown = self._values(node, one, now_ms)
        return [*found, *(_ask(node, address, now_s) if is_unknown else ())]

    def _values(self, node: _Node, one: _Message, now_ms: int) -> tuple[list[Event], bool]:
        """Returns a reading for each moment, and whether a metric was missing in the birth."""
        found: list[Event] = []
        readings: dict[tuple[int, bool], dict[str, Any]] = {}
        odds: dict[tuple[int, bool], dict[str, str]] = {}
        is_unknown = False
        units: dict[str, str] = {}
        for metric in one.payload.metrics:
            name = self._name(node, one.address.device, metric)
            if name is None:
                is_unknown = True
                found.append(Odd("metrics that are not in the birth"))
                continue
            if _is_own(name):
                continue
            t = metric.t or one.payload.t or now_ms
            values = readings.setdefault((t, metric.is_historical), {})
            odd = odds.setdefault((t, metric.is_historical), {})
            for inner_name, inner in (*_inside(name, metric), (name, metric)):
                if isinstance(inner.value, Template):
                    continue
                if inner.unit:
                    units[inner_name] = inner.unit
                known = node.types.get((one.address.device, inner_name), 0)
                is_good = metric.is_good and inner.is_good
                kind = inner.datatype or known
                found += _put(values, odd, inner_name, inner, kind, is_good)
        for moment, texts in odds.items():
            for name, text in texts.items():  # behind all values, which keep their names
                readings[moment][free_name(name + ODD, readings[moment])] = text
        thing = one.address.thing
        found += [
            Reading(thing, t, values, is_historical, units)
            for (t, is_historical), values in readings.items()
            if values
        ]
        return found, is_unknown

    def _name(self, node: _Node, device: str, metric: Metric) -> str | None:
        if metric.name:
            return metric.name if (device, metric.name) in node.types else None
        known = None if metric.alias is None else node.aliases.get(metric.alias)
        return known[1] if known is not None and known[0] == device else None


def _gone(node: _Node, address: Address, t: int) -> list[Event]:
    """Returns that a node or device is offline, after its metrics, which are stale."""
    stale = {
        name: None
        for (device, name), datatype in node.types.items()
        if device == address.device and datatype != TEMPLATE and not _is_own(name)
    }
    readings = [Reading(address.thing, t, stale, False, is_stale=True)] if stale else []
    return [*readings, ThingPresence(address.thing, False, t)]


def _is_own(name: str) -> bool:
    """Returns whether a metric is about the node's session and measures nothing."""
    return name == BD_SEQ or name.startswith(_OWN)


def _names(metric: Metric) -> Iterator[str]:
    """Yields the names of a metric and of those nested in it."""
    yield metric.name
    for name, _ in _inside(metric.name, metric):
        yield name


def _inside(name: str, metric: Metric) -> Iterator[tuple[str, Metric]]:
    """Yields a template's metrics with their full names; a definition has no values."""
    if not isinstance(metric.value, Template) or metric.value.is_definition:
        return
    for one in metric.value.metrics:
        yield f"{name}/{one.name}", one
        yield from _inside(f"{name}/{one.name}", one)


def _put(
    values: dict[str, Any],
    odd: dict[str, str],
    name: str,
    metric: Metric,
    datatype: int,
    is_good: bool,
) -> Iterable[Odd]:
    """Adds a metric's value to those of its moment; `odd`: texts of those that are not good."""
    try:
        value = None if metric.is_null else value_of(metric.value, datatype)
    except ValueError as error:
        return [Odd(f"{name}: {error}")]
    if value is None and not metric.is_null and metric.value is None:
        return [Odd(f"{name}: unsupported data type {datatype}")]
    if is_good or value is None:
        values[name] = value
        return ()
    values[name] = None
    odd[name] = str(value)[:ODD_CHARS_MAX]
    return [Odd("values that their node calls bad or stale")]


def _next(node: _Node) -> int:
    return (node.seq + 1) % SEQUENCE


def _is_older(number: int, other: int) -> bool:
    return (number - other) % SEQUENCE >= SEQUENCE // 2


def _bd_seq(payload: Payload) -> int | None:
    found = next((one.value for one in payload.metrics if one.name == BD_SEQ), None)
    return found if type(found) is int else None


def _ask(node: _Node, address: Address, now_s: float) -> Iterable[Rebirth]:
    if now_s - node.asked_s < REBIRTH_S:
        return ()
    node.asked_s = now_s
    return (Rebirth(f"{NAMESPACE}/{address.group}/NCMD/{address.node}"),)


def marks_of(one: Reading) -> dict[str, bool]:
    """Returns the fields that say of a reading that it is not of what is measured now."""
    marks = {"historical": one.is_historical, "stale": one.is_stale}
    return {name: True for name, is_so in marks.items() if is_so}


def state(is_online: bool, t: int) -> bytes:
    """Encodes the state message of a host (section 6.4.27)."""
    return orjson.dumps({"online": is_online, "timestamp": t})


def is_death(payload: bytes) -> bool:
    """Returns whether a state message says that the host is offline."""
    try:
        said = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return True
    return not (isinstance(said, dict) and said.get("online") is True)
