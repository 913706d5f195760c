"""Conditions and rows of any kind, for tests of properties."""

from __future__ import annotations

from hypothesis import strategies as st

NUMBERS = ("a", "b")

STRINGS = ("s", "u")

WORDS = ("", "a", "A", "ab", "Ab%", "a_c", "abc", "é")

integers = st.integers(-5, 5)

halves = st.integers(-9, 9).map(lambda n: n / 2)

rows = st.fixed_dictionaries(
    {},
    optional={name: integers | halves | st.none() for name in NUMBERS}
    | {name: st.sampled_from(WORDS) | st.none() for name in STRINGS},
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


literals = integers.map(lambda n: f"({n})") | halves.map(lambda n: f"({n})") | st.just("NULL")

text_literals = st.sampled_from(WORDS).map(quoted) | st.just("NULL")

patterns = st.text("aAb%_", max_size=5).map(quoted)


def numbers_of(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(children, st.sampled_from("+-*"), children).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    )
    unary = children.map(lambda c: f"abs({c})") | children.map(lambda c: f"(- {c})")
    return binary | unary | st.tuples(children, children).map(lambda t: f"coalesce({t[0]}, {t[1]})")


number = st.recursive(st.sampled_from(NUMBERS) | literals, numbers_of, max_leaves=4)

text = (
    st.sampled_from(STRINGS) | text_literals | st.sampled_from(STRINGS).map(lambda s: f"lower({s})")
)

operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])

comparison = (
    st.tuples(number, operators, number).map(" ".join)
    | st.tuples(text, operators, text).map(" ".join)
    | st.tuples(number, number, number).map(lambda t: f"{t[0]} BETWEEN {t[1]} AND {t[2]}")
    | st.tuples(number, st.lists(literals, min_size=1, max_size=3)).map(
        lambda t: f"{t[0]} IN ({', '.join(t[1])})"
    )
    | st.tuples(number, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join)
    | st.tuples(st.sampled_from(STRINGS), st.sampled_from(["LIKE", "NOT LIKE"]), patterns).map(
        " ".join
    )
    | st.sampled_from(STRINGS).map(lambda s: f"length({s}) > 1")
)

condition = st.recursive(
    comparison.map("({})".format),
    lambda c: (
        st.tuples(c, st.sampled_from(["AND", "OR"]), c).map("({0[0]} {0[1]} {0[2]})".format)
        | c.map("(NOT {})".format)
    ),
    max_leaves=5,
)
