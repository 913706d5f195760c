"""The clauses of a SELECT: those that are read, and why the others are refused. Pure."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from edgewake.cloud.queries.advice import FUNCTIONS, STORED
from edgewake.cloud.queries.terms.faults import Faults
from edgewake.protocol.errors import QueryError

_READ: Final = ("expressions", "from_", "where", "group", "having", "order", "limit", "joins")


_CLAUSES: Final = {
    "with_": (
        "WITH: a common table may only filter one stream: WITH x AS (SELECT * FROM stream WHERE …)"
    ),
    "distinct": f"SELECT DISTINCT: not supported; use GROUP BY or approx_count_distinct; {STORED}",
    "laterals": f"LATERAL VIEW: not supported; use UNPIVOT for fields; {FUNCTIONS['unnest']}",
    "qualify": (
        "QUALIFY: not supported; use HAVING, or ORDER BY … LIMIT n for the first of each window; "
        f"{STORED}"
    ),
    "windows": "WINDOW: not supported; windows of time are written in GROUP BY",
    "offset": "OFFSET: not supported; LIMIT n gives the first n rows of each window",
    "match": "MATCH_RECOGNIZE: write GROUP BY pattern_window('10 minutes', first condition, second "
    "condition), device",
}


def check_clauses(select: exp.Expr, faults: Faults) -> None:
    """Refuse every clause but those that are read."""
    for clause, value in select.args.items():
        if not value or clause in _READ:
            continue
        node = value[0] if isinstance(value, list) else value
        with faults.within(node if isinstance(node, exp.Expr) else None):
            raise QueryError(
                _CLAUSES.get(
                    clause,
                    f"{clause.strip('_').upper()}: not supported; expected SELECT, FROM, WHERE, "
                    "GROUP BY, HAVING, ORDER BY",
                )
            )
