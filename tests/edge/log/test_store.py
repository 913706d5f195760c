"""The log against a list in memory: each reading reaches the cloud and each consumer once, in
order, or is said to be lost.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.damage.salvage import is_damage
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import AtQuota, LaneQuota
from edgewake.edge.log.keeping.work import Work
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Passed
from edgewake.edge.log.tables.schema import LOG_NAME, PAGE_BYTES
from edgewake.protocol.errors import RejectReason
from tests.edge.helpers import reading
from tests.edge.log.bare_log import LIMITS, BareLog, Cloud, drained, place, readings_after
from tests.examples import examples

STREAMS = ("speed", "street")
VALUES: tuple[dict[str, object], ...] = (
    {},
    {"v": 1.5},
    {"v": "fast"},
    {"w": None, "v": 2},
    {"text": "x" * 3_000},
)
STEP = st.one_of(
    st.tuples(
        st.just("put"),
        st.sampled_from(STREAMS),
        st.integers(1, 25),
        st.integers(0, len(VALUES) - 1),
    ),
    st.tuples(st.just("put"), st.sampled_from(STREAMS), st.integers(1, 5), st.integers(0, 1)),
    st.tuples(
        st.just("lose"),
        st.sampled_from(STREAMS),
        st.integers(1, 30),
        st.sampled_from(["queue_full", "refused"]),
    ),
    st.tuples(
        st.just("send"), st.integers(0, 8), st.booleans(), st.sampled_from([None, 40, 200, 2_000])
    ),
    st.tuples(st.just("reject"), st.integers(0, 3), st.booleans(), st.none()),
    st.tuples(st.just("consume"), st.sampled_from(STREAMS), st.integers(1, 30), st.booleans()),
    st.tuples(st.sampled_from(["crash", "restart"]), st.booleans(), st.none(), st.none()),
    st.tuples(st.just("register"), st.booleans(), st.none(), st.none()),
)


@dataclass
class Life:
    """The log, its cloud and one consumer, and what they should know."""

    log: BareLog
    cloud: Cloud = field(default_factory=Cloud)
    accepted: dict[str, list[object]] = field(
        default_factory=lambda: {name: [] for name in STREAMS}
    )
    """Of each position what the cloud is to hear: n, or why it was lost."""
    rejected: int = 0
    n: int = 0
    cursor: dict[str, int] | None = None
    heard: dict[str, list[object]] = field(default_factory=dict)
    """By the consumer, up to its last commit."""

    def put(self, stream: str, count: int, kind: int) -> None:
        some: list[Reading] = [reading(self.n + place, **VALUES[kind]) for place in range(count)]
        self.accepted[stream] += range(self.n, self.n + count)
        self.n += count
        self.log.put({stream: some})

    def lose(self, stream: str, count: int, reason: str) -> None:
        self.log.store.apply(Work(lost={stream: {reason: count}}))
        self.accepted[stream] += [reason] * count

    def send(self, acknowledged: int, arrives: bool, frame_bytes: int | None) -> None:
        """What does not arrive is not acknowledged either, until the log sends it again."""
        frames = self.log.send(self.cloud.acknowledge(acknowledged), frame_bytes=frame_bytes)
        if arrives:
            self.cloud.take(frames)

    def reject(self, place: int, arrives: bool, _: None) -> None:
        """The cloud takes the frame's number for a gap that it is sent next."""
        if place >= len(self.cloud.waiting):
            return
        key = self.cloud.waiting.pop(place)
        frame = self.cloud.frames[key]
        if frame.gap is not None:
            self.cloud.waiting.append(key)
            return
        del self.cloud.frames[key]
        gone = list(frame.fields["n"])
        at = self.accepted[key.stream].index(gone[0])
        self.accepted[key.stream][at : at + len(gone)] = ["rejected"] * len(gone)
        frames = self.log.send([(key, RejectReason.TOPIC)])
        if arrives:
            self.cloud.take(frames)

    def consume(self, stream: str, readings_max: int, commits: bool) -> None:
        if self.cursor is None:
            return
        heard, at = readings_after(self.log, stream, self.cursor[stream], readings_max)
        if commits:
            self.heard[stream] += heard
            self.cursor[stream] = at
            self.log.store.apply(Work(passed={"reader": Passed({stream: at})}))

    def register(self, registers: bool, _: None, __: None) -> None:
        if registers and self.cursor is None:
            self.cursor = dict(self.log.store.register("reader", STREAMS, at_end=True).cursor)
            self.heard = {name: [None] * at for name, at in self.cursor.items()}
        elif not registers and self.cursor is not None:
            self.log.store.forget("reader")
            self.cursor = None

    def crash(self, boots: bool, _: None, __: None) -> None:
        self._over(lambda: self.log.crash(boots=boots))

    def restart(self, boots: bool, _: None, __: None) -> None:
        self._over(lambda: self.log.restart(boots=boots))

    def _over(self, again: object) -> None:
        before = self.log.sums()
        again()  # type: ignore[operator]
        self.cloud.waiting = []
        assert self.log.sums() == before, "what the log counts as it goes is what is in it"
        if self.cursor is not None:
            kept = self.log.store.consumer("reader")
            assert kept is not None
            assert kept.cursor == self.cursor

    def check(self) -> None:
        """At the end."""
        if self.cursor is not None:
            for stream in STREAMS:
                self.consume(stream, 10_000, True)
                expected = self.accepted[stream]
                assert len(self.heard[stream]) == len(expected)
                for got, due in zip(self.heard[stream], expected, strict=True):
                    assert got is None or got == due or due == "rejected"
            self.log.store.forget("reader")
        drained(self.log, self.cloud)
        assert {name: self.cloud.heard(name) for name in STREAMS} == self.accepted
        assert self.log.sums() == (0, 0, 0, 0, 0), "nothing is left in it"


@given(st.lists(STEP, min_size=1, max_size=40))
@settings(max_examples=examples(40))
def test_whatever_happens_each_reading_arrives_once_in_order_or_is_said_to_be_lost(
    steps: list[tuple[object, ...]],
) -> None:
    with place() as directory:
        life = Life(BareLog(directory))
        for what, *arguments in steps:
            getattr(life, str(what))(*arguments)
        life.check()
        life.log.close()


@given(
    st.lists(
        st.tuples(st.sampled_from(STREAMS), st.integers(1, 25), st.booleans()),
        min_size=5,
        max_size=60,
    ),
    st.sampled_from([AtQuota.DROP_OLDEST, AtQuota.DROP_NEWEST, AtQuota.THIN_OUT]),
    st.integers(300, 4_000),
)
@settings(max_examples=examples(20))
def test_a_log_that_is_full_all_the_time_says_of_every_position_what_became_of_it(
    puts: list[tuple[str, int, bool]], policy: AtQuota, size: int
) -> None:
    """The bound holds after each commit, and what is lost is counted exactly."""
    limits = replace(LIMITS, lane_quotas={Lane.NORMAL: LaneQuota(size=size, policy=policy)})
    with place() as directory:
        log, cloud, n, dropped = BareLog(directory, limits), Cloud(), 0, 0
        accepted: dict[str, list[int]] = {name: [] for name in STREAMS}
        for stream, count, restarts in puts:
            done = log.put({stream: [reading(n + more) for more in range(count)]})
            accepted[stream] += range(n, n + count)
            n, dropped = n + count, dropped + done.dropped
            if policy is AtQuota.DROP_OLDEST:
                assert log.sums()[3] <= size
            if restarts:
                before = log.sums()
                log.crash()
                assert log.sums() == before
        assert log.store.counters.get("lost_quota", 0) == dropped
        drained(log, cloud)
        for stream in STREAMS:
            heard = cloud.heard(stream)
            assert len(heard) == len(accepted[stream])
            assert all(
                got in ("quota", due) for got, due in zip(heard, accepted[stream], strict=True)
            )
        assert sum(cloud.heard(stream).count("quota") for stream in STREAMS) == dropped
        log.close()


@given(
    st.lists(
        st.tuples(st.integers(1, 25), st.integers(0, 40), st.booleans()), min_size=3, max_size=40
    ),
    st.integers(200, 2_000),
)
@settings(max_examples=examples(16))
def test_what_only_a_consumer_needs_has_its_bound_and_the_consumer_hears_of_every_position(
    steps: list[tuple[int, int, bool]], size: int
) -> None:
    with place() as directory:
        log, cloud, n, at = BareLog(directory, replace(LIMITS, consumer_bytes=size)), Cloud(), 0, 0
        heard: list[object] = []
        log.store.register("reader", ["speed"], at_end=False)
        for count, read, crashes in steps:
            log.put({"speed": [reading(n + more) for more in range(count)]})
            n += count
            cloud.take(log.send(cloud.acknowledge()))
            assert log.sums()[2] <= size
            if read:
                more, at = readings_after(log, "speed", at, read)
                heard += more
                log.store.apply(Work(passed={"reader": Passed({"speed": at})}))
            if crashes:
                before = log.sums()
                log.crash()
                assert log.sums() == before
                cloud.waiting = []
        drained(log, cloud)
        more, at = readings_after(log, "speed", at)
        assert (len(heard + more), at) == (n, n)
        assert all(got in ("lagged", due) for due, got in enumerate(heard + more))
        assert cloud.heard("speed") == list(range(n)), "the cloud has what the consumer missed"
        log.close()


def test_a_log_whose_clocks_are_damaged_is_closed_again(tmp_path: Path) -> None:
    """They are read first: nobody else knows of the connection by then."""
    log = BareLog(tmp_path)
    log.put({"speed": [reading(1)]})
    log.close()
    path = tmp_path / LOG_NAME
    with closing(sqlite3.connect(path)) as db:
        find = "SELECT rootpage FROM sqlite_master WHERE name = 'clocks'"
        (page,) = db.execute(find).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))
    with pytest.raises(sqlite3.DatabaseError) as error:
        BareLog(tmp_path)
    assert is_damage(error.value)
    opened = [one for one in Path("/proc/self/fd").iterdir() if one.exists()]
    assert not any(one.samefile(path) for one in opened)
