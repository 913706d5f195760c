"""Expressions of a query file become a tree with types, whole: what is not read is refused with its
place, and NULL stands for it, so that the rest of the file is checked, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import sqlglot

from edgewake.cloud.queries.terms.calls import Typed
from edgewake.cloud.queries.terms.expressions import (
    DEPTH_MAX,
    LIST_MAX,
    SIZE_MAX,
    TIMES,
    Scope,
    number,
    translate,
)
from edgewake.cloud.queries.terms.faults import Faults
from edgewake.cloud.queries.terms.functions import BOOLEAN, NUMBER, STRING, TIME, Kind
from edgewake.cloud.queries.terms.tree import Call, Expression, Field, Literal
from edgewake.protocol.errors import QueryError

TYPES: Mapping[str, Kind] = {"cpu": NUMBER, "zone": STRING, "ok": BOOLEAN}
EXTRA: Mapping[str, Kind] = {"device": STRING, **dict.fromkeys(TIMES, TIME)}
CPU, ZONE, OK = Field("cpu"), Field("zone"), Field("ok")


def read(text: str, *, zone: str = "UTC", types: Mapping[str, Kind] | None = TYPES) -> Typed:
    """The tree of an expression and its type; raises QueryError with all faults."""
    faults = Faults("")
    (node,) = sqlglot.parse_one(f"SELECT {text}", dialect="spark").expressions
    found = translate(node, Scope(types, EXTRA, faults, zone), "SELECT")
    if faults:
        raise faults.error()
    return found


@pytest.mark.parametrize(
    ("text", "tree", "kind"),
    [
        ("(cpu)", CPU, NUMBER),
        ("cpu::string", Call("number_text", (CPU,)), STRING),
        ("cast(ok AS string)", Call("boolean_text", (OK,)), STRING),
        ("try_cast(zone AS double)", Call("text_number", (ZONE,)), NUMBER),
        ("nvl(cpu, 0)", Call("coalesce", (CPU, Literal(0.0))), NUMBER),
        ("log10(cpu)", Call("log", (Literal(10.0), CPU)), NUMBER),
        ("round(cpu)", Call("round", (CPU, Literal(0))), NUMBER),
        ("zone || 'x'", Call("concat", (ZONE, Literal("x"))), STRING),
        ("ok IS NOT TRUE", Call("not", (Call("<=>", (OK, Literal(True))),)), BOOLEAN),
        ("isnotnull(cpu)", Call("not", (Call("is_null", (CPU,)),)), BOOLEAN),
        ("if(ok, 1, 2)", Call("case", (OK, Literal(1.0), Literal(2.0))), NUMBER),
        ("if(ok, 1)", Call("case", (OK, Literal(1.0), Literal(None))), NUMBER),
        (
            "CASE zone WHEN 'a' THEN cpu END",
            Call("case", (Call("=", (ZONE, Literal("a"))), CPU, Literal(None))),
            NUMBER,
        ),
        (
            "nullif(cpu, 0)",
            Call("case", (Call("=", (CPU, Literal(0.0))), Literal(None), CPU)),
            NUMBER,
        ),
        ("locate('a', zone)", Call("instr", (ZONE, Literal("a"))), NUMBER),
        ("hour(event_time)", Call("hour", (Field("t"), Literal("UTC"))), NUMBER),
    ],
)
def test_an_expression_becomes_a_tree_of_few_functions(
    text: str, tree: Expression, kind: Kind
) -> None:
    assert read(text) == (tree, kind)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cpu + zone", "takes a number, found a string"),
        ("cpu = zone", "compares a number with a string"),
        ("cpu IN (1, 'a')", "compares a number with a string"),
        ("CASE WHEN ok THEN 1 ELSE 'b' END", "compares a number with a string"),
        ("CASE WHEN cpu THEN 1 END", "expected a boolean|takes a boolean|CASE condition"),
        ("NOT cpu", "takes a boolean, found a number"),
        ("hour(cpu)", "takes a time, found a number"),
        ("event_time - 1", "takes a number, found a time"),
        ("cast(event_time AS double)", "a time is not a number; use unix_millis"),
        ("cast(cpu AS int)", "write floor"),
        ("cast(cpu AS decimal(9, 2))", "round"),
        ("cast(cpu AS boolean)", "a number cannot be cast to BOOLEAN"),
        ("zone LIKE zone", "expected a pattern in quotes"),
        ("zone RLIKE '('", "not a regular expression"),
        ("round(cpu, -1)", "digits from 0 to 15"),
        ("round(cpu, 16)", "digits from 0 to 15"),
        ("date_format(event_time, zone)", "expected a pattern"),
        ("date_trunc('decade', event_time)", "expected one of"),
        ("TIMESTAMP '2026-13-01'", "is not a time"),
        ("event_time > INTERVAL '1 minute'", "only possible as the size of a window"),
        ("1e999", "too large"),
        ("9007199254740993", "more digits than a number keeps"),
        ("cup", "did you mean 'cpu'"),
        ("`north`", "write it in single quotes: 'north'"),
        ("uper(zone)", "did you mean upper"),
        ("avg(cpu)", "only possible in SELECT, HAVING and ORDER BY"),
        ("(SELECT 1)", "is a subquery"),
        ("rand()", "must be the same when it is computed again"),
        ("x.cpu", "expected a plain field name"),
    ],
)
def test_a_refusal_says_what_was_expected(text: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        "ceil(cpu, 1)",
        "floor(cpu TO day)",
        "round(cpu, 1, 2)",
        "ltrim(zone, 'x')",
        "length(zone, 'x')",
    ],
)
def test_an_argument_that_is_not_known_is_refused_and_not_left_out(text: str) -> None:
    with pytest.raises(QueryError, match="does not take these arguments"):
        read(text)


def test_an_in_without_values_is_refused() -> None:
    """Spark has FALSE for it where HAVING had NULL."""
    with pytest.raises(QueryError, match="expected a list of values"):
        read("cpu IN ()")


def test_all_that_is_wrong_is_said_at_once_and_null_stands_for_it() -> None:
    faults = Faults("")
    (node,) = sqlglot.parse_one("SELECT cup + uper(zone)", dialect="spark").expressions
    found, _ = translate(node, Scope(TYPES, EXTRA, faults), "SELECT")
    assert found == Call("+", (Literal(None), Literal(None)))
    assert len(faults) == 2


def test_without_a_catalogue_every_name_is_believed() -> None:
    assert read("anything + 1", types=None) == (
        Call("+", (Field("anything"), Literal(1.0))),
        NUMBER,
    )


def test_a_time_without_an_offset_is_of_the_query_s_zone() -> None:
    berlin = read("TIMESTAMP '2026-07-01 02:00:00'", zone="Europe/Berlin")
    assert berlin == read("TIMESTAMP '2026-07-01 00:00:00+00:00'", zone="America/New_York")
    assert read("year(event_time)", zone="Asia/Kolkata") == (
        Call("year", (Field("t"), Literal("Asia/Kolkata"))),
        NUMBER,
    )


def test_the_scope_s_own_names_go_before_all_others() -> None:
    def special(node: sqlglot.exp.Expr) -> Typed | None:
        return (Field("#0"), NUMBER) if isinstance(node, sqlglot.exp.Avg) else None

    faults = Faults("")
    (node,) = sqlglot.parse_one("SELECT avg(cpu) / 2", dialect="spark").expressions
    scope = Scope(TYPES, EXTRA, faults, special=special)
    assert translate(node, scope, "HAVING") == (Call("/", (Field("#0"), Literal(2.0))), NUMBER)


def test_the_bounds_let_pass_what_is_exactly_as_large() -> None:
    def listed(count: int) -> str:
        return f"cpu IN ({', '.join(['1'] * (count - 1))})"

    read(listed(LIST_MAX))
    with pytest.raises(QueryError, match=f"at most {LIST_MAX}"):
        read(listed(LIST_MAX + 1))
    read("NOT " * DEPTH_MAX + "ok")
    with pytest.raises(QueryError, match=f"deeper than {DEPTH_MAX}"):
        read("NOT " * (DEPTH_MAX + 1) + "ok")


def test_copies_count_in_the_size_of_an_expression() -> None:
    """CASE over a subject, and nullif, repeat their argument: eleven in each other are 2^11."""
    with pytest.raises(QueryError, match=f"expected at most *{SIZE_MAX}"):
        read("nullif(" * 11 + "cpu" + ", 0)" * 11)


def test_a_missing_argument_is_a_fault_and_no_crash() -> None:
    faults = Faults("")
    assert translate(None, Scope(TYPES, EXTRA, faults), "SELECT") == (Literal(None), None)
    assert "an argument is missing" in str(faults.error())


def test_a_number_keeps_its_digits_or_is_refused() -> None:
    assert read("9007199254740992") == (Literal(9007199254740992.0), NUMBER)
    assert number("1e3") == 1000.0
    with pytest.raises(QueryError, match="is not a number"):
        number("one")
