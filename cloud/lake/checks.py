"""What may be in a question. Pure but for the parser, which is DuckDB's own.

Only one SELECT, only streams, queries, summaries and what it names itself (WITH), only functions
that make rows of their arguments. So nobody's text reaches files, settings or the network; the
connection that answers it is closed against them as well (answer.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

import duckdb
import orjson

from edgewake.cloud.lake.allowed_functions import NAMED, is_allowed
from edgewake.cloud.lake.question import CHARS_MAX
from edgewake.cloud.lake.shape import SUMMARIES
from edgewake.protocol.errors import QueryError, QueryFault

ROW_MAKERS: Final = frozenset({"range", "generate_series", "unnest"})
"""Functions in FROM that read nothing."""
WITH_NAME: Final = re.compile(r"[^\W\d]\w{0,63}")
"""The names that WITH may give: a plain word, which is not a file or an address, whatever the
engine makes of it."""
ENGINES: Final = ("duckdb_", "pg_", "sqlite_", "pragma_")
"""The first letters of the engine's own tables; WITH gives no such names."""
_READS: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})


def tree_of(db: duckdb.DuckDBPyConnection, sql: str) -> Mapping[str, Any]:
    """The syntax tree of one SELECT. Raises QueryError."""
    try:
        statements = db.extract_statements(sql)
    except duckdb.Error as error:
        raise fault_of(sql, error) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryError("expected one SELECT, and nothing that changes anything")
    ((text,),) = db.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    try:
        tree = orjson.loads(text)
    except (
        orjson.JSONDecodeError
    ) as error:  # DuckDB's own bound is a thousand levels, of which each is two of JSON
        raise QueryError("nested too deeply: expected at most some 500 levels") from error
    if tree.get("error"):
        raise QueryError(f"expected one SELECT: {tree.get('error_message', '')}")
    found: Mapping[str, Any] = tree["statements"][0]
    return found


def tables_of(sql: str, tree: Mapping[str, Any]) -> dict[str, int]:
    """The streams, queries and summaries that the text names. Raises QueryError.

    They are in lower case, with their places in the text (bytes).

    A name of WITH is not a table where it can be seen: in the rest of the same WITH, and in the
    SELECT that it belongs to.
    """
    return _Tree(sql).tables(tree)


def fault_of(sql: str, error: duckdb.Error) -> QueryError:
    """DuckDB's error with line and column (`errors_as_json` is set)."""
    text = str(error)
    try:
        found: Mapping[str, Any] = orjson.loads(text[text.index("{") :])
    except ValueError:
        return QueryError(text.partition("\n\nLINE ")[0][:500])
    position = int(found["position"]) if str(found.get("position", "")).isdigit() else None
    return QueryError(
        QueryFault(str(found.get("exception_message", text))[:500], *place(sql, position))
    )


def place(sql: str, position: int | None) -> tuple[int | None, int | None]:
    """Line and column, from 1, of a place in the text (bytes)."""
    if position is None:
        return None, None
    before = sql.encode()[:position].decode("utf-8", "ignore")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


Seen: TypeAlias = frozenset[str]
"""Names of WITH, in small letters, that can be seen."""


class _Tree:
    """Walks DuckDB's syntax tree, and knows at each place which names of WITH can be seen there."""

    def __init__(self, sql: str) -> None:
        self._sql = sql

    def tables(self, tree: object) -> dict[str, int]:
        found: dict[str, int] = {}
        # Without recursion, for a text may be nested deeply.
        waiting: list[tuple[object, Seen]] = [(tree, frozenset())]
        while waiting:
            node, seen = waiting.pop()
            if isinstance(node, list):
                waiting.extend((one, seen) for one in reversed(node))
            if not isinstance(node, dict):
                continue
            self._check(node)
            if node.get("type") == "BASE_TABLE":
                self._table(node, seen, found)
            seen = self._with(node, seen, waiting)
            waiting.extend((value, seen) for name, value in node.items() if name != "cte_map")
        return found

    def _with(
        self, node: Mapping[str, Any], seen: Seen, waiting: list[tuple[object, Seen]]
    ) -> Seen:
        """The names that are visible in a node.

        Each of its WITH sees those before it, and one that is RECURSIVE itself.
        """
        for entry in node.get("cte_map", {}).get("map", ()):
            name = entry["key"].casefold()
            if WITH_NAME.fullmatch(name) is None or name.startswith(ENGINES):
                raise QueryError(
                    f"WITH {name[:60]!r}: expected a plain word as its name, and none that is the "
                    "engine's own"
                )
            query = entry["value"].get("query_node", entry["value"])
            is_recursive = isinstance(query, dict) and query.get("type") == "RECURSIVE_CTE_NODE"
            waiting.append((entry["value"], seen | {name} if is_recursive else seen))
            seen |= {name}
        return seen

    def _table(self, node: Mapping[str, Any], seen: Seen, found: dict[str, int]) -> None:
        schema, name = node["schema_name"].casefold(), node["table_name"].casefold()
        if schema not in ("", SUMMARIES) or node["catalog_name"]:
            raise self._fault(
                node,
                f"{node['table_name']}: streams and queries have no schema, summaries have "
                f"{SUMMARIES}",
            )
        if schema or name not in seen:
            found.setdefault(f"{schema}.{name}" if schema else name, node["query_location"])

    def _check(self, node: Mapping[str, Any]) -> None:
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in _READS:
            raise QueryError("expected one SELECT, and nothing that changes anything")
        if kind == "SHOW_REF":
            raise QueryError(
                "DESCRIBE, SHOW and SUMMARIZE are not SELECT; `edgewake streams` lists streams and "
                "their fields"
            )
        if (
            kind == "TABLE_FUNCTION"
            and (name := node["function"].get("function_name", "")).casefold() not in ROW_MAKERS
        ):
            raise self._fault(
                node, f"{name}: in FROM stand streams, queries and {', '.join(sorted(ROW_MAKERS))}"
            )
        name = str(node.get("function_name", ""))
        if name and not is_allowed(name) and name.casefold() not in ROW_MAKERS:
            near = get_close_matches(name.casefold(), NAMED, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise self._fault(node, f"{name}: no function that computes with readings{hint}")

    def _fault(self, node: Mapping[str, Any], detail: str) -> QueryError:
        at = node.get("query_location")
        return QueryError(
            QueryFault(
                detail,
                *place(self._sql, at if isinstance(at, int) and at <= CHARS_MAX * 4 else None),
            )
        )
