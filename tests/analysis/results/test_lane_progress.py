"""What is said of a lane's state, from Spark's own report."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.cloud.analysis.results.lane_progress import StateSize, state_size


@pytest.mark.parametrize(
    ("told", "size"),
    [
        ({}, None),
        ({"stateOperators": []}, None),
        (
            {
                "stateOperators": [
                    {"numRowsTotal": 20, "memoryUsedBytes": 4096, "operatorName": "stateStoreSave"},
                    {"numRowsTotal": 2, "memoryUsedBytes": 1024, "operatorName": "dedupe"},
                ]
            },
            StateSize(22, 5120),
        ),
        (
            {
                "stateOperators": [
                    {
                        "numRowsTotal": 0,
                        "memoryUsedBytes": 4096,
                        "customMetrics": {"rocksdbBytesCopied": 1},
                    }
                ]
            },
            StateSize(None, 4096),
        ),
    ],
)
def test_the_state_of_all_operators_is_counted_together(
    told: dict[str, Any], size: StateSize | None
) -> None:
    assert state_size(told) == size
