"""Conditions of SQL say what grants say; tests/lake/test_narrowed.py asks them of an engine."""

from __future__ import annotations

import pytest

from edgewake.cloud.rights import as_sql
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.scope import Part, Scope


@pytest.mark.parametrize(
    ("names", "condition"),
    [
        (None, "true"),
        (Names.of([]), "false"),
        (Names.of(["b", "a'x"]), "coalesce(c IN ('a''x', 'b'), false)"),
        (Names.of(["a_%*"]), "coalesce(c LIKE 'a\\_\\%%' ESCAPE '\\', false)"),
        (Names.of(["a\\*"]), "coalesce(c LIKE 'a\\\\%' ESCAPE '\\', false)"),
    ],
)
def test_names_are_a_condition_on_a_column(names: Names | None, condition: str) -> None:
    assert as_sql.one_of("c", names) == condition


def test_a_row_without_a_device_column_is_seen_through_parts_that_have_all_devices() -> None:
    of_one = Part(Names.of(["d"]), None)
    assert as_sql.rows_of(Scope((of_one,)), None) == "false"
    assert as_sql.rows_of(Scope((of_one, Part(None, Names.of(["a"])))), None) == "true"
    assert as_sql.rows_of(Scope(()), "device") == "false"


def test_a_field_is_a_column_only_where_a_part_shows_it() -> None:
    scope = Scope((Part(None, Names.of(["a"])), Part(Names.of(["d"]), Names.of(["b"]))))
    assert as_sql.value_of(scope, "a", '"a"', "device") == '"a"'
    conditional = "CASE WHEN (coalesce(device IN ('d'), false)) THEN \"b\" END"
    assert as_sql.value_of(scope, "b", '"b"', "device") == conditional
    assert as_sql.value_of(scope, "b", '"b"', None) is None
    assert as_sql.value_of(scope, "c", '"c"', "device") is None
    assert as_sql.value_of(scope, "withdrawn", '"withdrawn"', "device") == '"withdrawn"'
