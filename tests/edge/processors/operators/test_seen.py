"""What was seen before is known, within a bound of memory."""

from __future__ import annotations

import pytest

from tests.edge.processors.helpers import at, chain, made, remarks


def test_the_first_reading_of_a_value_goes_on_and_those_that_repeat_it_are_held_back():
    one = chain({"type": "seen", "field": "card"})
    cards = ["a", "b", "a", 1, 1.0, True, None, "b", "c"]
    found = made(one, [at(i, card=card) for i, card in enumerate(cards)])
    assert [fields["card"] for _, fields in found] == ["a", "b", 1, True, "c"]
    assert remarks(one, [at(0, card=None), at(1, x=1)]) == {"1 seen": {"missing": 2}}


def test_each_reading_is_marked_by_whether_its_value_was_seen():
    one = chain({"type": "seen", "field": "card", "mark": "again", "forget_s": 10})
    found = made(one, [at(s, card="a") for s in (0, 5, 14, 40)] + [at(41, x=1)])
    assert [fields.get("again") for _, fields in found] == [False, True, True, False, None]


def test_what_was_seen_is_of_each_key_for_itself():
    one = chain({"type": "seen", "field": "card", "by": "gate"})
    found = made(one, [at(0, gate=g, card="a") for g in ("north", "south", "north", "south")])
    assert [fields["gate"] for _, fields in found] == ["north", "south"]


def test_of_1348_values_ten_times_each_goes_on_once_and_a_new_one_is_rarely_held_back():
    one = chain({"type": "seen", "field": "card", "capacity": 2_000, "error": 0.01})
    came = [at(i, card=f"card {i % 1_348}") for i in range(10 * 1_348)]
    found = [fields["card"] for _, fields in made(one, came)]
    assert len(found) == len(set(found)), "none twice"
    assert len(found) >= 1_348 * 0.97


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"capacity": 9}, "capacity"),
        ({"capacity": 10_001}, "capacity"),
        ({"error": 0.0001}, "error"),
        ({"error": 0.6}, "error"),
        ({"forget_s": 0.5}, "forget_s"),
        ({"mark": "card"}, "the field 'card' exists already"),
        ({"mark": "gate", "by": "gate"}, "the field 'gate' exists already"),
        ({"mark": "t"}, "envelope"),
    ],
)
def test_what_may_not_be_remembered_is_said(wrong: dict[str, object], why: str):
    with pytest.raises(ValueError, match=why):
        chain({"type": "seen", "field": "card", **wrong})
