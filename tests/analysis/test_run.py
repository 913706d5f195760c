"""The analysis around its lanes: what fails is taken out, the rest goes on; what retention took is said."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis import columns, run
from edgewake.cloud.kafka import clients
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from tests.analysis.support import T0, Analysis, Feed, results, sql, topic_ends, unique
from tests.analysis.test_process import declare, progress, register, total_by_minute
from tests.services import wait_until


@contextmanager
def running(analysis: Analysis) -> Iterator[None]:
    """The whole analysis on the tests' Spark session."""
    stop = threading.Event()
    whole = run.Analysis(analysis.with_config(summary_interval_s=0).config, analysis.session, SystemClock(), random.Random(1))
    failed: list[BaseException] = []

    def target() -> None:
        try:
            whole.run(stop)
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=target, name="analysis")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        whole.close()
    assert not failed


def test_a_query_that_spark_refuses_and_one_that_breaks_its_lane_are_taken_out_and_the_others_go_on(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both faults are put into the functions that make columns: one cannot be analysed, one throws while it runs."""
    monkeypatch.setitem(columns._FUNCTIONS, "ln", lambda _: F.col("nowhere"))  # type: ignore[arg-type]
    monkeypatch.setitem(columns._FUNCTIONS, "exp", lambda _: F.raise_error(F.lit("boom")).cast("double"))  # type: ignore[arg-type]
    monkeypatch.setattr(run, "FAILURES_MAX", 1)
    good, refused, breaking = unique("good"), unique("refused"), unique("breaking")
    declare(feed)
    register(feed, total_by_minute(feed, good), name=good)
    register(feed, sql(feed.name, "max(ln(speed)) AS a", "window(event_time, '1 minute')", name=refused), name=refused)
    register(feed, sql(feed.name, "max(exp(speed)) AS a", "window(event_time, '1 minute')", name=breaking), name=breaking)
    feed.send([T0], speed=[2.0])
    feed.flush()

    with running(analysis):
        wait_until(lambda: results(feed.config, good), "the good query's result", timeout_s=120)
        wait_until(lambda: progress(feed.config, breaking).get("state") == "failed", "the breaking query is said to have failed")

    assert "nowhere" in progress(feed.config, refused)["detail"]
    assert "boom" in progress(feed.config, breaking)["detail"]
    assert progress(feed.config, good)["state"] == "running"


def test_readings_that_retention_took_before_they_were_computed_stop_the_lane_loudly(analysis: Analysis, feed: Feed) -> None:
    name = unique("overtaken")
    declare(feed)
    register(feed, total_by_minute(feed, name), name=name)
    feed.send([T0], speed=[1.0])
    with running(analysis):
        wait_until(lambda: results(feed.config, name), "the first result", timeout_s=120)
    for i in range(5):
        feed.send([T0 + i], speed=[1.0])
    feed.flush()
    topic = topics.stream_topic(feed.name)
    ends = topic_ends(feed.config, topic)
    gone = [TopicPartition(topic, partition, end - 1) for partition, end in ends.items() if end > 2]
    client = clients.admin(feed.config)
    for future in client.delete_records(gone).values():
        future.result(30)

    with running(analysis):
        wait_until(lambda: progress(feed.config, name).get("state") == "failed", "the loss is said", timeout_s=120)

    assert "retention took readings" in progress(feed.config, name)["detail"]
