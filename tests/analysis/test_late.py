"""Late readings sorted out of a batch: each closed window of each query, counted as a naive oracle counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis import late
from edgewake.cloud.analysis.late import EXAMPLES_MAX, WINDOWS_MAX, LateWindow, late_windows
from edgewake.cloud.analysis.plan_values import PlanValues
from edgewake.cloud.analysis.query_file import parse
from edgewake.cloud.analysis.query_plan import Query
from edgewake.protocol.field_type import FieldType
from tests.analysis.support import T0, sql

FIELDS = {"load": FieldType.NUMBER, "speed": FieldType.NUMBER}


def frame_of(readings: Sequence[tuple[int, float | None, float | None]], device: str = "d1") -> dict[str, Any]:
    t, speed, load = zip(*readings, strict=True)
    return {"device": device, "received_at": max(t), "t": list(t), "fields": {"speed": list(speed), "load": list(load)}}


def records(spark: SparkSession, *frames: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame([(0, i, orjson.dumps(one)) for i, one in enumerate(frames)], "partition int, offset bigint, value binary")


def sorted_out(frames: DataFrame, queries: Sequence[Query], closed: Sequence[int | None], parts: int = 1) -> list[LateWindow]:
    """As a lane does, the frames in so many parts."""
    latest = PlanValues(frames.sparkSession)
    latest.set(0, max(end for end in closed if end is not None))
    tables = [late.old_frames(frames.where(F.col("offset") % parts == i), FIELDS, latest).toArrow() for i in range(parts)]
    return late_windows(tables, queries, FIELDS, closed)


def told(found: Sequence[LateWindow]) -> dict[tuple[int, int | None, int | None], int]:
    return {(one.place, one.start, one.end): one.readings for one in found}


def test_each_closed_window_of_each_query_is_counted_with_examples(spark: SparkSession) -> None:
    hopping = parse(sql("s", "count(*) AS n", "window(event_time, '1 minute', '20 seconds')"))
    fast = parse(sql("s", "device, count(*) AS n", "window(event_time, '10 seconds'), device", where="WHERE speed > 5"))
    both = parse(sql("s UNPIVOT (value FOR metric IN (speed, load))", "metric, count(*) AS n", "window(event_time, '1 minute'), metric"))
    unasked = parse(sql("s", "count(*) AS n", "window(event_time, '1 minute')"))
    readings = [(T0 + i * 3_000, float(i % 10) if i % 7 else None, None if i % 3 else 1.0) for i in range(60)]
    closed = [T0 + 80_000, T0 + 60_000, T0 + 120_000, None]

    found = sorted_out(records(spark, frame_of(readings)), [hopping, fast, both, unasked], closed)

    expected: Counter[tuple[int, int, int]] = Counter()
    passes = [lambda _: True, lambda r: r[1] is not None and r[1] > 5, lambda r: r[1] is not None or r[2] is not None]
    for place, query in enumerate((hopping, fast, both)):
        for reading in filter(passes[place], readings):
            for start in range(T0 - 60_000, T0 + 180_000, query.window.slide_ms):
                end = start + query.window.size_ms
                if start <= reading[0] < end <= (closed[place] or 0):
                    expected[place, start, end] += 1
    assert told(found) == expected
    first = next(one for one in found if (one.place, one.start) == (1, T0 + 10_000))
    assert sorted(orjson.loads(one)["t"] for one in first.examples) == sorted(
        t for t, speed, _ in readings if T0 + 10_000 <= t < T0 + 20_000 and speed is not None and speed > 5
    )


def test_ten_thousand_old_readings_are_counted_in_bounded_rows(spark: SparkSession) -> None:
    """Each in a window of its own: the oldest windows are told one by one, the rest as a number."""
    query = parse(sql("s", "count(*) AS n", "window(event_time, '1 second')"))
    old = frame_of([(T0 + i * 1_000, 1.0, None) for i in range(10_000)])
    found = sorted_out(records(spark, old), [query], [T0 + 20_000_000])
    assert len(found) == WINDOWS_MAX + 1
    assert found[0] == LateWindow(0, T0, T0 + 1_000, 1, (orjson.dumps({"device": "d1", "t": T0, "speed": 1.0}).decode(),))
    assert found[-1] == LateWindow(0, None, None, 10_000 - WINDOWS_MAX)
    many = sorted_out(records(spark, old), [parse(sql("s", "count(*) AS n", "window(event_time, '1 hour')"))], [T0 + 20_000_000])
    assert sum(one.readings for one in many) == 10_000
    assert {len(one.examples) for one in many} == {EXAMPLES_MAX}


def test_what_a_frame_has_too_much_or_too_little_of_is_no_reading() -> None:
    frames = pa.table({"device": ["d"], "received_at": [T0], "t": [[T0, None, T0 + 1]], "speed": [[1.0, 2.0, 3.0, 4.0]], "load": [None]})
    (found,) = late_windows([frames], [parse(sql("s", "count(*) AS n", "window(event_time, '1 minute')"))], FIELDS, [T0 + 60_000])
    assert [orjson.loads(one) for one in found.examples] == [{"device": "d", "t": T0 + i, "speed": v} for i, v in ((0, 1.0), (1, 3.0))]


def test_a_batch_without_old_readings_needs_no_second_look(spark: SparkSession) -> None:
    assert late.late_windows([], [], FIELDS, []) == []
    frames = records(spark, frame_of([(T0, 1.0, None)]), frame_of([(T0 + 1, 1.0, None), (T0 - 5_000, 1.0, None)]))
    latest = PlanValues(spark)
    old = late.old_frames(frames, FIELDS, latest)
    for end, expected in ((T0 - 5_000, 1), (T0 - 5_001, 0), (T0, 2)):
        latest.set(0, end)
        assert old.count() == expected, "only frames with old readings are fetched"


def test_a_batch_may_come_in_parts_and_queries_with_the_same_windows_are_told_alike(spark: SparkSession) -> None:
    """The oldest windows are the same ones, and the rest is as many."""
    queries = [parse(sql("s", "count(*) AS n", "window(event_time, '1 second')")) for _ in range(2)]
    frames = records(spark, *[frame_of([(T0 + (i * 701 + j * 37) % 2_500 * 1_000, 1.0, None) for j in range(9)]) for i in range(200)])
    closed = [T0 + 20_000_000] * 2
    whole, parted = (sorted_out(frames, queries, closed, parts) for parts in (1, 3))
    assert told(whole) == told(parted)
    assert len(whole) == WINDOWS_MAX + 2
    assert [sum(one.readings for one in whole if one.place == place) for place in range(2)] == [1_800, 1_800]
