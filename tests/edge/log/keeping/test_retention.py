"""What of the log may go, batch by batch: not before the cloud has it and every consumer has passed
it, and then at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import AtQuota, LaneQuota, Quotas
from edgewake.edge.log.keeping.rows import ROW_BYTES
from edgewake.edge.log.keeping.work import OutFrame, Work
from edgewake.edge.log.tables.consumers import Passed
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.names import SYSTEM_PREFIX
from tests.edge.helpers import reading
from tests.edge.log.bare_log import LIMITS, BareLog, Cloud, drained, readings_after

TEN = [reading(n) for n in range(10)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[BareLog]:
    found = BareLog(tmp_path / "log")
    yield found
    found.close()


def sent(log: BareLog, batches: int) -> list[OutFrame]:
    """So many batches of ten, each in a frame that is out."""
    found: list[OutFrame] = []
    for _ in range(batches):
        log.put({"speed": TEN})
        found += log.send()
    assert len(found) == batches
    return found


def acknowledged(log: BareLog, *frames: OutFrame) -> None:
    log.store.apply(Work(freed=[(out.key, None) for out in frames]))


def passed(log: BareLog, at: int, name: str = "reader") -> None:
    log.store.apply(Work(passed={name: Passed({"speed": at})}))


def firsts(log: BareLog) -> list[int]:
    """Where the batches that are there begin."""
    return [first for (first,) in log.store._db.execute("SELECT first FROM batches ORDER BY first")]


def test_with_the_acknowledgement_a_batch_goes_where_nobody_else_reads(log: BareLog) -> None:
    one, two = sent(log, 2)
    acknowledged(log, two)
    assert firsts(log) == [1], "in whatever order they come"
    acknowledged(log, one)
    assert firsts(log) == []
    assert log.sums() == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("cloud_first", [True, False])
def test_a_batch_stays_until_both_the_cloud_and_the_consumer_have_it(
    log: BareLog, cloud_first: bool
) -> None:
    log.store.register("reader", ["speed"], at_end=False)
    (out,) = sent(log, 1)
    steps = [lambda: acknowledged(log, out), lambda: passed(log, 10)]
    for step in steps if cloud_first else reversed(steps):
        assert firsts(log) == [1]
        step()
    assert firsts(log) == []
    assert log.sums() == (0, 0, 0, 0, 0)


def test_a_batch_in_whose_middle_a_cursor_stood_goes_when_it_has_passed_all_of_it(
    log: BareLog,
) -> None:
    log.store.register("reader", ["speed"], at_end=False)
    acknowledged(log, *sent(log, 2))
    for at, left in ((5, [1, 11]), (9, [1, 11]), (10, [11]), (19, [11]), (20, [])):
        passed(log, at)
        assert firsts(log) == left
    assert log.sums() == (0, 0, 0, 0, 0)


def test_the_slowest_of_several_consumers_decides_and_one_that_is_forgotten_does_not(
    log: BareLog,
) -> None:
    for name in ("fast", "slow", "elsewhere"):
        log.store.register(name, ["street"] if name == "elsewhere" else ["speed"], at_end=False)
    acknowledged(log, *sent(log, 3))
    passed(log, 30, "fast")
    assert firsts(log) == [1, 11, 21]
    passed(log, 10, "slow")
    assert firsts(log) == [11, 21]
    log.store.forget("slow")
    assert firsts(log) == []
    assert log.sums() == (0, 0, 0, 0, 0)


def test_what_waits_for_the_cloud_stays_however_far_consumers_are(log: BareLog) -> None:
    log.store.register("reader", ["speed"], at_end=False)
    sent(log, 1)
    log.put({"speed": TEN})
    passed(log, 20)
    log.store.forget("reader")
    assert firsts(log) == [1, 11]


def test_a_consumer_that_commits_what_it_never_had_moves_nothing_of_others(log: BareLog) -> None:
    """A name that nobody registered: somebody forgot it meanwhile."""
    log.store.register("reader", ["speed"], at_end=False)
    acknowledged(log, *sent(log, 1))
    passed(log, 10, "forgotten")
    assert firsts(log) == [1]
    assert log.store.consumer("forgotten") is None


# the bound of what only consumers need


@pytest.mark.parametrize(("less", "left"), [(0, [1, 11, 21]), (1, [11, 21])])
def test_up_to_exactly_its_bound_everything_is_kept(
    tmp_path: Path, less: int, left: list[int]
) -> None:
    log = BareLog(tmp_path / "log")
    log.store.register("reader", ["speed"], at_end=False)
    acknowledged(log, *sent(log, 3))
    retained = log.sums()[2]
    log.limits = replace(LIMITS, consumer_bytes=retained - less)
    log.restart()
    log.store.apply(Work(positions={"turn": "1"}))
    assert firsts(log) == left
    heard, _ = readings_after(log, "speed", 0)
    assert heard[: 10 * less] == ["lagged"] * 10 * less
    log.close()


def test_at_the_bound_nothing_goes_that_the_cloud_has_not_got(tmp_path: Path) -> None:
    """Older batches of the same stream may still be in frames that are out."""
    log, cloud = BareLog(tmp_path / "log", replace(LIMITS, consumer_bytes=0)), Cloud()
    log.store.register("reader", ["speed"], at_end=False)
    one, two, three = sent(log, 3)
    acknowledged(log, two)
    assert firsts(log) == [1, 21]
    assert readings_after(log, "speed", 0)[0] == [*range(10), *["lagged"] * 10, *range(10)]
    cloud.take([one, two, three])
    drained(log, cloud)
    assert cloud.heard("speed") == [*range(10)] * 3
    log.close()


def test_the_oldest_commit_goes_first_whatever_its_stream(tmp_path: Path) -> None:
    log = BareLog(tmp_path / "log")
    log.store.register("reader", ["speed", "street"], at_end=False)
    for stream in ("street", "speed", "street"):
        log.put({stream: TEN})
        acknowledged(log, *log.send())
    log.limits = replace(LIMITS, consumer_bytes=log.sums()[2] - 1)
    log.restart()
    log.store.apply(Work(positions={"turn": "1"}))
    assert [
        readings_after(log, stream, 0)[0].count("lagged") for stream in ("speed", "street")
    ] == [0, 10]
    log.close()


@pytest.mark.parametrize("stream", [f"{SYSTEM_PREFIX}notes", "here"])
def test_of_a_stream_that_is_not_sent_only_what_a_consumer_needs_is_kept(
    tmp_path: Path, stream: str
) -> None:
    log = BareLog(tmp_path / "log", replace(LIMITS, local=frozenset({"here"})))
    log.put({stream: TEN})
    assert log.sums() == (0, 0, 0, 0, 0)
    log.store.register("reader", [stream], at_end=False)
    log.put({stream: TEN})
    assert log.send() == []
    assert readings_after(log, stream, 10) == (list(range(10)), 20)
    assert log.sums()[2] == log.sums()[0] > ROW_BYTES
    log.store.apply(Work(passed={"reader": Passed({stream: 20})}))
    assert log.sums() == (0, 0, 0, 0, 0)
    log.close()


# what is told


def test_losses_on_both_sides_of_a_start_are_told_each_in_its_epoch_with_their_reason(
    tmp_path: Path,
) -> None:
    """They are one range of positions, and two frames."""
    log, cloud = BareLog(tmp_path / "log"), Cloud()
    for _ in range(2):
        log.store.apply(Work(lost={"speed": {"queue_full": 5}}))
        log.restart(boots=True)
    assert log.store._db.execute("SELECT first, count FROM gaps").fetchall() == [(1, 10)]
    log.put({"speed": TEN})
    drained(log, cloud)
    assert cloud.heard("speed") == ["queue_full"] * 10 + list(range(10))
    assert [(key.epoch, frame.gap.count) for key, frame in cloud.frames.items() if frame.gap] == [
        (1, 5),
        (2, 5),
    ]
    log.close()


def test_the_oldest_that_is_not_acknowledged_is_told_by_when_it_was_accepted(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    log = BareLog(tmp_path / "log", clock=clock)
    assert log.store.oldest_at() is None
    began = clock.now_ms()
    for _ in range(3):
        log.put({"speed": TEN[:3]})
        clock.advance(60)
    assert log.store.oldest_at() == began
    (out,) = log.send()
    log.put({"speed": TEN})
    assert out.count == 9
    assert log.store.oldest_at() == began, "a frame is as old as its first reading"
    acknowledged(log, out)
    assert log.store.oldest_at() == began + 180_000
    log.close()


# quotas


@pytest.mark.parametrize(("less", "left"), [(0, [1, 11, 21]), (1, [11, 21])])
def test_a_lane_may_be_exactly_full(tmp_path: Path, less: int, left: list[int]) -> None:
    log = BareLog(tmp_path / "log")
    for _ in range(3):
        log.put({"speed": TEN})
    log.limits = replace(LIMITS, lane_quotas={Lane.NORMAL: LaneQuota(size=log.sums()[3] - less)})
    log.restart()
    assert log.store.apply(Work(positions={"turn": "1"})).dropped == 10 * less
    assert firsts(log) == left
    log.close()


@pytest.mark.parametrize(
    ("policy", "stops"),
    [(AtQuota.STOP_SOURCE, True), (AtQuota.DROP_NEWEST, False), (AtQuota.DROP_OLDEST, False)],
)
def test_only_a_lane_that_is_to_stop_its_sources_stops_them_and_only_while_it_is_full(
    tmp_path: Path, policy: AtQuota, stops: bool
) -> None:
    log = BareLog(
        tmp_path / "log",
        replace(LIMITS, lane_quotas={Lane.NORMAL: LaneQuota(size=100, policy=policy)}),
    )
    assert log.store.stopped_lanes == frozenset()
    log.put({"speed": TEN})
    assert log.store.stopped_lanes == (frozenset({Lane.NORMAL}) if stops else frozenset())
    log.send()
    assert log.store.stopped_lanes == frozenset(), "in frames it waits no longer"
    log.close()


def test_what_is_in_frames_is_never_given_up_for_the_quota(tmp_path: Path) -> None:
    log, cloud = BareLog(tmp_path / "log", replace(LIMITS, quota_bytes=2_000)), Cloud()
    frames = sent(log, 3)
    log.limits = replace(LIMITS, quota_bytes=1)
    log.restart()
    log.put({"speed": TEN})
    cloud.take(frames)
    drained(log, cloud)
    heard = cloud.heard("speed")
    assert heard[:30] == [*range(10)] * 3
    assert heard[30:] == ["quota"] * 10
    log.close()


@pytest.mark.parametrize(
    ("waiting", "total", "full"),
    [(99, 200, False), (100, 200, True), (0, 200, False), (0, 201, True)],
    ids=["one byte below", "at the lane's bound", "at the log's", "one byte beyond it"],
)  # fmt: skip
@pytest.mark.parametrize("policy", list(AtQuota))
def test_when_a_lane_is_full(policy: AtQuota, waiting: int, total: int, full: bool) -> None:
    quotas = Quotas(200, {Lane.NORMAL: LaneQuota(100, policy=policy)})
    keeps = policy in (AtQuota.DROP_NEWEST, AtQuota.STOP_SOURCE)
    assert quotas.is_full(Lane.NORMAL, {Lane.NORMAL: waiting}, total) is (full and keeps)
    assert quotas.is_full(Lane.BULK, {Lane.NORMAL: waiting}, total) is False, (
        "a lane without a policy of its own gives up its oldest"
    )
    assert quotas.stopped({Lane.NORMAL: waiting}, total) == (
        frozenset({Lane.NORMAL}) if full and policy is AtQuota.STOP_SOURCE else frozenset()
    )


@pytest.mark.parametrize(
    ("waiting", "total", "excess"),
    [
        (100, 200, None),
        (101, 200, (Lane.NORMAL, 1)),
        (100, 230, (Lane.BULK, 30)),
        (100, 400, (Lane.BULK, 50)),
    ],
)
def test_what_has_to_be_given_up_is_the_lanes_own_first_and_then_the_lowest_lanes(
    waiting: int, total: int, excess: tuple[Lane, int] | None
) -> None:
    quotas = Quotas(200, {Lane.NORMAL: LaneQuota(100)})
    assert quotas.excess({Lane.NORMAL: waiting, Lane.BULK: 50}, total) == excess
