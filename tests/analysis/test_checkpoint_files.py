"""A lane's checkpoint stays small however long it runs: snapshots replace the changes of batches."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.support import T0, Analysis, Feed, registered, results, sql, truth
from tests.services import wait_until

BATCHES = 60
"""Spark makes a snapshot after ten batches, and keeps the files of the newest ten."""
CHANGELOGS_MAX = 40


def _files(checkpoint: Path, suffix: str) -> int:
    return sum(1 for path in checkpoint.rglob("*") if path.name.endswith(suffix))


def test_snapshots_of_the_state_are_uploaded_and_replace_the_changelogs(analysis: Analysis, feed: Feed):
    one_each = analysis.with_config(batch_records_max=1)
    (query,) = registered(sql(feed.name, "device, count(*) AS n", "window(event_time, '1 minute'), device"), streams=[feed.stream])
    for i in range(BATCHES):
        feed.send([T0 + i * 10], speed=[1.0])

    with one_each.running([query], feed) as lane:
        assert lane.finished >= BATCHES
        wait_until(lambda: _files(lane.checkpoint, ".zip") > 0, "a snapshot is uploaded")
        wait_until(lambda: _files(lane.checkpoint, ".changelog") < CHANGELOGS_MAX, "old changelogs are removed")
        assert _files(lane.checkpoint, ".crc") == 0
        assert lane.failure() is None
    assert [row["n"] for row in truth(results(feed.config, query.query.name), "device").values()] == [BATCHES]
