"""Kafka's records as columns: what a file of the lake, or the present in a question, is made of.

Pure.

A record whose fields have other types than those gathered before begins a table of its own, so that
a table has one type for a field.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa

from edgewake.cloud.lake.shape import BASE, SKETCHES, ColumnType, Fields, Kind, agrees, physical
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.corrected_time import corrected_ms
from edgewake.protocol.frames.frame import COUNTER_MAX, TIME_MS_MAX

_ARROW: Final = {
    "VARCHAR": pa.string(),
    "TIMESTAMP": pa.timestamp("ms"),
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "BLOB": pa.binary(),
}
_ARROW_FIELD: Final = {
    ColumnType.NUMBER: pa.float64(),
    ColumnType.STRING: pa.string(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.JSON: pa.string(),
}
_KINDS: Final[Mapping[type, ColumnType]] = {
    int: ColumnType.NUMBER,
    float: ColumnType.NUMBER,
    str: ColumnType.STRING,
    bool: ColumnType.BOOLEAN,
    list: ColumnType.JSON,
    dict: ColumnType.JSON,
}
_NULL: Final = type(None)

Values: TypeAlias = Sequence[Any]


class Foreign(ValueError):
    """A record that none of our parts wrote."""


@dataclass(slots=True)
class Rows:
    """Rows of one topic, column by column, in the order of the log."""

    kind: Kind
    fields: dict[str, ColumnType] = field(default_factory=dict)
    count: int = 0
    base: dict[str, list[Any]] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    """A field that the last records had not is shorter than `count`."""

    def add(
        self, base: Mapping[str, Values], values: Mapping[str, Values], fields: Fields, count: int
    ) -> None:
        """Rows whose fields agree with those of before."""
        for name in BASE[self.kind]:
            self.base.setdefault(name, []).extend(base[name])
        for name, type_ in fields.items():
            self.fields[name] = type_
            column = self.values.setdefault(name, [])
            column.extend([None] * (self.count - len(column)))
            column.extend(values[name])
        self.count += count

    def table(self) -> pa.Table:
        """As a file holds it."""
        columns = {
            name: pa.array(self.base[name], _ARROW[type_])
            for name, type_ in BASE[self.kind].items()
        }
        for name, column in physical(self.kind, self.fields).items():
            columns[column] = _array(
                self.values[name] + [None] * (self.count - len(self.values[name])),
                self.fields[name],
            )
        return pa.table(columns)


class Gathered:
    """The rows of one topic and day, in as many tables as its fields' types need."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.tables: list[Rows] = []

    @property
    def count(self) -> int:
        """Rows in all."""
        return sum(rows.count for rows in self.tables)

    @property
    def cells(self) -> int:
        """Values of its tables, nulls included."""
        return sum(rows.count * (len(rows.fields) + len(rows.base)) for rows in self.tables)

    def add(self, value: bytes, *, key: bytes | None, partition: int, offset: int) -> int:
        """Take a record; the number of its rows. Raises Foreign."""
        try:
            base, values, count = _READERS[self._kind](value, key, partition, offset)
            types = {name: _type_of(column) for name, column in values.items()}
            fields = {name: type_ for name, type_ in types.items() if type_ is not None}
            values = {
                name: _as_text(values[name]) if type_ is ColumnType.JSON else values[name]
                for name, type_ in fields.items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Foreign(f"{type(error).__name__}: {error}") from error
        if count:
            self._fitting(fields).add(base, values, fields, count)
        return count

    def _fitting(self, fields: Fields) -> Rows:
        for rows in self.tables:
            if agrees(rows.fields, fields):
                return rows
        self.tables.append(Rows(self._kind))
        return self.tables[-1]

    def __iter__(self) -> Iterator[Rows]:
        return iter(self.tables)


Read: TypeAlias = tuple[dict[str, Values], Mapping[str, Values], int]


def _readings(value: bytes, _key: bytes | None, partition: int, offset: int) -> Read:
    record = records.decode(value)
    frame, shift = record.frame, record.shift
    received_at = record.received_at if record.kept_at is None else record.kept_at
    count = len(frame.t)
    if any(len(column) != count for column in frame.fields.values()):
        raise ValueError("columns of different lengths")
    base: dict[str, Values] = {
        "device": [record.device] * count,
        "t": [corrected_ms(t, shift=shift, received_at=received_at) for t in frame.t],
        "received_at": [received_at] * count,
        "sent_at": [None if record.sent_at is None else min(record.sent_at + shift, received_at)]
        * count,
        "epoch": [frame.epoch] * count,
        "seq": [None] * count if frame.seq is None else range(frame.seq, frame.seq + count),
        "@partition": [partition] * count,
        "@offset": [offset] * count,
    }
    if not record.via:
        return base, frame.fields, count
    # Beside the fields: only files with things behind gateways have this column.
    return base, {**frame.fields, "via": [record.via] * count}, count


def _result(value: bytes, key: bytes | None, partition: int, offset: int) -> Read:
    row = orjson.loads(value)
    row.pop("query")
    base: dict[str, Values] = {
        name: [row.pop(name, None)] for name in ("window_start", "window_end", "revision", "final")
    }
    base |= {"@key": [(key or b"").decode()], "@partition": [partition], "@offset": [offset]}
    return base, {name: [item] for name, item in row.items()}, 1


def _summary(value: bytes, _key: bytes | None, partition: int, offset: int) -> Read:
    row = orjson.loads(value)
    start, end, readings, count = (int(row[name]) for name in ("start", "end", "readings", "count"))
    if not 0 <= start < end <= TIME_MS_MAX or not 0 <= count <= readings <= COUNTER_MAX:
        raise ValueError("no summary")
    base: dict[str, Values] = {
        name: [str(row[name])] for name in ("stream", "field", "devices", "maker")
    }
    base |= {"window_start": [start], "window_end": [end], "readings": [readings], "count": [count]}
    base |= {
        name: [None if row[name] is None else float(row[name])]
        for name in ("sum", "min", "max", "mean", "variance")
    }
    base |= {
        name: [base64.b64decode(row[name], validate=True) if row.get(name) else None]
        for name in SKETCHES
    }
    base |= {"seen": _as_text([row.get("seen")]), "@partition": [partition], "@offset": [offset]}
    return base, {}, 1


_READERS: Final = {Kind.STREAM: _readings, Kind.QUERY: _result, Kind.SUMMARY: _summary}


def _type_of(column: Values) -> ColumnType | None:
    """None where all are null. Raises TypeError where they differ."""
    found = {_KINDS[kind] for kind in set(map(type, column)) if kind is not _NULL}
    if len(found) > 1:
        raise TypeError(f"a field is {' and '.join(sorted(found))}")
    return found.pop() if found else None


def _as_text(column: Values) -> Values:
    return [None if value is None else orjson.dumps(value).decode() for value in column]


def _array(column: list[Any], type_: ColumnType) -> pa.Array:
    try:
        return pa.array(column, _ARROW_FIELD[type_])
    except pa.ArrowInvalid:  # a whole number that a 64-bit float cannot hold: the nearest one
        return pa.array([None if value is None else float(value) for value in column], pa.float64())
