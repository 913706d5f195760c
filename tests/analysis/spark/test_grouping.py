"""When readings are sorted instead of hashed; that both give the same is in test_sketches."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.spark.grouping import GROUPS_MIN, READINGS_PER_GROUP, is_sorted


@pytest.mark.parametrize(
    ("groups", "readings", "expected"),
    [
        (0, 0, False),
        (GROUPS_MIN - 1, GROUPS_MIN, False),
        (GROUPS_MIN, GROUPS_MIN, True),
        (GROUPS_MIN, READINGS_PER_GROUP * GROUPS_MIN - 1, True),
        (GROUPS_MIN, READINGS_PER_GROUP * GROUPS_MIN, False),
    ],
)
def test_many_groups_of_few_readings_are_sorted(
    *, groups: int, readings: int, expected: bool
) -> None:
    assert is_sorted(groups, readings) is expected
