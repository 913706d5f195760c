"""Filters that can hardly be meant: said, and not silently empty."""

from __future__ import annotations

import pytest

from edgewake.cloud.log.filters.filter_check import WARNINGS_MAX, Kinds, warnings_of
from edgewake.cloud.log.filters.filter_syntax import parse_where

CARS: Kinds = {"speed_kmh": "number", "street": "string", "braking": "boolean"}


def said(where: str, *streams: Kinds) -> list[tuple[str, str]]:
    return [
        (warning.code, warning.detail)
        for warning in warnings_of([parse_where(where)], streams or (CARS,))
    ]


@pytest.mark.parametrize(
    "where",
    [
        "speed_kmh > 50 AND street = 'Main' AND NOT braking",
        "device = 'car-7' AND t > 5 AND received_at > t",
        "speed_kmh / 3.6 > 10 OR street LIKE 'M%' OR length(street) = 3",
        "speed_kmh = NULL OR street IN ('a', NULL)",
        "final AND window_start > 0",
        "coalesce(street, 'x') = 'x'",
    ],
)
def test_what_can_be_meant_is_passed_without_a_word(where: str) -> None:
    assert said(where) == []


@pytest.mark.parametrize(
    ("where", "code", "part"),
    [
        ("sped_kmh > 50", "unknown_field", "did you mean speed_kmh?"),
        ('street = "Main"', "unknown_field", "text is written in single quotes"),
        (
            "speed_kmh > '5'",
            "impossible_comparison",
            "speed_kmh is a number and '5' a string: never true",
        ),
        ("street IN (1, 'a')", "impossible_comparison", "street is a string and 1 a number"),
        ("braking = 1", "impossible_comparison", "braking is a boolean and 1 a number"),
        ("device BETWEEN 1 AND 2", "impossible_comparison", "device is a string"),
        ("street + 1 > 0", "wrong_type", "street is a string, and + of it is always NULL"),
        (
            "speed_kmh LIKE '5%'",
            "wrong_type",
            "speed_kmh is a number, and LIKE of it is always NULL",
        ),
    ],
)
def test_what_can_hardly_be_meant_is_named(where: str, code: str, part: str) -> None:
    ((found, detail), *_) = said(where)
    assert found == code
    assert part in detail


def test_near_names_are_given_for_machines_too() -> None:
    (warning,) = warnings_of([parse_where("sped_kmh > 50")], [CARS])
    assert (warning.field, warning.near) == ("sped_kmh", ("speed_kmh",))


def test_a_field_of_any_of_several_streams_is_known_and_may_have_the_kind_of_each() -> None:
    assert (
        said(
            "x > 1 OR y = 'a' OR z = 1 OR z = 'a'",
            {"x": "number", "z": "number"},
            {"y": "string", "z": "string"},
        )
        == []
    )


def test_the_number_of_warnings_is_bounded() -> None:
    assert len(said(" OR ".join(f"field_{i} = 1" for i in range(20)))) == WARNINGS_MAX
