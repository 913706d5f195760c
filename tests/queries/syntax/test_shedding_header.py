"""The header that says when a query leaves readings out."""

from __future__ import annotations

import pytest

from edgewake.cloud.queries.syntax.shedding_header import in_its_place, read_shed
from edgewake.protocol.errors import QueryError


def test_a_lag_and_perhaps_a_condition_are_read() -> None:
    assert read_shed("random above 60 seconds") == (60_000, None)
    assert read_shed("RANDOM above 1 minute EXCEPT where speed > 100 and above = 1") == (
        60_000,
        "speed > 100 and above = 1",
    )


@pytest.mark.parametrize(
    "text", ["", "random", "oldest above 60 seconds", "random above 1 ms", "random above 2 days"]
)
def test_what_is_no_lag_of_a_second_to_a_day_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="header shed"):
        read_shed(text)


def test_a_condition_keeps_its_line_and_column() -> None:
    text = "-- name: q\n-- shed: random above 60 seconds except where speed > 100\nSELECT 1"
    found = in_its_place("speed > 100", text)
    assert found.splitlines()[1].index("speed") == text.splitlines()[1].index("speed > 100")
