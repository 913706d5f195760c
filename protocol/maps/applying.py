"""Turns one message into readings and refusals, each refusal with its reason. Pure.

Readings are objects such as a plain device sends, with their time in `t`. The one intake rule
behind makes names legal, flattens objects and keeps lists as text, at an agent
(`edgewake.edge.intake.intake`) as at a bridge (`edgewake.protocol.frames.frame.from_plain`).

An item of a message that is wrong is refused by itself, and a value of another type
than its map declares is null, with its text beside it in `<name>_odd`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.event_time import (
    AUTO,
    TimeRule,
    is_only_ms,
    of_device,
    to_ms,
    with_time,
)
from edgewake.protocol.frames.field_names import ODD, ODD_CHARS_MAX, free_name, put_over
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.field_values import as_declared
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.maps.decoding import VALUE, BadItem, decode
from edgewake.protocol.maps.names import device_name, stream_name
from edgewake.protocol.maps.path import MISSING
from edgewake.protocol.maps.rule import (
    FIELDS_MAX,
    MESSAGE_BYTES_MAX,
    READINGS_MAX,
    TOPICS_MAX,
    Condition,
    FieldRule,
    Map,
    Maps,
    Route,
    TimeAt,
)
from edgewake.protocol.maps.text import Text

_DIGITS_MAX: Final = 24
"""The most digits of a time that is a number written as text."""
_ENVELOPE: Final = ("device", "seq", "epoch")
"""Names that mean something else in a plain device's object than in this one."""
EVENTS: Final = "cloudevents"
"""The format that also takes a CloudEvent in binary mode."""
_MEANT: Final = frozenset({*_ENVELOPE, "t"})


NO_UNITS: Final[Mapping[str, str]] = MappingProxyType({})
ReadEvent: TypeAlias = Callable[[], dict[str, Any] | None]
"""Reads a message as a CloudEvent in binary mode; None: it is another one. Raises Rejected."""


class Mapped(NamedTuple):
    """A reading that a map made of a message."""

    device: str
    """Empty: the map gives none."""
    stream: str
    """Empty: the map gives none."""
    body: dict[str, Any]
    is_there: bool | None = None
    """Whether it says that its device is online; None: it does not say."""
    units: Mapping[str, str] = NO_UNITS
    """Name of a field → its unit, as far as the map or the message says them."""


class Refusal(NamedTuple):
    """A message, or an item of one, that gives no reading."""

    why: Rejected
    item: Any = None
    """The item; None: the whole message."""
    readings: int = 1
    """How many readings it costs."""


class Outcome(NamedTuple):
    """What one message gave. Where the three lists are empty, the message is to be ignored."""

    map: str = ""
    """Name of the map that matched; empty: none did."""
    readings: Sequence[Mapped] = ()
    refused: Sequence[Refusal] = ()
    remarks: Sequence[str] = ()
    """What was odd, in a few fixed phrases, so that they can be counted."""


def apply(
    maps: Maps,
    topic: str,
    payload: bytes,
    now_ms: int,
    *,
    prefix: str = "",
    document: Any = MISSING,
    event: ReadEvent | None = None,
) -> Outcome:
    """Applies the first map that fits to a message that came at `now_ms`. Never raises.

    `prefix` stands before the names of devices. `document` is the payload where it was decoded
    already (`edgewake.protocol.maps.http_forms`), whatever format the map names. `event` reads the
    CloudEvent that the message is in binary mode; only maps with `payload = "cloudevents"` ask, so
    the attributes of a message cost no other map anything.
    """
    routes = maps.route(topic)
    if not routes:
        why = Rejected(RejectReason.TOPIC, f"no map takes the topic {topic[:200]!r}")
        return Outcome(refused=[Refusal(why)])
    if not payload:
        return Outcome(routes[0].map.name)  # An empty payload clears a retained message.
    if len(payload) > MESSAGE_BYTES_MAX:
        why = Rejected(
            RejectReason.OVERSIZE, f"{len(payload)} bytes: expected at most {MESSAGE_BYTES_MAX}"
        )
        return Outcome(routes[0].map.name, refused=[Refusal(why)])
    return _first(maps, routes, payload, now_ms, prefix, document, event)


def _first(
    maps: Maps,
    routes: Sequence[Route],
    payload: bytes,
    now_ms: int,
    prefix: str,
    document: Any,
    event: ReadEvent | None,
) -> Outcome:
    """Apply the first map whose conditions hold."""
    is_read = document is not MISSING
    decoded_as = None
    refusal: Outcome | None = None
    for route in routes:
        one, parts, _ = route
        if one.is_ignored and not one.when:
            return Outcome(one.name)
        try:
            form = (one.payload, one.columns, one.separator)
            if form != decoded_as and not is_read:
                found = event() if event is not None and one.payload == EVENTS else None
                document = decode(payload, one, now_ms) if found is None else found
                decoded_as = form
        except Rejected as error:
            refusal = refusal or _refused(one, error)
            decoded_as = None
            continue
        if all(_holds(condition, parts, document) for condition in one.when):
            return (
                Outcome(one.name) if one.is_ignored else _Mapping(maps, route, prefix).of(document)
            )
    if refusal is not None:
        return refusal
    names = ", ".join(one.name for one, _, _ in routes)
    return _refused(
        routes[0].map, Rejected(RejectReason.SHAPE, f"no condition of the maps {names} holds")
    )


def _refused(of: Map, why: Rejected) -> Outcome:
    detail = f"map {of.name}: {why.detail}"
    return Outcome(of.name, refused=[Refusal(Rejected(why.reason, detail))])


def device_of(maps: Maps, topic: str, prefix: str = "") -> str:
    """Returns the device that the topic alone names; empty where it names none.

    Where the payload decides which map is used, it is the device of the map that takes the rest.
    """
    key = (topic, prefix)
    known = maps.devices.get(key)
    if known is None:
        known = _device_of(maps, topic, prefix)
        if len(maps.devices) < TOPICS_MAX:
            maps.devices[key] = known
    return known


def _device_of(maps: Maps, topic: str, prefix: str) -> str:
    found = ""
    for route in maps.route(topic):
        one, parts, _ = route
        of_topic = [condition for condition in one.when if condition.path is None]
        if not all(_holds(condition, parts, None) for condition in of_topic):
            continue
        is_certain = len(of_topic) == len(one.when)
        if is_certain and one.is_ignored:
            return found
        if one.device is None or not one.device.is_of_topic or (found and not is_certain):
            continue
        try:
            named = _device(maps, one.device.fill(parts, None, None), prefix)
        except ValueError:
            named = ""
        if is_certain:
            return named
        found = named
    return found


def _device(maps: Maps, text: str, prefix: str) -> str:
    return device_name(maps.renamed.get(text, text), prefix)


def _holds(condition: Condition, parts: Mapping[str, str], own: Any) -> bool:
    path = condition.path
    if path is not None and path.has_star:  # only asked whether there is any
        return condition.exists is any(value is not None for _, value in path.walk(own))
    value: Any = parts.get(condition.part, MISSING) if path is None else path.get(own)
    if condition.exists is not None:
        return condition.exists is (value is not MISSING and value is not None)
    if condition.kind is not None:
        return condition.kind == _kind(value)
    if condition.starts is not None:
        return isinstance(value, str) and value.startswith(condition.starts)
    if condition.one_of is not None:
        return any(_same(value, one) for one in condition.one_of)
    return not any(_same(value, one) for one in condition.none_of)


def _kind(value: Any) -> str:
    """Returns what a value is, of `rule.KINDS`; empty where there is none."""
    if value is MISSING:
        return ""
    if isinstance(value, dict):
        return "object"
    return "list" if isinstance(value, list) else "value"


def _same(value: Any, other: Scalar) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


class _Mapping:
    """Maps one message."""

    def __init__(self, maps: Maps, route: Route, prefix: str) -> None:
        self._maps = maps
        self._route = route
        self._of = route.map
        self._parts = route.parts
        self._prefix = prefix
        self._whole: Any = None
        self._readings: list[Mapped] = []
        self._refused: list[Refusal] = []
        self._remarks: list[str] = []

    def of(self, document: Any) -> Outcome:
        self._whole = document
        if type(document) is dict and self._of.each is None:  # nearly every message
            self._take((), document)
            return Outcome(self._of.name, self._readings, self._refused, self._remarks)
        count = 0
        for keys, item in self._items(document):
            if count >= READINGS_MAX:
                self._refuse_rest(document)
                break
            count += 1
            self._take(keys, item)
        if not count and self._of.each is not None:
            why = Rejected(RejectReason.SHAPE, f"nothing at {self._of.each.text!r} (each)")
            return _refused(self._of, why)
        return Outcome(self._of.name, self._readings, self._refused, self._remarks)

    def _items(self, document: Any) -> Iterable[tuple[tuple[str, ...], Any]]:
        each = self._of.each
        if each is None:
            if type(document) is list:
                return (((), item) for item in document)
            return (((), document),)
        if each.has_star:
            return each.walk(document)
        found = each.get(document)
        if type(found) is list:
            return (((str(number),), item) for number, item in enumerate(found))
        pairs = found.items() if type(found) is dict else ()
        return (((name,), item) for name, item in pairs)

    def _refuse_rest(self, document: Any) -> None:
        left = sum(1 for _ in self._items(document)) - READINGS_MAX
        why = Rejected(
            RejectReason.OVERSIZE,
            f"map {self._of.name}: {left + READINGS_MAX} readings in a message: expected at most "
            f"{READINGS_MAX}",
        )
        self._refused.append(Refusal(why, None, left))

    def _take(self, keys: tuple[str, ...], item: Any) -> None:
        try:
            self._readings.append(self._reading(keys, item))
        except Rejected as error:
            why = Rejected(error.reason, f"map {self._of.name}: {error.detail}")
            self._refused.append(Refusal(why, _as_it_came(item, self._whole)))

    def _reading(self, keys: tuple[str, ...], item: Any) -> Mapped:
        """Raises Rejected."""
        of = self._of
        parts = self._parts
        if of.each is not None and keys:
            parts = {**parts, "key": keys[-1], "outer": keys[0]}
        own = self._object(item, parts)
        known = self._route.names.get(self._prefix)
        device, stream = self._names(parts, own) if known is None else known
        tags = self._tags(parts, own) if of.tags else {}
        seq = None if of.seq is None else of.seq.get(self._whole if of.seq.is_whole else own)
        time_ms = None if of.time is None else self._time(of.time, own)
        named: dict[str, Any] = {}
        units = self._units(own)
        if of.value_units and type(item) is not dict and (unit := self._value_unit(parts)):
            units |= dict.fromkeys(own, unit)
        for rule in of.fields:
            self._name(rule, parts, own, named, units)
        for path in of.left_out:
            if not path.is_whole:
                path.take(own)
        body = self._timed(_without_envelope(own) if of.keeps_others else {}, time_ms)
        for fields in (named, tags):
            if fields:
                put_over(body, fields if fields.keys().isdisjoint(_MEANT) else not_meant(fields))
        if not _MEANT.isdisjoint(units):
            units = not_meant(units)
        if type(seq) is int:
            body["seq"] = seq
        presence = of.presence
        is_there = None if presence is None else presence.of(body.get(presence.field))
        return Mapped(device, stream, body, is_there, units or NO_UNITS)

    def _units(self, own: dict[str, Any]) -> dict[str, str]:
        """The units that the message itself has, and those of fields that the map only names."""
        path = self._of.units
        units: dict[str, str] = {}
        if path is not None:
            said = path.get(self._whole if path.is_whole else own)
            pairs = said.items() if isinstance(said, dict) else ()
            units = {name: unit for name, unit in pairs if isinstance(unit, str) and unit}
        for name, unit in self._of.own_units.items():
            if name in own:
                units[name] = unit
        return units

    def _value_unit(self, parts: Mapping[str, str]) -> str:
        """The unit of a message that is one value; empty where the map knows none."""
        for part, units in self._of.value_units.items():
            if unit := units.get(parts.get(part, "")):
                return unit
        return ""

    def _tags(self, parts: Mapping[str, str], own: dict[str, Any]) -> dict[str, Any]:
        tags = self._of.tags.items()
        return {name: self._filled(text, name, parts, own) for name, text in tags}

    def _timed(self, body: dict[str, Any], time_ms: int | None) -> dict[str, Any]:
        """The body with its time; without one it is looked for, or is now."""
        if time_ms is not None:
            if "t" in body:
                put_over(body, {"t": time_ms})
            else:
                body["t"] = time_ms
        elif self._of.time is not None and not self._of.time.paths:
            return dict(with_time(body, _rule_of(self._of.time), self._remarks.append))
        return body

    def _names(self, parts: Mapping[str, str], own: Any) -> tuple[str, str]:
        """Returns device and stream, cached where the topic alone names them. Raises Rejected."""
        of = self._of
        device = self._filled(of.device, "device", parts, own)
        stream = self._filled(of.stream, "stream", parts, own)
        try:
            device = device and _device(self._maps, device, self._prefix)
            stream = stream and stream_name(stream)
        except ValueError as error:
            raise Rejected(RejectReason.NAME, str(error)) from error
        if of.each is None and all(
            one is None or one.is_of_topic for one in (of.device, of.stream)
        ):
            self._route.names[self._prefix] = (device, stream)
        return device, stream

    def _object(self, item: Any, parts: Mapping[str, str]) -> dict[str, Any]:
        if type(item) is dict:
            return item
        if type(item) is BadItem:
            raise item.why
        if isinstance(item, list):
            raise Rejected(
                RejectReason.SHAPE, "expected an object or one value, found a list: see `each`"
            )
        name = self._of.value
        return {VALUE if name is None else self._filled(name, "value", parts, item): item}

    def _filled(self, text: Text | None, key: str, parts: Mapping[str, str], own: Any) -> str:
        if text is None:
            return ""
        if text.constant is not None:
            return text.constant
        try:
            return text.fill(parts, self._whole, own)
        except ValueError as error:
            raise Rejected(RejectReason.SHAPE, f"{key}: {error}") from error

    def _time(self, at: TimeAt, own: dict[str, Any]) -> int | None:
        """Takes the time out of the object; None where it is now, or is found by its form."""
        for path in at.paths:
            key = path.key
            value = path.get(self._whole if path.is_whole else own) if key is None else own.get(key)
            if value is MISSING or value is None:
                continue
            try:
                found = (
                    value
                    if type(value) is int and at.style == AUTO and is_only_ms(value)
                    else of_device(_as_number(value), at.style, at.zone)
                )
            except (ValueError, OverflowError, TypeError) as error:
                if at.refuses:
                    raise Rejected(RejectReason.TIME, f"{path.text}: {error}") from error
                self._remarks.append(f"no time in {path.text}")
                return None
            if path.key is not None:
                del own[path.key]
            elif not path.is_whole:
                path.take(own)
            return found
        if at.refuses and at.paths:
            listed = ", ".join(path.text for path in at.paths)
            raise Rejected(RejectReason.TIME, f"expected a time in {listed}, found nothing")
        if at.paths:
            self._remarks.append(f"no time in {at.paths[0].text}")
        return None

    def _name(
        self,
        rule: FieldRule,
        parts: Mapping[str, str],
        own: dict[str, Any],
        into: dict[str, Any],
        units: dict[str, str],
    ) -> None:
        if not all(_holds(condition, parts, own) for condition in rule.when):
            return
        path = rule.path
        found = path.all(self._whole) if path.is_whole else path.take(own)
        for star, value in found:
            name = self._filled(rule.name, path.text, parts, own).replace("*", star)
            if rule.is_apart and type(value) is list:
                apart = enumerate(value[:FIELDS_MAX])
                named = [(f"{name}_{number}", one) for number, one in apart]
            else:
                named = [(name, value)]
            for its_name, one in named:
                if rule.unit:
                    units[its_name] = rule.unit
                self._put(rule, its_name, one, into)

    def _put(self, rule: FieldRule, name: str, value: Any, into: dict[str, Any]) -> None:
        text = None
        found: Any = value
        if not rule.is_plain and value is not None:
            try:
                found = _converted(rule, value)
            except (ValueError, OverflowError, TypeError):
                found, text = None, str(value)[:ODD_CHARS_MAX]
                self._remarks.append(f"odd in {name}")
        if into.get(name) is not None:  # of a rule before it, such as a field and a tag of a line
            if found == into[name] or (found is None and text is None):
                return
            if found is not None:
                name = free_name(name, into)
                into[name] = found
        else:
            into[name] = found
        if text is not None:
            into[free_name(name + ODD, into)] = text


def _as_number(value: Any) -> Any:
    """Converts digits in a text to a number: no calendar writes a time so."""
    if type(value) is str and value.isascii() and value.replace(".", "", 1).isdigit():
        return float(value) if len(value) <= _DIGITS_MAX else value
    return value


def _as_it_came(item: Any, whole: Any) -> Any:
    if item is whole:
        return None
    return item.text if type(item) is BadItem else item


def _converted(rule: FieldRule, value: Any) -> Scalar:
    """Raises ValueError."""
    if rule.values and not isinstance(value, dict | list):
        word = str(value).lower() if isinstance(value, bool) else str(value)
        if word in rule.values:
            value = rule.values[word]
    if isinstance(value, dict | list):
        raise ValueError("expected one value")
    if rule.is_time:
        return to_ms(value)
    is_scaled = rule.scale is not None or rule.offset
    kind = rule.kind or (FieldType.NUMBER if is_scaled else None)
    found: Scalar = value if kind is None else as_declared(value, kind)
    if not is_scaled or found is None or isinstance(found, str):
        return found
    scaled = float(f"{found * (1.0 if rule.scale is None else rule.scale) + rule.offset:.15g}")
    if not math.isfinite(scaled):
        raise ValueError("too large")
    return scaled


def _without_envelope(own: dict[str, Any]) -> dict[str, Any]:
    """Appends `_` to names that would mean something else to an intake."""
    if not own.keys().isdisjoint(_ENVELOPE):
        for name in [one for one in own if one in _ENVELOPE]:  # in their order, not a set's
            own[free_name(f"{name}_", own)] = own.pop(name)
    return own


def not_meant(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Renames fields that a star of a map would name like ours: a tag `device`, a value `t`."""
    found = {name: value for name, value in fields.items() if name not in _MEANT}
    for name in [one for one in fields if one in _MEANT]:
        found[free_name(f"{name}_", found)] = fields[name]
    return found


def _rule_of(at: TimeAt) -> TimeRule:
    return TimeRule(AUTO, zone=at.zone, refuses=at.refuses)
