"""Devices that are slow, silent or come back: their readings count where they belong, and harm
nobody else's.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.jobs.aggregate_job import AggregateJob
from edgewake.cloud.analysis.jobs.job import Dials
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.spark.plan_values import PlanValues
from edgewake.protocol import topics
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops import result
from edgewake.protocol.ops.query import Progress
from tests.analysis.support import (
    Analysis,
    Feed,
    catch_up,
    emitted,
    late_readings,
    read,
    records,
    registered,
    results,
    sql,
    truth,
    watermarks,
    windows,
)
from tests.services import wait_until

T0 = 1_790_002_800_000
"""The beginning of an hour."""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def counts(feed: Feed, query: str, *keys: str) -> dict[tuple[Any, ...], int]:
    return {place: row["n"] for place, row in truth(results(feed.config, query), *keys).items()}


def expected(feed: Feed, size_ms: int, *keys: str) -> dict[tuple[Any, ...], int]:
    found = windows(
        feed.sent, size_ms, size_ms, lambda reading: tuple(reading[key] for key in keys), "speed"
    )
    return {place: len(values) for place, values in found.items()}


@pytest.mark.parametrize("records_max", [7, pytest.param(1000, marks=pytest.mark.long)])
def test_a_backlog_of_a_steady_and_a_fast_device_counts_as_it_would_have_live(
    analysis: Analysis, feed: Feed, records_max: int
) -> None:
    """An hour of one device, the last five minutes of another, each in a partition of its own,
    whatever the batches.
    """
    query, reopened = registered(
        *(
            sql(
                feed.name,
                "device, count(*) AS n",
                "window(event_time, '1 minute'), device",
                reopen=reopen,
            )
            for reopen in ("", "1 day")
        ),
        streams=[feed.stream],
    )
    for i in range(15):
        feed.send([T0 + i * 240_000], device="steady", partition=0, speed=[1.0])
    for i in range(25):
        feed.send([T0 + HOUR_MS - 300_000 + i * 12_000], device="fast", partition=1, speed=[1.0])
    analysis.with_config(batch_records_max=records_max).run([query, reopened], feed)
    assert counts(feed, query.query.name, "device") == expected(feed, 60_000, "device")
    assert counts(feed, reopened.query.name, "device") == expected(feed, 60_000, "device")
    assert late_readings(feed.config, query.query.name) == []


@pytest.mark.long
def test_a_week_that_a_device_sends_at_once_is_folded_into_its_windows(
    analysis: Analysis, feed: Feed
) -> None:
    """Windows of the device and windows that it shares; control: a query that opens no window again
    has them late, counted and told.
    """
    by_device, shared = "device, count(*) AS n", "count(*) AS n"
    own, all_devices, control = registered(
        sql(feed.name, by_device, "window(event_time, '1 hour'), device", reopen="8 days"),
        sql(feed.name, shared, "window(event_time, '1 hour')", reopen="8 days"),
        sql(feed.name, by_device, "window(event_time, '1 hour'), device"),
        streams=[feed.stream],
    )
    hours = range(7 * 24 * 2)
    with analysis.running([own, all_devices, control], feed) as lane:
        for day in range(7):
            for hour in hours[day * 48 : day * 48 + 48]:
                for device in ("live-1", "live-2"):
                    feed.send([T0 + hour * HOUR_MS // 2], device=device, speed=[1.0])
            catch_up(lane, feed)
        now = T0 + 7 * DAY_MS
        for at in range(0, len(hours), 50):
            feed.send(
                [T0 + hour * HOUR_MS // 2 for hour in hours[at : at + 50]],
                device="silent",
                received_at=now,
                speed=[1.0] * len(hours[at : at + 50]),
            )
        catch_up(lane, feed)
        feed.send([now], device="live-1", speed=[1.0])
        catch_up(lane, feed)
    assert counts(feed, own.query.name, "device") == expected(feed, HOUR_MS, "device")
    assert counts(feed, all_devices.query.name) == expected(feed, HOUR_MS)
    first = [
        row for row in results(feed.config, all_devices.query.name) if row["window_start"] == T0
    ]
    assert (first[-1]["n"], first[-1]["final"]) == (6, True), "opened again, and final again"
    assert [row["revision"] for row in first] == sorted({row["revision"] for row in first})
    assert late_readings(feed.config, own.query.name) == []
    late = late_readings(feed.config, control.query.name)
    counted = sum(counts(feed, control.query.name, "device").values())
    assert sum(one["readings"] for one in late) > 300
    assert counted + sum(one["readings"] for one in late) == len(feed.sent)
    assert {example["device"] for one in late for example in json.loads(one["examples"])} == {
        "silent"
    }


@pytest.mark.long
def test_the_last_windows_of_a_stream_that_falls_silent_become_final(
    analysis: Analysis, feed: Feed
) -> None:
    (query,) = registered(
        sql(feed.name, "count(*) AS n", "window(event_time, '2 seconds')", lateness="1 second"),
        streams=[feed.stream],
    )
    name = query.query.name
    with analysis.with_config(idle_s=0.5).running([query], feed) as lane:
        feed.send([T0 + 500], speed=[1.0])
        catch_up(lane, feed)
        assert watermarks(feed.config, name) in ([], [T0 - 2_000])

        def is_final() -> bool:
            lane.advance_in_silence()
            return watermarks(feed.config, name)[-1:] == [T0 + 2_000]

        wait_until(is_final, "the window is final")
        lane.advance_in_silence()
        assert watermarks(feed.config, name)[-1] == T0 + 2_000, (
            "windows with nothing in them are left open"
        )
        feed.send([T0 + 2_500], speed=[1.0])
        feed.send([T0 + 900], received_at=T0 + 2_500, speed=[1.0])
        catch_up(lane, feed)
    assert counts(feed, name) == {(T0,): 1, (T0 + 2_000,): 1}
    assert [(one["window_ends"], one["readings"]) for one in late_readings(feed.config, name)] == [
        (T0 + 2_000, 1)
    ]


def test_a_device_that_sends_old_times_without_end_keeps_no_window_open(
    analysis: Analysis, feed: Feed
) -> None:
    """It is alone in its partition, says nothing of its clock, and always has more to read."""
    (query,) = registered(
        sql(feed.name, "count(*) AS n", "window(event_time, '1 second')", lateness="1 second"),
        streams=[feed.stream],
    )
    now = time.time_ns() // 1_000_000
    for _ in range(100):
        feed.send([5_000], device="in-1970", partition=1, received_at=now + 60_000, speed=[1.0])
    for i in range(10):
        feed.send([now + i * 1_000], device="right", partition=0, speed=[1.0])
    analysis.with_config(batch_records_max=20).run([query], feed)
    rows = [
        row.value
        for row in emitted(feed.config, query.query.name)
        if result.is_watermark(row.key) and row.value["watermark"] >= now
    ]
    last = Progress.model_validate(
        [r.value for r in read(feed.config, topics.PROGRESS) if r.key == query.query.name.encode()][
            -1
        ]
    )
    assert rows[0]["revision"] < last.batch, "only when nothing was left to read"


def test_what_spark_would_forget_is_left_out_before_it_looks_for_it_in_its_state(
    spark: SparkSession,
) -> None:
    """From one batch to the next, without another plan."""
    stream = Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER)})
    queries = registered(
        sql("s", "count(*) AS n", "window(event_time, '1 minute')", lateness="0 seconds"),
        sql("s", "count(*) AS n", "window(event_time, '1 minute')", lateness="1 minute"),
        streams=[stream],
    )
    (job,) = jobs_of(queries, {"s": {"speed": FieldType.NUMBER}}).values()
    assert isinstance(job, AggregateJob)
    body = frame.encode(
        frame.Frame(1, 1, 1, [T0 + i * 60_000 for i in range(4)], {"speed": [1.0] * 4})
    )
    value = record.encode(
        device="d",
        stream="s",
        mode=record.Mode.ACK,
        sent_at=None,
        received_at=T0 + HOUR_MS,
        frame_bytes=body,
    )
    forgotten = PlanValues(spark)
    rows = job.graph(records(spark, value), 1, Dials({}, forgotten))
    for minute, left in ((0, [4, 4]), (2, [2, 3]), (5, [0, 0])):
        forgotten.set(0, T0 + minute * 60_000)
        found = Counter(rows.toArrow()["query"].to_pylist())
        assert [found[one.id] for one in queries] == left
