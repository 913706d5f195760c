"""A host application of Sparkplug B 3.0: what its edge nodes' messages mean. Decides; no I/O.

A node says at its birth what it has, by name, type and alias; what it sends later is read by that.
Its messages are numbered (`seq`, 0 to 255): one that comes too early waits `reorder_s` for those
before it, and then, or where a birth is missing or an alias is unknown, the node is asked for its
births again. A death that belongs to an earlier birth than the last (`bdSeq`) is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from edgewake.protocol.errors import Rejected
from edgewake.protocol.sparkplug.payload import Metric, Payload, Template, decoded, value_of

NAMESPACE: Final = "spBv1.0"
STATE: Final = "STATE"
TYPES: Final = frozenset({"NBIRTH", "NDATA", "NDEATH", "DBIRTH", "DDATA", "DDEATH"})
COMMANDS: Final = frozenset({"NCMD", "DCMD"})
SEQUENCE: Final = 256
NODES_MAX: Final = 1_000
"""Edge nodes that are known. For one more the one that was heard of first of those that are offline
is forgotten; where all are online it is refused."""
DEVICES_MAX: Final = 1_000
"""Devices of one node that were born and have not died."""
NODE_METRICS_MAX: Final = 50_000
"""Names of metrics of one node, its devices' included, some 300 bytes each."""
ALL_METRICS_MAX: Final = 500_000
"""All nodes together have this many."""
WAITING_MAX: Final = 128
"""Messages of a node that wait for one before them: half of the numbers there are."""
REBIRTH_S: Final = 10.0
"""Seconds between two requests to one node."""
BD_SEQ: Final = "bdSeq"
_OWN: Final = ("Node Control/", "Device Control/")


class Reading(NamedTuple):
    """Values of one moment."""

    thing: str
    """group/node or group/node/device."""
    t: int
    values: dict[str, Any]
    is_historical: bool


class Presence(NamedTuple):
    """A node or device is there, or is gone."""

    thing: str
    is_online: bool
    t: int


class Rebirth(NamedTuple):
    """A message to this topic asks a node for a rebirth."""

    topic: str


class Odd(NamedTuple):
    """What was wrong, in words that are few."""

    what: str
    is_lost: bool = False
    """Is a message lost by it?"""
    topic: str = ""
    """Topic of an earlier message; empty: it is the one that just came."""


Event: TypeAlias = Reading | Presence | Rebirth | Odd


class Address(NamedTuple):
    """A topic."""

    group: str
    kind: str
    node: str
    device: str

    @property
    def thing(self) -> str:
        """The name of the thing."""
        return "/".join(filter(None, (self.group, self.node, self.device)))

    @property
    def topic(self) -> str:
        """The topic again."""
        levels = (NAMESPACE, self.group, self.kind, self.node, self.device)
        return "/".join(filter(None, levels))


def address_of(topic: str) -> Address | None:
    """None: no topic of nodes or devices."""
    levels = topic.split("/")
    if levels[0] != NAMESPACE or len(levels) not in (4, 5) or not all(levels):
        return None
    device = levels[4] if len(levels) == 5 else ""
    if levels[2] not in TYPES | COMMANDS or (levels[2][0] == "D") != bool(device):
        return None
    return Address(levels[1], levels[2], levels[3], device)


def is_node_life(topic: str) -> bool:
    """Does it say that a node is born, or has died?

    Nothing else tells it: what is lost of a device's is told again with its node's next birth.
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
    bd_seq: int | None = None
    seq: int = -1
    """Number of the last message in order."""
    devices: set[str] = field(default_factory=set)
    """Those that were born and not died."""
    types: dict[tuple[str, str], int] = field(default_factory=dict)
    """(device, name) → data type."""
    aliases: dict[int, tuple[str, str]] = field(default_factory=dict)
    waiting: dict[int, _Message] = field(default_factory=dict)
    """At most WAITING_MAX, by number."""
    waits_since_s: float | None = None
    asked_s: float = -1e9
    """When it was asked for its births last."""


class Host:
    """All nodes that it hears."""

    def __init__(self, reorder_s: float) -> None:
        self._reorder_s = reorder_s
        self._nodes: dict[tuple[str, str], _Node] = {}
        self._metrics = 0
        """Names of metrics of all nodes."""

    def message(self, topic: str, data: bytes, now_ms: int, now_s: float) -> list[Event]:
        """What a message means. Never raises."""
        address = address_of(topic)
        if address is None:
            return [Odd("messages of topics that are none of Sparkplug passed over")]
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
            return [Odd("messages before a birth", is_lost=True), *_ask(node, address, now_s)]
        return self._in_order(node, one, now_ms, now_s)

    def _forget_one(self) -> bool:
        """Forget a node that is offline, if there is one."""
        for key, node in self._nodes.items():
            if not node.is_online:
                self._metrics -= len(node.types)
                del self._nodes[key]
                return True
        return False

    def _why_no_more(self, node: _Node, one: _Message) -> str | None:
        """Why a birth is over a bound, or None."""
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
        """What the time brings: nodes that are asked, for what they sent is missing."""
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
        """Ignore the order of messages until the next birth."""
        node.is_online = False
        node.waiting.clear()
        node.waits_since_s = None

    def _node_birth(self, node: _Node, one: _Message, now_ms: int, now_s: float) -> list[Event]:
        payload = one.payload
        if payload.seq is None or not 0 <= payload.seq < SEQUENCE:
            return [
                Odd("NBIRTH without a seq of 0 to 255", is_lost=True),
                *_ask(node, one.address, now_s),
            ]
        found: list[Event] = []
        for device in sorted(node.devices):  # they are born again, or gone
            thing = one.address._replace(device=device).thing
            found.append(Presence(thing, False, payload.t or now_ms))
        node.is_online = True
        node.seq = payload.seq
        node.devices.clear()
        self._metrics -= len(node.types)
        node.types.clear()
        node.aliases.clear()
        node.waiting.clear()
        node.waits_since_s = None
        node.bd_seq = _bd_seq(payload)
        found.append(Presence(one.address.thing, True, payload.t or now_ms))
        return found + self._born(node, one, now_ms)

    def _born(self, node: _Node, one: _Message, now_ms: int) -> list[Event]:
        """What it has, and the values of that."""
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
                found.append(Odd("an alias that two metrics have"))
        self._metrics += len(node.types) - before
        return found + self._values(node, one, now_ms)[0]

    def _node_death(self, node: _Node, one: _Message, now_ms: int) -> list[Event]:
        """At the host's time: the node's own is that of its connection."""
        bd_seq = _bd_seq(one.payload)
        if not node.is_online and node.bd_seq is None:
            return []
        if bd_seq is None or node.bd_seq is None or _is_older(bd_seq, node.bd_seq):
            return [Odd("deaths of an earlier birth than the last")]
        found: list[Event] = [
            Presence(one.address._replace(device=device).thing, False, now_ms)
            for device in sorted(node.devices)
        ]
        node.devices.clear()
        node.bd_seq = None
        self._forget_order(node)
        return [*found, Presence(one.address.thing, False, now_ms)]

    def _in_order(self, node: _Node, one: _Message, now_ms: int, now_s: float) -> list[Event]:
        seq = one.payload.seq
        if seq is None or not 0 <= seq < SEQUENCE:
            return [Odd(f"{one.address.kind} without a seq of 0 to 255", is_lost=True)]
        if seq != (node.seq + 1) % SEQUENCE:
            is_old = (node.seq - seq) % SEQUENCE < SEQUENCE // 2
            if is_old:
                return [Odd("messages that came before already")]
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
            if (why := self._why_no_more(node, one)) is not None:
                return [Odd(why, is_lost=True)]
            node.devices.add(address.device)
            return [Presence(address.thing, True, t), *self._born(node, one, now_ms)]
        if address.device and address.device not in node.devices:
            return [
                Odd("messages of a device before its birth", is_lost=True),
                *_ask(node, address, now_s),
            ]
        if address.kind == "DDEATH":
            node.devices.discard(address.device)
            return [Presence(address.thing, False, t)]
        found, is_unknown = self._values(node, one, now_ms)
        return [*found, *(_ask(node, address, now_s) if is_unknown else ())]

    def _values(self, node: _Node, one: _Message, now_ms: int) -> tuple[list[Event], bool]:
        """Readings, one for each moment, and whether something was not in the birth."""
        found: list[Event] = []
        readings: dict[tuple[int, bool], dict[str, Any]] = {}
        is_unknown = False
        for metric in one.payload.metrics:
            name = self._name(node, one.address.device, metric)
            if name is None:
                is_unknown = True
                found.append(Odd("metrics that are not in the birth"))
                continue
            if name == BD_SEQ or name.startswith(_OWN):
                continue
            t = metric.t or one.payload.t or now_ms
            values = readings.setdefault((t, metric.is_historical), {})
            for inner_name, inner in (*_inside(name, metric), (name, metric)):
                if isinstance(inner.value, Template):
                    continue
                known = node.types.get((one.address.device, inner_name), 0)
                found += _put(values, inner_name, inner, inner.datatype or known)
        thing = one.address.thing
        found += [
            Reading(thing, t, values, is_historical)
            for (t, is_historical), values in readings.items()
            if values
        ]
        return found, is_unknown

    def _name(self, node: _Node, device: str, metric: Metric) -> str | None:
        if metric.name:
            return metric.name if (device, metric.name) in node.types else None
        known = None if metric.alias is None else node.aliases.get(metric.alias)
        return known[1] if known is not None and known[0] == device else None


def _names(metric: Metric) -> Iterator[str]:
    """Its name, and those of the metrics in it."""
    yield metric.name
    for name, _ in _inside(metric.name, metric):
        yield name


def _inside(name: str, metric: Metric) -> Iterator[tuple[str, Metric]]:
    """The metrics in a template, by their whole names; none of a definition."""
    if not isinstance(metric.value, Template) or metric.value.is_definition:
        return
    for one in metric.value.metrics:
        yield f"{name}/{one.name}", one
        yield from _inside(f"{name}/{one.name}", one)


def _put(values: dict[str, Any], name: str, metric: Metric, datatype: int) -> Iterable[Odd]:
    """A value among those of its moment."""
    try:
        value = None if metric.is_null else value_of(metric.value, datatype)
    except ValueError as error:
        return [Odd(f"{name}: {error}")]
    if value is None and not metric.is_null and metric.value is None:
        return [Odd(f"{name}: a data type ({datatype}) that is not read")]
    values[name] = value
    return ()


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


def state(is_online: bool, t: int) -> bytes:
    """What is said of the host (section 6.4.27). Pure."""
    return orjson.dumps({"online": is_online, "timestamp": t})


def is_death(payload: bytes) -> bool:
    """Does it say that the host is away? Pure."""
    try:
        said = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return True
    return not (isinstance(said, dict) and said.get("online") is True)
