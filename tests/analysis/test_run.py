"""The analysis around its lanes: what is away is waited for, what is guilty is taken out, the rest
goes on; what retention deleted is said.
"""

from __future__ import annotations

import errno
import json
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamReader

from edgewake.cloud.analysis import run
from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows
from edgewake.cloud.analysis.plan import columns
from edgewake.cloud.analysis.results import finish
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    declare,
    minutes,
    read,
    register,
    remove,
    results,
    sql,
    topic_ends,
    totals,
    truth,
    unique,
)
from tests.analysis.test_process import progress, total_by_minute
from tests.services import wait_until


@pytest.fixture(autouse=True)
def _no_query_stays(kafka_config: KafkaConfig) -> Iterator[None]:
    """Every analysis runs all that is registered: what one test leaves, the next one would run
    too. The names are free again as well, or no later analysis registers a built-in query.
    """
    yield
    producer = clients.producer(kafka_config, "test-clean")
    for name in {row.key.decode() for row in read(kafka_config, topics.QUERIES)}:
        producer.produce(topics.QUERIES, None, name)
        producer.produce(topics.STREAMS, None, name)
    assert producer.flush(30) == 0


@contextmanager
def running(analysis: Analysis, *, summary_interval_s: int = 0) -> Iterator[None]:
    """The whole analysis on the tests' Spark session."""
    with started(analysis, summary_interval_s=summary_interval_s) as failed:
        yield
    assert not failed


@contextmanager
def started(analysis: Analysis, *, summary_interval_s: int = 0) -> Iterator[list[BaseException]]:
    """The same for an analysis that may end by itself: gives what it raised."""
    stop = threading.Event()
    config = analysis.with_config(summary_interval_s=summary_interval_s).config
    whole = run.Analysis(config, analysis.session, SystemClock(), random.Random(1))
    failed: list[BaseException] = []

    def target() -> None:
        try:
            whole.run(stop)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=target, name="analysis")
    thread.start()
    try:
        yield failed
    finally:
        stop.set()
        thread.join(60)
        whole.close()


def said(feed: Feed, query: str) -> list[str]:
    """Every state that was said of a query, repeats left out."""
    states = [
        row.value["state"]
        for row in read(feed.config, topics.PROGRESS)
        if row.key == query.encode()
    ]
    return [state for i, state in enumerate(states) if states[i - 1 : i] != [state]]


def test_a_query_that_spark_refuses_and_one_that_breaks_its_lane_are_taken_out_and_the_others_go_on(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both faults are put into the functions that make columns: one cannot be analysed, one throws
    while it runs, and it is the oldest.
    """
    monkeypatch.setitem(columns._FUNCTIONS, "ln", lambda _: F.col("nowhere"))
    monkeypatch.setitem(
        columns._FUNCTIONS, "exp", lambda _: F.raise_error(F.lit("boom")).cast("double")
    )
    good, refused, breaking = unique("good"), unique("refused"), unique("breaking")
    declare(feed)
    register(
        feed,
        sql(feed.name, "max(exp(speed)) AS a", "window(event_time, '1 minute')", name=breaking),
        name=breaking,
    )
    register(feed, total_by_minute(feed, good), name=good)
    register(
        feed,
        sql(feed.name, "max(ln(speed)) AS a", "window(event_time, '1 minute')", name=refused),
        name=refused,
    )
    feed.send([T0], speed=[2.0])
    feed.flush()

    with running(analysis):
        wait_until(lambda: results(feed.config, good), "the good query's result")
        wait_until(
            lambda: progress(feed.config, breaking).get("state") == "failed",
            "the breaking query is said to have failed",
        )

    assert "nowhere" in progress(feed.config, refused)["detail"]
    detail = progress(feed.config, breaking)["detail"]
    assert "boom" in detail
    assert f"ew.s.{feed.name}[" in detail, "with the place of the readings"
    assert "failed" not in said(feed, good)
    assert said(feed, good)[-1] == "running"

    before = len(read(feed.config, topics.PROGRESS))
    feed.send([T0 + 1], speed=[3.0])
    with running(analysis):
        wait_until(
            lambda: results(feed.config, good)[-1]["total"] == 5.0,
            "the good query goes on after a restart",
        )
    again = {
        row.value["state"]
        for row in read(feed.config, topics.PROGRESS)[before:]
        if row.key == breaking.encode()
    }
    assert again <= {"failed"}, (
        "what was in quarantine stays there, and nobody's lane fails for it again"
    )


@pytest.mark.long
def test_a_query_whose_results_cannot_be_finished_is_taken_out_alone(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(items: object, k: int, kind: object) -> list[dict[str, object]]:
        raise ValueError("not JSON")

    monkeypatch.setattr(finish, "top_items", fail)
    monkeypatch.setattr(run, "SUMMARY_AFTER_S", 0.0)
    guilty, one, two = unique("guilty"), unique("one"), unique("two")
    declare(feed)
    register(
        feed,
        sql(
            feed.name,
            "approx_top_k(speed, 3) AS top",
            "window(event_time, '1 minute')",
            name=guilty,
        ),
        name=guilty,
    )
    for name in (one, two):
        text = sql(
            feed.name,
            "device, approx_count_distinct(speed) AS n",
            "window(event_time, '1 minute'), device",
            name=name,
        )
        register(feed, text, name=name)
    feed.send([T0, T0 + 1], speed=[4.0, 5.0])
    feed.flush()
    with running(analysis, summary_interval_s=1):
        for name in (one, two):
            wait_until(lambda name=name: results(feed.config, name), "the others' results")  # type: ignore[misc]
        wait_until(
            lambda: progress(feed.config, guilty).get("state") == "failed",
            "the guilty one is in quarantine",
        )
        feed.send([T0 + 2], speed=[9.0])
        feed.flush()
        for name in (one, two):
            wait_until(
                lambda name=name: results(feed.config, name)[-1]["n"] == 3,  # type: ignore[misc]
                "the others go on",
            )
        wait_until(
            lambda: [row["readings"] for row in minutes(feed).values()] == [3],
            "it is summed up beside them",
        )
    assert f"ew.s.{feed.name}[" in progress(feed.config, guilty)["detail"]
    assert all("failed" not in said(feed, name) for name in (one, two))


@pytest.mark.long
def test_a_full_checkpoint_disk_is_waited_for_and_nobody_is_blamed(
    analysis: Analysis, feed: Feed, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    names = [unique(name) for name in ("old", "mid", "young")]
    declare(feed)
    for name in names:
        register(feed, total_by_minute(feed, name), name=name)
    feed.send([T0], speed=[1.0])
    feed.flush()
    ballast = disk / "ballast"
    try:
        with running(analysis.with_config(data_dir=disk)):
            for name in names:
                wait_until(
                    lambda name=name: totals(feed, name) == {(T0, "d1"): 1.0},  # type: ignore[misc]
                    "a first result",
                )
            fill(ballast)
            for turn in range(1, 4):  # more failures than any query was ever allowed
                feed.send([T0 + turn], speed=[1.0])
                feed.flush()
                for name in names:
                    wait_until(
                        lambda name=name: progress(feed.config, name)["state"] == "retrying",  # type: ignore[misc]
                        "it says that it waits",
                    )
            assert "No space left" in progress(feed.config, names[0])["detail"]
            ballast.unlink()
            for name in names:
                wait_until(
                    lambda name=name: totals(feed, name) == {(T0, "d1"): 4.0},  # type: ignore[misc]
                    "they run again by themselves",
                )
                assert progress(feed.config, name)["state"] == "running"
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    assert all("failed" not in said(feed, name) for name in names)


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with ballast.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4096)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    return
                raise


@pytest.mark.long
def test_of_two_analyses_one_ends_and_the_results_are_right(
    analysis: Analysis, feed: Feed, tmp_path: Path
) -> None:
    name = unique("twice")
    declare(feed)
    register(feed, total_by_minute(feed, name), name=name)
    feed.send([T0], speed=[1.0])
    feed.flush()
    with started(analysis) as first:
        wait_until(lambda: totals(feed, name) == {(T0, "d1"): 1.0}, "the first one computes")
        other = replace(
            analysis.with_config(data_dir=tmp_path / "other"), session=analysis.session.newSession()
        )
        with started(other) as second:

            def have_ended(count: int) -> bool:
                feed.send([T0 + len(feed.sent)], speed=[1.0])
                feed.flush()
                return len(first) + len(second) == count

            wait_until(lambda: have_ended(1), "one of them ends")
            wait_until(
                lambda: totals(feed, name) == {(T0, "d1"): float(len(feed.sent))},
                "the other one goes on",
            )
            assert len([*first, *second]) == 1
            with started(analysis if first else other) as again:
                wait_until(
                    lambda: again or have_ended(2),
                    "control: started again without leadership it takes its turn",
                )
    assert "only one may" in str([*first, *second][0])
    assert "failed" not in said(feed, name)


def delete_first_records(feed: Feed) -> None:
    """What retention does, at once: only the last record of each partition stays."""
    topic = topics.stream_topic(feed.name)
    gone = [
        TopicPartition(topic, partition, end - 1)
        for partition, end in topic_ends(feed.config, topic).items()
        if end > 1
    ]
    client = clients.admin(feed.config)
    for future in client.delete_records(gone).values():
        future.result(30)


@pytest.mark.long
def test_readings_that_retention_took_before_they_were_computed_are_said_and_the_rest_is_computed(
    analysis: Analysis, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    name = unique("overtaken")
    declare(feed)
    register(feed, total_by_minute(feed, name), name=name)
    feed.send([T0], speed=[1.0])
    with running(analysis):
        wait_until(lambda: results(feed.config, name), "the first result")
    for i in range(5):
        feed.send([T0 + i], speed=[1.0])
    feed.flush()
    delete_first_records(feed)

    with running(analysis):
        wait_until(lambda: len(results(feed.config, name)) > 1, "what is left is computed")

    last = results(feed.config, name)[-1]
    assert (last["total"], last["complete"]) == (1.0, False)
    assert "retention deleted readings before they were computed" in caplog.text
    assert "retrying" in said(feed, name)


def test_a_source_that_goes_on_over_what_retention_took_says_nothing(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control of the one before."""
    name = unique("silent")
    declare(feed)
    register(feed, total_by_minute(feed, name), name=name)
    feed.send([T0], speed=[1.0])
    with running(analysis):
        wait_until(lambda: results(feed.config, name), "the first result")
    for i in range(5):
        feed.send([T0 + i], speed=[1.0])
    feed.flush()
    delete_first_records(feed)
    option = DataStreamReader.option
    monkeypatch.setattr(
        DataStreamReader,
        "option",
        lambda reader, key, value: option(
            reader, key, "false" if key == "failOnDataLoss" else value
        ),
    )
    with running(analysis):
        wait_until(lambda: len(results(feed.config, name)) > 1, "what is left is computed")
    last = results(feed.config, name)[-1]
    assert last["total"] < len(feed.sent)
    assert "complete" not in last


@pytest.mark.long
def test_a_query_on_a_stream_whose_last_one_was_removed_long_ago_begins_with_what_is_kept(
    analysis: Analysis, feed: Feed
) -> None:
    old, new = unique("old"), unique("new")
    declare(feed)
    register(feed, total_by_minute(feed, old), name=old)
    feed.send([T0], speed=[1.0])
    checkpoint = analysis.config.data_dir / "checkpoints" / feed.name / "plain"
    with running(analysis):
        wait_until(lambda: results(feed.config, old), "the first result")
        remove(feed, old)
        wait_until(lambda: not checkpoint.exists(), "its state is removed with it")
        for i in range(5):
            feed.send([T0 + i], speed=[1.0])
        feed.flush()
        delete_first_records(feed)
        register(feed, total_by_minute(feed, new), name=new)
        wait_until(lambda: results(feed.config, new), "the new one computes what is kept")
    assert [(row["total"], row["complete"]) for row in results(feed.config, new)] == [(1.0, False)]
    assert "failed" not in said(feed, new)


def set_paused(feed: Feed, name: str, *, paused: bool) -> None:
    """Pause or resume a query, as the operations API does."""
    (registration,) = [
        row.value for row in read(feed.config, topics.QUERIES)[::-1] if row.key == name.encode()
    ][:1]
    feed.producer.produce(
        topics.QUERIES, json.dumps(registration | {"paused": paused}).encode(), name
    )
    feed.flush()


@pytest.mark.long
def test_a_session_goes_on_after_a_pause_and_leaves_nothing_when_its_query_is_removed(
    analysis: Analysis, feed: Feed
) -> None:
    """Its row says that it lacks what was sent meanwhile; the other query of the lane lacks
    nothing.
    """
    names = paused, other = unique("paused"), unique("other")
    declare(feed)
    for name in names:
        group = "session_window(event_time, '1 hour'), device"
        register(feed, sql(feed.name, "device, count(*) AS n", group, name=name), name=name)

    def row(name: str) -> tuple[int, int, bool]:
        (found,) = truth(results(feed.config, name), "device").values()
        return found["window_start"], found["n"], found.get("complete", True)

    def send(turn: int, *queries: str) -> None:
        feed.send([T0 + turn], speed=[1.0])
        feed.flush()
        for query in queries:
            wait_until(
                lambda query=query: results(feed.config, query)[-1]["n"] >= turn,  # type: ignore[misc]
                f"{query} has it",
            )

    with running(analysis):
        wait_until(lambda: progress(feed.config, paused).get("state") == "running", "it runs")
        feed.send([T0], speed=[1.0])
        feed.flush()
        wait_until(lambda: all(results(feed.config, name) for name in names), "the first results")
        set_paused(feed, paused, paused=True)
        wait_until(lambda: progress(feed.config, paused)["state"] == "paused", "it is paused")
        send(2, other)
        set_paused(feed, paused, paused=False)
        wait_until(lambda: progress(feed.config, paused)["state"] == "running", "it runs again")
        send(3, other)
        wait_until(lambda: row(paused)[1] == 2, "it goes on with what it had")
        assert (row(paused), row(other)) == ((T0, 2, False), (T0, 3, True))
        assert len(kept_rows(feed.config, feed.name)) == 2
        for name in names:
            remove(feed, name)
        wait_until(lambda: not kept_rows(feed.config, feed.name), "nothing of them is kept")
