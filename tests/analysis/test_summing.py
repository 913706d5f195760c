"""Summaries of several streams by one job: each for itself, exactly once over restarts, and none that holds the others up."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis import piece_size, set_aside, summaries
from edgewake.cloud.analysis.lake import latest
from edgewake.cloud.analysis.open_minutes import LATENESS_MS
from edgewake.cloud.summaries.summary import MINUTE_MS
from edgewake.protocol.count_min import CountMin
from edgewake.protocol.field_type import FieldType
from tests.analysis.support import T0, Analysis, Feed, minutes, summed_up, summing
from tests.services import wait_until

NewFeed = Callable[[Mapping[str, FieldType]], Feed]


def readings(feed: Feed) -> dict[tuple[str, int], int]:
    """(field, begin of the minute) → readings."""
    return {(row["field"], row["start"]): row["readings"] for row in minutes(feed).values()}


def test_streams_have_types_and_event_times_of_their_own_and_one_that_cannot_be_computed_stops_no_other(
    analysis: Analysis, new_feed: NewFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    week_ms = 7 * 86_400_000
    live, old, bad = (new_feed({"speed": kind}) for kind in (FieldType.NUMBER, FieldType.STRING, FieldType.NUMBER))
    live.send([T0, T0 + 1], speed=[1.5, -2e-7])
    old.send([T0 - week_ms], speed=["fast"])
    bad.send([T0], speed=[1.0])
    values = summaries._values

    def poisoned(columns: DataFrame) -> DataFrame:
        found = values(columns)
        return found.withColumn("text", F.when(F.col("stream") == bad.name, F.raise_error(F.lit("boom"))).otherwise(F.col("text")))

    monkeypatch.setattr(set_aside, "SET_ASIDE_S", (1.0, 2.0))
    with summing(analysis, live, old, bad) as made:
        for feed in (live, old, bad):
            summed_up(made, feed)
        with monkeypatch.context() as poison:
            poison.setattr(summaries, "_values", poisoned)
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
        live.send([T0 + LATENESS_MS + 2 * MINUTE_MS], speed=[1.0])
        summed_up(made, live)
        assert set(made.record.streams) == {live.name}, "nothing is kept of a stream that the catalogue has no more"

    assert readings(live) == {("speed", T0): 3, ("speed", T0 + LATENESS_MS + 2 * MINUTE_MS): 2}
    assert readings(old) == {("speed", T0 - T0 % MINUTE_MS - week_ms): 2}
    assert readings(bad) == {("speed", T0): 2}
    (number,) = [row for row in minutes(live).values() if row["start"] == T0]
    assert (number["count"], number["min"], number["max"]) == (3, -2e-7, 2.0)
    assert [row["count"] for row in minutes(old).values()] == [0]


def test_what_is_open_is_whole_after_a_restart_in_kafka_and_in_the_lake(analysis: Analysis, feed: Feed) -> None:
    """The first process cannot write its lake, as if it had died before, and goes on from Kafka. A second one takes over while it lives."""
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
    stored = latest(ds.dataset(analysis.config.data_dir / "lake" / "summaries", partitioning="hive").to_table())
    assert {row["field"]: row["readings"] for row in stored.to_pylist()} == expected


def test_a_day_that_comes_late_costs_no_summary_and_one_that_is_read_first_is_summed_up_in_pieces(
    analysis: Analysis, new_feed: NewFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A week was a gigabyte in the heap, and the end of the analysis. Control: without the filter the late minutes are computed, too."""
    day = [T0 + i * MINUTE_MS for i in range(24 * 60)]
    now = day[-1] + 60 * MINUTE_MS
    found_in, computed = summaries.found_in, []

    def counted(rows: pa.Table) -> summaries.Found:
        computed.append(rows.num_rows)
        return found_in(rows)

    monkeypatch.setattr(summaries, "found_in", counted)
    monkeypatch.setattr(piece_size, "ROWS", 400)
    late, control, old = (new_feed({"speed": FieldType.NUMBER}) for _ in range(3))

    def send_day(feed: Feed) -> None:
        for at in range(0, len(day), 10):
            times = day[at : at + 10]
            feed.send(times, device="silent", received_at=now, speed=[float(t % 97) for t in times])

    with summing(analysis, late, control, old) as made:
        for feed in (late, control):
            for t in (now, now + 1):
                feed.send([t], device="live", speed=[1.0])
                summed_up(made, feed)
        computed.clear()
        send_day(late)
        summed_up(made, late)
        assert max(computed) < 10
        with monkeypatch.context() as patch:
            patch.setattr(summaries, "_open", lambda values, _closed: values)
            send_day(control)
            summed_up(made, control)
            assert sum(computed) > len(day)
        computed.clear()
        send_day(old)
        summed_up(made, old)
        assert max(computed) < len(day) / 2, "not all at once"
    assert set(readings(late)) == set(readings(control)) == {("speed", now)}
    assert readings(old) == {("speed", t): 1 for t in day}


def test_few_texts_and_many_are_counted_alike(analysis: Analysis, feed: Feed) -> None:
    """Of few the table is made of the frequent items, of many it is Spark's."""
    few, many = ["a", "b's", "ü"], [f"line {i}" for i in range(summaries.EXACT_ITEMS + 1)]
    edge = many[: summaries.EXACT_ITEMS]
    for minute, texts in enumerate((few, edge, many)):
        texts = texts + texts[:2]
        for at in range(0, len(texts), 100):
            some = texts[at : at + 100]
            feed.send([T0 + minute * MINUTE_MS] * len(some), street=some)
    with summing(analysis, feed) as made:
        summed_up(made, feed)
    tables = {row["start"]: CountMin.decode(base64.b64decode(row["count_min"])) for row in minutes(feed).values()}
    assert tables == {T0 + i * MINUTE_MS: CountMin.of(texts + texts[:2]) for i, texts in enumerate((few, edge, many))}
