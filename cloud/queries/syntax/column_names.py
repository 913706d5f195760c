"""The names of a result's columns: given, made up, and checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from edgewake.protocol.errors import QueryError
from edgewake.protocol.names import FIELD_CHARS_MAX, FIELD_PATTERN, RESERVED_FIELDS

OUTPUTS_MAX: Final = 64
"""Columns of a result."""


_RESULT_FIELDS: Final = RESERVED_FIELDS | {"complete", "withdrawn", "window_number"}
"""What a result has beside the columns of its SELECT."""


def check_outputs(columns: int, names: Sequence[str]) -> None:
    """Raises QueryError for too many columns, and for two of one name."""
    if columns > OUTPUTS_MAX:
        raise QueryError(f"SELECT: {columns} columns: expected at most {OUTPUTS_MAX}")
    if twice := {name for name in names if names.count(name) > 1}:
        raise QueryError(f"SELECT: the name {min(twice)!r} twice; give one of them another with AS")


def slug(node: exp.Expr) -> str:
    """A name for a column that has none: `avg(speed)` is `avg_speed`."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", node.sql(dialect="spark").lower()).strip("_")[
        :FIELD_CHARS_MAX
    ]
    return text if re.match("[a-z]", text) else f"column_{text}"[:FIELD_CHARS_MAX]


def column_name(name: str, clause: str) -> str:
    """The name, where a column of a result may have it; raises QueryError."""
    if FIELD_PATTERN.fullmatch(name) is None or (name in _RESULT_FIELDS and name != "device"):
        raise QueryError(
            f"{clause}: the name {name[:80]!r} is reserved or not 1-64 of A-Z a-z 0-9 _; give it "
            "another with AS"
        )
    return name
