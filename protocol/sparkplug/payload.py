"""Decodes payloads of Sparkplug B (Eclipse Sparkplug 3.0, section 6.4). Pure.

They are protocol buffers, decoded by Google's library, which the extra `formats` installs. The
schema below has only what is used: metadata is skipped, and so are all properties but the quality
and `engUnit`. A data set becomes a list of objects, one for each row, and a template becomes its
metrics.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from edgewake.protocol.errors import Rejected, RejectReason

_F = descriptor_pb2.FieldDescriptorProto
_METRIC_FIELDS: Final = (
    ("name", 1, _F.TYPE_STRING), ("alias", 2, _F.TYPE_UINT64), ("timestamp", 3, _F.TYPE_UINT64),
    ("datatype", 4, _F.TYPE_UINT32), ("is_historical", 5, _F.TYPE_BOOL),
    ("is_transient", 6, _F.TYPE_BOOL), ("is_null", 7, _F.TYPE_BOOL),
)  # fmt: skip
_VALUE_FIELDS: Final = (
    ("int_value", 10, _F.TYPE_UINT32), ("long_value", 11, _F.TYPE_UINT64),
    ("float_value", 12, _F.TYPE_FLOAT), ("double_value", 13, _F.TYPE_DOUBLE),
    ("boolean_value", 14, _F.TYPE_BOOL), ("string_value", 15, _F.TYPE_STRING),
    ("bytes_value", 16, _F.TYPE_BYTES),
)  # fmt: skip
_CELL_FIELDS: Final = (
    ("int_value", 1, _F.TYPE_UINT32), ("long_value", 2, _F.TYPE_UINT64),
    ("float_value", 3, _F.TYPE_FLOAT), ("double_value", 4, _F.TYPE_DOUBLE),
    ("boolean_value", 5, _F.TYPE_BOOL), ("string_value", 6, _F.TYPE_STRING),
)  # fmt: skip
_PROPERTY_FIELDS: Final = (
    ("int_value", 3, _F.TYPE_UINT32), ("long_value", 4, _F.TYPE_UINT64),
    ("string_value", 8, _F.TYPE_STRING),
)  # fmt: skip
QUALITY: Final = "Quality"
"""Key of a metric's property that says how good its value is (section 6.4.17)."""
GOOD: Final = range(192, 256)
"""Qualities of values that may be used: the specification has 192, OPC's codes have these. It has 0
for bad and 500 for stale values."""
BOOLEAN, DATE_TIME, TEMPLATE = 11, 13, 19
_SIGNED_BITS: Final = {1: 8, 2: 16, 3: 32, 4: 64}
"""Int8 to Int64 → bits; they are sent as two's complement in an unsigned field."""
_ARRAYS: Final = {
    22: "b", 23: "h", 24: "i", 25: "q", 26: "B", 27: "H", 28: "I", 29: "Q", 30: "f", 31: "d",
    34: "Q",
}  # fmt: skip
"""Data type of an array → `struct` code, little-endian."""
_BOOLEANS, _STRINGS = 32, 33


_PACKAGE: Final = "edgewake.sparkplug"


def _add(message: Any, name: str, number: int, kind: Any, *, many: bool = False) -> Any:
    """Adds a field to a message; `kind` is a type, or the name of a message."""
    field = message.field.add(
        name=name, number=number, label=_F.LABEL_REPEATED if many else _F.LABEL_OPTIONAL
    )
    if isinstance(kind, str):
        field.type, field.type_name = _F.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = kind
    return field


def _add_value(message: Any, fields: Sequence[tuple[str, int, Any]]) -> None:
    message.oneof_decl.add(name="value")
    for name, number, kind in fields:
        _add(message, name, number, kind).oneof_index = 0


def _messages() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="edgewake_sparkplug_b.proto", package=_PACKAGE, syntax="proto2"
    )
    one = file.message_type.add(name="Property")
    _add_value(one, _PROPERTY_FIELDS)
    properties = file.message_type.add(name="Properties")
    _add(properties, "keys", 1, _F.TYPE_STRING, many=True)
    _add(properties, "values", 2, "Property", many=True)
    metric = file.message_type.add(name="Metric")
    for name, number, kind in _METRIC_FIELDS:
        _add(metric, name, number, kind)
    _add(metric, "properties", 9, "Properties")
    _add_value(
        metric,
        (*_VALUE_FIELDS, ("dataset_value", 17, "DataSet"), ("template_value", 18, "Template")),
    )
    cell = file.message_type.add(name="Cell")
    _add_value(cell, _CELL_FIELDS)
    _add(file.message_type.add(name="Row"), "elements", 1, "Cell", many=True)
    table = file.message_type.add(name="DataSet")
    _add(table, "num_of_columns", 1, _F.TYPE_UINT64)
    _add(table, "columns", 2, _F.TYPE_STRING, many=True)
    _add(table, "types", 3, _F.TYPE_UINT32, many=True)
    _add(table, "rows", 4, "Row", many=True)
    template = file.message_type.add(name="Template")
    _add(template, "version", 1, _F.TYPE_STRING)
    _add(template, "metrics", 2, "Metric", many=True)
    _add(template, "template_ref", 4, _F.TYPE_STRING)
    _add(template, "is_definition", 5, _F.TYPE_BOOL)
    payload = file.message_type.add(name="Payload")
    _add(payload, "timestamp", 1, _F.TYPE_UINT64)
    _add(payload, "metrics", 2, "Metric", many=True)
    _add(payload, "seq", 3, _F.TYPE_UINT64)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Payload"))


_Payload: Final = _messages()
METRICS_MAX: Final = 10_000
"""The most metrics of one message with those in templates; a birth has all of a node."""
CELLS_MAX: Final = 10_000
"""The most cells of one data set."""
PROPERTIES_MAX: Final = 64
"""The most properties of a metric that are looked at."""
ENGINEERING_UNIT: Final = "engUnit"
"""The property that holds a metric's unit (section 6.4.10 leaves the name to nodes; all use it)."""
TEMPLATES_MAX: Final = 8
"""The deepest nesting of templates."""


class Metric(NamedTuple):
    """A metric as its node sent it."""

    name: str
    """Empty where the node sent its alias."""
    alias: int | None
    t: int | None
    """ms since 1970; None: the payload's time applies."""
    datatype: int
    """0: the data type of the birth applies."""
    value: Any
    """The raw value; `value_of` converts it."""
    is_null: bool
    is_historical: bool
    is_transient: bool
    quality: int | None = None
    """None: it says none, and the value is good."""
    unit: str = ""
    """The property `engUnit`, which nodes say at birth; empty: none."""

    @property
    def is_good(self) -> bool:
        """Whether its value may be used as a measurement."""
        return self.quality is None or self.quality in GOOD


class Template(NamedTuple):
    """A template: a metric's value that consists of other metrics."""

    is_definition: bool
    """Whether it declares what instances have, without values."""
    metrics: Sequence[Metric]


class Payload(NamedTuple):
    """A decoded message."""

    t: int | None
    seq: int | None
    metrics: Sequence[Metric]


def decoded(data: bytes) -> Payload:
    """Reads a message's protobuf, at most METRICS_MAX metrics with those of templates.

    Raises Rejected.
    """
    message = _Payload()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise Rejected(
            RejectReason.ENCODING, f"expected a payload of Sparkplug B: {error}"
        ) from error
    found = [_metric(one, 0) for one in message.metrics[: METRICS_MAX + 1]]
    if sum(map(_count, found)) > METRICS_MAX:
        raise Rejected(RejectReason.OVERSIZE, f"expected at most {METRICS_MAX} metrics")
    return Payload(
        message.timestamp if message.HasField("timestamp") else None,
        message.seq if message.HasField("seq") else None,
        found,
    )


def _count(metric: Metric) -> int:
    inner = metric.value.metrics if isinstance(metric.value, Template) else ()
    return 1 + sum(map(_count, inner))


def _metric(one: Any, depth: int) -> Metric:
    """Raises Rejected."""
    kind = one.WhichOneof("value")
    value: Any = None if kind is None else getattr(one, kind)
    if kind == "dataset_value":
        value = _rows(value)
    elif kind == "template_value":
        if depth >= TEMPLATES_MAX:
            raise Rejected(RejectReason.SHAPE, f"templates are nested deeper than {TEMPLATES_MAX}")
        value = Template(value.is_definition, [_metric(each, depth + 1) for each in value.metrics])
    return Metric(
        one.name,
        one.alias if one.HasField("alias") else None,
        one.timestamp if one.HasField("timestamp") else None,
        one.datatype,
        value,
        one.is_null,
        one.is_historical,
        one.is_transient,
        _quality(one.properties) if one.HasField("properties") else None,
        _unit(one.properties) if one.HasField("properties") else "",
    )


def _unit(properties: Any) -> str:
    """The unit among a metric's properties; empty without one."""
    pairs = zip(properties.keys[:PROPERTIES_MAX], properties.values, strict=False)
    return next((str(one.string_value) for key, one in pairs if key == ENGINEERING_UNIT), "")


def _quality(properties: Any) -> int | None:
    for name, found in zip(properties.keys, properties.values, strict=False):
        kind = found.WhichOneof("value")
        if name == QUALITY and kind in ("int_value", "long_value"):
            return int(getattr(found, kind))
    return None


def _rows(table: Any) -> list[dict[str, Any]]:
    """Raises Rejected."""
    columns, types = list(table.columns), list(table.types)
    if len(columns) != len(types) or len(columns) * len(table.rows) > CELLS_MAX:
        raise Rejected(
            RejectReason.SHAPE,
            f"a data set: expected as many types as columns, and at most {CELLS_MAX} cells",
        )
    return [_row(columns, types, row.elements) for row in table.rows]


def _row(columns: Sequence[str], types: Sequence[int], cells: Sequence[Any]) -> dict[str, Any]:
    """Returns a row as an object: missing cells are null, surplus cells are ignored."""
    found: dict[str, Any] = dict.fromkeys(columns)
    for name, datatype, cell in zip(columns, types, cells, strict=False):
        kind = cell.WhichOneof("value")
        found[name] = None if kind is None else value_of(getattr(cell, kind), datatype)
    return found


def value_of(value: Any, datatype: int) -> Any:
    """Converts a raw value by its data type; None for a missing one. Raises ValueError."""
    if isinstance(value, bool | str | list) or value is None:
        return value
    if isinstance(value, bytes):
        return _array(value, datatype)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if datatype == BOOLEAN:
        return bool(value)
    bits = _SIGNED_BITS.get(datatype)
    if bits is None:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _array(data: bytes, datatype: int) -> Any:
    code = _ARRAYS.get(datatype)
    if code is not None:
        count = len(data) // struct.calcsize(code)
        try:
            values = struct.unpack(f"<{count}{code}", data)
        except struct.error as error:
            raise ValueError(f"an array of {len(data)} bytes: {error}") from error
        return [
            None if isinstance(one, float) and not math.isfinite(one) else one for one in values
        ]
    if datatype == _STRINGS:
        return data.decode("utf-8", "replace").removesuffix("\0").split("\0")
    if datatype == _BOOLEANS:
        if len(data) < 4:
            raise ValueError("an array of true and false: expected its length")
        (count,) = struct.unpack("<I", data[:4])
        if count > 8 * (len(data) - 4):
            raise ValueError(f"an array of {count} in {len(data)} bytes")
        return [bool(data[4 + at // 8] >> (7 - at % 8) & 1) for at in range(count)]
    return data.hex()


def rebirth(now_ms: int) -> bytes:
    """Encodes the command that requests a rebirth of an edge node."""
    message = _Payload(timestamp=now_ms)
    message.metrics.add(
        name="Node Control/Rebirth", timestamp=now_ms, datatype=BOOLEAN, boolean_value=True
    )
    data: bytes = message.SerializeToString()
    return data
