"""The names of a result's columns."""

from __future__ import annotations

import pytest
import sqlglot

from edgewake.cloud.queries.syntax.column_names import (
    OUTPUTS_MAX,
    check_outputs,
    column_name,
    slug,
)
from edgewake.protocol.errors import QueryError
from edgewake.protocol.names import FIELD_PATTERN


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("avg(speed)", "avg_speed"),
        ("speed_kmh / 3.6", "speed_kmh_3_6"),
        ("3 * x", "column_3_x"),
        ("a" * 70, "a" * 64),
    ],
)
def test_a_column_without_a_name_is_called_after_what_it_says(text: str, name: str) -> None:
    found = slug(sqlglot.parse_one(text, read="spark"))
    assert (found, bool(FIELD_PATTERN.fullmatch(found))) == (name, True)


@pytest.mark.parametrize("name", ["revision", "complete", "window_start", "Größe", "", "x" * 65])
def test_what_every_result_has_and_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(QueryError, match="reserved or not 1-64"):
        column_name(name, "SELECT")
    assert column_name("device", "SELECT") == "device"


def test_columns_are_bounded_and_each_has_a_name_of_its_own() -> None:
    check_outputs(OUTPUTS_MAX, ["a", "b"])
    with pytest.raises(QueryError, match="65 columns: expected at most 64"):
        check_outputs(OUTPUTS_MAX + 1, [])
    with pytest.raises(QueryError, match="the name 'a' twice"):
        check_outputs(3, ["a", "b", "a"])
