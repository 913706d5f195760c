"""A batch that does not fit: it ended the analysis at each start, for Spark keeps to what it
planned.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from edgewake.cloud.analysis.checkpoints.unfinished import LEAST, SHRINK, TRIES, records_max
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.lanes.lane_plan import LanePlan
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.protocol import topics
from tests.analysis.support import T0, Analysis, Feed, registered, results, truth, unique
from tests.services import wait_until

MOST = 20_000


def plan(checkpoint: Path, batch: int, **ends: int) -> None:
    """As Spark writes it."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "commits").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_bytes(b"v1\n{}\n" + orjson.dumps({"t": ends}))


def start(checkpoint: Path) -> int:
    return records_max(checkpoint, lambda: {"t": {0: 100}}, MOST)


def test_a_plan_that_was_begun_too_often_is_forgotten_and_the_next_one_is_smaller(
    tmp_path: Path,
) -> None:
    assert start(tmp_path) == MOST
    plan(tmp_path, 0, **{"0": 10_100, "1": 6_000})
    assert [start(tmp_path) for _ in range(TRIES)] == [MOST] * TRIES, (
        "a process may be killed for other reasons"
    )
    assert (tmp_path / "offsets" / "0").exists()
    assert start(tmp_path) == 16_000 // SHRINK
    assert not (tmp_path / "offsets" / "0").exists()
    plan(tmp_path, 0, **{"0": 2_100})
    assert start(tmp_path) == 2_000 // SHRINK, "and smaller again"
    plan(tmp_path, 0, **{"0": 140})
    assert (start(tmp_path), (tmp_path / "offsets" / "0").exists()) == (LEAST, False)
    plan(tmp_path, 0, **{"0": 110})
    assert (start(tmp_path), (tmp_path / "offsets" / "0").exists()) == (LEAST, True), (
        "not below that"
    )
    (tmp_path / "commits" / "0").write_bytes(b"v1\n{}")
    assert start(tmp_path) == MOST
    plan(tmp_path, 1, **{"0": 20_110})
    assert [start(tmp_path) for _ in range(TRIES + 1)] == [MOST] * TRIES + [20_000 // SHRINK], (
        "another batch"
    )


def computed(lane: Lane, feed: Feed) -> int:
    return sum(lane.record.offsets.get(topics.stream_topic(feed.name), {}).values())


@pytest.mark.long
def test_a_batch_that_does_not_fit_is_computed_in_smaller_ones(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, fits, many, failures = unique("rows"), LEAST, 3 * LEAST, 0
    queries = registered(f"-- name: {name}\nSELECT speed FROM {feed.name}", streams=[feed.stream])
    observed = LanePlan.observed

    def bounded(plan: LanePlan) -> Observed:
        found = observed(plan)
        if found.frames > fits:
            raise MemoryError
        return found

    monkeypatch.setattr(LanePlan, "observed", bounded)
    for i in range(many):
        feed.send([T0 + i], speed=[float(i)])
    feed.flush()
    while True:
        lane = analysis.lane(queries, [feed.stream])
        lane.start()
        try:
            wait_until(
                lambda lane=lane: lane.failure() is not None or computed(lane, feed) == many,  # type: ignore[misc]
                "it ends",
            )
            if lane.failure() is None:
                break
            failures += 1
        finally:
            lane.stop()
    assert failures == TRIES + 1
    rows = results(feed.config, name)
    assert sorted(row["speed"] for row in rows) == [float(i) for i in range(many)]
    assert len(truth(rows, "reading")) == len(rows), "each once"
