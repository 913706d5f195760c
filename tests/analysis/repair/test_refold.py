"""Pairs folded once more from ranges of a log: nothing is late, and the lane goes on from there.

No Kafka, no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.folds import stream_join
from edgewake.cloud.analysis.folds.stream_join import LEFT, RIGHT
from edgewake.cloud.analysis.repair import refold
from edgewake.cloud.analysis.repair.refold import (
    FOREVER_MS,
    Impossible,
    Refold,
    Refolded,
    TooMany,
    tops,
)
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.query import Registered
from tests.analysis.jobs.test_stream_join_job import (
    JOIN,
    READINGS,
    SCHEMA,
    Run,
    Sent,
    expected,
    query,
    record_at,
    value,
)
from tests.analysis.support import T0
from tests.examples import examples

PAIRS = Registered(query(f"SELECT o.price, c.url {JOIN}", "-- lateness: 4 seconds\n"), 7)


def placed(readings: Sequence[Sent]) -> list[Sent]:
    """Each a frame of its own, in the order of the log."""
    offsets = [0, 0]
    for one in readings:
        one.place = (0, offsets[one.side], 0)
        offsets[one.side] += 1
    return list(readings)


def folded(readings: Sequence[Sent], *, at_once: int, stop: int = FOREVER_MS) -> Refolded:
    """All of them, so many in a range."""
    top = max((T0 + one.t for one in readings), default=None)
    run = Run(PAIRS)
    fold = Refold(
        run.job,
        run.job.new_states(),
        LaneRecord(stream="s", lane="pair", revision=5, top=top),
        0,
        stop,
    )
    ranges = [readings[i : i + at_once] for i in range(0, len(readings), at_once)]
    for part, after in zip(
        ranges,
        tops(PAIRS.query, [T0 + min(one.t for one in part) for part in ranges], top),
        strict=True,
    ):
        rows = [
            {
                "partition": one.side,
                "offset": one.place[1],
                "oldest": T0 + one.t,
                "value": value(one),
            }
            for one in part
        ]
        fold.add(pa.Table.from_pylist(rows, schema=SCHEMA), after)
    return fold.end()


@given(st.lists(READINGS, max_size=30), st.lists(READINGS, max_size=5), st.integers(1, 7))
@settings(max_examples=examples(150))
def test_every_pair_of_the_log_is_found_whenever_it_came_and_the_lane_goes_on_from_there(
    readings: list[Sent], more: list[Sent], at_once: int
) -> None:
    found = folded(placed(readings), at_once=at_once)
    run = Run(PAIRS)
    run.top = max((T0 + one.t for one in readings), default=None)
    run.offsets = [sum(one.side == side for one in readings) for side in (LEFT, RIGHT)]
    run.revision, run.kept = 6, dict(found.states)
    run.states = run.job.restored(found.states, record_at(run.top))
    run.batch(more)
    run.silence(T0 + 10**9)
    rows = [orjson.loads(one.value) for one in found.rows.values() if one.value is not None]
    told = sorted(((row["reading"], row["partner"]) for row in [*rows, *run.told]), key=str)
    assert told == expected([readings, more], lateness=4_000)[0]
    assert all(row["final"] and "complete" not in row for row in rows)
    run.batch([])
    assert run.kept == {}, "what was kept is known by its names"


@given(st.lists(st.none() | st.integers(0, 50), max_size=10), st.integers(50, 60))
def test_event_time_goes_on_as_far_as_nothing_to_come_is_late(
    oldest: list[int | None], last: int
) -> None:
    found = tops(PAIRS.query, oldest, last)
    known = [at for at in found if at is not None]
    assert known == sorted(known)
    assert known[-1:] == [last] * bool(oldest)
    for i, at in enumerate(known):
        assert all(one is None or one > at - PAIRS.query.waits_ms for one in oldest[i + 1 :])
    assert all(
        before is not None and after is not None and after > before
        for before, after in pairwise(tops(PAIRS.query, list(range(9)), 10**6))
        if after is not None
    ), "as far as"


def test_more_than_the_bounds_is_refused_and_nothing_that_is_long_over_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_join, "READINGS_MAX", 12)
    alone = placed([Sent(LEFT, i * 1_000, "a") for i in range(40)])
    assert len(folded(alone, at_once=2).rows) == 40 - 9
    with pytest.raises(Impossible, match="query repair --from"):
        folded([*alone[:-1], Sent(LEFT, 0, "a", (0, 39, 0))], at_once=2)
    monkeypatch.setattr(refold, "ROWS_MAX", 5)
    with pytest.raises(TooMany):
        folded(alone, at_once=2)
    assert len(folded(alone, at_once=2, stop=T0 + 5_000).rows) == 5
