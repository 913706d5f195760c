"""Two streams joined within a time: against an oracle that knows all readings, over restarts, and
on real Kafka and Spark.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.checkpoints import state_parts
from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows
from edgewake.cloud.analysis.folds import stream_join
from edgewake.cloud.analysis.folds.stream_join import LEFT, RIGHT, Kept, Partners
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.jobs.stream_join_job import StreamJoinJob, StreamJoinStates
from edgewake.cloud.analysis.repair.preview import preview
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Query, Registered, Within
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.repair import RepairKind
from tests.analysis.recomputed import recomputed
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    catch_up,
    forget,
    is_result,
    late_readings,
    lose_last_batch,
    registered,
    results,
    truth,
    unique,
    watermarks,
)
from tests.examples import examples
from tests.services import wait_until

N, T = FieldInfo(type=FieldType.NUMBER), FieldInfo(type=FieldType.STRING)
STREAMS = {
    "orders": Stream(name="orders", fields={"id": T, "price": N}),
    "clicks": Stream(name="clicks", fields={"id": T, "price": N, "url": T}),
}
NewFeed = Callable[[Mapping[str, FieldType]], Feed]
BOUND = (
    "c.event_time BETWEEN o.event_time - INTERVAL 3 SECONDS AND o.event_time + INTERVAL 5 SECONDS"
)
JOIN = f"FROM orders o LEFT JOIN clicks c ON o.id = c.id AND {BOUND}"


def query(text: str, header: str = "") -> Query:
    return parse(f"-- name: q\n{header}{text}", STREAMS)


# --- the pairs, against an oracle


@dataclass
class Sent:
    """A reading of a test: of which stream, when, and by which key."""

    side: int
    t: int
    key: str | None
    place: tuple[int, int, int] = (0, 0, 0)


def record_at(top: int | None) -> LaneRecord:
    """A lane's record with event time there."""
    return LaneRecord(stream="s", lane=LaneKind.STREAM_JOIN, top=top)


@dataclass
class Run:
    """Batches of a lane without Spark and Kafka: what was told, and what stands on `ew.windows`."""

    registered: Registered
    told: list[dict[str, Any]] = field(default_factory=list)
    kept: dict[str, bytes] = field(default_factory=dict)
    late: int = 0
    offsets: list[int] = field(default_factory=lambda: [0, 0])
    top: int | None = None
    revision: int = 0
    remembered: dict[str, EmittedRows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        types = {
            name: {field: info.type for field, info in stream.fields.items()}
            for name, stream in STREAMS.items()
        }
        ((_, job),) = jobs_of([self.registered], types).items()
        assert isinstance(job, StreamJoinJob)
        self.job = job
        self.states: StreamJoinStates = job.new_states()

    def batch(
        self, readings: Sequence[Sent], emitted: Mapping[str, Mapping[int, int]] | None = None
    ) -> None:
        """A batch with these readings, each a frame of its own; event time goes on to the latest of
        them.
        """
        rows = []
        for one in readings:
            if emitted is None:
                one.place = (0, self.offsets[one.side], 0)
                self.offsets[one.side] += 1
            rows.append(
                {
                    "partition": one.side % len(self.job.sources),
                    "offset": one.place[1],
                    "oldest": T0 + one.t,
                    "value": value(one),
                }
            )
        self.revision += 1
        times = [T0 + one.t for one in readings]
        before, self.top = (
            self.top,
            max(times + ([] if self.top is None else [self.top]), default=None),
        )
        step = emit.Batch(
            revision=self.revision,
            top_before=before,
            top=self.top,
            emitted=emitted or {},
            emitted_rows=self.remembered,
        )
        table = pa.Table.from_pylist(rows[::-1], schema=SCHEMA)
        self.late += sum(
            one.readings for one in self.job.late(table, step, min(times, default=None), tuple)
        )
        broken: emit.Broken = {}
        self._write(self.states.outputs(table, step, broken))
        assert not broken

    def silence(self, top: int) -> None:
        """Event time goes on by itself."""
        self.revision += 1
        step = emit.Batch(revision=self.revision, top_before=self.top, top=top)
        if self.states.is_due(top):
            broken: emit.Broken = {}
            self._write(self.states.in_silence(step, broken))
            assert not broken
        self.top = top

    def restart(self) -> None:
        """Go on from what was written down."""
        self.states = self.job.restored(self.kept, record_at(self.top))

    def _write(self, outputs: Any) -> None:
        for one in outputs:
            if one.topic == topics.WINDOWS:
                if one.value is None:
                    assert self.kept.pop(one.key.decode(), None) is not None, (
                        "what is removed was there"
                    )
                else:
                    self.kept[one.key.decode()] = one.value
            elif is_result(one):
                self.told.append(orjson.loads(one.value))

    def pairs(self) -> list[tuple[str, str | None]]:
        return sorted(((row["reading"], row["partner"]) for row in self.told), key=str)


SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("oldest", pa.int64()),
        ("value", pa.binary()),
    ]
)


def value(one: Sent) -> bytes:
    """A reading as Kafka has it."""
    body = frame.encode(
        frame.Frame(1, 1, 1, [T0 + one.t], {"id": [one.key], "price": [float(one.t)]})
    )
    stream = ("orders", "clicks")[one.side]
    return record.encode(
        device="d",
        stream=stream,
        mode=record.Mode.ACK,
        sent_at=None,
        received_at=T0 + one.t,
        frame_bytes=body,
    )


def text(place: tuple[int, int, int]) -> str:
    return ":".join(map(str, place))


def expected(
    batches: Sequence[Sequence[Sent]], *, lateness: int
) -> tuple[list[tuple[str, str | None]], int]:
    """What is to be told, by looking at every pair of readings that were in time; and how many were
    not.
    """
    in_time: list[Sent] = []
    late, top = 0, None
    for batch in batches:
        for one in batch:
            if top is not None and one.t <= top - lateness:
                late += 1
            else:
                in_time.append(one)
        top = max([one.t for one in batch] + ([] if top is None else [top]), default=None)
    rows: list[tuple[str, str | None]] = []
    for left in (one for one in in_time if one.side == LEFT):
        found = [
            one
            for one in in_time
            if one.side == RIGHT
            and one.key == left.key is not None
            and -3_000 <= one.t - left.t <= 5_000
        ]
        rows += [(text(left.place), text(one.place)) for one in found] or [(text(left.place), None)]
    return sorted(rows, key=str), late


READINGS = st.builds(
    Sent,
    st.sampled_from([LEFT, RIGHT]),
    st.integers(0, 30).map(lambda s: s * 1_000),
    st.sampled_from(["a", "b", None]),
)


@given(st.lists(st.tuples(st.lists(READINGS, max_size=8), st.booleans()), max_size=8))
@settings(max_examples=examples(150))
def test_pairs_are_those_of_all_readings_in_time_over_restarts_and_nothing_is_kept_in_the_end(
    steps: list[tuple[list[Sent], bool]],
) -> None:
    run = Run(Registered(query(f"SELECT o.price, c.url {JOIN}", "-- lateness: 4 seconds\n"), 7))
    for readings, restarts in steps:
        run.batch(readings)
        if restarts:
            run.restart()
    run.silence(T0 + 10**9)
    rows, late = expected([readings for readings, _ in steps], lateness=4_000)
    assert run.pairs() == rows
    assert run.late == late
    assert all(row["final"] and "complete" not in row for row in run.told)
    run.batch([])
    assert run.states.partners["q@7"].count == 0
    assert run.kept == {}


def run_of(
    select: str = "SELECT o.price, c.url, c.price AS other", join: str = JOIN, rest: str = ""
) -> Run:
    return Run(Registered(query(f"{select} {join} {rest}", "-- lateness: 4 seconds\n"), 7))


def pair() -> tuple[Sent, Sent]:
    """Readings that find one another."""
    return Sent(LEFT, 10_000, "a"), Sent(RIGHT, 12_000, "a")


def test_a_repeated_batch_emits_nothing_twice_and_would_without_the_lane_s_record() -> None:
    run = run_of()
    first, second = pair()
    run.batch([first, second])
    assert len(run.told) == 1
    run.batch([first, second], emitted={"ew.s.orders": {0: 1}, "ew.s.clicks": {0: 1}})
    assert len(run.told) == 1
    run.batch([first, second], emitted={"ew.s.orders": {0: 0}})
    assert len(run.told) > 1, "the control"


def test_a_pair_is_found_over_a_restart_and_would_not_be_without_what_was_written_down() -> None:
    for is_kept in (True, False):
        run = run_of()
        first, second = pair()
        run.batch([first])
        if is_kept:
            run.restart()
        else:
            run.states = run.job.new_states()
        run.batch([second])
        run.silence(T0 + 10**9)
        assert [(row["price"], row["other"], row["partner"]) for row in run.told] == (
            [(10_000.0, 12_000.0, "0:0:0")] if is_kept else []
        )


def test_of_a_large_batch_no_more_readings_wait_than_of_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backlog: first all orders of an hour, then all clicks, of several partitions each."""
    monkeypatch.setattr(stream_join, "READINGS_MAX", 40)
    readings = [Sent(side, i * 1_000, "a") for side in (LEFT, RIGHT) for i in range(200)]
    run = run_of()
    run.batch([*readings, Sent(RIGHT, 300_000, "a")])
    assert run.pairs() == expected([readings], lateness=4_000)[0]
    assert run.late == 0
    monkeypatch.setattr(stream_join, "READINGS_MAX", 4)
    control = run_of()
    control.batch([*readings, Sent(RIGHT, 300_000, "a")])
    assert control.pairs() != run.pairs(), "control: it is bounded"


def test_where_may_ask_for_readings_without_a_partner() -> None:
    run = run_of(rest="WHERE c.id IS NULL AND o.price > 5000")
    run.batch(
        [
            Sent(LEFT, 1_000, "a"),
            Sent(LEFT, 6_000, "a"),
            Sent(LEFT, 20_000, "a"),
            Sent(RIGHT, 7_000, "a"),
        ]
    )
    assert run.told == []
    run.silence(T0 + 28_999)
    assert run.told == [], "one could still come"
    run.silence(T0 + 29_000)
    assert [(row["price"], row["partner"], row["window_start"]) for row in run.told] == [
        (20_000.0, None, T0 + 20_000)
    ]


def test_a_stream_joined_with_itself_pairs_its_own_readings() -> None:
    join = (
        "FROM orders o JOIN orders c ON o.id = c.id AND c.event_time BETWEEN o.event_time AND "
        "o.event_time + INTERVAL 2 SECONDS"
    )
    run = run_of("SELECT o.price, c.price AS other", join, "WHERE o.price < c.price")
    assert run.job.sources == ("orders",)
    run.batch([Sent(0, 1_000, "a"), Sent(0, 3_000, "a"), Sent(0, 2_000, "b")])
    run.batch([Sent(0, 2_000, "a"), Sent(0, 6_000, "a")])
    assert sorted((row["price"], row["other"]) for row in run.told) == [
        (1_000.0, 2_000.0),
        (1_000.0, 3_000.0),
        (2_000.0, 3_000.0),
    ]


def test_windows_over_pairs_are_final_when_no_partner_can_come_any_more() -> None:
    select = (
        "SELECT count(*) AS n, count(c.price) AS paired, sum(c.price) AS total, last(c.price) AS "
        "newest, var_pop(c.price) AS spread"
    )
    select += ", count(DISTINCT o.id) AS ids"
    run = run_of(select, rest="GROUP BY window(event_time, '10 seconds')")
    run.batch(
        [
            Sent(LEFT, 1_000, "a"),
            Sent(LEFT, 9_000, "b"),
            Sent(RIGHT, 2_000, "a"),
            Sent(RIGHT, 3_000, "a"),
            Sent(LEFT, 14_000, "c"),
        ]
    )
    run.batch([Sent(RIGHT, 12_000, "b"), Sent(RIGHT, 17_000, "x")])
    run.silence(T0 + 30_000)
    latest = truth(run.told)
    assert {
        start: (row["n"], row["paired"], row["total"], row["final"])
        for (start,), row in latest.items()
    } == {
        T0: (3, 3, 17_000.0, False),
        T0 + 10_000: (1, 0, None, True),
    }
    assert [row["ids"] for row in latest.values()] == [2, 1]
    assert [(row["newest"], row["spread"]) for row in latest.values()] == [
        (12_000.0, pytest.approx(182e6 / 9)),
        (None, None),
    ]
    assert emit.watermark(run.registered.query, T0 + 30_000) == T0 + 20_000, (
        "which says that the first one is, too"
    )
    run.batch([Sent(RIGHT, 11_000, "b")])
    assert run.late == 1


def test_the_first_groups_of_a_window_over_pairs_are_told_and_those_that_were_are_withdrawn() -> (
    None
):
    run = run_of(
        "SELECT count(*) AS n",
        rest="GROUP BY window(event_time, '10 seconds'), o.id ORDER BY n DESC LIMIT 1",
    )
    run.batch([Sent(LEFT, 1_000, "a"), Sent(RIGHT, 2_000, "a")])
    run.batch([Sent(LEFT, 1_000, "b"), Sent(RIGHT, 1_500, "b"), Sent(RIGHT, 2_500, "b")])
    assert [(row["id"], row.get("n"), row.get("withdrawn", False)) for row in run.told] == [
        ("a", 1, False),
        ("a", None, True),
        ("b", 2, False),
    ]


def test_what_is_kept_is_bounded_and_what_is_let_go_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_join, "KEY_READINGS_MAX", 2)
    run = run_of()
    run.batch([Sent(LEFT, t * 1_000, "a") for t in (1, 2, 3)])
    assert [(row["price"], row["partner"], row["complete"]) for row in run.told] == [
        (1_000.0, None, False)
    ]
    run.restart()
    monkeypatch.setattr(stream_join, "READINGS_MAX", 3)
    run.batch([Sent(LEFT, 4_000, key) for key in "bc"])
    assert [row["price"] for row in run.told] == [1_000.0, 2_000.0], (
        "the one that would be kept the shortest"
    )
    run.restart()
    run.batch([Sent(RIGHT, 4_500, "a")])
    assert sorted(row["price"] for row in run.told if row["partner"]) == [3_000.0]


@given(
    st.lists(
        st.tuples(st.sampled_from([LEFT, RIGHT]), st.integers(0, 9), st.sampled_from("abc")),
        max_size=60,
    ),
    st.integers(1, 4),
)
@settings(max_examples=examples(60))
def test_never_more_is_kept_than_the_bounds_say(
    steps: list[tuple[int, int, str]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_join, "KEY_READINGS_MAX", most)
        patch.setattr(stream_join, "READINGS_MAX", 2 * most)
        patch.setattr(stream_join, "CHARS_MAX", 7 * most)
        kept = Partners(Within(-2, 3))
        gone = 0
        for i, (side, t, key) in enumerate(steps):
            gone += len(kept.put(side, key, Kept(t, (0, i, 0), ["x" * t, None, 1.5]))[1])  # type: ignore[arg-type]
            standing = [one for of_side in kept.of for all_of in of_side.values() for one in all_of]
            assert kept.count == len(standing) == i + 1 - gone <= 2 * most
            assert kept.chars == sum(one.t for one in standing) <= 7 * most
            assert all(len(all_of) <= most for of_side in kept.of for all_of in of_side.values())
        kept.over(100)
        assert kept.count == 0
        assert not kept.is_due(10**9)


def test_what_comes_and_goes_within_a_batch_takes_no_memory() -> None:
    kept, many = Partners(Within(0, 10)), 5 * stream_join.KEY_READINGS_MAX
    one = weakref.WeakSet[Any]()

    class Watched(Kept):
        """A reading that can be watched."""

    for t in range(many):
        reading = Watched(t, (0, t, 0), [])
        one.add(reading)
        kept.put(LEFT, "a", reading)
        kept.over(t)
    del reading
    assert kept.count <= 11
    assert len(one) <= 2 * stream_join.KEY_READINGS_MAX, "of all that came"
    (record,) = kept.dump(1, many).values()
    assert record is not None
    assert len(orjson.loads(record)[1]) == kept.count


# --- on real parts


def in_duckdb(
    left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]], select: str
) -> list[tuple[Any, ...]]:
    """What a database gives for the same JOIN."""
    with duckdb.connect() as database:
        for name, readings in (("o", left), ("c", right)):
            database.execute(f"CREATE TABLE {name} (t BIGINT, id TEXT, v DOUBLE)")
            database.executemany(
                f"INSERT INTO {name} VALUES (?, ?, ?)",
                [[one["t"], one.get("id"), one["v"]] for one in readings],
            )
        join = "FROM o LEFT JOIN c ON o.id = c.id AND c.t BETWEEN o.t - 3000 AND o.t + 5000"
        rows: list[tuple[Any, ...]] = database.execute(
            f"{select.format(join=join)} ORDER BY ALL"
        ).fetchall()
        return rows


def test_pairs_and_windows_over_them_equal_duckdb_over_a_restart(
    analysis: Analysis, new_feed: NewFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if all that is kept were too large for a record.
    monkeypatch.setattr(state_parts, "PART_BYTES_MAX", 100)
    orders, clicks = (new_feed({"id": FieldType.STRING, "v": FieldType.NUMBER}) for _ in range(2))
    rows, control, counts, soon = (
        unique("rows"),
        unique("control"),
        unique("counts"),
        unique("soon"),
    )
    join = f"FROM {orders.name} o LEFT JOIN {clicks.name} c ON o.id = c.id AND {BOUND}"
    pairs = f"SELECT o.v, c.v AS other {join}"
    queries = registered(
        f"-- name: {rows}\n-- lateness: 10 seconds\n{pairs}",
        f"-- name: {control}\n-- lateness: 10 seconds\n{pairs}",
        f"-- name: {counts}\n-- lateness: 10 seconds\nSELECT o.id, count(*) AS n, sum(c.v) AS "
        f"total {join} GROUP BY window(event_time, '10 seconds'), o.id",
        f"-- name: {soon}\n-- lateness: 0 seconds\nSELECT o.v, c.v AS other FROM {orders.name} o "
        f"LEFT JOIN {clicks.name} c ON o.id = c.id"
        " AND c.event_time BETWEEN o.event_time AND o.event_time + INTERVAL 1 SECOND",
        streams=[orders.stream, clicks.stream],
    )

    def send(feed: Feed, seconds: Sequence[int], *keys: str | None) -> None:
        for i, (at, key) in enumerate(zip(seconds, keys, strict=True)):
            feed.send([T0 + at * 1_000], device=f"d{i % 3}", id=[key], v=[float(at)])

    send(orders, [1, 2, 5, 9], "a", "b", None, "c")
    send(clicks, [4, 3, 6], "a", "x", "a")
    clicks.flush()
    orders.flush()
    with analysis.running(queries, orders) as lane:
        catch_up(lane, clicks)
        assert len(results(orders.config, rows)) == 3, (
            "two partners of one, and null equals nothing"
        )
    lose_last_batch(lane.checkpoint)
    forget(orders, lane.name.removesuffix("-pair"), queries[1])

    send(clicks, [6, 12], "b", "c")
    send(orders, [8, 40], "a", "z")
    clicks.flush()
    orders.flush()
    with analysis.with_config(idle_s=0.1).running(queries, orders) as lane:
        catch_up(lane, clicks)
        in_time = list(clicks.sent)
        send(clicks, [7], "a")
        send(clicks, [41], "z")
        in_time.append(clicks.sent[-1])
        catch_up(lane, clicks)
        send(orders, [200], "end")
        catch_up(lane, orders)
        orders_over = orders.sent[:-1]
        everything = in_duckdb(orders_over, in_time, "SELECT o.v, c.v {join}")
        found = {
            name: [(row["v"], row["other"]) for row in results(orders.config, name)]
            for name in (rows, control)
        }
        assert sorted(found[rows], key=str) == sorted(everything, key=str)
        assert (9.0, 12.0) in everything
        assert (9.0, 12.0) not in found[control], "without what was kept: the control"

        def last() -> list[Any]:
            lane.advance_in_silence()
            return [row["other"] for row in results(orders.config, soon) if row["v"] == 200.0]

        wait_until(lambda: last() == [None], "that none can come is told though nobody sends")
    latest = truth(results(orders.config, counts), "id")
    windows = {(start, key): (row["n"], row["total"]) for (start, key), row in latest.items()}
    grouped = "SELECT o.t // 10000 * 10000, o.id, count(*), sum(c.v) {join} GROUP BY ALL"
    assert windows == {
        (start, key): (n, total)
        for start, key, n, total in in_duckdb(orders_over, in_time, grouped)
    }
    assert watermarks(orders.config, counts)[-1] == T0 + 180_000
    assert [
        (one["late_stream"], one["readings"]) for one in late_readings(orders.config, rows)
    ] == [(clicks.name, 1)]
    catalogue = {feed.name: feed.stream for feed in (orders, clicks)}
    shown = preview(
        analysis.session,
        orders.config,
        f"-- name: shown\n{pairs}",
        catalogue,
        since_ms=0,
        now_ms=SystemClock().now_ms(),
    )
    assert sorted(((row["v"], row["other"]) for row in shown), key=str) == sorted(
        in_duckdb(orders.sent, clicks.sent, "SELECT o.v, c.v {join}"), key=str
    )
    assert len(clicks.sent) == len(in_time) + 1
    rebuilt = recomputed(analysis, lane, queries[1], queries, [orders], RepairKind.REBUILD)
    repaired = recomputed(analysis, lane, queries[2], queries, [orders], RepairKind.REPAIR)
    assert (rebuilt.state, repaired.state) == ("done", "done"), (rebuilt, repaired)
    latest = truth(results(orders.config, control), "device", "reading", "partner")
    whole = [
        (row["v"], row["other"])
        for row in latest.values()
        if "withdrawn" not in row and row["v"] != 200.0
    ]
    assert sorted(whole, key=str) == sorted(
        in_duckdb(orders_over, clicks.sent, "SELECT o.v, c.v {join}"), key=str
    ), "also what was late"
    latest = truth(results(orders.config, counts), "id")
    windows = {(start, key): (row["n"], row["total"]) for (start, key), row in latest.items()}
    assert windows == {
        (start, key): (n, total)
        for start, key, n, total in in_duckdb(orders_over, clicks.sent, grouped)
    }
    kept = kept_rows(orders.config, lane.name.removesuffix("-pair"))
    assert max(map(len, kept.values())) == 100
    states = replace(lane.job, queries=tuple(queries[:2])).restored(
        state_parts.joined(kept), lane.record
    )
    assert isinstance(states, StreamJoinStates)
    assert states.partners[queries[1].label].count == states.partners[queries[0].label].count > 0, (
        "it goes on as one that forgot nothing"
    )
    again = recomputed(analysis, lane, queries[1], queries, [orders], RepairKind.REPAIR)
    assert (again.added, again.changed, again.withdrawn) == (0, 0, 0)
    check_united(analysis, orders, clicks)


def check_united(analysis: Analysis, *feeds: Feed) -> None:
    """Both streams as one, over a restart that repeats a batch."""
    sums = unique("sums")
    streams = [feed.stream for feed in feeds]
    both = f"(SELECT * FROM {feeds[0].name} UNION ALL SELECT * FROM {feeds[1].name})"
    text = (
        f"-- lateness: 1 day\nSELECT id, count(*) AS n, sum(v) AS total FROM {both} GROUP BY "
        "window(event_time, '10 seconds'), id"
    )
    (united,) = registered(f"-- name: {sums}\n{text}", streams=streams)
    catalogue, now_ms = {one.name: one for one in streams}, SystemClock().now_ms()
    shown = list(
        preview(
            analysis.session,
            feeds[0].config,
            f"-- name: shown\n{text}",
            catalogue,
            since_ms=0,
            now_ms=now_ms,
        )
    )
    for i in range(2):
        lane = analysis.run([united], *feeds)
        if not i:
            # The first one, perhaps: then there is a state of no batch.
            lose_last_batch(lane.checkpoint)
            feeds[1].send([T0 + 210_000], id=["more"], v=[1.0])
    with duckdb.connect() as database:
        database.execute("CREATE TABLE r (t BIGINT, id TEXT, v DOUBLE)")
        database.executemany(
            "INSERT INTO r VALUES (?, ?, ?)",
            [[one["t"], one.get("id"), one["v"]] for feed in feeds for one in feed.sent],
        )
        expected = database.execute(
            "SELECT t // 10000 * 10000, id, count(*), sum(v) FROM r GROUP BY ALL"
        ).fetchall()
    latest = truth(results(feeds[0].config, sums), "id")
    assert {(start, key): (row["n"], row["total"]) for (start, key), row in latest.items()} == {
        (start, key): (n, total) for start, key, n, total in expected
    }
    assert sum(row["n"] for row in shown) == sum(len(feed.sent) for feed in feeds) - 1
