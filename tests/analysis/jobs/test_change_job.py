"""Readings that differ from the one before: what they are and are not, and against DuckDB over
restarts, repairs and a preview, on both state stores.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows
from edgewake.cloud.analysis.jobs import change_job
from edgewake.cloud.analysis.jobs.change_job import LastRows
from edgewake.cloud.analysis.repair.preview import preview
from edgewake.cloud.analysis.spark.settings import StateStore
from edgewake.cloud.queries.explain import described
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.repair import RepairKind
from tests.analysis.recomputed import recomputed
from tests.analysis.support import (
    BOTH_STORES,
    T0,
    Analysis,
    Feed,
    catch_up,
    forget,
    lose_last_batch,
    registered,
    results,
    stored,
    unique,
)
from tests.examples import examples

N, T = FieldInfo(type=FieldType.NUMBER), FieldInfo(type=FieldType.STRING)
STREAMS = {
    "s": Stream(name="s", fields={"pump": T, "state": T, "speed": N}),
    "t": Stream(name="t", fields={"pump": T, "state": T, "speed": N}),
}
NewFeed = Callable[[Mapping[str, FieldType]], Feed]


# --- the language


def test_the_plan_says_what_is_compared_and_times_are_not() -> None:
    query = parse(
        "-- name: q\n-- on_change: device, pump\n"
        "SELECT state, round(speed) AS speed, event_time AS at, unix_millis(sent_at) AS sent "
        "FROM s WHERE speed > 0",
        STREAMS,
    )
    found = described(query)
    assert (found.execution, found.columns) == (
        "dedicated",
        ("window_start", "window_end", "device", "reading", "state", "speed", "at", "sent"),
    )
    assert found.plan == (
        "read s, as it is: pump, speed, state",
        "keep the readings that pass WHERE",
        "compare each with the one before of the same device, pump: state, speed",
        "emit the first, and each that differs, as a row at once, final",
    )


@pytest.mark.parametrize(
    ("header", "select", "why"),
    [
        ("pump", "state FROM s", "expected device among the columns"),
        ("device, device", "state FROM s", "expected 1 to 4 different columns"),
        ("device, nothing", "state FROM s", "unknown field 'nothing'"),
        ("device, event_time", "state FROM s", "event_time differs from reading to reading"),
        ("device", "device, event_time AS at FROM s", "no column that can stay the same"),
        ("device", "max(speed) AS top FROM s GROUP BY device", "without GROUP BY"),
        ("device", "state FROM s JOIN t ON s.pump = t.pump", "not with JOIN"),
        ("device", "trend(speed, '1 hour') AS rise FROM s", "not with trend"),
        (
            "device",
            "state FROM (SELECT * FROM s UNION ALL SELECT * FROM t)",
            "UNION ALL: not with header on_change",
        ),
        ("device\n-- table: device", "state FROM s", "header on_change: not with table"),
        (
            "device\n-- shed: random above 60 seconds",
            "state FROM s",
            "header shed: each reading is a row here",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_with_what_was_expected(
    header: str, select: str, why: str
) -> None:
    with pytest.raises(QueryError) as caught:
        parse(f"-- name: q\n-- on_change: {header}\nSELECT {select}", STREAMS)
    assert why in str(caught.value)


# --- what is kept


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=60))
@settings(max_examples=examples(100))
def test_over_restarts_exactly_the_changes_are_told(rows: list[tuple[str, str]]) -> None:
    last, written, told = LastRows(), dict[str, bytes | None](), []
    for i, (key, row) in enumerate(rows):
        if last.differs(key, row):
            told.append(i)
        written |= last.dump()
        if i % 4 == 3:  # a restart from what was written down
            last = LastRows({name: (text or b"").decode() for name, text in written.items()})
    before: dict[str, str] = {}
    expected = []
    for i, (key, row) in enumerate(rows):
        if before.get(key) != row:
            expected.append(i)
        before[key] = row
    assert told == expected


def test_the_key_that_changed_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_job, "KEYS_MAX", 2)
    last = LastRows()
    assert [last.differs(key, "x") for key in "abac"] == [True, True, False, True]
    assert last.forgotten == 1
    assert last.dump() == {"a": None, "b": b"x", "c": b"x"}
    assert last.forgotten == 0
    assert last.differs("a", "x"), "as if it had never been"


# --- on Kafka and Spark


ORACLE = """
    SELECT device, t, pump, state, speed FROM (
        SELECT *, row_number() OVER one AS nth,
               lag(state) OVER one AS state_before, lag(round(speed)) OVER one AS speed_before
        FROM r WHERE speed IS NULL OR speed >= 1
        WINDOW one AS (PARTITION BY device, pump ORDER BY place)
    ) WHERE nth = 1 OR state IS DISTINCT FROM state_before
            OR round(speed) IS DISTINCT FROM speed_before
"""
"""What has changed, by another engine. `place`: the order in which the readings were sent."""


def changes(readings: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What DuckDB says of them, sorted."""
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE r(place INT, device TEXT, t BIGINT, pump TEXT, state TEXT, speed DOUBLE)"
        )
        database.executemany(
            "INSERT INTO r VALUES (?, ?, ?, ?, ?, ?)",
            [
                (i, *(one.get(name) for name in ("device", "t", "pump", "state", "speed")))
                for i, one in enumerate(readings)
            ],
        )
        found = database.execute(ORACLE).fetchall()
    return sorted((*row[:4], None if row[4] is None else float(round(row[4]))) for row in found)


def fill(feed: Feed, dice: random.Random) -> None:
    """Readings that often repeat the one before, with nulls, and not in the order of time."""
    for device in ("d1", "d2", "d3"):
        count = dice.randrange(20, 40)
        feed.send(
            [T0 + dice.randrange(600_000) for _ in range(count)],
            device=device,
            received_at=T0 + 600_000,
            pump=dice.choices(["north", "south", None], weights=[9, 9, 2], k=count),
            state=dice.choices(["on", "off", None], weights=[20, 1, 1], k=count),
            speed=dice.choices([0.5, 1.25, 1.3, 7.0, None], weights=[1, 12, 12, 1, 1], k=count),
        )
    feed.flush()


def rows(feed: Feed, name: str) -> list[tuple[Any, ...]]:
    """What was told and holds, sorted."""
    last = {
        (row["device"], row["reading"]): row
        for row in sorted(results(feed.config, name), key=lambda row: int(row["revision"]))
    }
    return sorted(as_tuple(row) for row in last.values() if "withdrawn" not in row)


def as_tuple(row: Mapping[str, Any]) -> tuple[Any, ...]:
    assert row["final"] is True
    return tuple(row[name] for name in ("device", "window_start", "pump", "state", "speed"))


@BOTH_STORES
def test_what_changed_equals_the_oracle_over_restarts_a_repair_and_a_rebuild(
    analysis: Analysis, new_feed: NewFeed, state_store: StateStore
) -> None:
    """The last batch is lost once, and computed again from the log."""
    feed = new_feed(
        {"pump": FieldType.STRING, "state": FieldType.STRING, "speed": FieldType.NUMBER}
    )
    name, dice = unique("changed"), random.Random(23)
    text = (
        f"-- name: {name}\n-- on_change: device, pump\nSELECT pump, state, round(speed) AS speed, "
        f"event_time AS changed_at FROM {feed.name} WHERE speed IS NULL OR speed >= 1"
    )
    queries = registered(text, streams=[feed.stream])
    place = f"change.{feed.name}"
    with stored(analysis.session, state_store):
        here = analysis.with_config(state_store=state_store)
        fill(feed, dice)
        with here.running(queries, feed) as lane:
            pass
        assert rows(feed, name) == changes(feed.sent)
        lose_last_batch(lane.checkpoint)
        fill(feed, dice)
        with here.running(queries, feed) as lane:
            fill(feed, dice)
            catch_up(lane, feed)
        wanted = changes(feed.sent)
        assert rows(feed, name) == wanted
        assert 20 < len(wanted) < len(feed.sent) / 2, "much is repeated, and much is not"
        assert len(results(feed.config, name)) == len(wanted), "each is told once"

        shown = preview(
            here.session, feed.config, text, {feed.name: feed.stream},
            since_ms=0, now_ms=SystemClock().now_ms(),
        )  # fmt: skip
        assert sorted(map(as_tuple, shown)) == wanted

        kept = kept_rows(feed.config, place)
        assert len(kept) == len({(one["device"], one.get("pump")) for one in feed.sent})
        forget(feed, place, queries[0])
        assert kept_rows(feed.config, place) == {}
        repaired = recomputed(here, lane, queries[0], queries, [feed], RepairKind.REPAIR)
        assert (repaired.state, repaired.added, repaired.changed) == ("done", 0, 0)
        rebuilt = recomputed(here, lane, queries[0], queries, [feed], RepairKind.REBUILD)
        assert (rebuilt.state, rebuilt.added, rebuilt.withdrawn) == ("done", 0, 0)
        assert kept_rows(feed.config, place) == kept
        fill(feed, dice)
        here.run(queries, feed)
    assert rows(feed, name) == changes(feed.sent), "it goes on from the state that was rebuilt"
