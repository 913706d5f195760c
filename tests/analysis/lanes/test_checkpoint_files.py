"""A lane's checkpoint stays small however long it runs: snapshots replace the changes of batches,
and the oldest batches are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.support import T0, Analysis, Feed, registered, results, sql, truth
from tests.services import wait_until

UNFORGOTTEN, BATCHES = 30, 12
"""Batches of which all files are kept, and those after them: Spark makes a snapshot after ten, and
keeps the files of the newest ten."""
PLAN_CLASSES_MAX = 35
"""Classes that Spark compiles for the plan of the lane, once in a session."""
FILES_MAX = 85
"""Of a lane with one partition, whatever its age: 11 batches with a file each in two logs, the
changes of up to 40 (of 10, back to the snapshot before them, and what came since the last turn of
maintenance), a few snapshots with their tables, six that are always there."""
RETAINED = "spark.sql.streaming.minBatchesToRetain"


def _files(checkpoint: Path, suffix: str = "") -> int:
    return sum(1 for path in checkpoint.rglob("*") if path.is_file() and path.name.endswith(suffix))


@contextmanager
def _retaining(session: SparkSession, batches: int) -> Iterator[None]:
    before = session.conf.get(RETAINED)
    session.conf.set(RETAINED, str(batches))
    try:
        yield
    finally:
        session.conf.set(RETAINED, before)


def _compiled(session: SparkSession) -> int:
    """Classes of expressions that were compiled so far."""
    jvm: Any = session.sparkContext._jvm
    return int(
        jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount()
    )


def _send(feed: Feed, frames: int) -> None:
    for i in range(frames):
        feed.send([T0 + i * 10], speed=[1.0])


@pytest.mark.long
def test_the_files_of_a_checkpoint_stay_few_and_without_forgetting_they_grow(
    analysis: Analysis, feed: Feed
) -> None:
    one_each = analysis.with_config(batch_records_max=1)
    (query,) = registered(
        sql(feed.name, "device, count(*) AS n", "window(event_time, '1 minute'), device"),
        streams=[feed.stream],
    )
    _send(feed, UNFORGOTTEN)
    compiled_before = _compiled(analysis.session)
    with _retaining(analysis.session, 1000), one_each.running([query], feed) as lane:
        wait_until(lambda: lane.finished >= UNFORGOTTEN, "Spark has noted every batch")
        compiled = _compiled(analysis.session) - compiled_before
        assert compiled < PLAN_CLASSES_MAX + UNFORGOTTEN // 2, (
            "and no batch compiles anything for event time alone"
        )
        assert _files(lane.checkpoint) > FILES_MAX, "the control: nothing is forgotten"
    _send(feed, BATCHES)

    with one_each.running([query], feed) as lane:
        wait_until(
            lambda: _files(lane.checkpoint) <= FILES_MAX, "the files of old batches are removed"
        )
        assert _files(lane.checkpoint, ".snapshot") > 0, "a snapshot was written"
        assert _files(lane.checkpoint, ".crc") == 0
        assert lane.failure() is None
    assert [
        row["n"] for row in truth(results(feed.config, query.query.name), "device").values()
    ] == [UNFORGOTTEN + BATCHES]


OTHER = "count(*) AS n, stddev_pop(speed) AS s, min(speed) AS low, sum(speed) AS total"
"""Columns that no other test of this session has: what was compiled for one is kept."""


@pytest.mark.long
def test_a_query_like_one_before_it_runs_what_was_compiled_for_that(
    analysis: Analysis, new_feed: Callable[[Mapping[str, FieldType]], Feed]
) -> None:
    compiled = []
    for columns in (*["count(*) AS n"] * 4, OTHER):
        feed = new_feed({"speed": FieldType.NUMBER})
        (query,) = registered(
            sql(feed.name, f"device, {columns}", "window(event_time, '1 minute'), device"),
            streams=[feed.stream],
        )
        _send(feed, 1)
        before = _compiled(analysis.session)
        with analysis.running([query], feed) as lane:
            wait_until(lambda lane=lane: lane.finished >= 1, "a batch")  # type: ignore[misc]
        compiled.append(_compiled(analysis.session) - before)
    like, other = compiled[1:4], compiled[4]
    assert other > 0, "the control: another one is compiled"
    assert min(like) == 0, "beside one of them something else in the session may be compiled"
