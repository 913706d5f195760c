"""A slow query is found among fast ones, gets a lane of its own, and the others go on without it;
what it tells stays exact.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.checkpoints.checkpoint import copied, remove_unused
from edgewake.cloud.analysis.checkpoints.state_rows import kept_rows
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes import lane
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord, isolated
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.analysis.results.transaction import lane_rows
from edgewake.cloud.analysis.schedule.slow import NOTHING, Behind, Cost, slow_one
from edgewake.cloud.analysis.supervision import slow_search
from edgewake.cloud.analysis.supervision.slow_search import SlowSearch
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.repair.test_repairs import ask
from tests.analysis.support import (
    ALL_LANES,
    T0,
    Analysis,
    Feed,
    catch_up,
    declare,
    read,
    register,
    registered,
    remove,
    results,
    sql,
    totals,
    unique,
)
from tests.analysis.test_process import NewFeed, progress
from tests.analysis.test_run import _no_query_stays, running, set_paused
from tests.services import wait_until

__all__ = ["_no_query_stays"]

Costs = Mapping[str, float]
BASE_S = 0.05
"""What every run costs, whichever queries are in it."""


def found(costs: Costs) -> str | None:
    slow = slow_one(list(costs), lambda queries: BASE_S + sum(costs[query] for query in queries))
    return None if slow is None else slow.query


@given(st.integers(1, 60), st.data())
def test_of_any_number_of_queries_the_slow_one_is_found_and_no_other(
    count: int, data: st.DataObject
) -> None:
    fast = {f"q{i}": data.draw(st.floats(0.01, 0.03)) for i in range(count)}
    place = data.draw(st.integers(0, count))
    costs = dict([*list(fast.items())[:place], ("slow", 20.0), *list(fast.items())[place:]])

    assert found(costs) == "slow"
    assert found(fast) is None, "control: queries that are alike are not to blame for one another"


@pytest.mark.parametrize(
    ("costs", "slow"),
    [
        pytest.param({"a": 5.0}, None, id="nobody waits for the only one"),
        pytest.param({"a": 5.0, "b": 5.0}, None, id="two heavy ones wait for each other alike"),
        pytest.param({"a": 1.0, "b": 3.0}, None, id="one that takes three times as much stays"),
        pytest.param(
            {"a": 4.0, "b": 4.0} | {f"q{i}": 0.1 for i in range(6)},
            "a",
            id="of two slow ones one at a time",
        ),
        pytest.param(
            {f"q{i}": 0.1 for i in range(9)} | {"slow": 0.25},
            None,
            id="the others would gain little",
        ),
    ],
)
def test_a_query_is_slow_by_what_the_others_would_gain(costs: Costs, slow: str | None) -> None:
    assert found(costs) == slow


def test_what_disturbs_one_measurement_sets_nobody_apart() -> None:
    runs = itertools.count()

    def seconds(queries: Sequence[str]) -> float:
        return BASE_S + len(queries) * (3.0 if next(runs) % 7 == 0 else 1.0)

    assert all(slow_one(["a", "b", "c", "d", "e"], seconds) is None for _ in range(50))


def ended(batches: Iterable[tuple[float, int, bool]]) -> float:
    """How long a lane is behind after batches without a pause that took so long, left so many
    unread, and were cut off or not.
    """
    behind, now_s = Behind(), 0.0
    for took_s, unread, is_cut_off in batches:
        behind.begins(now_s)
        now_s += took_s
        behind.ends(now_s, unread, is_cut_off=is_cut_off)
    return behind.seconds(now_s)


@pytest.mark.parametrize(
    ("batches", "behind_s"),
    [
        pytest.param(
            [(1.0, 5, False)] * 60, 0.0, id="short batches keep up, though readings come meanwhile"
        ),
        pytest.param(
            [(2.0, unread, True) for unread in range(5000, 0, -50)],
            0.0,
            id="a backlog that shrinks is caught up",
        ),
        pytest.param(
            [(20.0, 100 - i, False) for i in range(9)], 0.0, id="so it is in long batches"
        ),
        pytest.param([(20.0, 0, False)] * 3, 0.0, id="a long batch after which nothing waits"),
        pytest.param([(2.0, 100, True)] * 20, 40.0, id="a backlog that stays"),
        pytest.param(
            [(6.0, 100 + i, False) for i in range(5)],
            30.0,
            id="long batches, and ever more to read",
        ),
        pytest.param(
            [(2.0, unread, True) for unread in (90, 80, 85, 95, 81)],
            6.0,
            id="since there was least to read",
        ),
        pytest.param([(2.0, 100, True)] * 20 + [(1.0, 0, False)], 0.0, id="until it has caught up"),
    ],
)
def test_a_lane_is_behind_where_it_does_not_catch_up(
    batches: list[tuple[float, int, bool]], behind_s: float
) -> None:
    assert ended(batches) == behind_s


def test_the_batch_under_way_counts() -> None:
    behind = Behind()
    behind.begins(100.0)
    assert (behind.seconds(100.0), behind.seconds(145.0)) == (0.0, 45.0)


def test_what_the_driver_took_is_known_of_a_lane_that_is_behind() -> None:
    behind, cost = Behind(), Cost({"a@1": 2.0, "b@2": 6.0}, 40)

    behind.ends(9.0, 5, is_cut_off=True, cost=cost)
    assert [behind.cost.of(labels, 10) for labels in (["a@1"], ["a@1", "b@2"], ["new@3"])] == [
        0.5,
        2.0,
        0.0,
    ], "of so many records"

    behind.ends(10.0, 0, is_cut_off=False, cost=cost)
    assert behind.cost == NOTHING
    assert behind.cost.of(["a@1"], 10) == 0.0


def test_what_is_done_with_the_records_of_a_query_counts_for_it_and_nothing_between() -> None:
    now_s = 0.0

    def work(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def made() -> Iterator[int]:
        for seconds in (1, 2):
            work(seconds)
            yield seconds

    meter = Meter(lambda: now_s)
    work(100.0)
    for one in meter.of("a@1", made()):
        work(one * 10)
    work(100.0)
    meter.run("b@2", lambda: work(7))
    meter.run("a@1", lambda: work(0.5))

    assert meter.taken() == {"a@1": 33.5, "b@2": 7.0}
    assert meter.taken() == {}, "each once"


OF_A_LANE: Mapping[LaneKind, str] = {
    LaneKind.PLAIN: (
        "SELECT device, sum(speed) AS v FROM {s} GROUP BY window(event_time, '1 minute'), device"
    ),
    LaneKind.SKETCH: (
        "SELECT approx_percentile(speed, 0.5) AS v FROM {s} GROUP BY window(event_time, '1 minute')"
    ),
    LaneKind.DISTINCT: (
        "SELECT device, approx_count_distinct(speed) AS v FROM {s} GROUP BY window(event_time, '1 "
        "minute'), device"
    ),
    LaneKind.PLAIN_SHED: (
        "-- shed: random above 60 seconds\nSELECT sum(speed) AS v FROM {s} GROUP BY "
        "window(event_time, '1 minute')"
    ),
    LaneKind.SKETCH_SHED: (
        "-- shed: random above 60 seconds\nSELECT var_pop(speed) AS v FROM {s} GROUP BY "
        "window(event_time, '1 minute')"
    ),
    LaneKind.ROWS: "SELECT device, speed FROM {s} WHERE speed > 1",
    LaneKind.CHANGE: "-- on_change: device\nSELECT speed FROM {s}",
    LaneKind.SEQUENCE: (
        "SELECT device, sum(speed) AS v FROM {s} GROUP BY session_window(event_time, '5 "
        "minutes'), device"
    ),
    LaneKind.TABLE_JOIN: (
        "SELECT a.device, b.street AS street FROM {s} a JOIN {t} b ON a.device = b.device WHERE "
        "trend(a.speed, '1 minute') > 0"
    ),
    LaneKind.STREAM_JOIN: (
        "SELECT a.speed AS v FROM {s} a JOIN {s} b ON a.device = b.device AND b.event_time = "
        "a.event_time"
    ),
    LaneKind.TABLE: "-- table: device\nSELECT speed FROM {s}",
}
"""A query of each kind of lane."""
ROWS_MADE = ("query", "part", "window_start", "window_end", "key", "readings", "t", "values", "of")
ROWS_READ = (
    "partition",
    "offset",
    "number",
    "oldest",
    "value",
    "reading",
    "x",
    "extremes",
    "items",
)


FIELDS = {"speed": FieldType.NUMBER, "street": FieldType.STRING}


def beside_each_other(kind: LaneKind, s: str, t: str) -> tuple[list[Registered], Job]:
    """Two queries of a lane of this kind, and its job."""
    streams = [
        Stream(name=name, fields={field: FieldInfo(type=of) for field, of in FIELDS.items()})
        for name in (s, t)
    ]
    text = OF_A_LANE[kind].format(s=s, t=t)
    queries = registered(
        *(f"-- name: {name}\n{text}" for name in ("one", "other")), streams=streams
    )
    (((_, found), job),) = jobs_of(queries, {s: FIELDS, t: FIELDS}).items()
    assert found is kind
    return queries, job


@pytest.mark.parametrize("kind", LaneKind)
def test_in_every_kind_of_lane_what_the_driver_does_for_each_query_is_counted(
    kind: LaneKind,
) -> None:
    queries, job = beside_each_other(kind, "s", "t")
    meter = Meter(itertools.count().__next__)
    nothing = pa.table({name: pa.array([], pa.int64()) for name in (*ROWS_MADE, *ROWS_READ)})
    broken: emit.Broken = {}

    list(
        job.new_states().outputs(
            nothing, emit.Batch(revision=1, top_before=None, top=None, meter=meter), broken
        )
    )

    assert not broken
    assert meter.taken() == dict.fromkeys((one.label for one in queries), 1), (
        "once each, and nothing within another"
    )


@pytest.mark.parametrize("kind", [LaneKind.TABLE_JOIN, LaneKind.TABLE])
def test_so_is_what_it_reads_of_tables(kind: LaneKind, new_feed: NewFeed) -> None:
    feed, other = new_feed(FIELDS), new_feed(FIELDS)
    queries, job = beside_each_other(kind, feed.name, other.name)
    for each in (feed, other):
        each.send([T0], speed=[1.0], street=["a"])
        each.flush()
    meter, states = Meter(itertools.count().__next__), job.new_states()

    found = states.follower(feed.config)
    assert found is not None
    with closing(found) as follower:
        list(states.catch_up(follower, {}, meter))

    assert meter.taken() == dict.fromkeys((one.label for one in queries), 1)


def test_a_query_set_apart_goes_on_where_its_lane_stands() -> None:
    before = LaneRecord(
        stream="s", lane="plain", revision=7, top=5, tops={0: 5}, offsets={"ew.s.s": {0: 3}},
        joined_at_offsets={"a@1": {}, "b@2": {"ew.s.s": {0: 2}}}, complete_from={"b@2": 9},
        late={"a@1": 4, "b@2": 6},
    )  # fmt: skip

    own = isolated(before, "s~b@2", "b@2", "slow")

    kept = {
        "joined_at_offsets": {"b@2": {"ew.s.s": {0: 2}}},
        "complete_from": {"b@2": 9},
        "late": {"b@2": 6},
    }
    assert own == before.model_copy(update={"stream": "s~b@2", "isolated": "slow", **kept})
    assert own.key == b"s~b@2|plain"


def test_the_copy_of_a_state_is_another_spark_querys_and_is_removed_with_its_query(
    tmp_path: Path,
) -> None:
    old, own = tmp_path / "s" / "plain", tmp_path / "s~b@2" / "plain"
    (old / "state" / "0" / "0").mkdir(parents=True)
    (old / "metadata").write_text('{"id":"old"}')
    (old / ".metadata.crc").write_text("of the old one")
    (old / "state" / "0" / "0" / "1.changelog").write_text("state")
    (old / "format").write_text("2")
    (own / "left").mkdir(parents=True)

    copied(old, own, "new")

    files = {
        str(path.relative_to(own)): path.read_text() for path in own.rglob("*") if path.is_file()
    }
    assert files == {"format": "2", "metadata": '{"id":"new"}', "state/0/0/1.changelog": "state"}
    assert not (own / "left").exists()
    assert remove_unused(tmp_path, queried={"s"}, kinds={"plain"}, isolated={"b@2"}) == []
    assert remove_unused(tmp_path, queried={"s"}, kinds={"plain"}) == [("s~b@2", "plain")]
    assert [path.name for path in tmp_path.iterdir()] == ["s"], "its folder, too"


SLOW_WHERE = "WHERE street RLIKE 'a.*b' OR street RLIKE 'a.*c' OR speed > 0"
LOOKS_BACK = "robust_zscore(speed, 5) > 0 OR"
"""Makes a condition one that the driver computes."""
SLOW_TEXT = "a" * 1000
"""The longest that RLIKE looks at: each of the two takes a million steps until it is false."""
FRAMES, READINGS = 10, 10
LATENESS = "6 hours"
"""On a busy machine the stream is silent for minutes, while the slow one computes: its window is to
stay open."""


def total(feed: Feed, name: str, where: str = "") -> str:
    select, group = "device, sum(speed) AS total", "window(event_time, '1 minute'), device"
    return sql(feed.name, select, group, name=name, lateness=LATENESS, where=where)


def send(feed: Feed, text: str, frames: int) -> None:
    for _ in range(frames):
        first = T0 + len(feed.sent)
        feed.send(
            [first + i for i in range(READINGS)], speed=[1.0] * READINGS, street=[text] * READINGS
        )
    feed.flush()


def told_together(config: KafkaConfig, one: str, other: str) -> bool:
    """Was `other` told of in every transaction in which `one` came further?"""
    rows = [row for row in read(config, topics.PROGRESS) if row.value["state"] == "running"]
    times = {
        name: {row.value["updated_at"] for row in rows if row.key == name.encode()}
        for name in (one, other)
    }
    return times[one] <= times[other]


Events = Callable[[], list[str]]
SEARCH_ENDS = ("slow.given_up", "slow.too_little", "slow.failed", "slow.nobody", "query.slow")


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> Events:
    """What was logged, by its identifier."""
    caplog.set_level(logging.INFO, "edgewake.analysis")
    return lambda: [str(getattr(record, "event", "")) for record in caplog.records]


OF_SPARK = pytest.param("", 0.1, True, id="Spark computes it", marks=pytest.mark.long)
OF_THE_DRIVER = pytest.param(LOOKS_BACK, 0.1, True, id="the driver computes it")
CONTROL = pytest.param(
    "", 3600.0, False, id="control: it is not looked for", marks=pytest.mark.long
)


@pytest.mark.parametrize(
    ("also", "slow_s", "is_isolated"),
    [OF_SPARK, OF_THE_DRIVER, CONTROL] if ALL_LANES else [OF_SPARK, CONTROL],
)
def test_others_do_not_wait_for_a_slow_query(
    analysis: Analysis,
    feed: Feed,
    also: str,
    slow_s: float,
    is_isolated: bool,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pattern that takes long for each text, beside a sum: both read the same ones, and then one
    more. A repair waits meanwhile.
    """
    fast, slow, paused = unique("fast"), unique("slow"), unique("paused")
    declare(feed)
    register(feed, total(feed, paused), name=paused)
    set_paused(feed, paused, paused=True)
    ask(feed, paused, T0)
    register(feed, total(feed, fast, f"WHERE {also} speed > 0"), name=fast)
    register(feed, total(feed, slow, SLOW_WHERE.replace("WHERE", f"WHERE {also}")), name=slow)
    send(feed, "b", 1)
    monkeypatch.setattr(slow_search, "AGAIN_S", 0.1)
    monkeypatch.setattr(slow_search, "SEARCH_S_MAX", 300.0)  # on a busy machine
    more = (FRAMES << i for i in itertools.count())

    def looked() -> bool:
        is_searched = events().count("slow.searched") > sum(
            events().count(end) for end in SEARCH_ENDS
        )
        reached = progress(feed.config, slow)["reached"][feed.name]["offsets"]
        # On a fast machine they were soon done.
        if not is_searched and sum(reached.values()) == sum(feed.frames.values()):
            send(feed, SLOW_TEXT, next(more))
        return "query.slow" in events()

    with running(analysis.with_config(slow_s=slow_s)):
        for name in (fast, slow):
            wait_until(lambda name=name: totals(feed, name), "a first result")  # type: ignore[misc]
        send(feed, SLOW_TEXT, next(more))
        if is_isolated:
            wait_until(looked, "the slow one is apart", timeout_s=300)
            send(feed, SLOW_TEXT, FRAMES)
        every = {(T0, "d1"): float(len(feed.sent))}
        wait_until(lambda: totals(feed, fast) == every, "the fast one has all")
        wait_until(lambda: totals(feed, slow) == every, "so has the slow one")

    for name in (fast, slow):
        revisions = [row["revision"] for row in results(feed.config, name)]
        assert revisions == sorted(set(revisions)), (
            "the highest revision is the truth, also over the move"
        )
    said = progress(feed.config, slow)
    assert progress(feed.config, fast)["isolated"] is False
    assert (said["isolated"], said["state"], "a lane of its own since" in said["detail"]) == (
        is_isolated,
        "running",
        is_isolated,
    )
    assert told_together(feed.config, fast, slow) == (not is_isolated)
    assert ("slow.searched" in events()) == is_isolated
    if not is_isolated:
        return

    send(feed, "b", 1)
    with running(analysis.with_config(slow_s=slow_s)):
        last = {(T0, "d1"): float(len(feed.sent))}
        for name in (fast, slow):
            wait_until(lambda name=name: totals(feed, name) == last, "both go on after a restart")  # type: ignore[misc]
        assert progress(feed.config, slow)["isolated"] is True
        assert any(slow in key for key in kept_rows(feed.config)) == bool(also), (
            "control: the driver keeps its state there"
        )
        remove(feed, slow)
        wait_until(lambda: "checkpoint.removed" in events(), "its state goes with it")
    assert not lane_rows(feed.config, lambda name: slow in name)
    assert not [key for key in kept_rows(feed.config) if slow in key]


@pytest.mark.long
def test_a_search_and_a_batch_that_take_minutes_are_given_up_by_a_stop(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "PATIENCE_S", 0.1)
    slow = registered(
        total(feed, unique("a"), SLOW_WHERE),
        total(feed, unique("b"), SLOW_WHERE),
        streams=[feed.stream],
    )
    search = SlowSearch(
        analysis.session, analysis.with_config(slow_s=0.1).config, SystemClock(), random.Random(1)
    )
    send(feed, "b", 1)
    made = analysis.lane(slow, [feed.stream])
    made.start()
    try:
        catch_up(made, feed)
        before = made.record
        send(feed, SLOW_TEXT, 60 * FRAMES)
        wait_until(
            lambda: made.behind.seconds(SystemClock().monotonic_s()) > 0.1, "a batch is under way"
        )
        assert search.turn({("s", LaneKind.PLAIN): made}, lambda: {feed.name: feed.types}) is None
        tracker = analysis.session.sparkContext.statusTracker()
        wait_until(
            lambda: set(tracker.getJobIdsForGroup(search.group)) & set(tracker.getActiveJobsIds()),
            "the search computes",
        )

    finally:
        search.close()
        made.stop()

    wait_until(lambda: not search.is_looking, "the search is over")
    assert made.record == before, "control: the batch would have gone on, nothing of it was told"
