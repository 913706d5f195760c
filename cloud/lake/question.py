"""A question in SQL, and its bounds.

Needs no DuckDB, so the operations API can refuse a wrong question without a process.
"""

from __future__ import annotations

import re
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

CHARS_MAX: Final = 20_000
"""Characters of a question."""
ROWS_MAX: Final = 100_000
"""Rows of an answer that can be asked for."""
SECONDS_MAX: Final = 60.0
"""The longest time that can be asked for: far below the time that files stay after they were merged
(manifest.GRACE_S)."""
_BEFORE: Final = re.compile(r"[\s(]++|--[^\n]*+(?:\n|$)|/\*.*?\*/", re.DOTALL)
_BEGINS: Final = re.compile(r"(?:select|with|from|values)\b", re.IGNORECASE)


class Question(BaseModel):
    """A question to the lake."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sql: str = Field(min_length=1, max_length=CHARS_MAX)
    """One SELECT of DuckDB's SQL over streams, queries and summaries by their names. Times are
    TIMESTAMP in UTC."""
    rows: int = Field(default=1000, ge=1, le=ROWS_MAX)
    """Rows of the answer at most; a longer one is cut, and says so."""
    seconds: float = Field(default=10.0, gt=0, le=SECONDS_MAX)
    """After that it is given up."""
    objects: bool = False
    """Rows as objects by the names of their columns, as Grafana's sources read them; of columns
    with one name the second is `name_2`."""


def is_question(sql: str) -> bool:
    """Does it begin like a question? Others are refused without a process.

    It takes one step for each comment: a text of nothing else costs its length.
    """
    at = 0
    while (skipped := _BEFORE.match(sql, at)) is not None:
        at = skipped.end()
    return _BEGINS.match(sql, at) is not None
