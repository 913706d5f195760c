"""The tree of expressions: its names, its size, and names that are replaced."""

from __future__ import annotations

from edgewake.cloud.queries.terms.tree import Call, Field, Literal, fields_of, size_of, substitute

SUM = Call("+", (Field("a"), Call("+", (Field("b"), Literal(1)))))


def test_names_are_found_and_replaced_wherever_they_stand() -> None:
    assert list(fields_of(SUM)) == ["a", "b"]
    assert substitute(SUM, {"b": Literal(2), "c": Literal(3)}) == Call(
        "+", (Field("a"), Call("+", (Literal(2), Literal(1))))
    )


def test_the_size_of_a_tree_grows_with_what_is_in_it_and_is_known_at_once() -> None:
    assert (size_of(Field("a")), size_of(SUM)) == (1, 5)
    deep = SUM
    for _ in range(50):
        deep = Call("+", (deep, deep))  # a walk would take 2^50 steps
    assert size_of(deep) == 2**50 * 6 - 1
