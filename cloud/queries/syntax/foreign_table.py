"""Header `foreign`: a compacted topic of somebody else's as a table that readings are joined with.

Pure.

    -- foreign: tariffs (price number, unit string) from erp.tariffs

Each record is the row of its key (a text) since the record's time; its value is a JSON object, none
removes the row. The columns that are named can be asked for, and `key` and `event_time` besides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.queries.terms.functions import STRING, TIME, Kind
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.names import is_field, is_stream

COLUMNS_MAX: Final = 64
_OURS: Final = "ew."
"""Begins the names of all topics of ours (protocol/topics.py)."""
KEY: Final = "key"
"""The column that a row is found by."""
_OWN: Final[Mapping[str, Kind]] = {KEY: STRING, "event_time": TIME}
_EXPECTED: Final = (
    "expected e.g. `-- foreign: tariffs (price number, unit string) from erp.tariffs`"
)
_HEADER: Final = re.compile(
    r"([^\s(]+)\s*\(([^()]*)\)\s*from\s+([A-Za-z0-9._-]{1,249})", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A table that is nobody's stream."""

    name: str
    topic: str
    columns: Mapping[str, Kind]
    """With `key` and `event_time`, since when a row holds."""


def read_foreign(text: str) -> Foreign:
    """What the header says. Raises QueryError."""
    found = _HEADER.fullmatch(text.strip())
    if found is None:
        raise QueryError(f"header foreign {text[:80]!r}: {_EXPECTED}")
    name, columns, topic = found.groups()
    if not is_stream(name):
        raise QueryError(
            f"header foreign: {name[:80]!r} is not a name of a table: expected 1-64 of a-z 0-9 _, "
            "a letter first"
        )
    if topic.startswith(_OURS):
        raise QueryError(
            f"header foreign: {topic!r} is a topic of Edgewake's own: streams are joined by their "
            "names"
        )
    declared = dict(map(_column, columns.split(",")))
    if len(declared) != columns.count(",") + 1 or len(declared) > COLUMNS_MAX:
        raise QueryError(f"header foreign: expected 1 to {COLUMNS_MAX} different columns")
    return Foreign(name, topic, {**declared, **_OWN})


def _column(text: str) -> tuple[str, Kind]:
    name, _, kind = text.strip().partition(" ")
    if not is_field(name) or name in _OWN:
        raise QueryError(f"header foreign: {name[:80]!r} is not a name of a column: {_EXPECTED}")
    try:
        return name, FieldType(kind.strip().lower())
    except ValueError as error:
        raise QueryError(
            f"header foreign: {name} {kind.strip()[:40]!r}: expected {', '.join(FieldType)}"
        ) from error
