"""What a principal sees of a table, as text of SQL (DuckDB's). Pure.

A question's own conditions must not reach what is hidden: an engine may try them first, and the
error of one (a text for a number) would tell the value. Nothing passes a LIMIT on its way
down, so `barred` puts one that cuts nothing between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import OPERATOR_STREAMS, Grant
from edgewake.cloud.rights.scope import RESULT_ENVELOPE, Scope

NEVER: Final = "false"
ALWAYS: Final = "true"
_ALL_ROWS: Final = (1 << 63) - 1
_OF_DEVICE: Final = "CASE WHEN starts_with(devices, '@') THEN substr(devices, 2) END"
"""The device that a summary is of; null for one of several."""


def barred(columns: str, rows: str, condition: str) -> str:
    """A SELECT of the rows for which a condition holds, below which no other one is tried."""
    return f"SELECT {columns} FROM ({rows}) WHERE {condition} LIMIT {_ALL_ROWS}"  # noqa: S608


def one_of(column: str, names: Names | None) -> str:
    """A condition: the column has one of the names; None: all there are. It is never null."""
    if names is None:
        return ALWAYS
    found = [f"{column} LIKE {_text(_like(one))} ESCAPE '\\'" for one in names.patterns]
    if names.exact:
        found.append(f"{column} IN ({', '.join(map(_text, sorted(names.exact)))})")
    return f"coalesce({' OR '.join(found)}, false)" if found else NEVER


def rows_of(scope: Scope, device: str | None) -> str:
    """The condition on a row that something of it is seen. `device`: its column, None: none."""
    return _any(_has(part.devices, device) for part in scope.parts)


def value_of(scope: Scope, field: str, column: str, device: str | None) -> str | None:
    """What stands for a field's column; None where nothing of it is ever seen."""
    if field in RESULT_ENVELOPE:
        return column
    parts = [part for part in scope.parts if part.fields is None or field in part.fields]
    condition = _any(_has(part.devices, device) for part in parts)
    if condition in (ALWAYS, NEVER):
        return column if condition == ALWAYS else None
    return f"CASE WHEN {condition} THEN {column} END"


def cuts_fields(scope: Scope) -> bool:
    """Is any field hidden of any device?"""
    return any(part.fields is not None for part in scope.parts)


def summaries_of(grants: Iterable[Grant]) -> str:
    """The condition on a row of summaries that it may be seen."""
    hidden = ", ".join(map(_text, sorted(OPERATOR_STREAMS)))
    found = _any(
        " AND ".join(
            [one_of("stream", one.streams), one_of("field", one.fields),
             one_of(_OF_DEVICE, one.devices)]
        )
        for one in grants
    )  # fmt: skip
    return f"(stream NOT IN ({hidden}) AND ({found}))"


def _has(devices: Names | None, column: str | None) -> str:
    if devices is None:
        return ALWAYS
    return NEVER if column is None else one_of(column, devices)


def _any(conditions: Iterable[str]) -> str:
    found = [one for one in dict.fromkeys(conditions) if one != NEVER]
    if not found or ALWAYS in found:
        return ALWAYS if found else NEVER
    return " OR ".join(f"({one})" for one in found)


def _like(pattern: str) -> str:
    """The pattern of LIKE for one of ours, in which only `*` stands for anything."""
    for letter in ("\\", "%", "_"):
        pattern = pattern.replace(letter, f"\\{letter}")
    return pattern.replace("*", "%")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
