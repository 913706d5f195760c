"""How much earlier or later a partner may be: what ON says of it, in any way of writing it."""

from __future__ import annotations

import pytest
import sqlglot

from edgewake.cloud.queries.query import Within
from edgewake.cloud.queries.syntax.join_interval import within
from edgewake.protocol.errors import QueryError

A, B = "event_time", "`b.event_time`"
"""Times as they stand once names are plain: of the stream, and of the joined one."""


def found(*conditions: str) -> Within:
    return within([sqlglot.parse_one(one, read="spark") for one in conditions], "b")


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((f"{B} BETWEEN {A} - INTERVAL 9 SECONDS AND {A} + INTERVAL 1 MINUTE",), (-9_000, 60_000)),
        ((f"{B} >= {A}", f"{B} < {A} + INTERVAL 5 MINUTES"), (0, 299_999)),
        ((f"{A} <= {B}", f"{A} > {B} - INTERVAL 5 MINUTES"), (0, 299_999)),
        ((f"abs({B} - {A}) <= INTERVAL 10 SECONDS",), (-10_000, 10_000)),
        ((f"abs({A} - {B}) < INTERVAL 10 SECONDS",), (-9_999, 9_999)),
        ((f"{B} = {A} + INTERVAL 1 SECOND",), (1_000, 1_000)),
        ((f"({B} - {A} <= INTERVAL 2 SECONDS)", f"{B} - {A} > INTERVAL 1 SECOND"), (1_001, 2_000)),
        ((f"{B} >= {A}", f"{B} >= {A} + INTERVAL 1 SECOND", f"{B} <= {A} + INTERVAL 2 SECONDS"),
            (1_000, 2_000)),
    ],
)  # fmt: skip
def test_all_conditions_together_are_one_interval(
    conditions: tuple[str, ...], expected: tuple[int, int]
) -> None:
    assert found(*conditions) == Within(*expected)


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ((f"{B} >= {A}",), "from both sides"),
        ((f"{B} >= {A} + INTERVAL 2 SECONDS", f"{B} <= {A}"), "at least 2000 ms and at most 0 ms"),
        ((f"abs({B} - {A}) <= INTERVAL 2 DAYS",), "at most a day apart"),
        ((f"{B} + {A} >= INTERVAL 1 SECOND",), "joined within a time"),
        ((f"{A} >= {A}",), "joined within a time"),
        ((f"abs({B} - {A}) >= INTERVAL 1 SECOND",), "joined within a time"),
    ],
)
def test_what_is_no_interval_is_refused(conditions: tuple[str, ...], why: str) -> None:
    with pytest.raises(QueryError, match=why):
        found(*conditions)
