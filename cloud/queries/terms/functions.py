"""Every function and operator of queries, in one table: its arguments and its result.

No I/O, no Spark.

Two things are made of it: Spark columns over readings (plan/columns.py) and Python functions over
finished results (evaluate.py), for HAVING, ORDER BY and expressions over aggregates. A test holds
that both know all names of this table, and give the same for the same values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from sqlglot import exp

from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType


class OtherKind(StrEnum):
    """Types that no field of a reading has.

    They are those of `event_time` and what is computed from it, and of approx_top_k and several
    quantiles.
    """

    TIME = "time"
    LIST = "list"


Kind: TypeAlias = FieldType | OtherKind | None
"""None: not known (no catalogue at hand, or NULL); it fits everywhere."""

NUMBER, STRING, BOOLEAN, TIME, LIST = (
    FieldType.NUMBER, FieldType.STRING, FieldType.BOOLEAN, OtherKind.TIME, OtherKind.LIST,
)  # fmt: skip
SAME: Final = "same"
"""All arguments of one type, whichever."""

PATTERN_CHARS_MAX: Final = 200
"""Characters of a pattern of LIKE, and of a regular expression."""
REGEX_SUBJECT_CHARS_MAX: Final = 1_000
"""A longer text matches nothing: what a match costs grows with the square of it."""
TEXT_CHARS_MAX: Final = 8_192
"""Characters that a function makes at most (of a text of a reading: as many as a reading may
have)."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes (the last one repeats when `repeats`) and gives."""

    takes: tuple[FieldType | OtherKind | str, ...]
    gives: FieldType | OtherKind | str
    repeats: bool = False


FUNCTIONS: Final[Mapping[str, Signature]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "div", "pow", "log", "atan2", "hypot"),
        Signature((NUMBER, NUMBER), NUMBER)),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), Signature((SAME, SAME), BOOLEAN)),
    **dict.fromkeys(("and", "or"), Signature((BOOLEAN, BOOLEAN), BOOLEAN)),
    **dict.fromkeys(
        ("negative", "abs", "floor", "ceil", "sqrt", "cbrt", "ln", "exp", "sign", "sin", "cos",
            "tan", "asin", "acos", "atan",
         "radians", "degrees", "truncate"),
        Signature((NUMBER,), NUMBER),
    ),
    **dict.fromkeys(("lower", "upper", "trim", "ltrim", "rtrim", "reverse"),
        Signature((STRING,), STRING)),
    **dict.fromkeys(("least", "greatest", "coalesce"), Signature((SAME,), SAME, repeats=True)),
    **dict.fromkeys(("like", "ilike", "rlike", "startswith", "endswith", "contains"),
        Signature((STRING, STRING), BOOLEAN)),
    **dict.fromkeys(
        ("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear",
            "hour", "minute", "second"),
        Signature((TIME, STRING), NUMBER),
    ),
    "not": Signature((BOOLEAN,), BOOLEAN),
    "is_null": Signature((SAME,), BOOLEAN),
    "in": Signature((SAME,), BOOLEAN, repeats=True),
    "between": Signature((SAME, SAME, SAME), BOOLEAN),
    "round": Signature((NUMBER, NUMBER), NUMBER),
    "length": Signature((STRING,), NUMBER),
    # checked by its reader: condition, value, …, default
    "case": Signature((SAME,), SAME, repeats=True),
    "concat": Signature((STRING,), STRING, repeats=True),
    "substring": Signature((STRING, NUMBER, NUMBER), STRING),
    "left": Signature((STRING, NUMBER), STRING),
    "right": Signature((STRING, NUMBER), STRING),
    "replace": Signature((STRING, STRING, STRING), STRING),
    "split_part": Signature((STRING, STRING, NUMBER), STRING),
    "instr": Signature((STRING, STRING), NUMBER),
    "text_number": Signature((STRING,), NUMBER),
    "number_text": Signature((NUMBER,), STRING),
    "boolean_text": Signature((BOOLEAN,), STRING),
    "unix_millis": Signature((TIME,), NUMBER),
    "unix_seconds": Signature((TIME,), NUMBER),
    "date_format": Signature((TIME, STRING, STRING), STRING),
    "date_trunc": Signature((TIME, STRING, STRING), TIME),
}  # fmt: skip
"""Signatures of functions. Those of time take the zone's name as their last argument, which the
reader of a query file adds."""

COPIES: Final[Mapping[str, tuple[int, ...]]] = {
    "rlike": (2,),
    "between": (2,),
    "split_part": (1, 1, 2),
    "number_text": (9,),
}
"""The number of times that a function's column holds each argument, where not once
(plan/columns.py; a test counts them). What is held twice by one that is held twice grows as the
power of its depth, so `Call.size` counts every copy."""

READ_AS: Final[Mapping[type[exp.Expr], tuple[str, tuple[str, ...]]]] = {
    **{
        kind: (name, ("this", "expression"))
        for kind, name in {
            exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div",
            exp.Pow: "pow", exp.Log: "log",
            exp.Atan2: "atan2", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">",
            exp.GTE: ">=",
            exp.NullSafeEQ: "<=>", exp.And: "and", exp.Or: "or", exp.Like: "like",
            exp.ILike: "ilike", exp.RegexpLike: "rlike",
            exp.StartsWith: "startswith", exp.EndsWith: "endswith", exp.Contains: "contains",
            exp.DPipe: "concat",
            exp.Left: "left", exp.Right: "right",
        }.items()
    },
    **{
        kind: (name, ("this",))
        for kind, name in {
            exp.Not: "not", exp.Neg: "negative", exp.Abs: "abs", exp.Sqrt: "sqrt", exp.Cbrt: "cbrt",
            exp.Ln: "ln", exp.Exp: "exp",
            exp.Sign: "sign", exp.Sin: "sin", exp.Cos: "cos", exp.Tan: "tan", exp.Asin: "asin",
            exp.Acos: "acos", exp.Atan: "atan",
            exp.Radians: "radians", exp.Degrees: "degrees", exp.Floor: "floor", exp.Ceil: "ceil",
            exp.Lower: "lower",
            exp.Upper: "upper", exp.Length: "length", exp.Reverse: "reverse",
            exp.UnixMillis: "unix_millis",
            exp.UnixSeconds: "unix_seconds",
        }.items()
    },
    exp.Between: ("between", ("this", "low", "high")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.SplitPart: ("split_part", ("this", "delimiter", "part_index")),
    exp.StrPosition: ("instr", ("this", "substr")),
}  # fmt: skip
"""sqlglot's class of a node → our name, and which of its arguments are ours, in order."""

READ_BY_NAME: Final[Mapping[str, str]] = {"hypot": "hypot", "isnull": "is_null"}
"""Functions that sqlglot does not know → our name."""

TIME_PARTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day",
    exp.DayOfMonth: "day", exp.DayOfWeek: "dayofweek",
    exp.DayOfYear: "dayofyear", exp.WeekOfYear: "weekofyear", exp.Hour: "hour",
    exp.Minute: "minute", exp.Second: "second",
}  # fmt: skip
TIME_UNITS: Final = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
"""What date_trunc knows."""

DATE_PATTERN: Final[Mapping[str, str]] = {
    "%Y": "yyyy",
    "%m": "MM",
    "%d": "dd",
    "%H": "HH",
    "%M": "mm",
    "%S": "ss",
}
"""Parts of a pattern of date_format: as C's and Python's strftime writes them → as Java does."""

NAMES: Final = frozenset(
    {name for name in FUNCTIONS if name.isidentifier()} - {"negative", "text_number", "number_text",
        "boolean_text", "truncate", "is_null",
    "in", "between", "like", "ilike", "rlike", "case", "and", "or", "not"}
    | {"if", "nullif", "ifnull", "nvl", "nvl2", "cast", "log10", "log2", "power", "mod", "substr",
        "to_date", "date", "isnull", "isnotnull",
    "unix_timestamp", "pi", "dayofmonth", "extract"}
)  # fmt: skip
"""Functions as a user writes them, for error texts."""


def check_like(pattern: str) -> None:
    """Refuse a pattern of LIKE that is too long, or has an escape before what needs none.

    Raises QueryError.
    """
    if len(pattern) > PATTERN_CHARS_MAX:
        raise QueryError(
            f"expected a pattern of at most {PATTERN_CHARS_MAX} characters, found {len(pattern)}"
        )
    if re.search(r"(?<!\\)(?:\\\\)*\\(?![%_\\])", pattern):
        raise QueryError("expected %, _ or \\ after a \\ in the pattern")


def like_pieces(pattern: str) -> list[str]:
    """The parts of a checked LIKE pattern between its `%`, as regular expressions of fixed length.

    Java and Python read them alike.

    A `%` that follows another adds nothing.
    """
    pieces, last = [""], ""
    for part in re.findall(r"\\.|[^\\]", pattern, re.DOTALL):
        if part != "%":
            pieces[-1] += "." if part == "_" else re.escape(part[-1])
        elif last != "%":
            pieces.append("")
        last = part
    return pieces


def like_regex(pieces: list[str]) -> str:
    """A regular expression of the whole text, of pieces between `%`.

    A piece is looked for once, where it comes first, and never further on: what has a match has
    that one. So the cost is the text's length times that of the longest piece at most, where a
    plain `.*a.*b.*c` goes back and takes the length to the power of its pieces.
    """
    first, *others = pieces
    if not others:
        return first
    return first + "".join(f"(?>.*?{piece})" for piece in others[:-1]) + ".*" + others[-1]


def check_regex(pattern: str) -> None:
    """Refuse a regular expression whose search may take more than the square of the text's length.

    Raises QueryError.

    Allowed: characters, classes, `.`, alternatives and groups that are not repeated, and two open
    repeats (`*`, `+`, `{2,}`) where the pattern begins with ^, one elsewhere. What Java and Python
    read differently is refused as well.
    """
    bare = re.sub(r"\\[dDwWsS.*+?()\[\]{}|^$/\\-]", "x", pattern)
    fault = ""
    if len(pattern) > PATTERN_CHARS_MAX:
        fault = f"is longer than {PATTERN_CHARS_MAX} characters"
    elif "\\" in bare or "(?" in bare or "&&" in bare or re.search(r"\[[^\]]*\[", bare):
        fault = "uses back-references, look-around, flags or nested classes"
    else:
        bare = re.sub(r"\[\^?\]?[^\]]*\]", "x", bare)
        repeats = len(re.findall(r"[*+]|\{\d+,\}", bare))
        if re.search(r"\)\s*[*+{?]", bare):
            fault = "repeats a group"
        elif re.search(r"[*+?}][*+{]", bare):
            fault = "repeats a repeat"
        elif any(
            int(times) > PATTERN_CHARS_MAX
            for times in re.findall(r"\d+", "".join(re.findall(r"\{[\d,]*\}", bare)))
        ):
            fault = f"repeats more than {PATTERN_CHARS_MAX} times"
        elif repeats > (2 if bare.startswith("^") and "|" not in bare else 1):
            fault = (
                "has more open repeats (* + {n,}) than two after ^, or than one elsewhere; LIKE "
                "'%a%b%' may do"
            )
    if not fault:
        try:
            re.compile(pattern)
        except re.error as error:
            fault = f"is not a regular expression: {error}"
    if fault:
        raise QueryError(f"regular expression {pattern[:60]!r} {fault}")
