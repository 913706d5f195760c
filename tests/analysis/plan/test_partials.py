"""HLL, KLL and frequent items: in queries, in the minute summaries, and read by another
implementation.
"""

from __future__ import annotations

import base64
import json
import random
import statistics
from collections import Counter
from typing import Any

import datasketches
import pyarrow.dataset as ds
import pytest

from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.minutes.minute_lake import latest
from edgewake.cloud.analysis.plan.columns import ITEM_BYTES_MAX
from edgewake.cloud.analysis.spark import grouping
from edgewake.cloud.summaries import answers
from edgewake.cloud.summaries.summary import Record, Summary, merged
from edgewake.protocol.sketches.count_min import CountMin
from edgewake.protocol.sketches.sketch import SketchKind
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    catch_up,
    minutes,
    registered,
    results,
    sql,
    summed_up,
    summing,
    truth,
)

READINGS = 20_000


def fill(feed: Feed) -> None:
    """Speeds of a skewed distribution, streets of a Zipf-like one, on two minutes."""
    rng = random.Random(7)
    for i in range(READINGS // 100):
        streets = [f"street {int(rng.paretovariate(0.7)) % 500}" for _ in range(100)]
        speeds = [round(rng.lognormvariate(3, 1), 3) for _ in range(100)]
        feed.send(
            [T0 + (i % 2) * 60_000 + j for j in range(100)],
            device=f"d{i}",
            speed=speeds,
            load=[j % 7 for j in range(100)],
            street=streets,
        )


def test_sketches_are_close_to_the_truth(analysis: Analysis, feed: Feed) -> None:
    fill(feed)
    select = (
        "count(*) AS n, approx_count_distinct(speed) AS speeds, approx_count_distinct(device) AS "
        "devices, approx_count_distinct(load) AS loads, approx_percentile(speed, 0.5) AS p50, "
        "approx_percentile(speed, 0.99) AS p99, approx_percentile(load, 0.5) AS load50, "
        "approx_top_k(street, 5) AS top, approx_top_k(load, 1) AS load_top"
    )
    (query,) = registered(
        sql(feed.name, select, "window(event_time, '1 hour')"), streams=[feed.stream]
    )

    analysis.run([query], feed)

    (row,) = truth(results(feed.config, query.query.name)).values()
    speeds = sorted(reading["speed"] for reading in feed.sent)
    assert row["n"] == READINGS
    assert abs(row["speeds"] / len(set(speeds)) - 1) <= 0.03
    assert (row["devices"], row["loads"]) == (READINGS // 100, 7)
    for rank, value in ((0.5, row["p50"]), (0.99, row["p99"])):
        assert abs(sum(speed <= value for speed in speeds) / READINGS - rank) <= 0.02
    assert row["load50"] == 3
    exact = Counter(reading["street"] for reading in feed.sent).most_common(5)
    assert [(one["item"], one["count"]) for one in row["top"]] == exact
    assert row["load_top"][0]["item"] in range(7)


def how_grouped(lane: Lane) -> str:
    """As the last batch's plan says."""
    assert lane.query is not None
    plan = str(lane.query._jsq.explainInternal(False))
    return next(name for name in ("SortAggregate", "ObjectHashAggregate") if name in plan)


@pytest.mark.long
def test_groups_of_few_readings_are_sorted_and_counted_as_ever(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "GROUPS_MIN", 1)
    select = "device, count(*) AS n, sum(speed) AS total, approx_count_distinct(load) AS loads"
    (query,) = registered(
        sql(feed.name, select, "window(event_time, '1 hour'), device"), streams=[feed.stream]
    )
    one, fifty = {"one": 2}, dict.fromkeys((f"d{i}" for i in range(50)), 2)
    grouped = []

    with analysis.running([query], feed) as lane:
        for number, devices in enumerate(
            (one, fifty, {"one": 4 * grouping.READINGS_PER_GROUP}, one)
        ):
            for device, readings in devices.items():
                feed.send(
                    [T0 + i for i in range(readings)],
                    device=device,
                    speed=[1.5] * readings,
                    load=[number, 7] * (readings // 2),
                )
            catch_up(lane, feed)
            grouped.append(how_grouped(lane))

    assert grouped == [
        "ObjectHashAggregate",
        "SortAggregate",
        "SortAggregate",
        "ObjectHashAggregate",
    ]
    last = truth(results(feed.config, query.query.name), "device").values()
    found = {row["device"]: (row["n"], row["total"], row["loads"]) for row in last}
    assert found == dict.fromkeys(fifty, (2, 3.0, 2)) | {"one": (404, 606.0, 4)}


@pytest.mark.long
def test_the_only_query_of_a_lane_goes_on_when_another_comes(
    analysis: Analysis, feed: Feed
) -> None:
    texts = [
        sql(feed.name, f"approx_count_distinct({name}) AS values", "window(event_time, '1 minute')")
        for name in ("speed", "street")
    ]
    speeds, streets = registered(*texts, streams=[feed.stream])

    for i, queries in enumerate(([speeds], [speeds, streets], [speeds])):
        feed.send([T0, T0 + 1, T0 + 2], speed=[0, -0.0, i], street=["", f"{i}", "a" * 300])
        analysis.run(queries, feed)

    assert [row["values"] for row in truth(results(feed.config, speeds.query.name)).values()] == [3]
    assert [row["values"] for row in truth(results(feed.config, streets.query.name)).values()] == [
        3
    ]


def test_minute_summaries_are_datasketches_in_kafka_and_in_parquet(
    analysis: Analysis, feed: Feed
) -> None:
    fill(feed)
    lake_dir = analysis.config.data_dir / "lake"
    with summing(analysis, feed, summary_devices={"two": ("d0", "d1")}) as made:
        summed_up(made, feed)

    rows = minutes(feed)
    sets = ("", "two")
    assert set(rows) == {
        f"{feed.name}|{field}|{devices}|{T0 + i * 60_000}|"
        for field in ("speed", "load", "street")
        for devices in sets
        for i in range(2)
    }
    assert [rows[f"{feed.name}|speed|two|{T0 + i * 60_000}|"]["count"] for i in range(2)] == [
        100,
        100,
    ], "d0 is in one minute, d1 in the other"
    speeds = sorted(reading["speed"] for reading in feed.sent)
    summaries = [rows[f"{feed.name}|speed||{T0 + i * 60_000}|"] for i in range(2)]
    assert sum(one["count"] for one in summaries) == READINGS
    assert (min(one["min"] for one in summaries), max(one["max"] for one in summaries)) == (
        speeds[0],
        speeds[-1],
    )

    union, merged = datasketches.hll_union(14), datasketches.kll_doubles_sketch(200)
    for one in summaries:
        union.update(datasketches.hll_sketch.deserialize(base64.b64decode(one["hll"])))
        merged.merge(datasketches.kll_doubles_sketch.deserialize(base64.b64decode(one["kll"])))
    assert abs(union.get_estimate() / len(set(speeds)) - 1) <= 0.03
    assert abs(sum(speed <= merged.get_quantile(0.9) for speed in speeds) / READINGS - 0.9) <= 0.02
    streets = datasketches.frequent_strings_sketch.deserialize(
        base64.b64decode(rows[f"{feed.name}|street||{T0}|"]["top"])
    )
    exact = Counter(reading["street"] for reading in feed.sent if reading["t"] < T0 + 60_000)
    found = streets.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_POSITIVES)
    assert (found[0][0], found[0][1]) == exact.most_common(1)[0]

    stored = latest(ds.dataset(lake_dir / "summaries", partitioning="hive").to_table())
    by_place = {(row["field"], row["devices"], row["minute"]): row for row in stored.to_pylist()}
    assert {place: row["count"] for place, row in by_place.items()} == {
        place_of(r): r["count"] for r in rows.values()
    }
    assert all(
        base64.b64encode(by_place[place_of(r)]["kll"]).decode() == r["kll"]
        for r in rows.values()
        if r["count"]
    )
    assert_summaries_answer_within_their_bounds(rows, feed)


def place_of(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["field"], row["devices"], row["start"]


def assert_summaries_answer_within_their_bounds(rows: dict[str, Any], feed: Feed) -> None:
    """Merged over both minutes, against what was sent."""

    def whole(field: str) -> Summary:
        return merged(
            Record.decode(json.dumps(row).encode()).summary
            for row in rows.values()
            if (row["field"], row["devices"]) == (field, "")
        )

    speeds, streets = ([reading[field] for reading in feed.sent] for field in ("speed", "street"))
    speed, street = whole("speed"), whole("street")
    assert answers.figures(speed).variance == pytest.approx(statistics.pvariance(speeds), rel=1e-9)
    distinct, few = answers.distinct(speed), answers.distinct(street)
    assert distinct is not None
    assert distinct.low <= len(set(speeds)) <= distinct.high
    assert few is not None
    assert (few.value, few.confidence) == (len(set(streets)), 1.0), "a few hundred are exact"
    for text, count in Counter(streets).items():
        found = answers.occurrences(street, text)
        assert found is not None
        assert count <= found.high
    table = street.sketch(SketchKind.COUNT_MIN)
    assert table == CountMin.of(streets), "Spark's table is what a device makes"
    sample = answers.sample(street, 64)
    assert len(sample) == 64
    assert set(sample) <= set(streets)


@pytest.mark.long
def test_different_values_of_groups_are_exact_while_few_over_restarts(
    analysis: Analysis, feed: Feed
) -> None:
    """In a lane that keeps no other sketches; what a group had before the restart merges with what
    it gets after it.
    """
    select = (
        "device, approx_count_distinct(street) AS streets, approx_count_distinct(load) AS loads, "
        "max(load) AS high"
    )
    queries = registered(
        sql(feed.name, select, "window(event_time, '1 minute'), device"), streams=[feed.stream]
    )
    for part in range(2):
        for i in range(30):
            device, first = f"d{i % 3}", 0 if i % 3 else part * 1_000 + i * 30
            streets = [f"street {first + j}" for j in range(100)]
            feed.send(
                [T0 + part * 1_000 + j for j in range(100)],
                device=device,
                street=streets,
                load=[part * 10 + j % 7 for j in range(100)],
            )
        analysis.run(queries, feed)

    found = truth(results(feed.config, queries[0].query.name), "device")
    different = {
        place: len({one["street"] for one in feed.sent if one["device"] == place[-1]})
        for place in found
    }
    assert sorted(different.values()) == [100, 100, 1_820]
    for place, row in found.items():
        assert abs(row["streets"] / different[place] - 1) <= (
            0.03 if different[place] > 1_000 else 0
        )
        assert (row["loads"], row["high"]) == (14, 16)


@pytest.mark.long
def test_long_texts_are_counted_by_their_beginning_and_a_hash(
    analysis: Analysis, feed: Feed
) -> None:
    """1200 different lines of a log in a minute: kept whole they would make a record that Kafka
    does not take.
    """
    lines = [f"{'x' * 1_700} {i}" for i in range(1_200)]
    for at in range(0, len(lines), 100):
        feed.send([T0 + at + j for j in range(100)], street=lines[at : at + 100])
    feed.send([T0 + 2_000, T0 + 2_001], street=["é" * 129, "short"])
    (query,) = registered(
        sql(
            feed.name,
            "approx_count_distinct(street) AS n, approx_top_k(street, 3) AS top",
            "window(event_time, '1 minute')",
        ),
        streams=[feed.stream],
    )
    with summing(analysis, feed) as made:
        analysis.run([query], feed)
        summed_up(made, feed)

    (summary,) = minutes(feed).values()
    assert summary["readings"] == 1_202
    assert len(json.dumps(summary)) < 1 << 20
    (row,) = truth(results(feed.config, query.query.name)).values()
    assert abs(row["n"] / 1_202 - 1) <= 0.03, "different lines stay different"
    assert all(len(one["item"].encode()) <= ITEM_BYTES_MAX for one in row["top"])


def test_a_device_counts_the_same_items_as_the_cloud(analysis: Analysis, feed: Feed) -> None:
    """A device's own HLL over the same texts adds nothing to the cloud's: same hash, same
    format.
    """
    loads = [
        1,
        2.5,
        12_345_678.9,
        0.0005,
        0.000_123_456_789_012_345_67,
        5e-5,
        1.25e-12,
        1.5e300,
        9_876_543_210_123.25,
    ]
    feed.send([T0 + i for i in range(9)], street=["a", "b's", "ü"] * 3, load=loads)
    with summing(analysis, feed) as made:
        summed_up(made, feed)
    rows = {row["field"]: row for row in minutes(feed).values()}
    for field, items in (
        ("street", ["a", "b's", "ü"]),
        ("load", ["1", *(repr(load) for load in loads[1:])]),
    ):
        union = datasketches.hll_union(14)
        union.update(datasketches.hll_sketch.deserialize(base64.b64decode(rows[field]["hll"])))
        own = datasketches.hll_sketch(14)
        for item in items:
            own.update(item)
        union.update(own)
        assert round(union.get_estimate()) == len(items)
