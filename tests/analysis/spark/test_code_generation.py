"""When the plan of a batch is interpreted and not compiled, and that both give the same."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.spark import code_generation
from edgewake.cloud.analysis.spark.code_generation import (
    COMPILED,
    INTERPRETED,
    READINGS_MAX,
    is_interpreted,
)
from tests.analysis.support import (
    ALL_LANES,
    T0,
    Analysis,
    Feed,
    catch_up,
    registered,
    results,
    sql,
    truth,
)

MINUTE = "window(event_time, '1 minute'), device"
SELECTS = {
    "plain": "count(*) AS n, sum(speed) AS total, max(speed) AS high",
    "distinct": "count(*) AS n, approx_count_distinct(street) AS streets",
    "sketch": (
        "count(*) AS n, approx_percentile(speed, 0.5) AS middle, approx_top_k(street, 2) AS top, "
        "max_by(street, speed) AS fastest"
    ),
}


@pytest.mark.parametrize(
    ("readings", "expected"), [(0, True), (READINGS_MAX, True), (READINGS_MAX + 1, False)]
)
def test_a_batch_of_few_readings_is_interpreted(*, readings: int, expected: bool) -> None:
    assert is_interpreted(readings) is expected


def test_a_lane_begins_as_spark_has_it(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in COMPILED} == COMPILED
    assert INTERPRETED.keys() == COMPILED.keys()


def is_compiled(lane: Lane) -> bool:
    """As the last batch's plan says: compiled stages are numbered."""
    assert lane.query is not None
    return "*(1)" in str(lane.query._jsq.explainInternal(False))


KINDS = tuple(SELECTS) if ALL_LANES else ("plain", pytest.param("sketch", marks=pytest.mark.long))
"""Others are left to the long forms: each kind takes a lane through five batches."""


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_compiled_and_interpreted_in_turn_and_counted_as_ever(
    kind: str, analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_generation, "READINGS_MAX", 9)
    queries = registered(
        sql(feed.name, f"device, {SELECTS[kind]}", MINUTE),
        sql(
            feed.name,
            f"device, {SELECTS[kind]}",
            "window(event_time, '1 minute', '20 seconds'), device",
            where="WHERE speed > 1",
        ),
        streams=[feed.stream],
    )
    sizes = (3, 3, 30, 3, 3)
    compiled = []

    with analysis.running(queries, feed) as lane:
        for number, size in enumerate(sizes):
            times = [T0 + number * 1_000 + i for i in range(size)]
            feed.send(
                times,
                device="d1",
                speed=[float(number * 30 + i) for i in range(size)],
                street=[f"s{i % 3}" for i in range(size)],
            )
            catch_up(lane, feed)
            compiled.append(is_compiled(lane))

    assert compiled == [True, False, False, True, False]
    speeds = sorted(reading["speed"] for reading in feed.sent)
    rows = [
        next(iter(truth(results(feed.config, one.query.name), "device").values()))
        for one in queries
    ]
    assert [row["n"] for row in rows] == [
        len(speeds),
        len([speed for speed in speeds if speed > 1]),
    ]
    row = rows[0]
    if kind == "plain":
        assert (row["total"], row["high"]) == (sum(speeds), speeds[-1])
    elif kind == "distinct":
        assert row["streets"] == 3
    else:
        assert (row["middle"], row["fastest"]) == (speeds[(len(speeds) - 1) // 2], "s2")
        assert row["top"][0] == {"item": "s0", "count": 14}
