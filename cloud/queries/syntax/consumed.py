"""What is written is read, or refused: nothing of a query file is left out in silence. Pure.

Two things would leave a part out. The parser gives some functions fewer arguments than were written
(`last(a, b)` is `last(a)`), so each word, number and text is looked for in the tree again. And the
tree has parts that no reader asks for (`UNPIVOT INCLUDE NULLS`), so each kind of node has a list of
those that are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from edgewake.cloud.queries.terms.expressions import HARMLESS, given, sql_of
from edgewake.cloud.queries.terms.faults import Faults, place_of
from edgewake.cloud.queries.terms.functions import READ_AS, TIME_PARTS
from edgewake.protocol.errors import QueryError, QueryFault

_ONE: Final = ("this",)
_TWO: Final = ("this", "expression")
_LISTED: Final[Mapping[type[exp.Expr], Sequence[str]]] = {
    **{kind: parts for kind, (_, parts) in READ_AS.items()},
    **dict.fromkeys(TIME_PARTS, _ONE),
    **dict.fromkeys(
        (
            exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr, exp.Variance,
            exp.VariancePop, exp.Stddev,
            exp.StddevSamp, exp.StddevPop, exp.First, exp.FirstValue, exp.Last, exp.LastValue,
            exp.AnyValue, exp.Median, exp.Mode,
            exp.IgnoreNulls, exp.Paren, exp.Where, exp.Having, exp.From, exp.Star, exp.TableAlias,
            exp.TsOrDsToDate,
            exp.UnixMillis,
        ),
        _ONE,
    ),
    **dict.fromkeys(
        (exp.Corr, exp.CovarPop, exp.CovarSamp, exp.RegrSlope, exp.RegrIntercept, exp.ArgMax,
            exp.ArgMin, exp.Filter, exp.WithinGroup, exp.ApproxTopK,
         exp.Nullif, exp.NullSafeNEQ, exp.Is, exp.Extract),
        _TWO,
    ),
    exp.Count: _ONE,
    exp.CountIf: _ONE,
    exp.ApproxDistinct: ("this", "accuracy"),
    exp.ApproxQuantile: ("this", "quantile"),
    exp.Quantile: ("this", "quantile"),
    **dict.fromkeys((exp.Coalesce, exp.Least, exp.Greatest), ("this", "expressions")),
    exp.Concat: ("expressions",),
    # the last three are refused where they stand
    exp.In: ("this", "expressions", "query", "unnest", "field"),
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.Nvl2: ("this", "true", "false"),
    exp.Round: ("this", "decimals"),
    exp.Trim: ("this", "position"),
    exp.Substring: ("this", "start", "length"),
    exp.Cast: ("this", "to"),
    exp.TryCast: ("this", "to"),
    exp.TimestampTrunc: ("this", "unit"),
    exp.TimeToStr: ("this", "format"),
    exp.StrToUnix: ("this", "format"),
    exp.Alias: ("this", "alias"),
    # what qualifies a name is refused by its reader
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Ordered: ("this", "desc"),
    exp.Limit: ("expression",),
    exp.Subquery: ("this", "alias", "pivots"),
    exp.CTE: ("this", "alias"),
    exp.With: ("expressions",),
    exp.Pivot: ("expressions", "fields", "unpivot", "alias"),
}  # fmt: skip
PARTS: Final = {kind: frozenset(parts) for kind, parts in _LISTED.items()}
"""Kind of node → the parts of it that are read. Kinds that are not here are refused by the reader,
or are read by another one whole."""

_FLAGS: Final = HARMLESS | {"zero_on_all_null", "is_nvl", "ignore_nulls", "nulls_first"}
"""What the parser notes of a dialect. Where one is a node, somebody wrote it."""
_WORDS: Final = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING)
_INSTEAD: Final = {
    "first": (
        "first(x) is the value at the earliest event time; min_by(x, y) the one at the smallest y"
    ),
    "last": "last(x) is the value at the latest event time; max_by(x, y) the one at the largest y",
    "percentile": "percentile(x, q) takes two arguments",
    "nvl": "coalesce(a, b, c) takes any number",
    "ifnull": "coalesce(a, b, c) takes any number",
}


def check_parts(node: exp.Expr, faults: Faults) -> None:
    """Refuse what no reader would ask for."""
    for part in node.walk():
        known = PARTS.get(type(part))
        if known is None:
            continue
        with faults.within(part):
            flags = {name for name in _FLAGS if not isinstance(part.args.get(name), exp.Expr)}
            left = sorted(given(part) - known - flags)
            if left:
                what = ", ".join(name.strip("_").replace("_", " ") for name in left)
                raise QueryError(
                    f"{sql_of(part)!r}: {what} would be left out here: leave it out, or write it "
                    "in another way"
                )


def check_words(text: str, tokens: Sequence[Token], tree: exp.Expr, faults: Faults) -> None:
    """Refuse a word, number or text that the parser dropped, and NULLS FIRST.

    It reads the latter as if it were not there.
    """
    there = Counter(_texts(tree))
    formats = sum(1 for _ in tree.find_all(exp.TimeToStr))  # the parser rewrites these patterns
    for at, token in enumerate(tokens):
        after = tokens[at + 1].token_type if at + 1 < len(tokens) else None
        if (
            token.text.upper() == "NULLS"
            and at + 1 < len(tokens)
            and tokens[at + 1].text.upper() == "FIRST"
        ):
            _fault(
                text,
                token,
                "NULLS FIRST: what has no value comes last in ORDER BY; leave it out",
                faults,
            )
        if (
            token.text.upper() == "LOG"
            and after is TokenType.L_PAREN
            and _arguments(tokens, at + 1) == 1
        ):
            _fault(
                text,
                token,
                "log(x) is one logarithm in one SQL and another elsewhere: write ln(x), log10(x) "
                "or log(base, x)",
                faults,
            )
        if token.token_type not in _WORDS or after is TokenType.L_PAREN:
            continue
        is_fraction = (
            token.token_type is TokenType.NUMBER
            and at > 0
            and tokens[at - 1].token_type is TokenType.DOT
        )
        # As the parser has `.5` and `5.`.
        word = f"0.{token.text}" if is_fraction else token.text.casefold().rstrip(".")
        if there[word] > 0:
            there[word] -= 1
        elif token.token_type is TokenType.STRING and formats > 0:
            formats -= 1
        elif word not in _KEYWORDS:
            function = _function_of(tokens, at)
            instead = f": {_INSTEAD[function]}" if function in _INSTEAD else "; take it out"
            where = f"{function}(…)" if function else "what it stands in"
            _fault(
                text,
                token,
                f"{token.text[:40]!r} would be left out: {where} takes no such argument{instead}",
                faults,
            )


_KEYWORDS: Final = frozenset(
    {
        "nulls", "first", "last", "ignore", "respect", "include", "exclude", "within", "at", "zone",
        "materialized", "both", "leading",
        "trailing", "preceding", "following", "current", "row", "rows", "range", "unbounded",
        "system_time", "of",
    }
)  # fmt: skip
"""Words that are not names, which the parser turns into parts of nodes; `check_parts` knows
those."""


def _fault(text: str, token: Token, detail: str, faults: Faults) -> None:
    with faults.within():
        raise QueryError(QueryFault(detail, *place_of(text, token.start)))


def _function_of(tokens: Sequence[Token], at: int) -> str:
    """The function whose argument a token is in; none outside of all."""
    depth = 0
    for i in range(at - 1, 0, -1):
        kind = tokens[i].token_type
        depth += {TokenType.R_PAREN: 1, TokenType.L_PAREN: -1}.get(kind, 0)
        if depth < 0:
            return tokens[i - 1].text.casefold()
    return ""


def _arguments(tokens: Sequence[Token], opened: int) -> int:
    """Arguments of the function whose bracket opens at that place."""
    depth, found = 0, 1
    for token in tokens[opened:]:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        found += depth == 1 and token.token_type is TokenType.COMMA
        if depth == 0:
            break
    return found


def _texts(tree: exp.Expr) -> Iterator[str]:
    """Every word, number and text that the tree holds, in small letters."""
    for node in tree.walk():
        if isinstance(node, exp.Identifier | exp.Literal | exp.Var | exp.DataType):
            value = getattr(node.this, "value", node.this)
            yield str(value).casefold().rstrip(".")
        if (
            isinstance(node, exp.Interval)
            and isinstance(node.this, exp.Literal)
            and node.args.get("unit") is not None
        ):
            yield f"{node.this.this} {node.args['unit'].name}".casefold()
