"""Functions of places, words and objects: against plain evaluation, by themselves and through the
index; and what is wrong is said with its place.
"""

from __future__ import annotations

import pytest

from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.log.wanted import is_in_share
from edgewake.protocol.errors import FilterError


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("n = 1 AND distance_m(lat, lon, 95, 1) < 5", "at character 11: latitude 95"),
        ("in_box(lat, lon, 5, 1, 2, 3)", "south 5 is north of 2"),
        ("in_box(lat, lon, 5, 1)", "expected in_box(lat, lon, SOUTH, WEST, NORTH, EAST)"),
        ("in_box(lat, lon, 1, 2, n, 3)", "'n' at character 24: expected a number here"),
        ("in_polygon(lat, lon, 'POLYGON((1 2, 3 x, 5 6))')", "at character 14, point 2 '3 x'"),
        ("in_polygon(lat, lon, 'POLYGON((1 2, 3 95, 5 6))')", "the longitude comes first"),
        ("in_polygon(lat, lon, 'POLYGON((1 2, 3 4))')", "three different points"),
        ("in_polygon(lat, lon, 'POLYGON((-170 2, 170 4, 5 6))')", "at the antimeridian"),
        ("in_polygon(lat, lon, 'CIRCLE(1 2)')", "expected WKT"),
        ("has_words(note, 'a & b')", "'&': expected words"),
        ("has_words(note, '  ')", "expected a word"),
        (
            f"has_words(note, '{' '.join(f'w{n}' for n in range(21))}')",
            "21 words, expected at most",
        ),
        ("json_value(x, 'a.b') = 1", "at character 1 of the path: expected $"),
        ("json_value(x, '$.a..b') = 1", "at character 4 of the path, '..b'"),
        (f"json_value(x, '${'.a' * 11}') = 1", "11 steps, expected 1 to 10"),
        ("in_sample(device, 1.5)", "share 1.5: expected above 0 to 1"),
        ("in_sample(device, 0)", "share 0: expected above 0 to 1"),
        ("in_sample(0.5)", "expected in_sample(device, 0.1)"),
        ("in_sample(device, 'a')", "expected a number here"),
        (f"in_sample({', '.join('abcdefghi')}, 0.5)", "expected in_sample(device, 0.1)"),
        ("device IN SET('No such')", "expected SET with a name"),
        ("device IN SET('north')", "there are no named sets here"),
        ("device IN ('a', 'b', 'c') AND distance_m(lat, lon, 'x', 1) < 5", "at character 52"),
        (
            " AND ".join("has_words(note, 'a')" for _ in range(3)),
            "costs 13508 steps",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(where: str, said: str) -> None:
    with pytest.raises(FilterError) as refused:
        compile_where(where)
    assert said in str(refused.value)


@pytest.mark.parametrize("per", [("device",), ("line", "stop"), tuple("abcdefgh")])
@pytest.mark.parametrize("share", [0.00001, 0.3, 1])
def test_a_share_in_a_condition_is_the_share_of_the_parameter(
    per: tuple[str, ...], share: float
) -> None:
    passes = compile_where(f"in_sample({', '.join(per)}, {share!r})").passes
    things = [{name: f"{name}-{n}" for name in per} for n in range(200)] + [{}]
    assert [passes(one) for one in things] == [is_in_share(one, per, share) for one in things]
