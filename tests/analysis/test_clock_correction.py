"""Three times of a frame: what becomes of its event times, in Spark and in plain Python alike."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.clock_correction import AHEAD_MS_MAX, SKEW_MS_MIN, correct, corrected, corrected_ms

T = 1_790_000_000_000
CASES = {
    "a right clock": (T, T + 100, T + 200, T, None),
    "a slow way is no wrong clock": (T, T, T + SKEW_MS_MIN, T, None),
    "an hour ahead": (T + 3_600_000, T + 3_600_050, T + 150, T + 100, "shifted"),
    "an hour behind": (T - 3_600_000, T - 3_599_950, T + 150, T + 100, "shifted"),
    "in 1970 since the boot": (5_000, 6_000, T, T - 1_000, "shifted"),
    "in 2099 and silent about it": (T + 10**12, None, T, T + AHEAD_MS_MAX, "clamped"),
    "in 1970 and silent about it": (5_000, None, T, 5_000, None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reference_corrects(case: str) -> None:
    t, sent_at, received_at, expected, _ = CASES[case]
    assert corrected_ms(t, sent_at=sent_at, received_at=received_at) == expected


def test_spark_corrects_as_the_reference_does_and_flags_the_frame(spark: SparkSession) -> None:
    rows = [(name, sent_at, received_at, [t, t], {"x": [1.0]}) for name, (t, sent_at, received_at, _, _) in CASES.items()]
    frames = spark.createDataFrame(
        rows, "device string, sent_at bigint, received_at bigint, t array<bigint>, fields struct<x:array<double>>"
    )
    found = correct(frames).select("device", "clock_flag", "top", corrected(F.element_at("t", 1)).alias("t")).collect()
    assert {row.device: (row.t, row.clock_flag) for row in found} == {name: (case[3], case[4]) for name, case in CASES.items()}
    assert all(row.top <= CASES[row.device][2] for row in found)
