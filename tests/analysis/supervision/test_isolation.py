"""An isolated query can be changed like any other, and stays isolated until it is replaced."""

from __future__ import annotations

import random

from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows
from edgewake.cloud.analysis.results.transaction import lane_rows
from edgewake.cloud.analysis.supervision.isolation import isolate
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol import topics
from edgewake.protocol.ops.query import Registration
from edgewake.protocol.ops.repair import RepairKind
from tests.analysis.repair.test_repairs import (
    HOUR,
    MINUTE,
    ask,
    close_all,
    counts,
    expected,
    now_ms,
    until,
)
from tests.analysis.schedule.test_slow import LOOKS_BACK
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    declare,
    late_readings,
    read,
    register,
    results,
    sql,
    unique,
)
from tests.analysis.test_process import progress
from tests.analysis.test_run import _no_query_stays, running, set_paused
from tests.services import wait_until

__all__ = ["_no_query_stays"]


def counting(feed: Feed, name: str, select: str = "device, count(*) AS n") -> str:
    """One that the driver computes."""
    group = "window(event_time, '1 minute'), device"
    return sql(
        feed.name,
        select,
        group,
        name=name,
        lateness="0 seconds",
        where=f"WHERE {LOOKS_BACK} speed >= 0",
    )


def as_registered(feed: Feed, name: str) -> Registered:
    """As the last record of `ew.queries` says."""
    row = [row.value for row in read(feed.config, topics.QUERIES) if row.key == name.encode()][-1]
    registration = Registration.model_validate(row)
    return Registered(
        parse(registration.text, {feed.name: feed.stream}), registration.registered_at
    )


def test_a_query_that_is_isolated_is_paused_resumed_repaired_rebuilt_and_replaced(
    analysis: Analysis, feed: Feed
) -> None:
    stays, moved = unique("stays"), unique("moved")
    declare(feed)
    for name in (stays, moved):
        register(feed, counting(feed, name), name=name)
    for minute in range(3):
        feed.send(
            [T0 + minute * MINUTE + 1, T0 + minute * MINUTE + 2], device="a", speed=[1.0, 2.0]
        )
    own = as_registered(feed, moved)
    lane = analysis.run([as_registered(feed, stays), own], feed)
    isolate(analysis.config, lane, own, "slow: too slow for the others", now_ms(), random.Random(1))

    def stands() -> tuple[str, bool, bool]:
        said = progress(feed.config, moved)
        return said["state"], said["isolated"], "too slow" in said["detail"]

    def sent(minute: int, *queries: str) -> None:
        feed.send([T0 + minute * MINUTE + 1], device="a", speed=[1.0])
        feed.flush()
        for query in queries:
            wait_until(
                lambda query=query: counts(feed, query) == expected(feed),  # type: ignore[misc]
                f"{query} has all",
            )

    with running(analysis):
        sent(3, stays, moved)
        assert stands() == ("running", True, True)
        set_paused(feed, moved, paused=True)
        wait_until(lambda: progress(feed.config, moved)["state"] == "paused", "it is paused")
        sent(4, stays)
        assert counts(feed, moved) != expected(feed), "control: it does not compute"

    with running(analysis):
        set_paused(feed, moved, paused=False)
        sent(5, stays, moved)
        assert all("complete" not in row for row in results(feed.config, moved)), (
            "what it missed it computed then"
        )
        assert stands() == ("running", True, True)

        close_all(feed, [stays, moved], T0 + 6 * MINUTE)
        feed.send([T0 + 5], device="a", received_at=T0 + HOUR, speed=[1.0])
        feed.flush()
        for name in (stays, moved):
            wait_until(lambda name=name: late_readings(feed.config, name), "it is late")  # type: ignore[misc]
        untouched = counts(feed, stays)
        assert counts(feed, moved) == untouched != expected(feed)
        repaired = until(feed, ask(feed, moved, T0, T0 + MINUTE), "done")
        assert (repaired["added"], repaired["changed"], repaired["withdrawn"]) == (0, 1, 0)
        assert counts(feed, moved) == expected(feed)

        rebuilt = until(feed, ask(feed, moved, 0, kind=RepairKind.REBUILD), "done")
        assert rebuilt["removed_at"] is not None
        assert (rebuilt["added"], rebuilt["changed"], rebuilt["withdrawn"]) == (0, 0, 0), (
            "all was right"
        )
        feed.send([T0 + HOUR + 7 * MINUTE], device="a", speed=[1.0])
        feed.flush()
        wait_until(
            lambda: counts(feed, moved) == expected(feed), "it goes on with a state of all readings"
        )
        assert stands() == ("running", True, True)
        assert counts(feed, stays).items() >= untouched.items(), "nobody else was repaired"
        assert any(own.label in key for key in kept_rows(feed.config))

        register(
            feed, counting(feed, moved, "device, count(*) AS n, max(speed) AS high"), name=moved
        )
        new = as_registered(feed, moved)
        wait_until(
            lambda: progress(feed.config, moved)["registered_at"] == new.registered_at,
            "it is another query",
        )
        wait_until(lambda: stands() == ("running", False, False), "it is in the others' lane")
        feed.send([T0 + 2 * HOUR], device="a", speed=[1.0])
        feed.flush()
        for name in (stays, moved):
            wait_until(
                lambda name=name: (T0 + 2 * HOUR, "a") in counts(feed, name),  # type: ignore[misc]
                f"{name} goes on",
            )

    assert not lane_rows(feed.config, lambda name: own.label in name)
    assert not [key for key in kept_rows(feed.config) if own.label in key]
    assert not list((analysis.config.kept_dir / "checkpoints").glob(f"*{own.label}*"))
