"""The header `shed`: when a query leaves readings out, and which it never leaves out.

No I/O and no Spark.

-- shed: random above 60 seconds
-- shed: random above 60 seconds except where speed_kmh > 100
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from edgewake.cloud.queries.query import Query
from edgewake.cloud.queries.syntax.window_syntax import duration_ms
from edgewake.protocol.errors import QueryError

ABOVE_MS_MIN: Final = 1_000
"""A batch and the way take as long as a smaller lag."""
ABOVE_MS_MAX: Final = 86_400_000
MARK_FIELDS: Final = ("kept", "margins", "of_kept")
"""What a row says beside its columns when readings were left out (results/shed_marks.py)."""
_SHED: Final = re.compile(
    r"random\s+above\s+(?P<above>.+?)(?:\s+except\s+where\s+(?P<unless>.+))?", re.IGNORECASE
)
_IN_FILE: Final = re.compile(r"^--\s*shed\s*:.*?\sexcept\s+where\s+", re.IGNORECASE | re.MULTILINE)


def read_shed(header: str) -> tuple[int, str | None]:
    """The lag in ms, and the text of the condition. Raises QueryError."""
    match = _SHED.fullmatch(header)
    if match is None:
        raise QueryError(
            f"header shed {header[:60]!r}: expected `random above 60 seconds`, perhaps with "
            "`except where` and a condition"
        )
    above_ms = duration_ms(match["above"], "header shed")
    if not ABOVE_MS_MIN <= above_ms <= ABOVE_MS_MAX:
        raise QueryError(f"header shed {match['above'][:40]!r}: expected 1 second to 1 day")
    return above_ms, match["unless"]


def in_its_place(condition: str, text: str) -> str:
    """The condition at its place in the file `text`, with blanks before it.

    So its errors have the right places.
    """
    match = _IN_FILE.search(text)
    assert match is not None
    return re.sub(r"[^\n]", " ", text[: match.end()]) + condition


def check_shed(query: Query) -> None:
    """Refuse what cannot be thinned. Raises QueryError."""
    if why := _why_not(query):
        raise QueryError(f"header shed: {why}")
    names: Sequence[str] = [*query.key_names, *(output.name for output in query.outputs)]
    if taken := [name for name in names if name in MARK_FIELDS]:
        raise QueryError(
            f"header shed: its rows say {', '.join(MARK_FIELDS)} of themselves; give {taken[0]!r} "
            "another name with AS"
        )


def _why_not(query: Query) -> str | None:
    if query.others:
        return "not with UNION ALL; shed queries of one stream each"
    if query.is_rows:
        return "each reading is a row here; choose them with WHERE"
    if query.is_completed or query.is_paired:
        return "JOIN and what came before need every reading"
    if query.window.is_sequence:
        return "sessions, windows by count and patterns need every reading"
    if query.window.is_all:
        return (
            "without a window what was left out could never be computed again; group by "
            "window(event_time, '1 hour')"
        )
    return None
