"""Queries that tell each window once, on Kafka and Spark: over restarts, late readings, repairs and
rebuilds.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows
from edgewake.cloud.analysis.results.withheld import PLACE
from edgewake.cloud.queries.query import Registered
from edgewake.protocol.ops import result
from edgewake.protocol.ops.repair import RepairKind, RepairState
from tests.analysis.recomputed import recomputed
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    catch_up,
    emitted,
    late_readings,
    lose_last_batch,
    registered,
    sql,
)

MINUTE = 60_000
DEVICES = ("a", "b")


def query(
    feed: Feed,
    group: str = "window(event_time, '1 minute'), device",
    select: str = "device, count(*) AS n",
    more: str = "",
) -> Registered:
    text = sql(feed.name, select, group, lateness="1 minute").replace(
        "-- lateness", f"-- emit: final\n{more}-- lateness", 1
    )
    (found,) = registered(text, streams=[feed.stream])
    return found


def told(feed: Feed, of: Registered) -> list[dict[str, Any]]:
    return [
        row.value for row in emitted(feed.config, of.query.name) if not result.is_watermark(row.key)
    ]


def send_minutes(feed: Feed, first: int, last: int) -> None:
    """Two readings a minute of each device."""
    for minute in range(first, last):
        for at in (0, 30_000):
            for device in DEVICES:
                feed.send([T0 + minute * MINUTE + at], device=device, speed=[1.0])


def held_back(feed: Feed, of: Registered) -> int:
    return sum(key.split("|")[1] == of.label for key in kept_rows(feed.config, PLACE))


def test_each_window_is_told_once_over_restarts_and_a_lost_batch_and_a_repair_tells_what_differs(
    analysis: Analysis, feed: Feed
) -> None:
    one = query(feed)
    send_minutes(feed, 0, 3)
    lane = analysis.run([one], feed)
    assert {row["window_start"] for row in told(feed, one)} == {T0}, (
        "of what is open nothing is told"
    )
    assert held_back(feed, one) == 4
    lose_last_batch(lane.checkpoint)
    send_minutes(feed, 3, 6)
    with analysis.running([one], feed) as lane:
        feed.send([T0], device="a", received_at=T0 + 6 * MINUTE, speed=[1.0])
        feed.send([T0 + 4 * MINUTE + 1], device="a", received_at=T0 + 6 * MINUTE, speed=[1.0])
        catch_up(lane, feed)
    send_minutes(feed, 6, 9)
    lane = analysis.run([one], feed)
    rows = told(feed, one)
    assert set(Counter((row["window_start"], row["device"]) for row in rows).values()) == {1}, (
        "once"
    )
    found = {((row["window_start"] - T0) // MINUTE, row["device"]): row["n"] for row in rows}
    assert found == {
        (minute, device): 2 + ((minute, device) == (4, "a"))
        for minute in range(7)
        for device in DEVICES
    }
    assert all(row["final"] for row in rows)
    assert sum(late["readings"] for late in late_readings(feed.config, one.query.name)) == 1

    repair = recomputed(analysis, lane, one, [one], [feed], RepairKind.REPAIR)
    assert (repair.state, repair.changed, repair.added) == (RepairState.DONE, 1, 0)
    assert [
        (row["n"], row["final"])
        for row in told(feed, one)
        if (row["window_start"], row["device"]) == (T0, "a")
    ] == [
        (2, True),
        (3, True),
    ]
    assert len(told(feed, one)) == len(rows) + 1


@pytest.mark.long
def test_a_rebuild_tells_nothing_early_and_nothing_twice(analysis: Analysis, feed: Feed) -> None:
    one = query(feed)
    send_minutes(feed, 0, 5)
    lane = analysis.run([one], feed)
    before, held = told(feed, one), held_back(feed, one)
    assert held == 4
    repair = recomputed(analysis, lane, one, [one], [feed], RepairKind.REBUILD)
    assert (repair.state, repair.changed, repair.added) == (RepairState.DONE, 0, 0)
    assert told(feed, one) == before
    assert held_back(feed, one) == held
    send_minutes(feed, 5, 8)
    analysis.run([one], feed)
    assert set(
        Counter((row["window_start"], row["device"], row["n"]) for row in told(feed, one)).values()
    ) == {1}
    assert {row["window_start"] for row in told(feed, one)} == {
        T0 + minute * MINUTE for minute in range(6)
    }


@pytest.mark.long
def test_a_session_is_told_when_it_is_over_and_a_rebuild_leaves_it_so(
    analysis: Analysis, feed: Feed
) -> None:
    one = query(feed, "session_window(event_time, '2 minutes'), device")
    for at in (0, 60_000, 120_000, 600_000, 660_000):
        feed.send([T0 + at], device="a", speed=[1.0])
    lane = analysis.run([one], feed)
    assert [(row["window_start"], row["n"], row["final"]) for row in told(feed, one)] == [
        (T0, 3, True)
    ]
    repair = recomputed(analysis, lane, one, [one], [feed], RepairKind.REBUILD)
    assert repair.state is RepairState.DONE
    assert len(told(feed, one)) == 1
    feed.send([T0 + 1_200_000], device="a", speed=[1.0])
    analysis.run([one], feed)
    assert [(row["window_start"], row["n"], row["final"]) for row in told(feed, one)] == [
        (T0, 3, True),
        (T0 + 600_000, 2, True),
    ]


@pytest.mark.long
def test_a_window_that_is_opened_again_is_told_again(analysis: Analysis, feed: Feed) -> None:
    one = query(feed, more="-- reopen: 1 day\n")
    send_minutes(feed, 0, 5)
    with analysis.running([one], feed) as lane:
        feed.send([T0 + 1], device="a", received_at=T0 + 5 * MINUTE, speed=[1.0])
        catch_up(lane, feed)
    rows = [row for row in told(feed, one) if (row["window_start"], row["device"]) == (T0, "a")]
    assert [(row["n"], row["final"]) for row in rows] == [(2, True), (3, True)]
    assert rows[0]["revision"] < rows[1]["revision"]
