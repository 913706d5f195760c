"""Checks one `[[map]]` and makes a Map of it. Pure. Raises Wrong with the key at fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Final, TypeVar

from edgewake.protocol.frames.event_time import AUTO, ISO, UNITS_MS, zone_of
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.maps.decoding import known_kinds
from edgewake.protocol.maps.names import device_name, stream_name
from edgewake.protocol.maps.path import Path
from edgewake.protocol.maps.rule import (
    FIELDS_MAX,
    KINDS,
    TAGS_MAX,
    Condition,
    FieldRule,
    Map,
    PresenceField,
    TimeAt,
)
from edgewake.protocol.maps.tables import Table, Wrong
from edgewake.protocol.maps.text import Text
from edgewake.protocol.maps.topic import TopicTemplate
from edgewake.protocol.names import is_field

T = TypeVar("T")
BASE: Final = "~/"
"""Stands at the beginning of a topic for the file's `base`."""
KEYS: Final = ("key", "outer")
"""Parts that only a map with `each` has: the item's name or number, and what the first star
matched.
"""
CONDITIONS_MAX: Final = 16
"""The most conditions of one map or field."""
VALUES_MAX: Final = 256
"""The most entries of `values`, `in` and `columns`."""
_KINDS: Final = {
    "number": FieldType.NUMBER, "text": FieldType.STRING, "string": FieldType.STRING,
    "boolean": FieldType.BOOLEAN,
}  # fmt: skip


def map_of(row: Mapping[str, Any], number: int, *, zone: tzinfo, base: str | None) -> Map:
    """Makes a Map. `zone` applies to times without one; `base` is what `~` in topics stands for.

    Raises Wrong.
    """
    table = Table(row)
    topic = _topic(table, base)
    parts = [name for name in topic.names if name]
    each = _optional_path(table, "each")
    if each is not None:
        parts += KEYS
    payload = table.get("payload", str, default="auto")
    if payload not in known_kinds():
        raise table.wrong("payload", f"{payload!r}: expected one of {', '.join(known_kinds())}")
    ignore = table.get("ignore", bool, list, default=[])
    fields, keeps_others = _fields(table, parts), _others(table)
    own_units = {} if not keeps_others else _own_units(fields)
    found = Map(
        name=table.get("name", str, default=str(number)),
        topic=topic,
        payload=payload,
        columns=_columns(table, payload),
        separator=_separator(table),
        value=_text(table, "value", parts),
        value_units=_value_units(table, parts),
        when=_conditions(table, "when", parts),
        each=each,
        device=_name(table, "device", parts, device_name),
        stream=_name(table, "stream", parts, stream_name),
        presence=_presence(table),
        seq=_optional_path(table, "seq"),
        time=_time(table, zone),
        fields=tuple(rule for rule in fields if rule.path.text not in own_units),
        own_units=own_units,
        tags=_tags(table, parts),
        units=_optional_path(table, "units"),
        left_out=() if isinstance(ignore, bool) else _paths(table, "ignore", ignore),
        keeps_others=keeps_others,
        is_ignored=ignore is True,
    )
    table.done()
    return found


def _presence(table: Table) -> PresenceField | None:
    found = table.get("presence", str, dict)
    if found is None:
        return None
    if isinstance(found, str):
        field, words = found, dict[str, bool]()
    else:
        row = Table(found, (*table.where, "presence"))
        field = row.get("field", str, default="")
        words = {
            word: is_there
            for name, is_there in (("online", True), ("offline", False))
            for word in row.get(name, list, default=[])
            if _is_word(row, name, word)
        }
        row.done()
    if not is_field(field):
        raise table.wrong("presence", f"{field!r}: expected a field name, such as is_online")
    return PresenceField(field, words)


def _is_word(row: Table, name: str, word: object) -> bool:
    if not isinstance(word, str):
        raise row.wrong(name, f"expected a list of texts, found {str(word)[:40]!r}")
    return True


def _topic(table: Table, base: str | None) -> TopicTemplate:
    text = table.get("topic", str)
    if not text:
        raise table.wrong("topic", "is missing: expected e.g. `tele/{device}/SENSOR`")
    if text == BASE[0] or text.startswith(BASE):
        if not base:
            raise table.wrong("topic", f"{text!r}: ~ stands for `base`, which the file lacks")
        text = base + text[1:]
    if text.startswith("$"):
        raise table.wrong("topic", f"{text!r}: topics that begin with $ are the broker's own")
    return _checked(table, "topic", lambda: TopicTemplate.parse(text, str.isidentifier))


def _checked(table: Table, name: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except Wrong:
        raise
    except ValueError as error:
        raise table.wrong(name, str(error)) from error


def _text(table: Table, name: str, parts: Collection[str]) -> Text | None:
    text = table.get(name, str)
    return None if text is None else _checked(table, name, lambda: Text.parse(text, parts))


def _name(
    table: Table, name: str, parts: Collection[str], legal: Callable[[str], str]
) -> Text | None:
    text = _text(table, name, parts)
    if text is not None and text.constant is not None:
        constant = text.constant
        near = _checked(table, name, lambda: legal(constant))
        if near != constant:
            raise table.wrong(name, f"{constant!r}: expected a legal name, e.g. {near!r}")
    return text


def _optional_path(table: Table, name: str) -> Path | None:
    text = table.get(name, str)
    return None if text is None else _checked(table, name, lambda: Path.parse(text))


def _paths(table: Table, name: str, texts: list[Any]) -> tuple[Path, ...]:
    if not 0 <= len(texts) <= FIELDS_MAX or not all(isinstance(one, str) for one in texts):
        raise table.wrong(name, f"expected a list of at most {FIELDS_MAX} paths")
    return _checked(table, name, lambda: tuple(Path.parse(one) for one in texts))


def _columns(table: Table, payload: str) -> tuple[str, ...]:
    columns = table.get("columns", list, default=[])
    if columns and payload != "csv":
        raise table.wrong("columns", 'only payload = "csv" has columns')
    if payload == "csv" and not columns:
        raise table.wrong("columns", 'is missing: payload = "csv" needs the names, in order')
    if len(columns) > VALUES_MAX or not all(isinstance(one, str) and one for one in columns):
        raise table.wrong("columns", f"expected 1 to {VALUES_MAX} names")
    return tuple(columns)


def _separator(table: Table) -> str:
    found = table.get("separator", str, default=",")
    if len(found) != 1 or found in '"\r\n':
        raise table.wrong("separator", f"{found!r}: expected one character")
    return str(found)


def _others(table: Table) -> bool:
    found = table.get("others", str, default="keep")
    if found not in ("keep", "drop"):
        raise table.wrong("others", f"{found!r}: expected keep or drop")
    return bool(found == "keep")


def _conditions(table: Table, name: str, parts: Collection[str]) -> tuple[Condition, ...]:
    found = table.get(name, dict, list, default=[])
    rows = [found] if isinstance(found, dict) else found
    if len(rows) > CONDITIONS_MAX or not all(isinstance(row, dict) for row in rows):
        raise table.wrong(name, f"expected at most {CONDITIONS_MAX} tables")
    where = (*table.where, name)
    return tuple(_condition(Table(row, where), parts) for row in rows)


def _condition(row: Table, parts: Collection[str]) -> Condition:
    path, part = _optional_path(row, "path"), row.get("part", str, default="")
    if (path is None) == (not part):
        raise Wrong(row.where, "expected either `path` or `part`")
    if part and part not in parts:
        raise row.wrong("part", f"{part!r}: expected one of {', '.join(sorted(parts)) or 'none'}")
    is_, in_ = row.get("is"), row.get("in", list)
    not_, exists, starts = row.get("not"), row.get("exists", bool), row.get("starts", str)
    kind = row.get("kind", str)
    row.done()
    if path is not None and path.has_star and exists is None:
        raise row.wrong("path", "expected a path to one value, or `exists` with it")
    if sum(one is not None for one in (is_, in_, not_, exists, starts, kind)) != 1:
        raise Wrong(row.where, "expected one of `is`, `in`, `not`, `exists`, `starts`, `kind`")
    if kind is not None and (kind not in KINDS or path is None):
        raise row.wrong("kind", f"{kind!r}: expected {', '.join(KINDS)}, of a `path`")
    for name, value in (("is", is_), ("not", not_)):
        if value is not None:
            _scalar(row, name, value)
    if in_ is not None and not 0 < len(in_) <= VALUES_MAX:
        raise row.wrong("in", f"expected 1 to {VALUES_MAX} values")
    one_of = None if is_ is None else (is_,)
    if in_ is not None:
        one_of = tuple(in_)
    for value in one_of or ():
        _scalar(row, "in", value)
    none_of = () if not_ is None else (not_,)
    return Condition(path, part, one_of, none_of, exists, starts, kind)


def _scalar(table: Table, name: str, value: Any) -> Scalar:
    if not isinstance(value, str | int | float):
        raise table.wrong(name, f"{str(value)[:40]!r}: expected text, a number, true or false")
    return value


def _time(table: Table, zone: tzinfo) -> TimeAt | None:
    found = table.get("time", str, list, dict)
    if found is None:
        return None
    row = Table(found if isinstance(found, dict) else {"path": found}, (*table.where, "time"))
    paths, style = row.get("path", str, list), row.get("format", str, default=AUTO)
    named, policy = row.get("zone", str), row.get("unreadable", str, default="now")
    row.done()
    if not paths:
        raise row.wrong("path", 'is missing: expected e.g. "Time", or auto')
    if policy not in ("now", "refuse"):
        raise row.wrong("unreadable", f"{policy!r}: expected now or refuse")
    _check_style(row, style)
    if named is not None:
        zone = _checked(row, "zone", lambda: zone_of(named))
    texts = [paths] if isinstance(paths, str) else paths
    found_paths = () if texts == [AUTO] else _paths(row, "path", texts)
    if any(path.has_star for path in found_paths):
        raise row.wrong("path", "expected paths to one value each")
    return TimeAt(found_paths, style, zone, policy == "refuse")


def _check_style(row: Table, style: str) -> None:
    """Checks that a style is a known word, or a pattern that reads back what it wrote."""
    if style in UNITS_MS or style in (AUTO, ISO):
        return
    try:
        moment = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001  # only its digits matter
        datetime.strptime(moment.strftime(style), style)  # noqa: DTZ007
        if "%" not in style:
            raise ValueError("it has no %")
    except ValueError as error:
        raise row.wrong(
            "format",
            f"{style!r}: expected auto, iso, s, ms, us, ns, or a pattern of strptime such as "
            f"%d.%m.%Y %H:%M:%S ({error})",
        ) from error


def _tags(table: Table, parts: Collection[str]) -> dict[str, Text]:
    row = Table(found := table.get("tags", dict, default={}), (*table.where, "tags"))
    if len(found) > TAGS_MAX:
        raise table.wrong("tags", f"expected at most {TAGS_MAX}")
    texts = {name: _text(row, name, parts) for name in found}
    return {name: text for name, text in texts.items() if text is not None}


def _fields(table: Table, parts: Collection[str]) -> tuple[FieldRule, ...]:
    found = table.get("fields", dict, default={})
    where = (*table.where, "fields")
    if len(found) > FIELDS_MAX:
        raise table.wrong("fields", f"expected at most {FIELDS_MAX}")
    return tuple(_field(name, said, (*where, name), parts) for name, said in found.items())


def _own_units(fields: Sequence[FieldRule]) -> dict[str, str]:
    """Units of fields that keep their names and values, so that no rule has to move them."""
    return {
        rule.path.text: rule.unit
        for rule in fields
        if rule.unit and rule.is_plain and not rule.is_apart and not rule.when
        if rule.path.steps == (rule.path.text,) and rule.name.constant == rule.path.text
    }


def _value_units(table: Table, parts: Collection[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = table.get("value_units", dict, default={})
    where = (*table.where, "value_units")
    for part, units in found.items():
        if part not in parts:
            known = ", ".join(sorted(parts)) or "none"
            raise Wrong((*where, part), f"{part!r}: expected a part of the topic: {known}")
        is_table = isinstance(units, dict) and len(units) <= VALUES_MAX
        if not is_table or not all(isinstance(unit, str) for unit in units.values()):
            raise Wrong((*where, part), 'expected a table of units, such as { power = "W" }')
    return found


def _field(path: str, said: Any, where: tuple[str, ...], parts: Collection[str]) -> FieldRule:
    if not isinstance(said, str | dict):
        raise Wrong(where, f"{said!r}: expected a name, or a table such as {{ name, as, scale }}")
    row = Table({"name": said} if isinstance(said, str) else said, where)
    at = _checked(row, "path", lambda: Path.parse(path))
    if not at.steps:
        raise Wrong(where, "expected a path to a value, not the whole message")
    name = row.get("name", str, default=_last_name(at))
    kind = row.get("as", str)
    if kind is not None and kind not in (*_KINDS, "time"):
        raise row.wrong("as", f"{kind!r}: expected {', '.join((*_KINDS, 'time'))}")
    scale, offset = row.get("scale", float), row.get("offset", float, default=0.0)
    for key, value in (("scale", scale), ("offset", offset)):
        if value is not None and not math.isfinite(value):
            raise row.wrong(key, "expected a finite number")
    values = row.get("values", dict, default={})
    for came, ours in values.items():
        _scalar(row, f"values.{came}", ours)
    lists = row.get("lists", str, default="text")
    if lists not in ("text", "apart"):
        raise row.wrong("lists", f"{lists!r}: expected text or apart")
    unit, when = row.get("unit", str, default=""), _conditions(row, "when", parts)
    row.done()
    if (scale is not None or offset) and kind not in (None, "number"):
        raise row.wrong("scale", f"only a number has scale and offset, not as = {kind!r}")
    if at.has_star and "*" not in name:
        raise row.wrong("name", f'{name!r}: a path with * needs a name with *, such as "*"')
    return FieldRule(
        at, _checked(row, "name", lambda: Text.parse(name, parts)), _KINDS.get(kind or ""),
        kind == "time", scale, offset, unit, values, when,
        is_apart=lists == "apart",
        is_plain=kind is None and scale is None and not offset and not values,
    )  # fmt: skip


def _last_name(path: Path) -> str:
    if path.steps[-1] is None:
        return "*"
    return next((one for one in reversed(path.steps) if isinstance(one, str)), "value")
