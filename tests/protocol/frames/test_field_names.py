"""Names of fields as devices write them, made legal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.frames.field_names import NAMES_MAX, Names, form, put_over, with_suffix
from edgewake.protocol.names import FIELD_CHARS_MAX, is_field


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("speed", "speed"), ("_x", "_x"), ("DS18B20-1.Temperature", "DS18B20_1_Temperature"),
        ("Speed (km/h)", "Speed_km_h"),
        ("Außen.Temperatur", "Aussen_Temperatur"), ("température", "temperature"),
        ("µg/m³", "ug_m3"), ("mode", "mode_"), ("t", "t_"),
        ("event.time", "event_time_"), ("1h", "_1h"), ("", "field"), ("温度", "field"),
        ("a.b", "a_b"), ("T °C", "T_degC"),
    ],
)  # fmt: skip
def test_a_name_becomes_one_that_is_like_it(path: str, name: str) -> None:
    assert form(path) == name


@pytest.mark.parametrize(
    ("body", "fields", "found"),
    [
        ({"v": 1}, {"room": "hall"}, {"v": 1, "room": "hall"}),
        ({"room": 2}, {"room": "hall"}, {"room": "hall", "room_": 2}),
        ({"room": "hall"}, {"room": "hall"}, {"room": "hall"}),
        ({"room": None}, {"room": "hall"}, {"room": "hall"}),
        (
            {"room": 2, "room_": 3},
            {"room": "hall", "room__": 4},
            {"room": "hall", "room_": 3, "room__": 4, "room___": 2},
        ),
        ({"a": 1, "a_": 2}, {"a": 3, "a_": 4}, {"a": 3, "a_": 4, "a__": 1, "a___": 2}),
    ],
)
def test_a_field_that_is_added_leaves_the_devices_own_of_its_name_beside_it(
    body: dict[str, Any], fields: dict[str, Any], found: dict[str, Any]
) -> None:
    put_over(body, fields)
    assert body == found


@given(st.text(max_size=200))
def test_every_name_can_be_made_legal_alone_and_with_its_suffix(path: str) -> None:
    assert is_field(form(path))
    assert is_field(with_suffix(path))


def test_the_end_of_a_long_name_is_cut_off_and_told_by_its_suffix() -> None:
    one, other = "x-" * 100 + "1", "x-" * 100 + "2"
    assert len(form(one)) <= FIELD_CHARS_MAX
    assert form(one) != form(other)


def test_a_name_that_is_taken_gets_a_suffix_that_stays_the_same_for_ever() -> None:
    names = Names()
    first = [names.of(path) for path in ("a-b", "a.b", "a b", "a_b")]
    assert first[0] == "a_b"
    assert len(set(first)) == 4
    again = Names(names.known())
    assert [again.of(path) for path in ("a_b", "a b", "a.b", "a-b")] == first[::-1]
    other = Names()
    assert other.of("a_b") == "a_b"
    assert other.of("a-b") == with_suffix("a-b") != "a_b"


@given(st.lists(st.text(alphabet="ab-. _ä1", max_size=4), max_size=20))
def test_two_names_never_become_one(paths: list[str]) -> None:
    names = Names()
    assert len({names.of(path) for path in paths}) == len(set(paths))
    assert all(names.of(path) == Names(names.known()).of(path) for path in paths)


def test_legal_names_of_an_object_stay_whatever_stands_before_them() -> None:
    names = Names.of_object({"a-b": 1, "a_b": 2})
    assert (names.of("a-b"), names.of("a_b")) == (with_suffix("a-b"), "a_b")


def test_what_is_remembered_is_bounded_and_more_is_told_apart_without_memory() -> None:
    names = Names()
    for n in range(2 * NAMES_MAX):
        names.of(f"x-{n}")
    assert len(names) == NAMES_MAX
    assert names.of("y-1") == with_suffix("y-1")
    assert names.of("plain") == "plain"
    assert names.of("x-0") == "x_0"
