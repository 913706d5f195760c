"""Summaries of several streams by one job: each for itself, exactly once over restarts, and none
that holds the others up.
"""

from __future__ import annotations

import base64
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.minutes import minute_sums, set_aside
from edgewake.cloud.analysis.minutes.minute_job import MinuteJob, _Turns
from edgewake.cloud.analysis.minutes.minute_lake import latest
from edgewake.cloud.analysis.minutes.open_minutes import LATENESS_MS
from edgewake.cloud.analysis.minutes.set_aside import SetAside
from edgewake.cloud.analysis.schedule import schedule
from edgewake.cloud.summaries import gather
from edgewake.cloud.summaries.answers import presence
from edgewake.cloud.summaries.store import Reads, Store
from edgewake.cloud.summaries.summary import MINUTE_MS, Record, Series, Step, merged
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.sketches import bloom
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.count_min import CountMin
from edgewake.protocol.sketches.sketch import SketchKind
from tests.analysis.support import T0, Analysis, Feed, minutes, summed_up, summing
from tests.services import wait_until

NewFeed = Callable[[Mapping[str, FieldType]], Feed]


def readings(feed: Feed) -> dict[tuple[str, int], int]:
    """(field, begin of the minute) → readings, late ones too."""
    found: Counter[tuple[str, int]] = Counter()
    for row in minutes(feed).values():
        found[row["field"], row["start"]] += row["readings"]
    return dict(found)


@pytest.mark.long
def test_streams_have_their_own_types_and_event_times_and_a_failing_one_stops_no_other(
    analysis: Analysis, new_feed: NewFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    week_ms = 7 * 86_400_000
    live, old, bad = (
        new_feed({"speed": kind}) for kind in (FieldType.NUMBER, FieldType.STRING, FieldType.NUMBER)
    )
    live.send([T0, T0 + 1], speed=[1.5, -2e-7])
    old.send([T0 - week_ms], speed=["fast"])
    bad.send([T0], speed=[1.0])
    values = minute_sums._values

    def poisoned(columns: DataFrame) -> DataFrame:
        found = values(columns)
        return found.withColumn(
            "text",
            F.when(F.col("stream") == bad.name, F.raise_error(F.lit("boom"))).otherwise(
                F.col("text")
            ),
        )

    monkeypatch.setattr(set_aside, "SET_ASIDE_S", (1.0, 2.0))
    with summing(analysis, live, old, bad) as made:
        for feed in (live, old, bad):
            summed_up(made, feed)
        with monkeypatch.context() as poison:
            poison.setattr(minute_sums, "_values", poisoned)
            bad.send([T0 + 1], speed=[1.0])
            live.send([T0 + LATENESS_MS + 2 * MINUTE_MS, T0 + 2], speed=[1.0, 2.0])
            old.send([T0 - week_ms + 1], speed=["slow"])
            for feed in (live, old):
                summed_up(made, feed)
            wait_until(lambda: "boom" in made.left_out.get(bad.name, ""), "the bad one is found")
            live.send([T0 + 3], speed=[2.0])  # its minute is closed by what came before
            summed_up(made, live)
            assert readings(bad) == {("speed", T0): 1}
        summed_up(made, bad)
        wait_until(lambda: not made.left_out, "the bad one is back")
        made.streams = {live.name: live.types}

        def is_forgotten() -> bool:  # the batch after the one that is under way
            live.send([T0 + LATENESS_MS + 2 * MINUTE_MS], speed=[1.0])
            summed_up(made, live)
            return set(made.record.streams) == {live.name}

        wait_until(is_forgotten, "nothing is kept of a stream that the catalogue has no more")

    assert readings(live) == {
        ("speed", T0): 4,
        ("speed", T0 + LATENESS_MS + 2 * MINUTE_MS): len(live.sent) - 4,
    }
    assert readings(old) == {("speed", T0 - T0 % MINUTE_MS - week_ms): 2}
    assert readings(bad) == {("speed", T0): 2}
    of_live = {row["maker"]: row for row in minutes(live).values() if row["start"] == T0}
    assert (number := of_live.pop(""))["count"] == 3
    assert (number["min"], number["max"]) == (-2e-7, 2.0)
    assert [row["sum"] for row in of_live.values()] == [2.0]
    assert [row["count"] for row in minutes(old).values()] == [0]


@pytest.mark.long
def test_what_is_open_is_whole_after_a_restart_in_kafka_and_in_the_lake(
    analysis: Analysis, feed: Feed
) -> None:
    """The first process cannot write its lake, as if it had died before, and goes on from Kafka.

    A second one takes over while it lives.
    """
    feed.send([T0, T0 + 1], speed=[1.0, 3.0], street=["a", "b"])
    feed.send([T0], device="d2", on=[True], partition=1)
    kept: list[int] = []
    with summing(analysis, feed) as made:

        def full(_stream: str, _rows: pa.Table, revision: int) -> None:
            kept.append(revision)
            raise OSError("the disk is full")

        keep, made.keep = made.keep, full
        summed_up(made, feed)
        wait_until(lambda: len(kept) > 2, "the lake is tried again and again")
        assert len(set(kept)) == 1, "nothing was summed up twice"
        made.keep = keep
        wait_until(lambda: list(analysis.config.data_dir.rglob("*.parquet")), "the lake has it")

        with summing(analysis, feed) as other:
            wait_until(lambda: other.record.streams, "the second one knows where the first one was")

            def is_fenced() -> bool:
                feed.send([T0 + 2], speed=[5.0])
                feed.flush()
                return made.fenced is not None

            wait_until(is_fenced, "the first one ends")
            summed_up(other, feed)
    speeds = [reading["speed"] for reading in feed.sent if "speed" in reading]
    rows = {row["field"]: row for row in minutes(feed).values()}
    expected = {"speed": len(speeds), "street": 2, "on": 1}
    assert {name: row["readings"] for name, row in rows.items()} == expected
    assert (rows["speed"]["sum"], rows["speed"]["max"]) == (sum(speeds), 5.0)
    stored = latest(
        ds.dataset(analysis.config.data_dir / "lake" / "summaries", partitioning="hive").to_table()
    )
    assert {row["field"]: row["readings"] for row in stored.to_pylist()} == expected


@pytest.mark.long
def test_a_day_that_comes_late_is_summed_up_in_pieces_exactly_and_once_over_a_restart(
    analysis: Analysis, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A week at once was a gigabyte in the heap, and the end of the analysis.

    The first process dies before the lake has a part of it.
    """
    day = [T0 + i * MINUTE_MS for i in range(24 * 60)]
    now = day[-1] + 60 * MINUTE_MS
    found_in, computed, kept = minute_sums.found_in, [], []

    def counted(rows: pa.Table, declared: Mapping[tuple[str, str], Bloom]) -> minute_sums.Found:
        computed.append(rows.num_rows)
        return found_in(rows, declared)

    monkeypatch.setattr(minute_sums, "found_in", counted)
    monkeypatch.setattr("edgewake.cloud.analysis.minutes.minute_job.ROWS", 400)
    with summing(analysis, feed) as made:
        feed.send(day[::10], device="live", received_at=now, speed=[1.0] * len(day[::10]))
        feed.send([now], device="live", speed=[1.0])
        summed_up(made, feed)
        feed.send([now + 1], device="live", speed=[1.0])
        summed_up(made, feed)

        def full(_stream: str, _rows: pa.Table, revision: int) -> None:
            kept.append(revision)
            raise OSError("the disk is full")

        made.keep = full
        computed.clear()
        for at in range(0, len(day), 4):
            times = day[at : at + 4]
            feed.send(times, device="silent", received_at=now, speed=[float(t % 97) for t in times])
        feed.flush()
        wait_until(lambda: len(kept) > 1, "a part of it is in Kafka alone, also after a failure")
        assert len(set(kept)) == 1
    with summing(analysis, feed) as made:
        summed_up(made, feed)
        feed.send([now + 2], device="live", speed=[1.0])
        summed_up(made, feed)
    assert max(computed) < len(day) / 2, "not all at once"

    values = truth_of(feed)
    found = list(minutes(feed).values())
    assert {row["maker"] for row in found if row["start"] < now} >= {"", f"late:{kept[0]}"}
    assert readings(feed) == {("speed", t): len(ones) for t, ones in values.items()}
    stored = Store(tmp_path / "summaries.db")
    stored.keep([(Step.MINUTE, Record.decode(orjson.dumps(row))) for row in found], {}, now_ms=now)
    series = Series(feed.name, "speed")
    for step in Step:
        answers = Reads(tmp_path / "summaries.db").with_view(
            lambda view, step=step: gather.by_step(view, series, step, 0, 2 * now, ())  # type: ignore[misc]
        )
        expected = summed(values, step)
        assert {
            start: (one.readings, one.numbers.sum, one.numbers.min, one.numbers.max)
            for start, one in answers.items()
        } == expected
    in_lake = latest(
        ds.dataset(analysis.config.data_dir / "lake" / "summaries", partitioning="hive").to_table()
    )
    counts: Counter[int] = Counter()
    for row in in_lake.to_pylist():
        counts[row["minute"]] += row["readings"]
    assert counts == {t: len(ones) for t, ones in values.items()}


@pytest.mark.long
def test_the_minute_of_a_busy_stream_is_summed_up_in_pieces_until_it_is_calm_again(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job of a whole minute took both processors for seven seconds at 20,000 readings/s, and a
    window that ended meanwhile waited.
    """
    monkeypatch.setattr(schedule, "SUMMARY_VALUES", 50)
    clock = FakeClock(T0)
    of = analysis.with_config(summary_interval_s=60)
    made = MinuteJob(of.session, of.config, clock, random.Random(1), lambda *_: None)
    made.streams = {feed.name: feed.types}
    turns = _Turns(made, SetAside(clock, random.Random(1)))

    def turn(at_s: int, values: int) -> float:
        """In seconds after T0: when the next one is to be."""
        clock.jump(at_s - (clock.now_ms() - T0) / 1000)
        if values:
            feed.send([clock.now_ms() - i for i in range(values)], speed=[1.0] * values)
            feed.flush()
        return (turns.turn() - T0) / 1000

    try:
        assert turn(6, 0) == 66
        assert turn(66, 49) == 126, "few enough for one job"
        assert turn(126, 60) == 156
        assert turn(156, 60) == 166
        assert turn(166, 20) == 186
        assert turn(186, 0) == 246
    finally:
        turns.close()
    assert sum(readings(feed).values()) == 49 + 60 + 60 + 20


def truth_of(feed: Feed) -> dict[int, list[float]]:
    """Begin of the minute → speeds that were sent."""
    found: dict[int, list[float]] = defaultdict(list)
    for reading in feed.sent:
        found[reading["t"] // MINUTE_MS * MINUTE_MS].append(reading["speed"])
    return found


def summed(
    values: Mapping[int, list[float]], step: Step
) -> dict[int, tuple[int, float, float, float]]:
    """Start → count, sum, min, max."""
    found: dict[int, list[float]] = defaultdict(list)
    for minute, ones in values.items():
        found[step.floor(minute)] += ones
    return {start: (len(ones), sum(ones), min(ones), max(ones)) for start, ones in found.items()}


@pytest.mark.long
def test_few_texts_and_many_are_counted_alike(analysis: Analysis, feed: Feed) -> None:
    """Of few the table is made of the frequent items, of many it is Spark's."""
    few, many = ["a", "b's", "ü"], [f"line {i}" for i in range(minute_sums.EXACT_ITEMS + 1)]
    edge = many[: minute_sums.EXACT_ITEMS]
    for minute, texts in enumerate((few, edge, many)):
        texts = texts + texts[:2]
        for at in range(0, len(texts), 100):
            some = texts[at : at + 100]
            feed.send([T0 + minute * MINUTE_MS] * len(some), street=some)
    with summing(analysis, feed) as made:
        summed_up(made, feed)
    tables = {
        row["start"]: CountMin.decode(base64.b64decode(row["count_min"]))
        for row in minutes(feed).values()
    }
    assert tables == {
        T0 + i * MINUTE_MS: CountMin.of(texts + texts[:2])
        for i, texts in enumerate((few, edge, many))
    }


@pytest.mark.long
def test_of_more_texts_than_theta_holds_there_is_a_filter_and_the_hash_is_sparks(
    analysis: Analysis, feed: Feed
) -> None:
    texts = [f"line {i} ä" for i in range(5_000)]
    for at in range(0, len(texts), 100):
        feed.send([T0] * 100, street=texts[at : at + 100])
    feed.send([T0 + MINUTE_MS] * 3, street=["a", "b", "a"])
    with summing(analysis, feed) as made:
        summed_up(made, feed)
    found = {row["start"]: Record.decode(orjson.dumps(row)) for row in minutes(feed).values()}
    many, few = found[T0].summary, found[T0 + MINUTE_MS].summary
    assert many.sketch(SketchKind.BLOOM) == Bloom.of(texts)
    assert SketchKind.BLOOM not in few.sketches
    whole = merged((many, few))
    absent = [f"line {i}" for i in range(5_000)]
    assert all(one.value for one in presence(whole, [*texts[::50], "a", "b"]))
    assert sum(one.value is not False for one in presence(whole, absent)) <= 5_000 * bloom.ERROR
