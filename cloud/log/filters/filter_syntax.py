"""`where=` and `select=` read: text in, a small checked tree out.

Raises FilterError, which says what and where, and nothing else.

A tree has few kinds of node (Field, Value, SetOf, Call) and only the operators and functions that
are named here, so whatever sqlglot may learn to parse one day, nothing new gets in. Bounds: 1024
bytes of text, 10 levels, 50 fields and literals, 50 columns, 256 characters of a LIKE pattern, and
what the whole costs (`edgewake.cloud.log.filters.filter_cost`). Lists of texts, `device IN ('a',
'b', …)`, have bounds of their own, 1000 values and 20,480 bytes, and so have polygons, 500 points
and 20,480 bytes; each counts as one literal. `device IN SET('north')` is a named set that operators
keep. A field whose name is a word of SQL is written in double quotes, text in single ones: `"case"
= 'open'`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from edgewake.cloud.log.filters import filter_functions
from edgewake.cloud.log.filters.filter_taken import NOTHING, Taken, take_out
from edgewake.protocol.errors import FilterError
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.names import FIELD_PATTERN, STREAM_PATTERN

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
    *filter_functions.FUNCTIONS,
)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the event by its name; NULL where the event has none."""

    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """A literal."""

    value: Scalar


class Sets(Protocol):
    """Named sets as they are now."""

    def members(self, name: str) -> frozenset[str] | None:
        """The texts in a set; None where there is no such set."""

    def __hash__(self) -> int:
        """By which compiled filters are kept for the next one who uses them."""


@dataclass(frozen=True, slots=True)
class SetOf:
    """A named set, whose members may change from one event to the next."""

    name: str
    sets: Sets


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function with its arguments.

    `edgewake.cloud.log.filters.filter` knows its name.
    """

    name: str
    args: tuple[Node, ...]


Node: TypeAlias = Field | Value | SetOf | Call


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a `select=`; `node` None stands for `*`."""

    name: str
    node: Node | None


def parse_where(text: str, *, has_lists: bool = True) -> Node:
    """Read a condition; `has_lists`: may it have long lists of texts?"""
    import sqlglot
    from sqlglot import exp

    taken = take_out(text)
    _check_text("where", taken.text if has_lists else text)
    try:
        tree = sqlglot.parse_one(taken.text, into=exp.Condition)
    except RecursionError:
        raise FilterError(f"where: nested too deep, expected at most {DEPTH_MAX} levels") from None
    except sqlglot.errors.SqlglotError as error:
        raise FilterError(f"where: {_reason(error, taken)}") from None
    return _Checker("where", taken).node(tree, 1)


def sets_in(node: Node) -> frozenset[str]:
    """The named sets that a condition uses."""
    match node:
        case Call("in_set", (left, Value(name))):
            return sets_in(left) | {str(name)}
        case Call(_, args):
            return frozenset[str]().union(*map(sets_in, args))
    return frozenset()


def sets_of(where: str | None) -> frozenset[str]:
    """The named sets of a condition as it was written. Raises FilterError."""
    if where is None or "set" not in where.casefold():
        return frozenset()
    return sets_in(parse_where(where))


def bound(node: Node, sets: Sets) -> Node:
    """The condition with its named sets found in `sets`."""
    match node:
        case Call("in_set", (left, Value(name))):
            return Call("in_set", (bound(left, sets), SetOf(str(name), sets)))
        case Call(name, args):
            return Call(name, tuple(bound(arg, sets) for arg in args))
    return node


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
        raise FilterError(f"select: {_reason(error, skipped=len(prefix))}") from None
    others = [name for name, value in tree.args.items() if value and name != "expressions"]
    if not isinstance(tree, exp.Select) or others or not tree.expressions:
        raise FilterError(
            f"select: expected a list of columns, found {', '.join(others) or 'something else'}"
        )
    checker = _Checker("select", skipped=len(prefix))
    columns = [checker.column(column) for column in tree.expressions]
    if len(columns) > COLUMNS_MAX or len({column.name for column in columns}) < len(columns):
        raise FilterError(f"select: expected at most {COLUMNS_MAX} columns with different names")
    return columns


def _check_text(what: str, text: str) -> None:
    size = len(text.encode("utf-8", "replace"))
    if size > TEXT_BYTES_MAX:
        raise FilterError(f"{what}: {size} bytes, expected at most {TEXT_BYTES_MAX}")
    if not text.strip():
        raise FilterError(f"{what}: is empty")


def _reason(error: Exception, taken: Taken = NOTHING, *, skipped: int = 0) -> str:
    found: list[dict[str, object]] = getattr(error, "errors", [])
    if not found:
        return f"cannot be read: {str(error)[:100]}"
    first = found[0]
    at = int(str(first.get("col") or skipped)) - skipped
    description = re.sub(r"for <class '[\w.]+\.(\w+)'>", r"for \1", str(first["description"]))
    near = taken.shown(str(first.get("highlight")))[:40]
    return f"at character {taken.at(max(at, 1))}, near {near!r}: {description}"


class _Checker:
    """Turns sqlglot's tree into ours and refuses all that it does not know."""

    def __init__(self, what: str, taken: Taken = NOTHING, *, skipped: int = 0) -> None:
        """`skipped`: characters before the client's own."""
        self._what = what
        self._taken = taken
        self._skipped = skipped
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
            self._count(tree)
            return leaf
        if isinstance(tree, exp.In):
            listed = self._listed(tree)
            if listed is not None:
                self._count(tree)
                return Call(listed.name, (self.node(tree.this, depth + 1), *listed.args))
        if isinstance(tree, exp.Anonymous):
            name = str(tree.this).lower()
            if name in filter_functions.FUNCTIONS:
                return self._function(tree, name, depth)
        name, args = self._call(tree)
        self._check_all_read(tree, args)
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

    def _check_all_read(self, tree: exp.Expr, args: Sequence[exp.Expr]) -> None:
        """Refuse an argument that we do not know: without it the function means something else."""
        from sqlglot import exp

        if not isinstance(tree, exp.Func) or isinstance(tree, exp.Connector):
            return
        read = {id(arg) for arg in args}
        for given in tree.args.values():
            if isinstance(given, exp.Expr) and id(given) not in read:
                raise self._error(tree, f"unexpected argument {_shown(given, self._taken)}")

    def _count(self, tree: exp.Expr) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise self._error(tree, f"more than {TERMS_MAX} fields and literals")

    def _listed(self, tree: exp.In) -> Call | None:
        """What an IN has that was taken out of the condition: a list of texts, or a set."""
        only = tree.expressions[0] if len(tree.expressions) == 1 else None
        if only is None:
            return None
        texts, named = self._taken.list_of(only.name), self._taken.set_of(only.name)
        if texts is not None:
            return Call("in", tuple(map(Value, texts)))
        if named is None:
            return None
        if not STREAM_PATTERN.fullmatch(named):
            raise self._error(tree, "expected SET with a name, 1-64 of a-z 0-9 _, a letter first")
        return Call("in_set", (Value(named),))

    def _function(self, tree: exp.Anonymous, name: str, depth: int) -> Call:
        """A function whose last arguments are literals, which are checked here."""
        told = filter_functions.FUNCTIONS[name]
        args = list(tree.expressions)
        if not told.takes(len(args)):
            raise self._error(tree, f"expected {told.usage}")
        behind = told.parts_of(len(args))
        parts = [self.node(arg, depth + 1) for arg in args[:behind]]
        literals = [
            self._literal(arg, kind, told.usage)
            for arg, kind in zip(args[behind:], told.literals, strict=True)
        ]
        try:
            told.calculate(literals)
        except ValueError as error:
            raise self._error(tree, str(error)) from None
        return Call(name, (*parts, *map(Value, literals)))

    def _literal(self, tree: exp.Expr, kind: type, usage: str) -> Scalar:
        from sqlglot import exp

        self._count(tree)
        is_minus = isinstance(tree, exp.Neg)
        inner = tree.this if is_minus else tree
        if not isinstance(inner, exp.Literal) or inner.is_string != (kind is str):
            what = "a text in quotes" if kind is str else "a number"
            raise self._error(tree, f"expected {what} here, as in {usage}")
        if kind is str:
            return self._taken.polygon_of(inner.name) or inner.name
        number = self._number(inner)
        return -number if is_minus else number

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
        starts = [int(one.meta["start"]) for one in tree.walk() if "start" in one.meta]
        at = ""
        if starts:
            at = f" at character {self._taken.at(max(0, min(starts) - self._skipped) + 1)}"
        return FilterError(f"{self._what}: {_shown(tree, self._taken)}{at}: {why}")


def _hint(tree: exp.Expr) -> str:
    """The function that was meant, or all that there are."""
    from sqlglot import exp

    close = (
        get_close_matches(str(tree.this).lower(), FUNCTIONS, n=1)
        if isinstance(tree, exp.Anonymous)
        else []
    )
    return f"did you mean {close[0]}()?" if close else f"functions are {', '.join(FUNCTIONS)}"


def _shown(tree: exp.Expr, taken: Taken) -> str:
    try:
        text = taken.shown(tree.sql())
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
