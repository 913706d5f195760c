"""Readings joined with a table as of event time: against an oracle that knows all rows, over
restarts, and on real Kafka and Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows
from edgewake.cloud.analysis.folds.table_follower import TableFollower
from edgewake.cloud.analysis.plan.table_rows import rows_of
from edgewake.cloud.analysis.repair.preview import preview
from edgewake.cloud.analysis.spark.settings import StateStore
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.query import Query
from edgewake.cloud.queries.query_file import UnknownStream, parse
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.device import DeviceState, DeviceStatus
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
    truth,
    unique,
    watermarks,
)
from tests.services import wait_until

N, T = FieldInfo(type=FieldType.NUMBER), FieldInfo(type=FieldType.STRING)
STREAMS = {
    "s": Stream(name="s", fields={"speed": N, "route": T, "bus": N}),
    "routes": Stream(name="routes", fields={"route": T, "operator": T, "price": N, "speed": N}),
}
NewFeed = Callable[[Mapping[str, FieldType]], Feed]


def query(text: str) -> Query:
    return parse(f"-- name: q\n{text}", STREAMS)


# --- the table, against an oracle


def test_what_is_no_row_is_left_out() -> None:
    assert (
        list(rows_of("ew.s.x", b"d", b"{}"))
        == list(rows_of("ew.s.x", b"d", b"no"))
        == list(rows_of("ew.s.x", b"d", None))
        == []
    )
    assert list(rows_of("ew.devices", b"d|seen", b'{"device":"d"}')) == []


# --- the language


def test_columns_of_the_table_stand_wherever_those_of_the_reading_do() -> None:
    found = query(
        "SELECT r.operator, upper(r.operator) AS o, count(*) AS n, sum(v.speed * price) AS cost "
        "FROM s v LEFT JOIN routes r"
        " ON v.route = r.route WHERE v.speed > 3 AND r.price < 5 GROUP BY window(event_time, '1 "
        "minute'), r.operator HAVING count(*) > 1"
    )
    assert found.join is not None
    assert (found.join.table, found.join.keys, found.join.is_left) == (
        "routes",
        (("route", "route"),),
        True,
    )
    assert found.join.columns == (
        ("operator", FieldType.STRING),
        ("price", FieldType.NUMBER),
        ("route", FieldType.STRING),
    )
    assert found.fields == {"speed", "route"}
    assert found.key_names == ("operator",)
    assert found.where is not None, "what the stream alone decides is decided before the join"


def test_a_join_may_say_using_and_its_time_and_join_the_devices() -> None:
    found = query(
        "SELECT speed, d.version FROM s JOIN devices FOR SYSTEM_TIME AS OF event_time AS d USING "
        "(device)"
    )
    assert found.join is not None
    assert (found.join.table, found.join.keys, found.join.is_left, found.is_rows) == (
        "devices",
        (("device", "device"),),
        False,
        True,
    )
    assert [output.name for output in found.outputs] == ["speed", "version"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "SELECT speed FROM s RIGHT JOIN routes r ON s.route = r.route",
            "write FROM stream LEFT JOIN table",
        ),
        ("SELECT speed FROM s, routes r", "pairs each reading with every row"),
        (
            "SELECT speed FROM s JOIN routes r ON s.route = r.route AND r.price > 3",
            "conditions on values belong into WHERE",
        ),
        (
            "SELECT speed FROM s JOIN routes r ON s.route = r.route AND s.event_time BETWEEN "
            "r.event_time AND 5",
            "joined within a time",
        ),
        (
            "SELECT speed FROM s JOIN routes r ON s.bus = r.route",
            "line 2:26: JOIN routes: bus and routes.route are of different types",
        ),
        (
            "SELECT r.opertor FROM s JOIN routes r ON s.route = r.route",
            "line 2:10: SELECT: unknown field 'routes.opertor': did you mean",
        ),
        ("SELECT speed FROM s JOIN s b ON s.route = b.route", "joined with itself"),
        (
            "SELECT speed FROM s JOIN routes USING (route) JOIN devices USING (device)",
            "one table can be joined",
        ),
        ("SELECT speed FROM s JOIN (SELECT * FROM routes) r USING (route)", "[LEFT] JOIN table ON"),
        ("SELECT speed FROM s LEFT ANTI JOIN routes USING (route)", "WHERE table.column IS NULL"),
        (
            "SELECT median(speed) AS m FROM s JOIN routes USING (route) GROUP BY device",
            "JOIN: a query with it has all aggregates but quantiles",
        ),
        (
            "SELECT v FROM s UNPIVOT (v FOR m IN (speed, bus)) JOIN routes r ON m = r.route GROUP "
            "BY v",
            "UNPIVOT: not with JOIN",
        ),
    ],
)
def test_what_a_join_cannot_be_is_refused_with_what_to_write_instead(
    text: str, sentence: str
) -> None:
    with pytest.raises(QueryError, match=re.escape(sentence)):
        query(text)


def test_a_query_whose_table_is_not_there_yet_waits_for_it() -> None:
    with pytest.raises(UnknownStream, match="unknown stream 'rotes': did you mean 'routes'"):
        query("SELECT speed FROM s JOIN rotes USING (route)")


def test_too_many_open_windows_are_refused() -> None:
    with pytest.raises(QueryError, match="windows of a group would be open at once, at most 500"):
        parse(
            "-- name: q\n-- reopen: 7 days\nSELECT count(*) AS n FROM s JOIN routes USING (route) "
            "GROUP BY window(event_time, '1 minute')",
            STREAMS,
        )


# --- on real parts


def oracle(
    readings: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> dict[tuple[Any, ...], float]:
    """(window_start, operator) → sum of speeds, by looking at every row for every reading."""
    found: dict[tuple[Any, ...], float] = {}
    for reading in readings:
        held = [
            row for row in rows if row["route"] == reading.get("route") and row["t"] <= reading["t"]
        ]
        operator = max(held, key=lambda row: row["t"])["operator"] if held else None
        place = reading["t"] // 60_000 * 60_000, operator
        found[place] = found.get(place, 0.0) + reading["speed"]
    return found


def test_windows_and_rows_of_joined_readings_equal_the_oracle_over_a_restart(
    analysis: Analysis, new_feed: NewFeed
) -> None:
    feed = new_feed({"speed": FieldType.NUMBER, "route": FieldType.STRING})
    routes = new_feed({"route": FieldType.STRING, "operator": FieldType.STRING})
    sums, fast, odd = unique("sums"), unique("fast"), unique("odd")
    join = f"JOIN {routes.name} r ON v.route = r.route"
    queries = registered(
        f"-- name: {sums}\nSELECT r.operator, sum(speed) AS total FROM {feed.name} v LEFT {join}"
        " GROUP BY window(event_time, '1 minute'), r.operator",
        f"-- name: {fast}\nSELECT speed, r.operator, unix_millis(v.event_time) - "
        f"unix_millis(r.event_time) AS age FROM {feed.name} v {join}"
        " WHERE speed > 25",
        f"-- name: {odd}\nSELECT speed, robust_zscore(speed, 5) AS z FROM {feed.name} WHERE "
        "device = 'd1'",
        streams=[feed.stream, routes.stream],
    )
    routes.send([T0, T0 + 20_000], route=["a", "a"], operator=["one", "two"])
    routes.send([T0 + 70_000], device="d2", route=["b"], operator=["three"])
    routes.flush()
    feed.send([T0 - 1_000, T0 + 5_000, T0 + 25_000], speed=[1.0, 2.0, 4.0], route=["a", "a", "a"])
    feed.send([T0 + 30_000], device="d2", speed=[8.0], route=[None])
    with analysis.running(queries, feed) as lane:
        pass
    lose_last_batch(lane.checkpoint)

    # Between two known ones, after the readings that it would have been for.
    routes.send([T0 + 30_000], route=["a"], operator=["four"])
    routes.flush()
    feed.send(
        [T0 + 26_000, T0 + 31_000, T0 + 71_000], speed=[16.0, 32.0, 64.0], route=["a", "a", "b"]
    )
    with analysis.running(queries, feed) as lane:
        feed.send([T0 + 200_000], speed=[128.0], route=["b"])
        catch_up(lane, feed)

    found = {
        place: row["total"] for place, row in truth(results(feed.config, sums), "operator").items()
    }
    assert found == oracle(feed.sent, routes.sent)
    assert {row["speed"]: (row["operator"], row["age"]) for row in results(feed.config, fast)} == {
        32.0: ("four", 1_000.0),
        64.0: ("three", 1_000.0),
        128.0: ("three", 130_000.0),
    }
    assert watermarks(feed.config, sums)[-1] == T0 + 120_000
    scores = {
        1.0: None,
        2.0: None,
        4.0: None,
        16.0: 14 / 1.4826,
        32.0: 29 / (1.5 * 1.4826),
        64.0: 60 / (3 * 1.4826),
        128.0: 112 / (14 * 1.4826),
    }
    assert {row["speed"]: row["z"] for row in results(feed.config, odd)} == pytest.approx(scores), (
        "of the values before, also of the first run"
    )
    catalogue = {one.name: one.stream for one in (feed, routes)}
    text = f"-- name: shown\nSELECT speed, r.operator FROM {feed.name} v {join}"
    shown = preview(
        analysis.session, feed.config, text, catalogue, since_ms=0, now_ms=SystemClock().now_ms()
    )
    assert {row["speed"]: row["operator"] for row in shown} == {
        2.0: "one",
        4.0: "two",
        16.0: "two",
        32.0: "four",
        64.0: "three",
        128.0: "three",
    }

    kept = {
        key: value
        for key, value in kept_rows(feed.config, f"join.{feed.name}").items()
        if odd in key
    }
    forget(feed, f"join.{feed.name}", queries[2])
    routes.send([T0 + 3_000], route=["a"], operator=["zero"])
    routes.flush()
    assert found != oracle(feed.sent, routes.sent), "a row that came too late is nowhere yet"
    wanted = oracle(feed.sent, routes.sent)
    repaired = recomputed(analysis, lane, queries[0], queries, [feed], RepairKind.REPAIR)
    assert repaired.state == "done"
    latest = truth(results(feed.config, sums), "operator")
    open_from = T0 + 120_000
    assert {
        at: row["total"]
        for at, row in latest.items()
        if "withdrawn" not in row and at[0] < open_from
    } == {at: total for at, total in wanted.items() if at[0] < open_from}, (
        "a repair looks rows up in the table as it is now"
    )
    again = recomputed(analysis, lane, queries[0], queries, [feed], RepairKind.REPAIR)
    assert (again.added, again.changed, again.withdrawn, again.unchanged) == (
        0,
        0,
        0,
        repaired.added + repaired.changed + repaired.unchanged,
    )
    looked_back = recomputed(analysis, lane, queries[2], queries, [feed], RepairKind.REPAIR)
    assert (looked_back.state, looked_back.changed, looked_back.unchanged) == ("done", 0, 6), (
        "all but the last, which is not closed"
    )
    for one in queries:
        assert recomputed(analysis, lane, one, queries, [feed], RepairKind.REBUILD).state == "done"
    latest = truth(results(feed.config, sums), "operator")
    assert {at: row["total"] for at, row in latest.items() if "withdrawn" not in row} == oracle(
        feed.sent, routes.sent
    )
    assert kept
    assert {
        key: value
        for key, value in kept_rows(feed.config, f"join.{feed.name}").items()
        if odd in key
    } == kept
    assert {row["speed"]: row["z"] for row in results(feed.config, odd)} == pytest.approx(scores)


def test_a_table_whose_topic_is_made_later_is_read_from_its_beginning_and_only_once(
    kafka_config: KafkaConfig,
) -> None:
    stream = unique("later")
    topic = topics.stream_topic(stream)
    follower = TableFollower(kafka_config, {topic}, {})
    try:
        assert list(follower.read()) == []
        table = Feed(kafka_config, stream, {"route": FieldType.STRING})
        table.send([T0], route=["a"])
        table.send([T0], device="another", route=["b"])
        table.flush()

        def devices() -> set[bytes | None]:
            return {record.key for record in follower.read()}

        first = devices()  # a topic just made may be known a moment later

        def has_both() -> bool:
            first.update(devices())
            return first == {b"d1", b"another"}

        wait_until(has_both, "both rows")
        assert devices() == set()
    finally:
        follower.close()
    again = TableFollower(kafka_config, {topic}, dict(follower.positions))
    try:
        assert list(again.read()) == []
        table.send([T0 + 1], device="third", route=["c"])
        table.flush()
        assert [record.key for record in again.read()] == [b"third"]
    finally:
        again.close()


def test_readings_know_what_their_device_said_of_itself(analysis: Analysis, feed: Feed) -> None:
    topic_admin.ensure_topics(feed.config, [topics.DEVICES])
    device, name = unique("d"), unique("q")
    for version, at in (("1.0", T0), ("2.0", T0 + 10_000)):
        status = DeviceStatus(
            device=device, state=DeviceState.ONLINE, received_at=at, version=version
        )
        feed.producer.produce(topics.DEVICES, status.to_json(), f"{device}|status")
    feed.send([T0 - 5_000, T0 + 5_000, T0 + 15_000], device=device, speed=[1.0, 2.0, 3.0])
    feed.flush()
    text = (
        f"-- name: {name}\nSELECT speed, version FROM {feed.name} LEFT JOIN devices USING (device)"
    )
    analysis.run(registered(text, streams=[feed.stream]), feed)
    assert [(row["speed"], row["version"]) for row in results(feed.config, name)] == [
        (1.0, None),
        (2.0, "1.0"),
        (3.0, "2.0"),
    ]


@BOTH_STORES
def test_what_was_seen_before_is_remembered_over_a_restart(
    analysis: Analysis, new_feed: NewFeed, state_store: StateStore
) -> None:
    """What the last batch had is lost once, and computed again from the log."""
    feed = new_feed({"speed": FieldType.NUMBER, "route": FieldType.STRING})
    first, anyone = unique("first"), unique("anyone")
    queries = registered(
        f"-- name: {first}\nSELECT speed, route FROM {feed.name} WHERE NOT seen_before(route)",
        f"-- name: {anyone}\nSELECT speed, seen_before_by_anyone(route, '1 hour', 2000) AS again "
        f"FROM {feed.name}",
        streams=[feed.stream],
    )
    names = [f"route {i}" for i in range(300)]
    with stored(analysis.session, state_store):
        here = analysis.with_config(state_store=state_store)
        feed.send([T0] * 300, speed=[float(i) for i in range(300)], route=names)
        with here.running(queries, feed) as lane:
            pass
        lose_last_batch(lane.checkpoint)
        feed.send([T0 + 1] * 3, speed=[300.0, 301.0, 302.0], route=[names[7], "new", None])
        feed.send([T0 + 2] * 2, device="d2", speed=[303.0, 304.0], route=[names[8], "newer"])
        with here.running(queries, feed) as lane:
            catch_up(lane, feed)
    passed = {row["speed"]: row["device"] for row in results(feed.config, first)}
    assert passed == {float(i): "d1" for i in (*range(300), 301)} | {303.0: "d2", 304.0: "d2"}
    again = {row["speed"]: row["again"] for row in results(feed.config, anyone)}
    assert [again[float(i)] for i in range(305)] == [False] * 300 + [True, False, None, True, False]
