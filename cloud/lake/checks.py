"""What may be in a question. Pure but for the parser, which is DuckDB's own.

Only one SELECT, only streams, queries, summaries and what it names itself (WITH), only functions that make rows of their arguments. So
nobody's text reaches files, settings or the network; the connection that answers it is closed against them as well (answer.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import duckdb
import orjson

from edgewake.cloud.lake.question import CHARS_MAX
from edgewake.cloud.lake.shape import SUMMARIES
from edgewake.protocol.errors import QueryError, QueryFault

ROW_MAKERS: Final = frozenset({"range", "generate_series", "unnest"})
"""Functions in FROM that read nothing."""
REFUSED: Final = frozenset({"current_setting", "getenv", "write_log", "query", "query_table", "nextval", "currval", "set_config"})
"""Functions that look at or change the engine."""
_READS: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})


def tables_of(db: duckdb.DuckDBPyConnection, sql: str) -> dict[str, int | None]:
    """The streams, queries and summaries that it names, in small letters, with their place in the text (bytes). Raises QueryError.

    Without a place: WITH names it, too, so it may be no stream.
    """
    try:
        statements = db.extract_statements(sql)
    except duckdb.Error as error:
        raise fault_of(sql, error) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryError("expected one SELECT, and nothing that changes anything")
    ((text,),) = db.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    try:
        tree = orjson.loads(text)
    except orjson.JSONDecodeError as error:  # DuckDB's own bound is a thousand levels, of which each is two of JSON
        raise QueryError("nested too deeply: expected at most some 500 levels") from error
    if tree.get("error"):
        raise QueryError(f"expected one SELECT: {tree.get('error_message', '')}")
    return _Tree(sql).tables(tree["statements"])


def fault_of(sql: str, error: duckdb.Error) -> QueryError:
    """DuckDB's error with line and column (`errors_as_json` is set)."""
    text = str(error)
    try:
        found: Mapping[str, Any] = orjson.loads(text[text.index("{") :])
    except ValueError:
        return QueryError(text.partition("\n\nLINE ")[0][:500])
    position = int(found["position"]) if str(found.get("position", "")).isdigit() else None
    return QueryError(QueryFault(str(found.get("exception_message", text))[:500], *place(sql, position)))


def place(sql: str, position: int | None) -> tuple[int | None, int | None]:
    """Line and column, from 1, of a place in the text (bytes)."""
    if position is None:
        return None, None
    before = sql.encode()[:position].decode("utf-8", "ignore")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


class _Tree:
    """Walks DuckDB's syntax tree."""

    def __init__(self, sql: str) -> None:
        self._sql = sql

    def tables(self, tree: object) -> dict[str, int | None]:
        named: set[str] = set()
        found: dict[str, int] = {}
        for node in _nodes(tree):
            named |= {entry["key"].casefold() for entry in node.get("cte_map", {}).get("map", ())}
            self._check(node)
            if node.get("type") == "BASE_TABLE":
                schema = node["schema_name"].casefold()
                if schema not in ("", SUMMARIES) or node["catalog_name"]:
                    raise self._fault(node, f"{node['table_name']}: streams and queries have no schema, summaries have {SUMMARIES}")
                name = node["table_name"].casefold()
                found.setdefault(f"{schema}.{name}" if schema else name, node["query_location"])
        return {name: None if name in named else at for name, at in found.items()}

    def _check(self, node: Mapping[str, Any]) -> None:
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in _READS:
            raise QueryError("expected one SELECT, and nothing that changes anything")
        if kind == "SHOW_REF":
            raise QueryError("DESCRIBE, SHOW and SUMMARIZE are no SELECT; `edgewake streams` lists streams and their fields")
        if kind == "TABLE_FUNCTION" and (name := node["function"].get("function_name", "")).casefold() not in ROW_MAKERS:
            raise self._fault(node, f"{name}: in FROM stand streams, queries and {', '.join(sorted(ROW_MAKERS))}")
        if (name := str(node.get("function_name", ""))).casefold() in REFUSED:
            raise self._fault(node, f"{name}: looks at the engine, not at readings")

    def _fault(self, node: Mapping[str, Any], detail: str) -> QueryError:
        at = node.get("query_location")
        return QueryError(QueryFault(detail, *place(self._sql, at if isinstance(at, int) and at <= CHARS_MAX * 4 else None)))


def _nodes(tree: object) -> Iterator[Mapping[str, Any]]:
    """Every object in it; without recursion, for a text may be nested deeply."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
