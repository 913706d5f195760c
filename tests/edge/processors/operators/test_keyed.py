"""Each value of a key field has a state of its own."""

from __future__ import annotations

import pytest

from edgewake.edge.processors.operators.keyed import KEY_CHARS_MAX
from tests.edge.processors.helpers import at, chain, column, made, remarks, said

KEYS = [1, "1", True, "true", None, "null", 1.5, "1.5", "", "Ä", 2**60, -1]


def test_each_key_has_a_state_of_its_own_also_where_they_look_alike() -> None:
    one = chain({"type": "rate", "field": "x", "by": "k"})
    found = made(
        one,
        [
            at(second, k=key, x=place * second)
            for second in range(3)
            for place, key in enumerate(KEYS)
        ],
    )
    for place, key in enumerate(KEYS):
        rates = [
            fields["x_rate"]
            for _, fields in found
            if fields["k"] is key or (fields["k"] == key and type(fields["k"]) is type(key))
        ]
        assert rates == [None, place, place]


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (0, -0.0), (2**52, float(2**52))])
def test_a_number_is_one_key_however_it_is_written(one: float, other: float) -> None:
    found = made(
        chain({"type": "rate", "field": "x", "by": "k"}), [at(0, k=one, x=1), at(1, k=other, x=3)]
    )
    assert column(found, "x_rate") == [None, 2.0]


@pytest.mark.parametrize(("length", "is_kept"), [(KEY_CHARS_MAX, True), (KEY_CHARS_MAX + 1, False)])
def test_a_key_has_its_longest(length: int, is_kept: bool) -> None:
    processor = {"type": "rate", "field": "x", "by": "k"}
    given_readings = [at(0, k="k" * length, x=1)]
    assert len(made(chain(processor), given_readings)) == is_kept
    assert said(processor, given_readings) == ({} if is_kept else {"key_refused": 1})


@pytest.mark.parametrize(("keys", "rate_of_first"), [(3, 1.0), (4, None)])
def test_at_the_bound_of_keys_the_one_unused_longest_is_forgotten(
    keys: int, rate_of_first: float | None
) -> None:
    processor = {"type": "rate", "field": "x", "by": "k", "keys_max": 3}
    given_readings = [*[at(0, k=key, x=0) for key in range(keys)], at(1, k=0, x=1)]
    assert column(made(chain(processor), given_readings), "x_rate")[-1] == rate_of_first
    assert said(processor, given_readings) == ({} if rate_of_first else {"key_forgotten": 2})


def test_each_value_has_a_state_of_its_own_and_names_itself():
    one = chain(
        {"type": "window", "fields": ["x"], "size_count": 2, "aggregates": ["sum"], "by": "k"}
    )
    given_readings = [
        at(0, k="a", x=1),
        at(1, k="b", x=10),
        at(2, x=100),
        at(3, k="a", x=2),
        at(4, k="b", x=20),
        at(5, x=200),
    ]
    assert made(one, given_readings) == [
        at(3, k="a", readings=2, x_sum=3), at(4, k="b", readings=2, x_sum=30),
        at(5, k=None, readings=2, x_sum=300),
    ]  # fmt: skip


def test_the_value_unused_longest_is_forgotten_and_said():
    one = chain({"type": "window", "fields": ["x"], "size_count": 2, "by": "k", "keys_max": 2})
    given_readings = [
        at(0, k=1, x=1),
        at(1, k=2, x=1),
        at(2, k=1.0, x=1),
        at(3, k=3, x=1),
        at(4, k=2, x=1),
        at(5, k="k" * 300, x=1),
    ]
    assert [fields["k"] for _, fields in made(one, given_readings)] == [1.0]
    assert remarks(one, given_readings)["1 window"] == {"key_forgotten": 2, "key_refused": 1}
