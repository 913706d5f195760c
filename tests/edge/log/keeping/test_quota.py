"""What is given up when the log is full: decided without a log, and done by one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.config import LaneConfig, LogConfig
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import YIELDING, AtQuota, Kept, LaneQuota, Quotas, Thinning
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.frames.frame import Gap
from tests.edge.helpers import Sent, frame_of, opened, put, reading
from tests.services import PATIENCE_S, wait_until

UPLINK = UplinkConfig(frame_readings_max=100)
QUOTAS = st.builds(
    Quotas,
    st.integers(0, 200),
    st.dictionaries(
        st.sampled_from(Lane),
        st.builds(LaneQuota, st.none() | st.integers(0, 100), policy=st.sampled_from(AtQuota)),
        max_size=3,
    ),
)
WAITING = st.fixed_dictionaries({lane: st.integers(0, 150) for lane in Lane})


@given(QUOTAS, WAITING, st.integers(0, 100))
def test_giving_up_what_is_asked_ends_within_the_bounds_or_with_nobody_who_yields(
    quotas: Quotas, waiting: dict[Lane, int], framed: int
) -> None:
    left = dict(waiting)
    for _ in range(10):
        found = quotas.excess(left, framed + sum(left.values()))
        if found is None:
            break
        lane, size = found
        assert 0 < size <= left[lane]
        assert quotas.of(lane).policy in YIELDING
        left[lane] -= size
    else:
        raise AssertionError("it has no end")
    for lane, of in ((lane, quotas.of(lane)) for lane in Lane):
        if of.policy in YIELDING and of.size is not None:
            assert left[lane] <= of.size
        elif of.policy not in YIELDING:
            assert left[lane] == waiting[lane], "it keeps what it has"
    yields_nothing_more = not any(left[lane] for lane in Lane if quotas.of(lane).policy in YIELDING)
    assert framed + sum(left.values()) <= quotas.total or yields_nothing_more


@given(QUOTAS, WAITING)
def test_a_source_stops_only_for_its_own_lane_or_where_nobody_yields(
    quotas: Quotas, waiting: dict[Lane, int]
) -> None:
    total = sum(waiting.values())
    for lane in quotas.stopped(waiting, total):
        of = quotas.of(lane)
        assert of.policy is AtQuota.STOP_SOURCE
        assert total > quotas.total or (of.size is not None and waiting[lane] >= of.size)


@given(st.lists(st.integers(1, 50), min_size=3, max_size=200), st.data())
def test_thinning_out_leaves_no_hole_that_is_much_longer_than_the_others(
    counts: list[int], data: st.DataObject
) -> None:
    """A new batch comes for each time that some bytes are asked for."""
    kept, thinning, end = list[Kept](), Thinning(), 1
    for count in counts:
        kept.append(Kept(end, count, 10 * count))
        end += count
        size = data.draw(st.integers(0, max(0, sum(batch.size for batch in kept[1:-1]))))
        while size > 0 and len(kept) > 2:
            gone, thinning = thinning.go_on(
                [batch for batch in kept if batch.first >= thinning.stands_at], size
            )
            assert kept[0] not in gone
            assert kept[-1] not in gone
            kept = [batch for batch in kept if batch not in gone]
            size -= sum(batch.size for batch in gone)
    assert kept[0].first == 1
    assert kept[-1].first + kept[-1].count == end, (
        "the outage is covered from its beginning to its end"
    )
    holes = [after.first - before.first - before.count for before, after in pairwise(kept)]
    assert max(holes) <= thinning.hole_max


@given(st.integers(10, 300), st.integers(5, 50))
def test_a_backlog_is_thinned_out_evenly(batches: int, room: int) -> None:
    kept, thinning = list[Kept](), Thinning(hole_max=10)
    for n in range(batches):
        kept.append(Kept(1 + 10 * n, 10, 1))
        while len(kept) > room:
            gone, thinning = thinning.go_on(
                [batch for batch in kept if batch.first >= thinning.stands_at], 1
            )
            kept = [batch for batch in kept if batch not in gone]
    holes = [after.first - before.first - 10 for before, after in pairwise(kept)]
    assert max(holes) <= 40 * batches / len(kept)


def lanes(policy: AtQuota, **more: float) -> LogConfig:
    """One lane that holds 128 KiB."""
    return LogConfig(
        linger_ms=0,
        reserve_bytes=0,
        normal=LaneConfig(quota_bytes=128 << 10, at_quota=policy, **more),
    )  # type: ignore[arg-type]


def sent_through(path: Path, config: LogConfig, commits: int) -> Sent:
    """What comes out after so many commits of ten wide readings while nobody sent."""
    sent = Sent()
    with opened(path, sent=sent, config=config, uplink=UPLINK) as events:
        for at in range(0, 10 * commits, 10):
            log = events.stream("speed")
            assert log.wait_accepted(
                log.append_all(reading(n, text="x" * 500) for n in range(at, at + 10)),
                timeout_s=PATIENCE_S,
            )
        waiting = events._writer.ask(lambda store: store._state.waiting["speed"]).result()
        events.start_sending()
        wait_until(
            lambda: sum(out.count for out in sent) == 10 * commits or sent.acknowledge(events),
            "drained",
        )
        lost = sum(out.count for out in sent if out.gap)
        assert events.status().lost == {"quota": lost}
    assert 64 << 10 < waiting <= (128 << 10) + 8192
    assert lost > 0, "the fault did not fire"
    assert {out.gap for out in sent} == {None, "quota"}
    return sent


def test_the_newest_can_go_instead_of_the_oldest(tmp_path: Path) -> None:
    sent = sent_through(tmp_path, lanes(AtQuota.DROP_NEWEST), 60)
    ns = sent.ns()
    assert ns == list(range(len(ns)))
    assert frame_of(sent[-1]).gap == Gap("quota", 600 - len(ns))


def test_a_backlog_that_is_thinned_out_covers_the_whole_time_in_order(tmp_path: Path) -> None:
    ns = sent_through(tmp_path, lanes(AtQuota.THIN_OUT), 100).ns()
    assert ns == sorted(ns)  # type: ignore[type-var]
    assert (ns[0], ns[-1]) == (0, 999)
    assert max(b - a for a, b in pairwise(ns)) <= 100  # type: ignore[operator]


def test_a_full_lane_stops_its_own_sources_only(tmp_path: Path) -> None:
    sent, config = Sent(), lanes(AtQuota.STOP_SOURCE)
    with opened(
        tmp_path, sent=sent, config=config, uplink=UPLINK, lanes={"alarm": Lane.URGENT}
    ) as events:
        log, kept = events.stream("speed"), 0
        while log.wait_for_room(timeout_s=0.0):
            assert log.wait_accepted(
                log.append(reading(kept, text="x" * 5000)), timeout_s=PATIENCE_S
            )
            kept += 1
        put(events, range(5), stream="alarm")
        events.start_sending()
        wait_until(
            lambda: sum(out.count for out in sent) == kept + 5 or sent.acknowledge(events),
            "drained",
        )
        assert log.wait_for_room(timeout_s=PATIENCE_S), "the source goes on"
        assert events.status().lost == {}
    assert kept < 40


def test_what_is_too_old_for_its_lane_goes_and_the_cloud_is_told_why(tmp_path: Path) -> None:
    clock, sent = FakeClock(), Sent()
    config = LogConfig(linger_ms=0, reserve_bytes=0, normal=LaneConfig(age_s=60))
    with opened(tmp_path, sent=sent, config=config, clock=clock, uplink=UPLINK) as events:
        put(events, range(10))
        clock.advance(59)
        put(events, range(10, 20))
        clock.advance(2)
        put(events, range(20, 21))
        events.start_sending()
        wait_until(lambda: sum(out.count for out in sent) == 21, "drained")
        assert events.status().lost == {"age": 10}
    assert frame_of(sent[0]).gap == Gap("age", 10)
    assert sent.ns() == list(range(10, 21))
