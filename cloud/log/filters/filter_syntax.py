"""`where=` and `select=` read: text in, a small checked tree out.

Raises FilterError, which says what and where, and nothing else.

A tree has three kinds of node (Field, Value, Call) and only the operators and functions that are
named here, so whatever sqlglot may learn to parse one day, nothing new gets in. Bounds: 1024 bytes
of text, 10 levels, 50 fields and literals, 50 columns, 256 characters of a LIKE pattern, and what
the whole costs (`edgewake.cloud.log.filters.filter_cost`). A list of texts, `device IN ('a', 'b',
…)`, has bounds of its own, 1000 values and 20,480 bytes, and counts as one literal. A field whose
name is a word of SQL is written in double quotes, text in single ones: `"case" = 'open'`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, TypeAlias

from edgewake.protocol.errors import FilterError
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.names import FIELD_PATTERN

if TYPE_CHECKING:
    from sqlglot import exp

# It warns of what it cannot read, which is what anybody may send.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

TEXT_BYTES_MAX: Final = 1024
"""UTF-8 bytes of one expression. Over it: refused."""
DEPTH_MAX: Final = 10
"""Nesting of operators; a chain of AND, or of OR, counts once. Over it: refused."""
TERMS_MAX: Final = 50
"""Fields and literals in one expression. Over it: refused."""
LISTED_MAX: Final = 1000
"""Texts in the lists of one condition: the vehicles of a dispatcher. Over it: refused."""
LISTED_BYTES_MAX: Final = 20 * 1024
"""UTF-8 bytes of these lists: a request's head has 32 KB. Over it: refused."""
LIKE_CHARS_MAX: Final = 256
"""Characters of a LIKE pattern. Over it: refused."""
COLUMNS_MAX: Final = 50
"""Columns of a `select=`. Over it: refused."""

FUNCTIONS: Final = (
    "abs",
    "ceil",
    "coalesce",
    "floor",
    "length",
    "lower",
    "nullif",
    "round",
    "starts_with",
    "upper",
)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the event by its name; NULL where the event has none."""

    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """A literal."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function, by a name that `edgewake.cloud.log.filters.filter` knows, and its
    arguments.
    """

    name: str
    args: tuple[Node, ...]


Node: TypeAlias = Field | Value | Call


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a `select=`; `node` None stands for `*`."""

    name: str
    node: Node | None


def parse_where(text: str, *, has_lists: bool = True) -> Node:
    """Read a condition; `has_lists`: may it have long lists of texts?"""
    import sqlglot
    from sqlglot import exp

    short, lists = _without_lists(text) if has_lists else (text, [])
    _check_text("where", short)
    try:
        tree = sqlglot.parse_one(short, into=exp.Condition)
    except RecursionError:
        raise FilterError(f"where: nested too deep, expected at most {DEPTH_MAX} levels") from None
    except sqlglot.errors.SqlglotError as error:
        raise FilterError(f"where: {_reason(error)}") from None
    return _Checker("where", lists).node(tree, 1)


def parse_select(text: str) -> Sequence[Column]:
    """Read a list of columns: names, expressions with AS, `*`."""
    import sqlglot
    from sqlglot import exp

    _check_text("select", text)
    prefix = "SELECT "
    try:
        tree = sqlglot.parse_one(prefix + text)
    except RecursionError:
        raise FilterError(f"select: nested too deep, expected at most {DEPTH_MAX} levels") from None
    except sqlglot.errors.SqlglotError as error:
        raise FilterError(f"select: {_reason(error, len(prefix))}") from None
    others = [name for name, value in tree.args.items() if value and name != "expressions"]
    if not isinstance(tree, exp.Select) or others or not tree.expressions:
        raise FilterError(
            f"select: expected a list of columns, found {', '.join(others) or 'something else'}"
        )
    checker = _Checker("select")
    columns = [checker.column(column) for column in tree.expressions]
    if len(columns) > COLUMNS_MAX or len({column.name for column in columns}) < len(columns):
        raise FilterError(f"select: expected at most {COLUMNS_MAX} columns with different names")
    return columns


_TEXT: Final = r"'(?:[^']|'')*+'"
_LIST: Final = re.compile(
    rf"""{_TEXT}|"(?:[^"]|"")*+"|\b(?i:IN)\s*\(\s*(?P<list>{_TEXT}(?:\s*,\s*{_TEXT})++)\s*\)"""
)
"""A text or a quoted name, which is passed, or a list of texts."""
_LISTED: Final = re.compile(_TEXT)
_PLACE: Final = "\0"
"""Stands before the number of a list that was taken out; no text may have it."""


def _without_lists(text: str) -> tuple[str, list[tuple[Value, ...]]]:
    """The condition with each list of texts replaced by its number, and the lists: the parser takes
    a hundred microseconds for each value, and this one.
    """
    if _PLACE in text or "--" in text or "/*" in text:  # a quote in a comment begins no text
        return text, []
    lists: list[tuple[Value, ...]] = []
    sizes: list[int] = []

    def take_out(found: re.Match[str]) -> str:
        listed = found["list"]
        if listed is None:
            return found[0]
        sizes.append(len(listed.encode("utf-8", "replace")))
        texts = [one[1:-1].replace("''", "'") for one in _LISTED.findall(listed)]
        lists.append(tuple(map(Value, dict.fromkeys(texts))))
        return f"IN ('{_PLACE}{len(lists) - 1}')"

    short = _LIST.sub(take_out, text)
    count = sum(map(len, lists))
    if count > LISTED_MAX:
        raise FilterError(f"where: lists of {count} values, expected at most {LISTED_MAX} together")
    if sum(sizes) > LISTED_BYTES_MAX:
        raise FilterError(
            f"where: lists of {sum(sizes)} bytes, expected at most {LISTED_BYTES_MAX} together"
        )
    return short, lists


def _check_text(what: str, text: str) -> None:
    size = len(text.encode("utf-8", "replace"))
    if size > TEXT_BYTES_MAX:
        raise FilterError(f"{what}: {size} bytes, expected at most {TEXT_BYTES_MAX}")
    if not text.strip():
        raise FilterError(f"{what}: is empty")


def _reason(error: Exception, skipped: int = 0) -> str:
    found: list[dict[str, object]] = getattr(error, "errors", [])
    if not found:
        return f"cannot be read: {str(error)[:100]}"
    first = found[0]
    at = int(str(first.get("col") or skipped)) - skipped
    description = re.sub(r"for <class '[\w.]+\.(\w+)'>", r"for \1", str(first["description"]))
    return f"at character {max(at, 1)}, near {str(first.get('highlight'))[:40]!r}: {description}"


class _Checker:
    """Turns sqlglot's tree into ours and refuses all that it does not know."""

    def __init__(self, what: str, lists: Sequence[tuple[Value, ...]] = ()) -> None:
        self._what = what
        self._lists = lists
        self._terms = 0

    def column(self, tree: exp.Expr) -> Column:
        from sqlglot import exp

        if isinstance(tree, exp.Star) and not any(tree.args.values()):
            return Column("*", None)
        name = tree.alias_or_name
        node = self.node(tree.this if isinstance(tree, exp.Alias) else tree, 1)
        if not FIELD_PATTERN.fullmatch(name):
            raise self._error(tree, "a computed column needs a name: … AS name")
        return Column(name, node)

    def node(self, tree: exp.Expr, depth: int) -> Node:
        from sqlglot import exp

        while isinstance(tree, exp.Paren):
            tree = tree.this
        if depth > DEPTH_MAX:
            raise self._error(tree, f"nested deeper than {DEPTH_MAX}")
        leaf = self._leaf(tree)
        if leaf is not None:
            self._terms += 1
            if self._terms > TERMS_MAX:
                raise self._error(tree, f"more than {TERMS_MAX} fields and literals")
            return leaf
        if isinstance(tree, exp.In) and self._listed(tree) is not None:
            self._terms += 1
            return Call("in", (self.node(tree.this, depth + 1), *(self._listed(tree) or ())))
        name, args = self._call(tree)
        return Call(name, tuple(self.node(arg, depth + 1) for arg in args))

    def _leaf(self, tree: exp.Expr) -> Node | None:
        from sqlglot import exp

        match tree:
            case exp.Column():
                if tree.args.get("table") or not FIELD_PATTERN.fullmatch(tree.name):
                    raise self._error(tree, "expected the name of a field")
                return Field(tree.name)
            case exp.Literal():
                return Value(tree.name if tree.is_string else self._number(tree))
            case exp.Boolean():
                return Value(bool(tree.this))
            case exp.Null():
                return Value(None)
        return None

    def _number(self, tree: exp.Expr) -> float | int:
        text = tree.name
        try:
            value = int(text) if text.isdigit() and len(text) < 19 else float(text)
        except ValueError:
            raise self._error(tree, "not a number") from None
        if value == float("inf"):
            raise self._error(tree, "number out of range")
        return value

    def _call(self, tree: exp.Expr) -> tuple[str, Sequence[exp.Expr]]:
        from sqlglot import exp

        name = _NAMES.get(type(tree).__name__)
        if name is None or tree.args.get("symmetric"):
            raise self._error(tree, f"not allowed here; {_hint(tree)}")
        match tree:
            case exp.And() | exp.Or():
                return name, list(tree.flatten())
            case exp.In():
                return name, self._in_list(tree)
            case exp.Between():
                return name, [tree.this, tree.args["low"], tree.args["high"]]
            case exp.Escape() | exp.Like() | exp.ILike():
                return self._like(tree)
            case exp.Round():
                return name, [tree.this, *filter(None, [tree.args.get("decimals")])]
            case exp.Coalesce():
                return name, [tree.this, *tree.expressions]
            case exp.Is() if not isinstance(tree.expression, exp.Null | exp.Boolean):
                raise self._error(tree, "expected IS [NOT] NULL, TRUE or FALSE")
        return name, [part for part in (tree.this, tree.args.get("expression")) if part is not None]

    def _listed(self, tree: exp.In) -> tuple[Value, ...] | None:
        """The texts of a list that was taken out of the condition."""
        only = tree.expressions[0] if len(tree.expressions) == 1 else None
        if not self._lists or only is None or not only.name.startswith(_PLACE):
            return None
        return self._lists[int(only.name.removeprefix(_PLACE))]

    def _in_list(self, tree: exp.Expr) -> list[exp.Expr]:
        if not tree.expressions or any(
            value for name, value in tree.args.items() if name not in ("this", "expressions")
        ):
            raise self._error(tree, "expected IN with a list of values")
        return [tree.this, *tree.expressions]

    def _like(self, tree: exp.Expr) -> tuple[str, Sequence[exp.Expr]]:
        from sqlglot import exp

        escape = None
        if isinstance(tree, exp.Escape):
            escape, tree = tree.expression, tree.this
        pattern = tree.expression
        if not isinstance(tree, exp.Like | exp.ILike) or not (
            isinstance(pattern, exp.Literal) and pattern.is_string
        ):
            raise self._error(tree, "expected LIKE with a pattern in quotes")
        if len(pattern.name) > LIKE_CHARS_MAX:
            raise self._error(
                tree,
                f"a pattern of {len(pattern.name)} characters, expected at most {LIKE_CHARS_MAX}",
            )
        if escape is not None and not (
            isinstance(escape, exp.Literal) and escape.is_string and len(escape.name) == 1
        ):
            raise self._error(tree, "expected ESCAPE with one character in quotes")
        name = ("not_" if tree.args.get("negate") else "") + (
            "ilike" if isinstance(tree, exp.ILike) else "like"
        )
        return name, [tree.this, pattern, *([escape] if escape is not None else [])]

    def _error(self, tree: exp.Expr, why: str) -> FilterError:
        return FilterError(f"{self._what}: {_shown(tree)}: {why}")


def _hint(tree: exp.Expr) -> str:
    """The function that was meant, or all that there are."""
    from sqlglot import exp

    close = (
        get_close_matches(str(tree.this).lower(), FUNCTIONS, n=1)
        if isinstance(tree, exp.Anonymous)
        else []
    )
    return f"did you mean {close[0]}()?" if close else f"functions are {', '.join(FUNCTIONS)}"


def _shown(tree: exp.Expr) -> str:
    try:
        text = tree.sql()
    except (RecursionError, ValueError):
        text = type(tree).__name__
    return repr(text if len(text) <= 60 else text[:57] + "…")


_NAMES: Final = {
    "And": "and", "Or": "or", "Not": "not", "Is": "is", "In": "in", "Between": "between",
    "Like": "like", "ILike": "ilike", "Escape": "like",
    "EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=",
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "Neg": "neg",
    "Abs": "abs", "Ceil": "ceil", "Coalesce": "coalesce", "Floor": "floor", "Length": "length",
    "Lower": "lower",
    "Nullif": "nullif", "Round": "round", "StartsWith": "starts_with", "Upper": "upper",
}  # fmt: skip
"""sqlglot's class → our operator. What is not here is refused."""
