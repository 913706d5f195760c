"""Writes TOML, which the standard library only reads: plain values, one level of tables and of arrays of tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

Plain: TypeAlias = str | int | float | bool | Path
Value: TypeAlias = "Plain | Sequence[Plain] | Mapping[str, Value] | Sequence[Mapping[str, Value]]"


def dumps(table: Mapping[str, Value]) -> str:
    """The text of a table; plain values first, then its tables, as TOML demands."""
    lines = [f"{key} = {_value(value)}" for key, value in table.items() if not _is_table(value) and not _is_tables(value)]
    for key, value in table.items():
        if _is_table(value):
            lines += ["", f"[{key}]", dumps(value).rstrip()]  # type: ignore[arg-type]
        elif _is_tables(value):
            for item in value:  # type: ignore[union-attr]
                lines += ["", f"[[{key}]]", dumps(item).rstrip()]  # type: ignore[arg-type]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Path):
        value = str(value)
    # A JSON string, number or boolean is a TOML one; DEL is the one character that JSON lets pass and TOML does not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
