"""Tells the unit of each column of an answer in SQL, by its syntax tree (DuckDB's). Pure.

As for continuous queries (measures.py): a column that is a field unchanged, or a minimum, maximum,
mean, sum, quantile or the like of one field, has that field's unit; what is counted or computed
otherwise has none. What is not certain has none either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Units = Mapping[str, str]
"""Column, in small letters → unit."""
Node = Mapping[str, Any]

KEEPS_UNIT: Final = frozenset(
    {
        "abs", "any_value", "approx_quantile", "arbitrary", "arg_max", "arg_min", "avg", "ceil",
        "ceiling", "favg", "first", "first_value", "floor", "fsum", "lag", "last", "last_value",
        "lead", "max", "max_by", "mean", "median", "min", "min_by", "mode", "nth_value",
        "quantile", "quantile_cont", "quantile_disc", "round", "sum", "trunc",
    }
)  # fmt: skip
"""Functions, also over windows, whose result has the unit of their first argument."""
NONE_KNOWN: Final[Units] = {}


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns of a SELECT."""

    places: Sequence[str] | None
    """The unit of each; None where a star stands for several."""
    named: Units


NOTHING: Final = Shown(None, NONE_KNOWN)


def units_of(statement: Node, names: Sequence[str], tables: Mapping[str, Units]) -> list[str]:
    """The unit of each column of an answer, empty where none is known.

    `names`: of its columns; `tables`: what FROM may name, with the units of its columns.
    """
    try:
        shown = _shown(statement["node"], tables)
    except (RecursionError, KeyError, TypeError):  # nested too deeply, or another engine's tree
        return [""] * len(names)
    if shown.places is not None and len(shown.places) == len(names):
        return list(shown.places)
    times = Counter(name.casefold() for name in names)
    return [
        shown.named.get(name.casefold(), "") if times[name.casefold()] == 1 else ""
        for name in names
    ]


def _shown(node: Node, tables: Mapping[str, Units]) -> Shown:
    for entry in (node.get("cte_map") or {}).get("map", ()):
        value = entry["value"]
        inner = NOTHING if value.get("aliases") else _shown(value["query_node"], tables)
        tables = {**tables, entry["key"].casefold(): inner.named}
    if node["type"] == "SET_OPERATION_NODE":
        return _of_all([_shown(one, tables) for one in _sides(node)])
    if node["type"] != "SELECT_NODE":
        return NOTHING
    sources = dict(_sources(node["from_table"], tables))
    places: list[str] = []
    named: dict[str, str] = {}
    has_star = False
    for item in node["select_list"]:
        if item["class"] == "STAR":
            has_star = True
            named |= _starred(item, sources)
            continue
        unit = _unit(item, sources)
        places.append(unit)
        name = item.get("alias") or (item.get("column_names") or [""])[-1]
        named[name.casefold()] = unit
    return Shown(None if has_star else places, named)


def _sides(node: Node) -> Sequence[Node]:
    return node.get("children") or [node["left"], node["right"]]


def _of_all(sides: Sequence[Shown]) -> Shown:
    """The columns of a UNION: those in which all its parts agree, under the names of the first."""
    places = [one.places for one in sides if one.places is not None]
    if len(places) < len(sides) or len({len(one) for one in places}) != 1:
        return NOTHING
    units = [each[0] if len(set(each)) == 1 else "" for each in zip(*places, strict=True)]
    named = {name: unit for name, unit in sides[0].named.items() if unit in units}
    return Shown(units, named if all(one.named == sides[0].named for one in sides) else NONE_KNOWN)


def _sources(table: Node, tables: Mapping[str, Units]) -> Iterable[tuple[str, Units]]:
    """What FROM names, in small letters, with the units of its columns."""
    if table["type"] == "JOIN":
        yield from _sources(table["left"], tables)
        yield from _sources(table["right"], tables)
        return
    is_renamed = bool(table.get("column_name_alias"))
    alias = str(table.get("alias") or table.get("table_name") or f"#{id(table)}").casefold()
    units = NONE_KNOWN
    if table["type"] == "BASE_TABLE" and not table.get("schema_name"):
        units = tables.get(table["table_name"].casefold(), NONE_KNOWN)
    elif table["type"] == "SUBQUERY":
        units = _shown(table["subquery"]["node"], tables).named
    if table["type"] != "EMPTY":
        yield alias, NONE_KNOWN if is_renamed else units


def _starred(item: Node, sources: Mapping[str, Units]) -> Units:
    """What a star stands for: of one table, whose columns keep their names."""
    if any(item.get(key) for key in ("replace_list", "rename_list", "columns", "expr")):
        return NONE_KNOWN
    wanted = str(item.get("relation_name") or "").casefold()
    found = [units for alias, units in sources.items() if not wanted or alias == wanted]
    return found[0] if len(found) == 1 else NONE_KNOWN


def _unit(item: Node, sources: Mapping[str, Units]) -> str:
    match item["class"]:
        case "COLUMN_REF":
            return _of_column([str(one).casefold() for one in item["column_names"]], sources)
        case "CAST":
            return _unit(item["child"], sources)
        case "FUNCTION" | "WINDOW" if item.get("function_name", "").casefold() in KEEPS_UNIT:
            arguments = item.get("arguments") or item.get("children") or ()
            return _unit(arguments[0].get("expression", arguments[0]), sources) if arguments else ""
    return ""


def _of_column(path: Sequence[str], sources: Mapping[str, Units]) -> str:
    """Only one table can have a name that stands alone, or the engine refuses the question."""
    if len(path) == 2:
        return sources.get(path[0], NONE_KNOWN).get(path[1], "")
    found = {units[path[0]] for units in sources.values() if path[0] in units}
    return found.pop() if len(path) == 1 and len(found) == 1 else ""
