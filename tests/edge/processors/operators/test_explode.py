"""A reading of a list becomes a reading of each item."""

from __future__ import annotations

import pytest

from tests.edge.processors.helpers import at, chain, made, remarks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("[1, null, 2.5]", [{"x": 1}, {"x": None}, {"x": 2.5}], id="values"),
        pytest.param('["a", "b"]', [{"x": "a"}, {"x": "b"}], id="texts"),
        pytest.param(
            '[{"id": 1, "m": {"v": 2}}, {"id": 2}]',
            [{"x_id": 1, "x_m_v": 2}, {"x_id": 2}],
            id="objects",
        ),
        pytest.param("[[1, 2]]", [{"x": "[1,2]"}], id="a list of lists"),
        pytest.param("[]", [], id="nothing"),
    ],
)
def test_explode_makes_a_reading_of_each_item(text, expected):
    one = chain({"type": "explode", "field": "x", "position": "at"})
    found = made(one, [at(5, x=text, k="same")])
    assert found == [at(5, k="same", **each, at=n) for n, each in enumerate(expected)]
    assert remarks(one, [at(5, x=text)]) == {}


def test_explode_says_what_is_no_list_and_what_is_too_long():
    one = chain({"type": "explode", "field": "x", "into": "item"})
    given_readings = [at(0, y=1), at(1, x=1), at(2, x="{}"), at(3, x="[1"), at(4, x="[true]")]
    assert made(one, given_readings) == [at(4, item=True)]
    assert remarks(one, given_readings) == {"1 explode": {"missing": 1, "not_a_list": 3}}
    long = [at(0, x=str([*range(300)]))]
    assert [each["item"] for _, each in made(one, long)] == [*range(256)]
    assert remarks(one, long) == {"1 explode": {"too_many": 1}}
    deep = [at(0, x="[1, " + '{"a":' * 20 + "1" + "}" * 20 + ", 3]")]
    assert [each["item"] for _, each in made(one, deep)] == [1, 3]
    assert remarks(one, deep) == {"1 explode": {"too_large": 1}}
