"""What a client writes into `where=` and `select=` becomes a tree of few kinds of nodes, whole: the
rest is refused with its place, and nothing is left out in silence.
"""

from __future__ import annotations

import pytest

from edgewake.cloud.log.filters.filter_syntax import (
    COLUMNS_MAX,
    DEPTH_MAX,
    LIKE_CHARS_MAX,
    TERMS_MAX,
    TEXT_BYTES_MAX,
    Call,
    Column,
    Field,
    Node,
    SetOf,
    Value,
    bound,
    parse_select,
    parse_where,
    sets_of,
)
from edgewake.protocol.errors import FilterError

A, B = Field("a"), Field("b")


class OneSet:
    """A set named `north` with one device."""

    def members(self, name: str) -> frozenset[str] | None:
        return frozenset({"d1"}) if name == "north" else None


@pytest.mark.parametrize(
    ("where", "tree"),
    [
        ("a AND b AND a", Call("and", (A, B, A))),
        ("a AND b OR a", Call("or", (Call("and", (A, B)), A))),
        ("((a))", A),
        ("a NOT BETWEEN 1 AND 2", Call("not", (Call("between", (A, Value(1), Value(2))),))),
        ("a NOT LIKE 'x!%' ESCAPE '!'", Call("not_like", (A, Value("x!%"), Value("!")))),
        ("a IS NOT NULL", Call("not", (Call("is", (A, Value(None))),))),
        ("a != -1.5", Call("<>", (A, Call("neg", (Value(1.5),))))),
        ("nvl(a, 1) = 1", Call("=", (Call("coalesce", (A, Value(1))), Value(1)))),
        ("mod(a, 2) = 1", Call("=", (Call("%", (A, Value(2))), Value(1)))),
        ("\"case\" = 'open'", Call("=", (Field("case"), Value("open")))),
        ("a NOT IN ('it''s')", Call("not", (Call("in", (A, Value("it's"))),))),
    ],
)
def test_a_condition_becomes_operators_over_fields_and_literals(where: str, tree: Node) -> None:
    assert parse_where(where) == tree


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("7", 7),
        ("999999999999999999", 999_999_999_999_999_999),
        ("12345678901234567890", 12345678901234567890.0),
        ("1e3", 1000.0),
        (".5", 0.5),
    ],
)
def test_a_whole_number_stays_exact_while_it_fits_into_64_bits(number: str, value: float) -> None:
    found = parse_where(f"a = {number}")
    assert found == Call("=", (A, Value(value)))
    assert isinstance(found, Call)
    (right,) = (part for part in found.args if isinstance(part, Value))
    assert type(right.value) is type(value)


@pytest.mark.parametrize(
    ("where", "argument"),
    [
        ("round(a, 1, 2) = 1", "2"),
        ("ceil(a, 1) = 1", "1"),
        ("floor(a, 2) = 1", "2"),
        ("floor(a TO day) = 1", "day"),
        ("length(a, 'utf8') = 1", "utf8"),
    ],
)
def test_an_argument_that_is_not_known_is_refused_and_not_left_out(
    where: str, argument: str
) -> None:
    """Without it the function means something else, and the wrong events would come."""
    with pytest.raises(FilterError, match=f"unexpected argument .*{argument}"):
        parse_where(where)
    with pytest.raises(FilterError, match=f"unexpected argument .*{argument}"):
        parse_select(f"{where.removesuffix(' = 1')} AS x")


@pytest.mark.parametrize(
    "where",
    [
        "a BETWEEN SYMMETRIC 2 AND 1",
        "a IS DISTINCT FROM 1",
        "a || 'x' = 'y'",
        "a IN (SELECT 1)",
        "a IN b",
        "a IN ()",
        "a IS 5",
        "length(DISTINCT a) = 1",
        "upper(a) WITHIN GROUP (ORDER BY b) = 'X'",
        "CURRENT_TIMESTAMP = 1",
        "a = N'x'",
        "in_set(a, 'north')",
    ],
)
def test_sql_that_is_not_ours_is_refused(where: str) -> None:
    with pytest.raises(FilterError, match=r"^where: "):
        parse_where(where)


def test_a_refusal_says_the_place_in_the_client_s_own_text() -> None:
    with pytest.raises(FilterError, match="'b IS 5' at character 9"):
        parse_where("a = 1 OR b IS 5".replace("= 1 ", "= 1"))
    with pytest.raises(FilterError, match="'b IS 5' at character 4"):
        parse_select("a, b IS 5 AS x")
    listed = "device IN ('a', 'b') AND "
    with pytest.raises(FilterError, match=f"'b IS 5' at character {len(listed) + 1}"):
        parse_where(f"{listed}b IS 5")


def test_the_bounds_let_pass_what_is_exactly_as_large() -> None:
    parse_where("a = 1".ljust(TEXT_BYTES_MAX))
    parse_where(" OR ".join(["a"] * TERMS_MAX))
    parse_where("NOT " * (DEPTH_MAX - 1) + "a")
    parse_where(f"a LIKE '{'x' * LIKE_CHARS_MAX}'")
    parse_select(", ".join(f"a{number}" for number in range(COLUMNS_MAX)))
    with pytest.raises(FilterError, match=f"at most {TEXT_BYTES_MAX}"):
        parse_where("a = 1".ljust(TEXT_BYTES_MAX + 1))
    with pytest.raises(FilterError, match=f"more than {TERMS_MAX}"):
        parse_where(" OR ".join(["a"] * (TERMS_MAX + 1)))
    with pytest.raises(FilterError, match=f"deeper than {DEPTH_MAX}"):
        parse_where("NOT " * DEPTH_MAX + "a")
    with pytest.raises(FilterError, match=f"at most {LIKE_CHARS_MAX}"):
        parse_where(f"a LIKE '{'x' * (LIKE_CHARS_MAX + 1)}'")


def test_the_size_is_counted_in_bytes() -> None:
    with pytest.raises(FilterError, match=f"{TEXT_BYTES_MAX + 6} bytes"):
        parse_where("a = '" + "ü" * (TEXT_BYTES_MAX // 2) + "'")


def test_long_lists_are_only_read_where_they_may_be() -> None:
    long = "a IN (" + ", ".join(f"'device-{number}'" for number in range(200)) + ")"
    found = parse_where(long)
    assert isinstance(found, Call)
    assert len(found.args) == 201
    with pytest.raises(FilterError, match="bytes, expected at most"):
        parse_where(long, has_lists=False)


def test_a_named_set_is_found_in_a_condition_and_bound_to_the_sets_there_are() -> None:
    where = "a = 1 AND NOT device IN SET('north')"
    assert sets_of(where) == {"north"}
    assert sets_of("a IN ('set')") == sets_of("settings = 1") == sets_of(None) == frozenset()
    sets = OneSet()
    found = bound(parse_where("device IN SET('north')"), sets)
    assert found == Call("in_set", (Field("device"), SetOf("north", sets)))


@pytest.mark.parametrize("name", ["North", "", "1st", "a-b", "x" * 65])
def test_a_set_has_a_name_as_streams_have(name: str) -> None:
    with pytest.raises(FilterError, match="expected SET with a name"):
        parse_where(f"device IN SET('{name}')")


def test_a_select_is_columns_with_names() -> None:
    assert parse_select("*, a AS b, a + 1 c, 'x' AS \"case\"") == [
        Column("*", None),
        Column("b", A),
        Column("c", Call("+", (A, Value(1)))),
        Column("case", Value("x")),
    ]


@pytest.mark.parametrize("select", ["a, b AS a", "*, *", "a x, b x"])
def test_a_column_stands_once(select: str) -> None:
    with pytest.raises(FilterError, match="with different names"):
        parse_select(select)


@pytest.mark.parametrize("select", ["a INTO b", "a LIMIT 3", "a UNION SELECT b", "/*+ hint */ a"])
def test_a_select_that_says_more_than_columns_is_refused(select: str) -> None:
    with pytest.raises(FilterError, match="expected a list of columns"):
        parse_select(select)
