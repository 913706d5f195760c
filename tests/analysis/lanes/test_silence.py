"""A stream that falls silent right after its first readings, which came while event time was held:
it is finished all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.lanes.upstream_hold import nothing_holds
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.ops.query import Progress
from edgewake.protocol.ops.repair import RepairKind
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
