"""Conditions of rules, on readings and rows."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from edgewake.cloud.alerts.condition import Condition, check
from edgewake.protocol.errors import FilterError
from edgewake.protocol.ops.alert import KEY_CHARS_MAX, RuleText
from tests.alerts.build import T0, rule


def holds(reading: dict[str, object], **more: object) -> bool | None:
    return Condition.of(rule(**more)).seen(reading, T0).holds


def test_a_reading_without_the_field_says_nothing():
    assert holds({"temperature": 31}) is True
    assert holds({"temperature": 30}) is False
    assert holds({"humidity": 3}) is None


def test_with_a_second_condition_only_that_one_ends_it():
    until = "temperature < 28"
    assert holds({"temperature": 29}, until=until) is None
    assert holds({"temperature": 27}, until=until) is False


def test_a_row_that_was_withdrawn_ends_it():
    row = {"temperature": 50, "withdrawn": True, "window_start": 5}
    assert holds(row, query="means", stream=None) is False


def test_keys_and_values_are_text():
    condition = Condition.of(rule(by=("device", "door"), value="temperature"))
    seen = condition.seen({"device": "car-1", "door": True, "temperature": 31.25}, T0)
    assert (seen.key, seen.value) == ("car-1, true", "31.25")
    assert Condition.of(rule(by=())).seen({}, T0).key == "all"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"stream": "a"}, "when: expected a condition"),
        ({"stream": "a", "query": "b", "when": "x > 1"}, "expected one of"),
        ({}, "expected one of"),
        ({"problems": [], "when": "x > 1"}, "has no condition"),
        ({"silent_s": 60, "until": "x > 1"}, "with the first reading"),
        ({"silent_s": 1}, "greater than or equal to 10"),
    ],
)
def test_a_rule_that_says_nothing_is_told_what_was_expected(text: dict[str, object], said: str):
    with pytest.raises(ValidationError, match=said):
        RuleText.model_validate(text)


def test_a_condition_that_cannot_be_read_is_refused():
    with pytest.raises(FilterError):
        check(RuleText(stream="a", when="temperature >"))


def test_long_keys_that_differ_anywhere_are_two_alerts():
    by = ("device", "line", "door", "user")
    condition = Condition.of(rule(by=by))
    keys = {
        condition.seen(dict.fromkeys(by, "ü" * 150) | {name: "ü" * 150 + "x"}, T0).key
        for name in by
    }
    assert len(keys) == 4
    assert {len(key) for key in keys} == {KEY_CHARS_MAX}
    longest = "x" * KEY_CHARS_MAX
    assert Condition.of(rule()).seen({"device": longest}, T0).key == longest
    assert len(Condition.of(rule()).seen({"device": "\ud800" * 300}, T0).key) == KEY_CHARS_MAX
