"""A stream that falls silent right after its first readings, which came while event time was held:
it is finished all the same. And what is said of a lane between two batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.lanes.lane_plan import LanePlan
from edgewake.cloud.analysis.lanes.lane_time import LaneTime, Upstream
from edgewake.cloud.analysis.lanes.silence import ASK_S, Silence
from edgewake.cloud.analysis.lanes.upstream_hold import nothing_holds
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.ops.query import Progress
from edgewake.protocol.ops.repair import RepairKind
from tests.analysis.lanes import test_micro_batch as micro_batch
from tests.analysis.recomputed import recomputed
from tests.analysis.support import (
    Analysis,
    Feed,
    catch_up,
    read,
    registered,
    results,
    sql,
    unique,
    watermarks,
)
from tests.services import wait_until

T0 = 1_790_002_800_000
IDLE_S = 0.5
ABSENCE = "absence_window(event_time, '1 second'), device"
HELD = "event time waits: a test holds it"


@contextmanager
def held_at_its_first_readings(
    analysis: Analysis, queries: list[Registered], *feeds: Feed
) -> Iterator[Lane]:
    """A lane that knows of no event time, though it has computed what the feeds sent; nothing holds
    it any more.
    """
    lane = analysis.with_config(idle_s=IDLE_S).lane(queries, [feed.stream for feed in feeds])
    lane.upstream.hold, lane.upstream.why = lambda _: 0, lambda _: HELD
    lane.start()
    try:
        for feed in feeds:
            catch_up(lane, feed)
        lane.advance_in_silence()
        assert lane.record.top is None, "nothing was held: the test shows nothing"
        assert detail(feeds[0], queries[0]).startswith(HELD)
        lane.upstream.hold, lane.upstream.why = nothing_holds, lambda _: ""
        yield lane
    finally:
        lane.stop()


def detail(feed: Feed, registered: Registered) -> str:
    """What is said of a query for people."""
    rows = [
        row.value
        for row in read(feed.config, topics.PROGRESS)
        if row.key == registered.query.name.encode()
    ]
    return Progress.model_validate(rows[-1]).detail


def wait_in_silence(lane: Lane, condition: Callable[[], object], what: str) -> None:
    """As the analysis looks after its lanes."""

    def holds() -> object:
        lane.say_running()
        lane.advance_in_silence()
        return condition()

    wait_until(holds, what)


@pytest.mark.parametrize(
    "kind", [RepairKind.REPAIR, pytest.param(RepairKind.REBUILD, marks=pytest.mark.long)]
)
def test_its_windows_become_final_and_can_be_computed_again(
    analysis: Analysis, feed: Feed, kind: RepairKind
) -> None:
    (query,) = registered(
        sql(feed.name, "count(*) AS n", "window(event_time, '2 seconds')", lateness="1 second"),
        streams=[feed.stream],
    )
    feed.send([T0 + 500, T0 + 700], speed=[1.0, 2.0])
    with held_at_its_first_readings(analysis, [query], feed) as lane:
        wait_in_silence(
            lane,
            lambda: watermarks(feed.config, query.query.name)[-1:] == [T0 + 2_000],
            "the window is final",
        )
        wait_in_silence(
            lane,
            lambda: "no readings arrive: its last windows are final" in detail(feed, query),
            "it is said why",
        )
    assert [row["n"] for row in results(feed.config, query.query.name)] == [2]
    assert recomputed(analysis, lane, query, [query], [feed], kind).state == "done"


@pytest.mark.long
def test_a_reading_that_has_no_partner_is_told(
    analysis: Analysis, new_feed: Callable[..., Feed]
) -> None:
    orders, clicks = new_feed({"id": FieldType.STRING}), new_feed({"id": FieldType.STRING})
    (query,) = registered(
        f"-- name: {unique('lonely')}\n-- lateness: 0 seconds\nSELECT o.id, c.id AS other FROM "
        f"{orders.name} o LEFT JOIN {clicks.name} c ON o.id = c.id AND c.event_time BETWEEN "
        "o.event_time AND o.event_time + INTERVAL 1 SECOND",
        streams=[orders.stream, clicks.stream],
    )
    orders.send([T0], id=["a"])
    clicks.send([T0], id=["b"])
    with held_at_its_first_readings(analysis, [query], orders, clicks) as lane:

        def told() -> list[tuple[Any, Any]]:
            return [(row["id"], row["other"]) for row in results(orders.config, query.query.name)]

        wait_in_silence(lane, lambda: told() == [("a", None)], "that it has none is told")


def test_an_absence_is_told_while_it_lasts(analysis: Analysis, feed: Feed) -> None:
    (query,) = registered(
        sql(
            feed.name,
            "device, count(*) AS n",
            "absence_window(event_time, '1 second'), device",
            lateness="0 seconds",
        ),
        streams=[feed.stream],
    )
    feed.send([time.time_ns() // 1_000_000], speed=[1.0])
    with held_at_its_first_readings(analysis, [query], feed) as lane:
        wait_in_silence(
            lane,
            lambda: results(feed.config, query.query.name),
            "the absence is told though nobody sends",
        )


class Paused:
    """A lane that computed a reading of T0 in a window that ends a minute later, and its silence.

    Spark and Kafka are the test's.
    """

    def __init__(self, folder: Path) -> None:
        self.lane = micro_batch.Lane(folder)
        self.lane.run(0, 5)
        self.clock, self.plan, self.rests = self.lane.clock, self.lane.plan, False
        time = LaneTime(
            micro_batch.CONFIG, self.lane.record, self.lane.job.source_topics, 2, Upstream()
        )
        self.silence = Silence(
            self.lane.job, self.clock, cast(LanePlan, self.plan), time, self.lane.emission,
            idle_s=60.0, rests=lambda: self.rests,
        )  # fmt: skip

    def look(self) -> str:
        """As the supervisor does; what is said for people then."""
        silent_s = self.lane.batches.silent_s()
        if self.silence.has_news(silent_s):
            self.silence.say_running(silent_s)
        return self.lane.progress.detail

    def published(self) -> int:
        """How often progress was published."""
        return self.lane.committed.count(topics.PROGRESS)


def test_while_readings_wait_for_the_next_batch_it_is_not_said_that_none_arrive(
    tmp_path: Path,
) -> None:
    paused = Paused(tmp_path)
    paused.plan.unread = {0: 386, 1: 0}
    before = paused.published()
    for _ in range(30):
        paused.clock.advance(5.0)
        assert paused.look() == ""
    assert paused.published() == before, "there is nothing new to say"
    paused.plan.unread = {0: 0, 1: 0}
    paused.clock.advance(5.0)
    assert paused.look() == "no readings arrive"


def test_a_lane_that_rests_between_two_batches_does_not_know_whether_readings_arrive(
    tmp_path: Path,
) -> None:
    """What came meanwhile would make a lie of it until the next batch."""
    paused = Paused(tmp_path)
    paused.rests = True
    paused.clock.advance(50.0)
    assert paused.look() == ""
    paused.rests = False
    assert paused.look() == "no readings arrive"


def test_kafka_is_not_asked_at_each_look_whether_something_is_unread(tmp_path: Path) -> None:
    paused = Paused(tmp_path)
    asked = []
    left = paused.plan.left

    def asks(offsets: Any) -> Any:
        asked.append(offsets)
        return left(offsets)

    paused.plan.left = asks  # type: ignore[method-assign]
    paused.plan.unread = {0: 386, 1: 0}
    paused.clock.advance(20.0)
    for _ in range(50):
        paused.look()
        paused.clock.advance(0.2)
    assert 5 <= len(asked) <= 10 / ASK_S


def test_windows_are_said_to_be_final_when_they_are(tmp_path: Path) -> None:
    """The stream is silent for a minute, but the windows' end and lateness are still to come."""
    paused = Paused(tmp_path)
    said = set()
    for _ in range(40):
        paused.clock.advance(5.0)
        said.add((paused.look(), paused.lane.progress.watermark))
        silent_s = paused.lane.batches.silent_s()
        if silent_s >= 60:
            paused.silence.advance(silent_s)
    end = micro_batch.T0 + 60_000
    final = "no readings arrive: its last windows are final"
    assert {text for text, _ in said} == {"", "no readings arrive", final}
    assert {at for text, at in said if text == final} == {end}
    assert end not in {at for text, at in said if text != final}
