"""Conditions of which some fields are known: what they rule out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.log.filters.filter_partial import rules_out
from edgewake.cloud.log.filters.filter_syntax import parse_where
from tests.examples import examples
from tests.log.filters.strategies import (
    NUMBERS,
    STRINGS,
    condition,
    rows,
)

CAR = {"stream": "s", "device": "car-8"}


@pytest.mark.parametrize(
    ("where", "is_hidden"),
    [
        ("device = 'car-7'", True),
        ("device = 'car-8'", False),
        ("device <> 'car-8'", True),
        ("device IN ('car-7', 'car-9')", True),
        ("device IN ('car-7', other)", False),
        ("device LIKE 'bus-%'", True),
        ("device = 'car-7' AND speed > 5", True),
        ("device = 'car-7' OR speed > 5", False),
        ("speed > 5", False),
        ("speed IS NOT NULL", False),
        ("coalesce(speed, 0) > 5", False),
        ("NOT (device = 'car-8')", True),
        ("NOT (device = 'car-8' AND speed > 5)", False),
        ("device IS NULL", True),
        ("device > 5", False),
        ("FALSE", True),
        ("NULL", False),
    ],
)
def test_a_gap_is_hidden_only_where_what_was_lost_cannot_have_passed(
    where: str, is_hidden: bool
) -> None:
    assert rules_out(parse_where(where), CAR) is is_hidden


@given(condition, rows, st.sets(st.sampled_from(NUMBERS + STRINGS)))
@settings(max_examples=examples(300), deadline=None)
def test_what_is_ruled_out_by_some_fields_never_passes_with_all(
    where: str, row: dict[str, Any], known: set[str]
) -> None:
    complete = {name: row.get(name) for name in NUMBERS + STRINGS}
    if rules_out(parse_where(where), {name: complete[name] for name in known}):
        assert compile_where(where).passes(row) is False
