"""What is taken out of a condition before it is parsed, and what stays in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.log.filters.filter_taken import LISTED_MAX, Taken, take_out
from edgewake.protocol.errors import FilterError

SQUARE = "POLYGON((0 0, 0 1, 1 1, 1 0, 0 0))"


def test_lists_sets_and_polygons_leave_marks_that_stand_for_them() -> None:
    found = take_out(
        f"a IN ('x', 'it''s', 'x') AND b NOT IN SET('fleet') AND in_polygon(lat, lon, '{SQUARE}')"
    )
    assert found.text == ("a IN ('\0l0') AND b NOT IN ('\0s0') AND in_polygon(lat, lon, '\0p0')")
    assert (found.lists, found.sets, found.polygons) == ([("x", "it's")], ["fleet"], [SQUARE])
    assert found.list_of("\0l0") == ("x", "it's")
    assert (found.list_of("\0l1"), found.list_of("\0s0"), found.set_of("\0s0")) == (
        None,
        None,
        "fleet",
    )


@pytest.mark.parametrize(
    "text",
    [
        "name = 'Polygon street'",
        "name LIKE 'polygon%'",
        "a = 'IN (''x'', ''y'')'",
        "\"in\" = 'x'",
        "a IN ('x')",
        "a = 1 -- IN ('x', 'y')",
        "a = 1 /* ' /* */ ' */ AND b IN ('x', 'y')",
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert replace(take_out(text), lists=(), polygons=(), sets=(), cuts=()) == Taken(text)


@pytest.mark.parametrize(
    "where",
    ["name = 'Polygon 7'", "'Polygon 7' = name", "name LIKE 'Polygon%'", "name IN ('Polygon 7')",
     "name IN ('Polygon 7', 'x')", "name ILIKE 'POLYGON _'"],
)  # fmt: skip
def test_a_text_that_begins_like_a_polygon_is_compared_as_any_other(where: str) -> None:
    """It was taken out as one: the condition passed nothing, without a word."""
    condition = compile_where(where)
    assert [condition.passes({"name": name}) for name in ("Polygon 7", "other")] == [True, False]


@pytest.mark.parametrize(
    "where", ["-- in_polygon(\nname = '{}'", "name -- in_polygon(lat,\n= '{}'"]
)
def test_what_a_comment_says_calls_nothing(where: str) -> None:
    """It was taken for a call: the polygon was none, and the condition passed nothing."""
    text = "POLYGON((1 2,3 4,5 6,1 2))"
    condition = compile_where(where.format(text))
    assert [condition.passes({"name": name}) for name in (text, "other")] == [True, False]


def test_a_comment_between_the_arguments_hides_no_polygon() -> None:
    arguments = 'lat, -- that of the depot\'s (old) gate\n"lon"'
    found = take_out(f"in_polygon({arguments}, '{SQUARE}')")
    assert (found.text, found.polygons) == (f"in_polygon({arguments}, '\0p0')", [SQUARE])


@pytest.mark.parametrize("name", ["d--7", "a/*b", "it''s --"])
def test_a_text_may_look_like_a_comment(name: str) -> None:
    """A device may be called `d--7`. Beside it no set was found, and a list could not be long."""
    many = ", ".join(f"'d{number}'" for number in range(500))
    found = take_out(f"a = '{name}' AND b IN SET('fleet') AND c IN ({many}) -- it's all")
    assert found.text == f"a = '{name}' AND b IN ('\0s0') AND c IN ('\0l0') -- it's all"
    assert (found.sets, len(found.lists[0])) == (["fleet"], 500)


def test_a_place_behind_what_was_shortened_is_that_of_the_clients_text() -> None:
    text = "a IN ('x', 'y', 'z') AND nonsense("
    found = take_out(text)
    assert found.at(found.text.index("nonsense") + 1) == text.index("nonsense") + 1


def test_lists_are_bounded() -> None:
    many = ", ".join(f"'{number}'" for number in range(LISTED_MAX + 1))
    with pytest.raises(FilterError, match="1001 values, expected at most 1000"):
        take_out(f"a IN ({many})")
