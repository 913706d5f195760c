"""Which columns a table has whose files differ. Pure.

A file has the columns of BASE and those of its fields; a field that is not in a file is null in its
rows. A field whose type an operator changed is two columns: the newest type has the field's name,
an older one is told apart as `name@type`. Names of Parquet and SQL do not tell capitals apart,
those of fields do: of fields that differ by that alone, or that are named like a column of BASE,
later ones in the alphabet are `name@2`, `name@3`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from edgewake.protocol.sketches.sketch import SketchKind


class Kind(StrEnum):
    """The kind of records that a topic holds."""

    STREAM = "stream"
    QUERY = "query"
    SUMMARY = "summary"


class ColumnType(StrEnum):
    """Type of a field's column.

    A number is a 64-bit float; json is the text of a list or an object.
    """

    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    JSON = "json"


Fields = Mapping[str, ColumnType]
"""The fields of a file."""

SQL_TYPES: Final[Mapping[ColumnType, str]] = {
    ColumnType.NUMBER: "DOUBLE",
    ColumnType.STRING: "VARCHAR",
    ColumnType.BOOLEAN: "BOOLEAN",
    ColumnType.JSON: "JSON",
}
SUMMARIES: Final = "summaries"
"""The schema, in SQL, of hours and days. No stream has a name with a point."""
SKETCHES: Final = tuple(kind.value for kind in SketchKind if kind is not SketchKind.NUMBERS)
SUMMARY_KEY: Final = ("stream", "field", "devices", "window_start", "maker")
"""The columns that identify a summary, whose last revision is the truth. SQL looks for one of these
where the files are read, and not behind all revisions of all."""
LAST_FIRST: Final = """CASE WHEN maker = '' THEN readings END DESC, "@offset" DESC"""
"""The order in which the true revision of a summary comes first. What the cloud computed never
shrinks, as in the operations API's store: one with fewer readings was computed again from a log
that retention has cut."""
BASE: Final[Mapping[Kind, Mapping[str, str]]] = {
    Kind.STREAM: {
        "device": "VARCHAR",
        "t": "TIMESTAMP",
        "received_at": "TIMESTAMP",
        "sent_at": "TIMESTAMP",
        "epoch": "BIGINT",
        "seq": "BIGINT",
        "@partition": "INTEGER",
        "@offset": "BIGINT",
    },
    Kind.QUERY: {
        "window_start": "TIMESTAMP",
        "window_end": "TIMESTAMP",
        "revision": "BIGINT",
        "final": "BOOLEAN",
        "@key": "VARCHAR",
        "@partition": "INTEGER",
        "@offset": "BIGINT",
    },
    Kind.SUMMARY: {
        "stream": "VARCHAR",
        "field": "VARCHAR",
        "devices": "VARCHAR",
        "window_start": "TIMESTAMP",
        "window_end": "TIMESTAMP",
        "maker": "VARCHAR",
        "readings": "BIGINT",
        "count": "BIGINT",
        **dict.fromkeys(("sum", "min", "max", "mean", "variance"), "DOUBLE"),
        **dict.fromkeys(SKETCHES, "BLOB"),
        "seen": "VARCHAR",
        "@partition": "INTEGER",
        "@offset": "BIGINT",
    },
}
"""What every row has, with its type in SQL. Times are UTC. `@`: where the row stands in Kafka; no
field has such a name."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table that a user sees."""

    name: str
    field: str
    type: ColumnType


def physical(kind: Kind, fields: Iterable[str]) -> dict[str, str]:
    """Field → the column of a file with these fields."""
    taken = {name.casefold() for name in BASE[kind]}
    found: dict[str, str] = {}
    for name in sorted(fields):
        found[name] = _free(name, taken)
        taken.add(found[name].casefold())
    return found


def columns(kind: Kind, shapes: Sequence[Fields]) -> list[Column]:
    """The table's columns, of files from the oldest to the newest."""
    newest: dict[str, ColumnType] = {}
    for shape in shapes:
        newest |= shape
    plain = physical(kind, newest)
    older = {
        (name, type_)
        for shape in shapes
        for name, type_ in shape.items()
        if newest[name] is not type_
    }
    return [Column(plain[name], name, type_) for name, type_ in sorted(newest.items())] + [
        Column(f"{plain[name]}@{type_}", name, type_) for name, type_ in sorted(older)
    ]


def expressions(kind: Kind, table: Iterable[Column], fields: Fields) -> list[str]:
    """What to select from a file with these fields, for the columns of the table."""
    of_file = physical(kind, fields)

    def value_of(column: Column) -> str:
        has_it = fields.get(column.field) is column.type
        return quoted(of_file[column.field]) if has_it else "NULL"

    return [
        f"{value_of(column)}::{SQL_TYPES[column.type]} AS {quoted(column.name)}" for column in table
    ]


def known_units(tables: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Table → column → unit, by the names that SQL has for them, in small letters.

    A field that shares its name with another one, or with a column of BASE, is left out.
    """
    taken = {name for base in BASE.values() for name in base}
    found: dict[str, dict[str, str]] = {}
    for table, units in tables.items():
        times = Counter(name.casefold() for name in units)
        found[table.casefold()] = {
            name.casefold(): unit
            for name, unit in units.items()
            if times[name.casefold()] == 1 and name.casefold() not in taken
        }
    return found


def agrees(known: Fields, more: Fields) -> bool:
    """May they stand in one file: has no field two types?"""
    return all(known.get(name, type_) is type_ for name, type_ in more.items())


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found.casefold() in taken:
        number += 1
        found = f"{name}@{number}"
    return found
