"""Expressions: SQL's meaning, bounded cost, and nothing of the text is ever run."""

from __future__ import annotations

import contextlib
import math
import sqlite3

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgewake.cloud.log.filters.filter import compile_select
from edgewake.edge.processors import expression
from edgewake.edge.processors.expression import ExpressionError, compiled, parse
from edgewake.protocol.errors import FilterError
from edgewake.protocol.frames.frame import Scalar

FIELDS: dict[str, Scalar] = {"x": 4, "y": -1.5, "name": "Ada", "door": True, "none": None}


def value(text: str, **fields: Scalar) -> Scalar:
    return compiled(text)((1000, FIELDS | fields))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("10 - 4 - 3", 3), ("8 / 4 / 2", 1), ("7 % 4", 3),
        ("-7 % 4", -3), ("--x", 4),
        ("x > 3 AND y < 0", True), ("x > 3 and not y < 0", False), ("x <> 4 OR door", True),
        ("x != 4", False), ("x == 4", True),
        ("name = 'Ada'", True), ("name < 'B'", True), ("'it''s' = 'it''s'", True),
        ("length(upper(name))", 3),
        ("none IS NULL", True), ("x IS NOT NULL", True), ("gone IS NULL", True),
        ("none = none", None),
        ("x IN (1, 4)", True), ("x NOT IN (1, 4)", False), ("x IN (1, NULL)", None),
        ("name IN ('Bob', 'Ada')", True),
        ("x BETWEEN 4 AND 5", True), ("x NOT BETWEEN 4 AND 5", False),
        ("y BETWEEN 0 AND 5 OR x = 4", True),
        ("none AND FALSE", False), ("none OR TRUE", True), ("none AND TRUE", None),
        ("none OR FALSE", None),
        ("if(x > 3, 'hot', 'cold')", "hot"), ("if(none, 1, 2)", 2),
        ("coalesce(none, gone, y)", -1.5), ("greatest(x, y, 3)", 4),
        ("least(x, 'a')", None), ("round(2.567, 1)", 2.6), ("pow(2, 10)", 1024), ("sqrt(x)", 2),
        ("abs(y)", 1.5), ("floor(y)", -2),
        ("ceil(y)", -1), ("round(0.5)", 1), ("round(2.5)", 3), ("round(-2.5)", -3),
        ("round(2.675, 2)", 2.68), ("round(1250, -2)", 1300),
        ("round(0.49999999999999994)", 0), ("round(1e300, 2)", 1e300), ("round(x, 99)", 4),
        ("round(y, none)", None),
        ("t", 1000), ("t / 1000", 1), (".5 + 1e1", 10.5),
    ],
)  # fmt: skip
def test_means_what_sql_means(text: str, expected: Scalar):
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    ["x / 0", "x % 0", "ln(0)", "ln(y)", "sqrt(y)", "pow(y, 0.5)", "exp(999)",
        "pow(10, 300) * pow(10, 300)", "name + 1",
     "door + 1", "-name", "lower(x)", "name > 1", "NOT x", "x AND 1"],
)  # fmt: skip
def test_what_has_no_value_is_null(text: str):
    assert value(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "character 1: expected a field, a constant or a function, found the end"),
        ("x >", "character 4: expected a field, a constant or a function, found the end"),
        ("x > 3 y", "character 7: expected an operator or the end, found 'y'"),
        ("(x", "character 3: expected ')', found the end"),
        ("x NOT 3", "character 7: expected IN or BETWEEN, found '3'"),
        ("sqr(x)", "character 1: 'sqr' is not a function: did you mean sqrt?"),
        ("if(x)", "character 1: if takes 3 arguments, found 1"),
        ("x; y", "character 2: '; y' is not a part of an expression"),
        ("device = 'a'", "character 1: 'device' is not a name of a field"),
        ("x.__class__", "character 2: '.__class__' is not a part of an expression"),
        ("'open", 'character 1: "\'open" is not a part of an expression'),
        ("1e999", "character 1: 1e999 is not a finite number"),
    ],
)
def test_errors_say_where_and_what_was_expected(text: str, said: str):
    with pytest.raises(ExpressionError) as error:
        parse(text)
    assert str(error.value) == said


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "eval('1')",
        "open('/etc/passwd')",
        "lambda: 1",
        "[x]",
        "x := 1",
        "{x}",
        "x ** 9",
    ],
)
def test_nothing_else_of_python_passes(text: str):
    with pytest.raises(ExpressionError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1000 + "x" + ")" * 999, "-" * 1999 + "x", "NOT " * 400 + "x", "x" + "+x" * 999,
        "x" + " OR x" * 300,
        "abs(" * 400 + "x" + ")" * 400,         "x IN (" + "1," * 900 + "1)", "x" * 2001,
    ],
)  # fmt: skip
def test_cost_is_bounded(text: str):
    with pytest.raises(ExpressionError):
        parse(text)


def test_a_long_chain_of_operators_is_evaluated():
    """As long as its depth allows: the tree leans to the left."""
    assert value("x" + " + x" * (expression.DEPTH_MAX - 1)) == 4 * expression.DEPTH_MAX


@given(st.text(max_size=60) | st.text(alphabet="x1.+-*/()=<>' ANDORTifabs,", max_size=60))
def test_any_text_is_a_tree_or_an_error(text: str):
    try:
        found = compiled(text)
    except ExpressionError:
        return
    found((0, {"x": 1.0}))


NAMES = {"a": 3.5, "b": -2.0, "c": None}


@st.composite
def trees(draw: st.DrawFn, depth: int = 2) -> str:
    """Numeric expressions that SQLite understands alike: none of whole numbers, which it divides
    without a remainder.
    """
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([*NAMES, "2.0", "0.25", "7.0"]))
    left, right = draw(trees(depth=depth - 1)), draw(trees(depth=depth - 1))
    return draw(
        st.sampled_from(
            [
                f"({left} + {right})",
                f"{left} * {right}",
                f"{left} - ({right})",
                f"({left}) / ({right})",
                f"- {left}",
            ]
        )
    )


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    """Conditions over them."""
    if depth == 0 or draw(st.booleans()):
        left, right = draw(trees()), draw(trees())
        sign = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
        return draw(
            st.sampled_from(
                [
                    f"{left} {sign} {right}",
                    f"{left} IS NULL",
                    f"{left} BETWEEN {right} AND 9",
                    f"{left} IN ({right}, 7)",
                ]
            )
        )
    left, right = draw(conditions(depth=depth - 1)), draw(conditions(depth=depth - 1))
    return draw(st.sampled_from([f"({left}) AND {right}", f"{left} OR {right}", f"NOT ({left})"]))


@given(conditions())
def test_conditions_agree_with_sqlite(text: str):
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        (found,) = database.execute(
            f"SELECT {text} FROM (SELECT 3.5 AS a, -2.0 AS b, NULL AS c)"
        ).fetchone()
    ours = compiled(text)((0, dict(NAMES)))
    assert ours is (None if found is None else bool(found))


@given(trees())
def test_numbers_agree_with_sqlite(text: str):
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        (found,) = database.execute(
            f"SELECT {text} FROM (SELECT 3.5 AS a, -2.0 AS b, NULL AS c)"
        ).fetchone()
    ours = compiled(text)((0, dict(NAMES)))
    if found is None:
        assert ours is None
    else:
        assert ours is not None
        assert math.isclose(float(ours), found)


@given(
    st.one_of(
        st.integers(-10_000, 10_000),
        st.floats(-1e6, 1e6),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    st.integers(-4, 17),
)
def test_numbers_are_rounded_as_the_access_servers_round_them(number: float, digits: int):
    theirs = compile_select(f"round(x, {digits}) AS r").project({"x": number})["r"]
    assert value(f"round(x, {digits})", x=number) == theirs


@given(st.integers(-40, 40))
def test_halves_are_rounded_as_sqlite_rounds_them(eighths: int):
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        (found,) = database.execute("SELECT round(?)", (eighths / 8,)).fetchone()
    assert value("round(x)", x=eighths / 8) == found


SHARED = {"a": 3.5, "b": -2, "n": None, "s": "Ada", "d": True, "e": "1"}
"""Fields that both kinds of expressions are given."""


@st.composite
def shared(draw: st.DrawFn, depth: int = 3) -> str:
    """Expressions that devices and access servers both take, of any type, right or wrong."""
    if depth == 0:
        return draw(
            st.sampled_from([*SHARED, "gone", "2", "0", "0.25", "'Ada'", "'a'", "TRUE", "NULL"])
        )
    left, right = draw(shared(depth=depth - 1)), draw(shared(depth=depth - 1))
    sign = draw(
        st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "AND", "OR"])
    )
    return draw(
        st.sampled_from(
            [left, f"({left}) {sign} ({right})", f"NOT ({left})", f"- ({left})",
                f"({left}) IS NULL", f"({left}) IS NOT NULL",
             f"({left}) IN (({right}), 2, 'Ada')", f"({left}) BETWEEN ({right}) AND 4",
             f"({left}) NOT BETWEEN -1 AND ({right})",
             f"coalesce({left}, {right})", f"abs({left})", f"ceil({left})", f"floor({left})",
             f"length({left})", f"lower({left})",
             f"upper({left})", f"round({left}, 1)"]
        )
    )  # fmt: skip


@given(shared())
def test_an_expression_means_on_the_device_what_it_means_at_the_access_servers(text: str):
    """A rule that is tried out with `edgewake tail --where` may be put on the device."""
    try:
        theirs = compile_select(f"{text} AS found")
    except FilterError:
        assume(False)  # what types can tell is wrong is refused there, and is NULL here
        return
    expected, found = theirs.project(SHARED)["found"], compiled(text)((0, SHARED))
    assert (found is None, isinstance(found, bool), isinstance(found, str)) == (
        expected is None,
        isinstance(expected, bool),
        isinstance(expected, str),
    )
    assert found == (
        pytest.approx(expected, rel=1e-9) if expression.is_number(expected) else expected
    )
