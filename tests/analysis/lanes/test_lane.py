"""A lane on real Kafka and Spark: windows, revisions, finality, late readings, changed sets of
queries.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.readwriter import DataStreamReader

from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.kafka import topic_admin
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.stream import FieldInfo
from edgewake.protocol.ops.query import Progress
from tests.analysis.support import (
    BOTH_STORES,
    T0,
    Analysis,
    Feed,
    catch_up,
    late_readings,
    read,
    registered,
    results,
    sql,
    truth,
    unique,
    watermarks,
    windows,
)
from tests.services import wait_until

MINUTE = "window(event_time, '1 minute'), device"
SUMS = (
    "device, count(speed) AS n, sum(speed) AS total, min(speed) AS low, max(speed) AS high, "
    "avg(speed) AS mean, count(*) AS readings"
)


def totals(feed: Feed, query: str, *keys: str) -> dict[tuple[object, ...], float]:
    return {place: row["total"] for place, row in truth(results(feed.config, query), *keys).items()}


def by_device(reading: object) -> tuple[object, ...]:
    return (reading["device"],)  # type: ignore[index]


def send_at(feed: Feed, *times: int, device: str = "d1", **more: Any) -> None:
    feed.send(times, device=device, speed=[1.0] * len(times), **more)


def progress_of(feed: Feed, query: str) -> Progress:
    told = [row.value for row in read(feed.config, topics.PROGRESS) if row.key == query.encode()]
    return Progress.model_validate(told[-1])


def late_of(feed: Feed, query: str) -> int:
    return progress_of(feed, query).late


@BOTH_STORES
def test_window_sums_equal_those_of_an_independent_oracle(analysis: Analysis, feed: Feed) -> None:
    for i in range(40):
        feed.send(
            [T0 + i * 7_000 + j * 10 for j in range(25)],
            device=f"d{i % 3}",
            speed=[None if j == 3 else i + j for j in range(25)],
        )
    (query,) = registered(sql(feed.name, SUMS, MINUTE), streams=[feed.stream])

    analysis.run([query], feed)

    found = truth(results(feed.config, query.query.name), "device")
    expected = windows(feed.sent, 60_000, 60_000, by_device, "speed")
    assert {
        place: (row["n"], row["total"], row["low"], row["high"]) for place, row in found.items()
    } == {place: (len(v), sum(v), min(v), max(v)) for place, v in expected.items()}
    assert all(
        row["mean"] == row["total"] / row["n"] and row["readings"] > row["n"]
        for row in found.values()
    )


@pytest.mark.long
def test_a_batch_with_one_partition_of_state_is_one_task_without_a_shuffle(
    analysis: Analysis, feed: Feed
) -> None:
    send_at(feed, T0)
    queries = registered(
        *(
            sql(feed.name, select, MINUTE)
            for select in (f"{SUMS}", "device, approx_count_distinct(street) AS streets")
        ),
        streams=[feed.stream],
    )
    for query in queries:
        with analysis.running([query], feed) as lane:
            assert lane.query is not None
            plan = lane.query._jsq.explainInternal(False)

            assert "StateStoreSave" in plan
            assert "Exchange" not in plan


def test_queries_of_all_shapes_share_one_spark_query(analysis: Analysis, feed: Feed) -> None:
    """Hopping windows, UNPIVOT, filters, expressions as keys and more aggregates than a tag has
    slots, side by side.
    """
    for i in range(30):
        columns: dict[str, Any] = {
            "speed": [i, None, 100 - i],
            "load": [None, i / 2, i],
            "street": ["a", "b's\\\"", None],
            "on": [True, False, None],
        }
        feed.send([T0 + i * 5_000 + j * 1_000 for j in range(3)], device=f"d{i % 2}", **columns)
    hopping = sql(
        feed.name,
        "device, sum(speed) AS total",
        "window(event_time, '1 minute', '20 seconds'), device",
        name=unique("hop"),
    )
    unpivot = sql(
        f"{feed.name} UNPIVOT (value FOR metric IN (speed, load))",
        "metric, sum(value) AS total",
        "window(event_time, '30 seconds'), metric",
    )
    filtered = sql(
        feed.name,
        "street, floor(speed / 10) AS tens, sum(speed) AS total",
        "window(event_time, '1 hour'), street, tens",
        where="WHERE speed >= 50 AND NOT (street = 'nowhere') AND `on` IS NOT NULL",
    )
    wide = sql(
        feed.name,
        "sum(speed) AS a, sum(load) AS b, max(speed + load) AS c, count(street) AS d, count(`on`) "
        "AS e",
        "window(event_time, '1 hour')",
    )
    queries = registered(hopping, unpivot, filtered, wide, streams=[feed.stream])
    names = [each.query.name for each in queries]

    analysis.run(queries, feed)

    assert totals(feed, names[0], "device") == {
        k: sum(v) for k, v in windows(feed.sent, 60_000, 20_000, by_device, "speed").items()
    }
    flat = [
        {"t": r["t"], "metric": m, "value": r[m]}
        for r in feed.sent
        for m in ("speed", "load")
        if m in r
    ]
    expected = windows(flat, 30_000, 30_000, lambda r: (r["metric"],), "value")
    assert totals(feed, names[1], "metric") == {k: sum(v) for k, v in expected.items()}
    fast = [r for r in feed.sent if r.get("speed", 0) >= 50 and "street" in r and "on" in r]
    expected = windows(
        fast, 3_600_000, 3_600_000, lambda r: (r["street"], r["speed"] // 10), "speed"
    )
    assert totals(feed, names[2], "street", "tens") == {k: sum(v) for k, v in expected.items()}
    (row,) = truth(results(feed.config, names[3])).values()
    both = [r["speed"] + r["load"] for r in feed.sent if "speed" in r and "load" in r]
    assert (row["a"], row["b"]) == (
        sum(r.get("speed", 0) for r in feed.sent),
        sum(r.get("load", 0) for r in feed.sent),
    )
    assert (row["c"], row["d"], row["e"]) == (max(both), 60, 60)


@BOTH_STORES
def test_a_late_reading_inside_the_lateness_corrects_its_window_and_a_later_one_is_counted(
    analysis: Analysis, feed: Feed
) -> None:
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", MINUTE), streams=[feed.stream]
    )
    name = query.query.name
    send_at(feed, T0 + 1_000)
    with analysis.running([query], feed) as lane:
        send_at(feed, T0 + 80_000)  # 20 s after the first window's end: not final yet
        catch_up(lane, feed)
        send_at(feed, T0 + 2_000, received_at=T0 + 80_000)
        catch_up(lane, feed)
        send_at(feed, T0 + 200_000)  # now it is final
        catch_up(lane, feed)
        send_at(feed, T0 + 3_000, T0 + 4_000, T0 + 201_000, received_at=T0 + 201_000)
        catch_up(lane, feed)
        # Spark has evicted the window meanwhile.
        send_at(feed, T0 + 5_000, received_at=T0 + 202_000)
        catch_up(lane, feed)

    first = [row for row in results(feed.config, name) if row["window_start"] == T0]
    assert [row["total"] for row in first] == [1.0, 2.0]
    assert first[0]["revision"] < first[1]["revision"]
    assert totals(feed, name)[(T0 + 180_000,)] == 2.0
    assert watermarks(feed.config, name)[-1] == T0 + 120_000
    assert [(one["window_ends"], one["readings"]) for one in late_readings(feed.config, name)] == [
        (T0 + 60_000, 2),
        (T0 + 60_000, 1),
    ]
    assert late_of(feed, name) == 3


@BOTH_STORES
def test_queries_come_and_go_over_one_checkpoint_and_say_where_they_lack_readings(
    analysis: Analysis, feed: Feed
) -> None:
    """One is away in the third turn, as if it were paused; the other joins in the second."""
    select = "device, sum(speed) AS total"
    one, two = registered(
        *(sql(feed.name, select, "window(event_time, '1 hour'), device") for _ in range(2)),
        streams=[feed.stream],
    )
    now = SystemClock().now_ms()
    later = now - now % 3_600_000 + 2 * 3_600_000
    for turn, queries in enumerate(([one], [one, two], [two], [one, two])):
        send_at(feed, T0 + turn * 1_000)
        analysis.run(queries, feed)
    send_at(feed, later)
    analysis.run([one, two], feed)
    for query, totals_of_hour in ((one, [1.0, 2.0, 3.0]), (two, [1.0, 2.0, 3.0])):
        rows = results(feed.config, query.query.name)
        assert [row["total"] for row in rows if row["window_start"] != later] == totals_of_hour
        (whole,) = [row for row in rows if row["window_start"] == later]
        assert "complete" not in whole, "this window began when both were there"
    assert ["complete" in row for row in results(feed.config, one.query.name)] == [
        False,
        False,
        True,
        False,
    ]
    assert ["complete" in row for row in results(feed.config, two.query.name)] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.long
def test_queries_of_all_shapes_can_join_any_other(analysis: Analysis, feed: Feed) -> None:
    """Without a key or WHERE nothing of a tag can be null, with them it can: the state's schema
    must be the same.
    """
    bare, keyed, filtered = registered(
        sql(feed.name, "sum(speed) AS total", "window(event_time, '1 hour')"),
        sql(feed.name, "device, sum(speed) AS total", "window(event_time, '1 hour'), device"),
        sql(
            feed.name,
            "device, sum(speed) AS total",
            "window(event_time, '1 hour'), device",
            where="WHERE speed > 0",
        ),
        streams=[feed.stream],
    )
    for turn, queries in enumerate(([bare], [bare, keyed], [filtered, bare], [bare])):
        send_at(feed, T0 + turn * 1_000)
        analysis.run(queries, feed)
    assert [list(totals(feed, each.query.name).values()) for each in (bare, keyed, filtered)] == [
        [4.0],
        [1.0],
        [1.0],
    ]


@pytest.mark.long
def test_a_query_registered_anew_does_not_inherit_the_state_of_its_name(
    analysis: Analysis, feed: Feed
) -> None:
    text = sql(
        feed.name,
        "device, sum(speed) AS total",
        "window(event_time, '1 hour'), device",
        name=unique("again"),
    )
    for at in (1, 2):
        (query,) = registered(text, streams=[feed.stream], at=at)
        send_at(feed, T0 + at * 1_000)
        analysis.run([query], feed)
    assert [row["total"] for row in results(feed.config, query.query.name)] == [1.0], (
        "the newest registration has a topic of its own"
    )


def test_a_new_field_joins_without_losing_state(analysis: Analysis, feed: Feed) -> None:
    (old,) = registered(
        sql(feed.name, "device, sum(speed) AS total", "window(event_time, '1 hour'), device"),
        streams=[feed.stream],
    )
    send_at(feed, T0)
    analysis.run([old], feed)
    feed.types = {**feed.types, "extra": feed.types["speed"]}
    wide = feed.stream.model_copy(
        update={"fields": {**feed.stream.fields, "extra": FieldInfo(type=feed.types["speed"])}}
    )
    (new,) = registered(
        sql(feed.name, "device, sum(extra) AS total", "window(event_time, '1 hour'), device"),
        streams=[wide],
        at=5,
    )
    feed.send([T0 + 1], speed=[1.0], extra=[7.0])
    analysis.run([old, new], feed)
    assert list(totals(feed, old.query.name).values()) == [2.0]
    assert list(totals(feed, new.query.name).values()) == [7.0]


def test_a_deleted_checkpoint_is_computed_anew_and_says_only_what_is_new(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", MINUTE), streams=[feed.stream]
    )
    name = query.query.name
    send_at(feed, T0 + 1_000, T0 + 2_000)
    with analysis.running([query], feed) as lane:
        send_at(feed, T0 + 100_000)  # the first window is final
        catch_up(lane, feed)
    before = results(feed.config, name)
    shutil.rmtree(analysis.config.data_dir / "checkpoints")

    with analysis.running([query], feed) as lane:
        wait_until(lambda: lane.finished, "the first batch of the new checkpoint")
        assert results(feed.config, name) == before, "all of it was emitted by the lost checkpoint"
        send_at(feed, T0 + 101_000)
        catch_up(lane, feed)

    again = results(feed.config, name)[len(before) :]
    assert [(row["window_start"], row["total"]) for row in again] == [(T0 + 60_000, 2.0)], (
        "with what was computed before"
    )
    assert min(row["revision"] for row in again) > max(row["revision"] for row in before)
    assert late_of(feed, name) == 0

    shutil.rmtree(analysis.config.data_dir / "checkpoints")
    option = DataStreamReader.option
    from_latest = {"startingOffsets": "latest"}
    monkeypatch.setattr(
        DataStreamReader,
        "option",
        lambda self, name, value: option(self, name, from_latest.get(name, value)),
    )
    lane = analysis.lane([query], [feed.stream])
    lane.start()
    try:
        wait_until(
            lambda: any((lane.checkpoint / "offsets").glob("[0-9]*")),
            "it is decided from where on it reads",
        )
        send_at(feed, T0 + 102_000)
        catch_up(lane, feed)
    finally:
        lane.stop()
    lost = results(feed.config, name)[-1]
    assert (lost["window_start"], lost["total"]) == (T0 + 60_000, 1.0), (
        "control: from the latest on a window of three readings has one"
    )


def test_gaps_and_foreign_bytes_are_no_readings(analysis: Analysis, feed: Feed) -> None:
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total, count(*) AS readings", MINUTE),
        streams=[feed.stream],
    )
    send_at(feed, T0)
    gap = frame.encode(frame.Frame(1, 2, 2, (), {}, gap=frame.Gap("quota", 5), first_frame=2))
    feed.raw(
        record.encode(
            device="d1",
            stream=feed.name,
            mode=record.Mode.ACK,
            sent_at=None,
            received_at=T0,
            frame_bytes=gap,
        )
    )
    for garbage in (
        b"",
        b"\xff\x00",
        b"null",
        b'{"t":7}',
        b'{"device":"d1","t":["x"],"fields":{}}',
        b'{"t":[]}',
    ):
        feed.raw(garbage)
    send_at(feed, T0 + 1)

    analysis.run([query], feed)

    assert [
        (row["total"], row["readings"])
        for row in truth(results(feed.config, query.query.name)).values()
    ][-1:] == [(2.0, 2)]


@pytest.mark.long
def test_what_is_no_number_counts_as_nothing(analysis: Analysis, feed: Feed) -> None:
    """The root of -1 and what overflows: NaN in a maximum is the maximum, and no frequent item
    could be told.
    """
    select = (
        "max(sqrt(speed)) AS high, sum(sqrt(speed)) AS total, count(sqrt(speed)) AS n, "
        "approx_top_k(sqrt(speed), 3) AS top,"
        " max(exp(speed * 1000)) AS huge, min(pow(speed, 0.5)) AS low, max(speed * 1e308) AS over"
    )
    (query,) = registered(
        sql(feed.name, select, "window(event_time, '1 minute')"), streams=[feed.stream]
    )
    feed.send([T0, T0 + 1, T0 + 2], speed=[4.0, -1.0, 9.0])
    analysis.run([query], feed)
    (row,) = truth(results(feed.config, query.query.name)).values()
    assert (row["high"], row["total"], row["n"], row["huge"], row["low"], row["over"]) == (
        3.0,
        5.0,
        2,
        0.0,
        2.0,
        -1e308,
    )
    assert row["top"] == [{"item": 2.0, "count": 1}, {"item": 3.0, "count": 1}]


def test_a_row_that_is_too_large_becomes_a_dead_letter_and_the_others_go_on(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit, "OUTPUT_BYTES_MAX", 1_000)
    (query,) = registered(
        sql(feed.name, "street, sum(speed) AS total", "window(event_time, '1 minute'), street"),
        streams=[feed.stream],
    )
    topic_admin.ensure_topics(feed.config, [topics.DEAD])
    feed.send([T0, T0 + 1], speed=[1.0, 2.0], street=["short", "x" * 2_000])

    analysis.run([query], feed)

    assert totals(feed, query.query.name, "street") == {(T0, "short"): 1.0}
    (letter,) = read(feed.config, topics.DEAD, about=query.topic)
    assert letter.value["total"] == 2.0


def test_a_wrong_clock_harms_only_its_own_device(analysis: Analysis, feed: Feed) -> None:
    """One clock is an hour ahead and says so, one claims 2099 and says nothing, one is right:
    nobody else's readings become late.
    """
    hour, year_2099 = 3_600_000, 4_070_908_800_000
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", MINUTE), streams=[feed.stream]
    )
    turns: Sequence[int] = range(4)
    for device, ahead, says in (("ahead", hour, True), ("lost", year_2099 - T0, False)):
        send_at(
            feed,
            T0 + ahead,
            device=device,
            received_at=T0 + 50,
            **({"sent_at": T0 + ahead + 20} if says else {}),
        )
    with analysis.running([query], feed) as lane:
        for turn in turns:
            send_at(feed, T0 + turn * 1_000, device="right")
            send_at(
                feed,
                T0 + hour + turn * 1_000,
                device="ahead",
                sent_at=T0 + hour + turn * 1_000,
                received_at=T0 + turn * 1_000,
            )
            catch_up(lane, feed)

    found = totals(feed, query.query.name, "device")
    assert found[(T0, "right")] == 4.0
    assert found[(T0, "ahead")] == 5.0
    assert found[(T0 + 300_000, "lost")] == 1.0
    assert late_of(feed, query.query.name) == 0


@BOTH_STORES
def test_state_of_final_windows_is_evicted(analysis: Analysis, feed: Feed) -> None:
    (query,) = registered(
        sql(feed.name, "device, sum(speed) AS total", "window(event_time, '1 second'), device"),
        streams=[feed.stream],
    )
    send_at(feed, *range(T0, T0 + 20_000, 1_000))
    with analysis.running([query], feed) as lane:
        full = state_rows(lane)
        send_at(feed, T0 + 100_000)
        catch_up(lane, feed)
        told = progress_of(feed, query.query.name)  # as of the batch before
        assert told.state_rows in {full, None}  # RocksDB does not count them
        assert told.state_bytes is not None
        assert told.state_bytes > 0
        send_at(feed, T0 + 101_000)
        catch_up(lane, feed)
        assert full == 20
        assert state_rows(lane) <= 2


def state_rows(lane: Lane) -> int:
    """After the last batch, of which Spark tells a moment after we have committed it."""
    wait_until(
        lambda: (
            lane.query is not None
            and lane.query.lastProgress is not None
            and lane.query.lastProgress.batchId >= lane._batch
        ),
        "progress of the last batch",
    )
    return int(lane.session.read.format("statestore").load(str(lane.checkpoint)).count())
