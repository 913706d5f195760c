"""Queries over tables: rows that come, change and are withdrawn, against an oracle, over restarts,
and on real Kafka and Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows
from edgewake.cloud.analysis.folds import table_state
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.jobs.table_job import TableJob
from edgewake.cloud.analysis.plan.table_rows import TableRecord
from edgewake.cloud.analysis.repair.preview import preview
from edgewake.cloud.analysis.repair.repair import Refuse, Replace, Standing, step
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Query, Registered
from edgewake.cloud.queries.query_file import UnknownStream, parse
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.device import DeviceState, DeviceStatus
from edgewake.protocol.ops.repair import Repair, RepairKind
from tests.analysis.recomputed import recomputed
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    catch_up,
    forget,
    lose_last_batch,
    registered,
    results,
    unique,
)
from tests.examples import examples

N, T, B = (FieldInfo(type=kind) for kind in (FieldType.NUMBER, FieldType.STRING, FieldType.BOOLEAN))
STREAMS = {
    "buses": Stream(name="buses", fields={"route": T, "speed": N, "gone": B}),
    "routes": Stream(name="routes", fields={"route": T, "operator": T}),
}
NewFeed = Callable[[Mapping[str, FieldType]], Feed]
JOINED = "FROM buses b {}JOIN routes r ON b.route = r.route"


def query(text: str, header: str = "-- table: device\n") -> Query:
    return parse(f"-- name: q\n{header}{text}", STREAMS)


# --- the language


def test_a_table_has_its_key_and_the_columns_of_both_sides() -> None:
    found = query(
        "SELECT route, b.speed * 2 AS twice, r.operator, b.event_time AS seen_at FROM buses b "
        "LEFT JOIN routes r USING (route)"
    )
    assert found.columns == (
        "window_start",
        "window_end",
        "device",
        "route",
        "twice",
        "operator",
        "seen_at",
    )
    assert (found.is_table, found.is_rows, found.is_completed, found.window.is_all) == (
        True,
        False,
        True,
        True,
    )
    by_route = query("SELECT device, route, speed FROM buses WHERE NOT gone", "-- table: route\n")
    assert by_route.columns == ("window_start", "window_end", "route", "device", "speed"), (
        "the device is a column as any other"
    )


@pytest.mark.parametrize(
    ("text", "header", "sentence"),
    [
        (
            "SELECT count(*) AS n FROM buses",
            "-- table: device\n",
            "emitted as they are, without GROUP BY, aggregates",
        ),
        (
            "SELECT speed FROM buses ORDER BY speed LIMIT 3",
            "-- table: device\n",
            "emitted as they are, without GROUP BY, aggregates",
        ),
        (
            "SELECT speed FROM buses",
            "-- table: devise\n",
            "unknown field 'devise': did you mean 'device'?",
        ),
        (
            "SELECT speed FROM buses",
            "-- table: event_time\n",
            "event_time differs from reading to reading",
        ),
        (
            "SELECT speed FROM buses",
            "-- table: device, device\n",
            "expected 1 to 4 different columns",
        ),
        (
            "SELECT speed FROM buses",
            "-- table: device\n-- lateness: 1 minute\n",
            "header lateness: not with table",
        ),
        (
            "SELECT speed FROM buses",
            "-- table: device\n-- shed: random above 1 minute\n",
            "header shed: not with table",
        ),
        (
            "SELECT trend(speed, '1 minute') AS t FROM buses",
            "-- table: device\n",
            "header table: not with trend",
        ),
        (
            "SELECT speed FROM buses b JOIN routes r ON b.route = r.route AND abs(b.event_time - "
            "r.event_time) < INTERVAL 1 MINUTE",
            "-- table: device\n",
            "header table: not with a JOIN within a time",
        ),
        (
            "SELECT route FROM (SELECT * FROM buses UNION ALL SELECT * FROM routes)",
            "-- table: device\n",
            "UNION ALL: not with header table",
        ),
        (
            "SELECT r.operator AS device FROM buses b JOIN routes r USING (route)",
            "-- table: device\n",
            "the name 'device' twice",
        ),
        (
            "SELECT v FROM buses UNPIVOT (v FOR m IN (speed))",
            "-- table: device\n",
            "UNPIVOT: only with aggregates",
        ),
    ],
)
def test_what_a_table_cannot_be_is_refused_with_what_to_write(
    text: str, header: str, sentence: str
) -> None:
    with pytest.raises(QueryError, match=re.escape(sentence)):
        query(text, header)


def test_a_query_over_a_table_that_is_not_there_yet_waits_for_it() -> None:
    with pytest.raises(UnknownStream, match="did you mean 'routes'"):
        query("SELECT speed FROM buses b JOIN route r ON b.route = r.route")


def test_there_is_nothing_to_repair_and_its_state_can_be_replaced() -> None:
    one = Registered(query("SELECT speed FROM buses"), 7)
    standing = Standing(one, LaneRecord(stream="buses", lane="table", top=T0), {})
    for kind, expected in (
        (RepairKind.REPAIR, Refuse),
        (RepairKind.BACKFILL, Refuse),
        (RepairKind.REBUILD, Replace),
    ):
        asked = Repair(
            id="r",
            query="q",
            registered_at=7,
            kind=kind,
            begin=0,
            asked_at=1,
            asked_by="test",
            updated_at=1,
        )
        assert isinstance(step(asked, 7, standing), expected)


# --- the rows, against an oracle


@dataclass
class Sent:
    """A reading of either stream."""

    stream: str
    t: int
    fields: dict[str, Any]
    device: str = "d"
    place: tuple[int, int] = (0, 0)


NOTHING = pa.table({})
RECORD = LaneRecord(stream="s", lane=LaneKind.TABLE)


@dataclass
class Run:
    """Batches of a lane without Spark and Kafka: the result as its readers have it, and what stands
    on `ew.windows`.
    """

    registered: Registered
    result: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    told: int = 0
    kept: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    lacks: int = 0
    revision: int = 0

    def __post_init__(self) -> None:
        types = {
            name: {field: info.type for field, info in stream.fields.items()}
            for name, stream in STREAMS.items()
        }
        (job,) = jobs_of([self.registered], types).values()
        assert isinstance(job, TableJob)
        self.job, self.states = job, job.new_states()

    def batch(self, *sent: Sent) -> None:
        """A batch with these readings, each a frame of its own."""
        (view,) = self.states.views.values()
        for one in sent:
            partition = len(one.device) % 2
            offset = self.offsets.get((one.stream, partition), 0)
            one.place, self.offsets[one.stream, partition] = (partition, offset), offset + 1
            topic = topics.stream_topic(one.stream)
            view.put(TableRecord(topic, partition, offset, None, value(one)))
            view.read(topic, partition, offset + 1)
        self.write()

    def write(self) -> None:
        """What the batch tells."""
        self.revision += 1
        step, broken = (
            emit.Batch(revision=self.revision, top_before=None, top=T0),
            dict[str, str](),
        )
        for one in self.states.outputs(NOTHING, step, broken):
            if one.topic == topics.WINDOWS:
                key = one.key.decode()
                self.kept.pop(key, None)
                if one.value is not None:
                    self.kept[key] = one.value
                continue
            self.told += 1
            row = orjson.loads(one.value or b"")
            assert row.pop("revision") == self.revision
            if row.get("withdrawn"):
                assert self.result.pop(one.key, None) is not None, "what is withdrawn was told"
            else:
                self.result[one.key] = row
        assert not broken
        self.lacks += len(step.lacks_before)

    def restart(self) -> None:
        """Go on from what was written down."""
        self.states = self.job.restored(self.kept, RECORD)


def value(one: Sent) -> bytes:
    """A reading as Kafka has it."""
    body = frame.encode(
        frame.Frame(1, 1, 1, [T0 + one.t], {name: [each] for name, each in one.fields.items()})
    )
    return record.encode(
        device=one.device,
        stream=one.stream,
        mode=record.Mode.ACK,
        sent_at=None,
        received_at=T0 + one.t,
        frame_bytes=body,
    )


def expected(sent: list[Sent], *, is_left: bool) -> dict[str, tuple[Any, Any]]:
    """Device → speed and operator, from the latest reading of each device and route."""

    def newest(stream: str, key: Callable[[Sent], Any]) -> dict[Any, Sent]:
        found: dict[Any, Sent] = {}
        for one in sorted(
            (one for one in sent if one.stream == stream), key=lambda one: (one.t, one.place)
        ):
            found[key(one)] = one
        return found

    routes = newest("routes", lambda one: one.fields["route"])
    rows: dict[str, tuple[Any, Any]] = {}
    for device, bus in newest("buses", lambda one: one.device).items():
        route = routes.get(bus.fields["route"]) if bus.fields["route"] is not None else None
        if bus.fields["speed"] < 8 and (is_left or route is not None):
            rows[device] = bus.fields["speed"], None if route is None else route.fields["operator"]
    return rows


NAMES = st.sampled_from(["a", "b", None])
BUSES = st.builds(
    lambda device, t, route, speed: Sent("buses", t, {"route": route, "speed": speed}, device),
    st.sampled_from(["x", "yy", "zzz"]), st.integers(0, 5), NAMES, st.integers(0, 9).map(float),
)  # fmt: skip
ROUTES = st.builds(
    lambda device, t, route,
    operator: Sent("routes", t, {"route": route, "operator": operator}, device),
    st.sampled_from(["x", "yy"]), st.integers(0, 5), NAMES, st.sampled_from(["one", "two"]),
)  # fmt: skip


@given(
    st.booleans(),
    st.lists(st.tuples(st.lists(BUSES | ROUTES, max_size=6), st.booleans()), max_size=8),
)
@settings(max_examples=examples(150))
def test_the_result_is_that_of_the_latest_rows_of_both_tables_after_each_batch_and_over_restarts(
    is_left: bool, steps: list[tuple[list[Sent], bool]]
) -> None:
    left = "LEFT " if is_left else ""
    run = Run(
        Registered(query(f"SELECT b.speed, r.operator {JOINED.format(left)} WHERE b.speed < 8"), 7)
    )
    sent: list[Sent] = []
    for readings, restarts in steps:
        run.batch(*readings)
        sent += readings
        rows = {row["device"]: (row["speed"], row["operator"]) for row in run.result.values()}
        assert rows == expected(sent, is_left=is_left)
        if restarts:
            run.restart()
        told = run.told
        run.write()
        assert run.told == told, "nothing is told twice"


def test_a_row_follows_both_tables_is_withdrawn_and_ignores_fields_it_does_not_show() -> None:
    run = Run(
        Registered(
            query(f"SELECT r.operator {JOINED.format('')} WHERE NOT coalesce(gone, false)"), 7
        )
    )

    def said(*sent: Sent) -> tuple[int, list[str]]:
        before = run.told
        run.batch(*sent)
        return run.told - before, sorted(row["operator"] for row in run.result.values())

    def bus(t: int, route: str, *, gone: bool | None = None) -> Sent:
        return Sent("buses", t, {"route": route, "speed": float(t), "gone": gone})

    def route(t: int, name: str, operator: str) -> Sent:
        return Sent("routes", t, {"route": name, "operator": operator})

    assert said(bus(1, "a")) == (0, [])
    assert said(route(2, "a", "one")) == (1, ["one"]), "insert"
    assert said(bus(3, "a")) == (0, ["one"]), "another speed is no news here"
    assert said(route(4, "a", "two"), route(5, "a", "three")) == (1, ["three"]), (
        "update, as it stands after the batch"
    )
    assert said(route(3, "a", "old")) == (0, ["three"]), "what comes late changes nothing"
    assert said(bus(6, "b")) == (1, []), "delete: its row is of another route now"
    assert said(bus(5, "a")) == (0, [])
    assert said(route(7, "b", "four")) == (1, ["four"])
    assert said(bus(8, "b", gone=True)) == (1, []), "delete: WHERE"
    assert said(route(9, "b", "five")) == (0, [])
    assert said(bus(10, "b")) == (1, ["five"])


def test_a_table_has_a_bound_and_what_is_forgotten_is_withdrawn_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(Registered(query(f"SELECT r.operator {JOINED.format('LEFT ')}"), 7))
    monkeypatch.setattr(table_state, "ROWS_MAX", 2)
    for i, device in enumerate(("x", "yy", "zzz")):
        run.batch(Sent("buses", i, {"route": "a"}, device))
    assert sorted(row["device"] for row in run.result.values()) == ["yy", "zzz"]
    assert (run.lacks, len([key for key in run.kept if "|<" in key])) == (1, 2)
    for i, name in enumerate("abc"):
        run.batch(Sent("routes", i, {"route": name, "operator": name}))
    assert [row["operator"] for row in run.result.values()] == [None, None], (
        "its row is known no more"
    )
    assert run.lacks == 2
    monkeypatch.setattr(table_state, "ROWS_MAX", 99)
    monkeypatch.setattr(table_state, "CHARS_MAX", 10)
    run.batch(Sent("routes", 9, {"route": "d", "operator": "x" * 20}))
    (view,) = run.states.views.values()
    assert list(view.linked.right.of) == ['["d"]']


def test_a_device_that_is_forgotten_is_withdrawn_and_comes_again() -> None:
    run = Run(Registered(query("SELECT d.version FROM buses b JOIN devices d USING (device)"), 7))
    (view,) = run.states.views.values()
    status = DeviceStatus(device="d", state=DeviceState.ONLINE, version="1.0", received_at=T0)
    row = status.to_json()
    assert run.job.sources == ("buses",)
    run.batch(Sent("buses", 1, {"route": "a"}))
    for offset, (body, versions) in enumerate([(row, ["1.0"]), (None, []), (row, ["1.0"])]):
        view.put(TableRecord(topics.DEVICES, 0, offset, b"d|status", body))
        run.write()
        assert [row["version"] for row in run.result.values()] == versions


# --- on real parts


def oracle(feed: Feed, routes: Feed) -> dict[str, tuple[float, str | None]]:
    """DuckDB's answer from all that was sent."""
    db = duckdb.connect()
    db.execute("CREATE TABLE b (device VARCHAR, t BIGINT, speed DOUBLE, route VARCHAR)")
    db.execute("CREATE TABLE r (t BIGINT, route VARCHAR, operator VARCHAR)")
    db.executemany(
        "INSERT INTO b VALUES (?, ?, ?, ?)",
        [[one["device"], one["t"], one["speed"], one["route"]] for one in feed.sent],
    )
    db.executemany(
        "INSERT INTO r VALUES (?, ?, ?)",
        [[one["t"], one["route"], one["operator"]] for one in routes.sent],
    )
    rows = db.execute(
        "SELECT b.device, b.speed, r.operator FROM (SELECT device, max_by(speed, t) AS speed, "
        "max_by(route, t) AS route FROM b GROUP BY 1) b JOIN (SELECT route, max_by(operator, t) "
        "AS operator FROM r GROUP BY 1) r USING (route) WHERE b.speed < 100"
    ).fetchall()
    return {device: (speed, operator) for device, speed, operator in rows}


def table(feed: Feed, name: str) -> dict[str, tuple[float, str | None]]:
    """The result as who keeps the highest revision has it."""
    newest: dict[str, dict[str, Any]] = {}
    for row in results(feed.config, name):
        assert row["device"] not in newest or newest[row["device"]]["revision"] < row["revision"]
        newest[row["device"]] = row
    return {
        device: (row["speed"], row["operator"])
        for device, row in newest.items()
        if not row.get("withdrawn")
    }


def test_tables_on_kafka_equal_the_oracle_s_over_restarts_and_a_later_query_knows_all_rows(
    analysis: Analysis, new_feed: NewFeed
) -> None:
    feed = new_feed({"speed": FieldType.NUMBER, "route": FieldType.STRING})
    routes = new_feed({"route": FieldType.STRING, "operator": FieldType.STRING})
    first, second = unique("first"), unique("second")

    def text(name: str) -> str:
        select = (
            f"SELECT b.speed, r.operator FROM {feed.name} b JOIN {routes.name} r ON b.route = "
            "r.route WHERE b.speed < 100"
        )
        return f"-- name: {name}\n-- table: device\n{select}"

    queries = registered(text(first), text(second), streams=[feed.stream, routes.stream])
    routes.send([T0, T0], route=["a", "b"], operator=["one", "two"])
    routes.flush()
    feed.send([T0 + 1_000, T0 + 9_000], device="d1", speed=[1.0, 2.0], route=["a", "b"])
    feed.send([T0 + 2_000], device="d2", speed=[3.0], route=["a"])
    feed.send([T0 + 2_000], device="d3", speed=[4.0], route=["a"])
    with analysis.running(queries[:1], feed) as lane:
        assert lane.name == f"{feed.name}+{routes.name}-table"
        assert table(feed, first) == oracle(feed, routes)
        routes.send([T0 + 3_000], route=["a"], operator=["three"])
        catch_up(lane, routes)
        assert table(feed, first) == oracle(feed, routes), (
            "no reading came, the other table changed"
        )
    lose_last_batch(lane.checkpoint)
    told = len(results(feed.config, first))

    with analysis.running(queries, feed) as lane:
        assert len(results(feed.config, first)) == told, "nothing is told again"
        feed.send([T0 + 4_000, T0 + 4_000], device="d2", speed=[500.0, 6.0], route=["b", "c"])
        feed.send([T0 + 5_000], device="d3", speed=[200.0], route=["a"])
        catch_up(lane, feed)
        assert table(feed, first) == oracle(feed, routes) == table(feed, second)
    assert oracle(feed, routes) == {"d1": (2.0, "two")}, "two were withdrawn"

    catalogue = {one.name: one.stream for one in (feed, routes)}
    shown = preview(
        analysis.session,
        feed.config,
        text("shown"),
        catalogue,
        since_ms=0,
        now_ms=SystemClock().now_ms(),
    )
    assert {row["device"]: (row["speed"], row["operator"]) for row in shown} == oracle(feed, routes)

    place = f"{feed.name}+{routes.name}"
    kept = {
        key: value
        for key, value in kept_rows(feed.config, place).items()
        if f"|{queries[0].label}|" in key
    }
    forget(feed, place, queries[0])
    rebuilt = recomputed(analysis, lane, queries[0], queries, [feed], RepairKind.REBUILD)
    assert (
        rebuilt.state,
        rebuilt.added,
        rebuilt.changed,
        rebuilt.withdrawn,
        rebuilt.unchanged,
    ) == ("done", 0, 0, 0, 1)
    assert {
        key: value
        for key, value in kept_rows(feed.config, place).items()
        if f"|{queries[0].label}|" in key
    } == kept
    with analysis.running(queries, feed) as lane:
        feed.send([T0 + 6_000], device="d2", speed=[7.0], route=["a"])
        catch_up(lane, feed)
    assert table(feed, first) == oracle(feed, routes) == {"d1": (2.0, "two"), "d2": (7.0, "three")}
