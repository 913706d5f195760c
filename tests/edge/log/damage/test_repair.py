"""Stamps of a clock that was not set: repaired once each, piece by piece, whatever comes between;
and ages by a clock of 1970 or 2100.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.damage import clocks, repair
from edgewake.edge.log.damage.clocks import OURS_MS, SPANS_MAX, STEP_MS, Clocks, Span, repaired
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import LaneQuota
from edgewake.edge.log.keeping.work import Work
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.protocol.clock import CLOCK_FLOOR_MS, FakeClock
from tests.edge.log.bare_log import LIMITS, BareLog, Cloud, drained, place
from tests.examples import examples

NOW_MS = 1_790_000_000_000


def unset(
    directory: Path, batches: int = 7, *, streams: tuple[str, ...] = ("speed",)
) -> tuple[BareLog, FakeClock]:
    """A log of one reading a second, each a batch, stamped by a clock that began in 1970; the clock
    is set now.
    """
    clock = FakeClock(5_000)
    log = BareLog(directory, clock=clock)
    for n in range(batches):
        log.put({stream: [(clock.now_ms(), {"n": n})] for stream in streams})
        clock.advance(1)
    clock.jump((NOW_MS - clock.now_ms()) / 1000)
    return log, clock


def times(cloud: Cloud, stream: str = "speed") -> dict[object, int]:
    return {
        n: t
        for key, frame in cloud.frames.items()
        if key.stream == stream
        for n, t in zip(frame.fields.get("n", ()), frame.t, strict=True)
    }


def due(batches: int) -> dict[int, int]:
    """What their times should be."""
    return {n: NOW_MS - 1_000 * (batches - n) for n in range(batches)}


@pytest.mark.parametrize(("batches", "pieces"), [(1, 1), (2, 1), (3, 2), (6, 3), (7, 3)])
def test_so_many_are_repaired_in_a_piece_and_frames_wait_for_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, pieces: int
) -> None:
    monkeypatch.setattr(repair, "REPAIR_BATCHES", 3)
    (log, _), cloud, done = unset(tmp_path / "log", batches), Cloud(), 0
    while log.store.has_to_catch_up:
        assert not log.store.can_frame()
        assert log.send() == []
        log.store.catch_up()
        done += 1
    assert done == pieces
    drained(log, cloud)
    assert times(cloud) == due(batches)
    log.close()


@given(st.lists(st.booleans(), max_size=8))
@settings(max_examples=examples(20))
def test_interrupted_after_any_piece_each_stamp_is_repaired_once(crashes: list[bool]) -> None:
    """Twice repaired, a stamp would be of the year 2083."""
    with place() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "REPAIR_BATCHES", 2)
        (log, clock), cloud = unset(directory, 9, streams=("speed", "street")), Cloud()
        for crashes_now in crashes:
            if log.store.has_to_catch_up:
                log.store.catch_up()
            if crashes_now:
                log.crash()
        drained(log, cloud)
        assert times(cloud) == times(cloud, "street") == due(9)
        assert clock.now_ms() == NOW_MS
        log.close()


def test_a_batch_that_is_damaged_is_said_to_be_lost_and_the_others_are_repaired(
    tmp_path: Path,
) -> None:
    (log, _), cloud = unset(tmp_path / "log"), Cloud()
    log.store._db.execute("UPDATE batches SET crc = 0 WHERE first = 3")
    drained(log, cloud)
    assert cloud.heard("speed") == [0, 1, "corrupt", 3, 4, 5, 6]
    assert times(cloud) == {n: t for n, t in due(7).items() if n != 2}
    log.close()


def test_what_is_in_a_frame_keeps_its_bytes(tmp_path: Path) -> None:
    """It may have been sent already."""
    clock = FakeClock(5_000)
    log, cloud = BareLog(tmp_path / "log", replace(LIMITS, clock_wait_s=0), clock), Cloud()
    log.put({"speed": [(5_000, {"n": 0})]})
    first = list(log.send())
    clock.jump((NOW_MS - clock.now_ms()) / 1000)
    log.put({"speed": [(NOW_MS, {"n": 1})]})
    log.catch_up()
    log.restart()
    log.catch_up()
    again = list(log.send())
    assert [out.payload for out in again[:1]] == [out.payload for out in first]
    cloud.take(again)
    drained(log, cloud)
    assert times(cloud) == {0: 5_000, 1: NOW_MS}
    log.close()


def test_without_the_starts_id_nothing_is_repaired_nor_waited_for(tmp_path: Path) -> None:
    clock = FakeClock(5_000)
    log = BareLog(tmp_path / "log", clock=clock)
    log.store.close()
    from edgewake.edge.log.store import LogStore

    log.store = LogStore(
        log.directory, LIMITS, clock, boot="", new_epoch=lambda previous, _now: previous + 1
    )
    log.put({"speed": [(5_000, {"n": 0})]})
    assert not log.store.has_to_catch_up
    assert log.store.can_frame()
    clock.jump((NOW_MS - clock.now_ms()) / 1000)
    assert not log.store.has_to_catch_up
    log.close()


def test_a_clock_that_is_set_forward_and_back_again_moves_nothing_back(tmp_path: Path) -> None:
    (log, clock), cloud = unset(tmp_path / "log", 3), Cloud()
    log.catch_up()
    clock.jump(-3600)
    log.put({"speed": [(clock.now_ms(), {"n": 3})]})
    log.catch_up()
    drained(log, cloud)
    assert times(cloud) == due(3) | {3: NOW_MS - 3_600_000}
    log.close()


def test_what_waited_for_its_commit_while_the_clock_was_set_is_repaired_on_its_way(
    tmp_path: Path,
) -> None:
    (log, clock), cloud = unset(tmp_path / "log", 2), Cloud()
    log.put(
        {"speed": [(6_500, {"n": 2}), (clock.now_ms(), {"n": 3}), (6_500 + 2 * OURS_MS, {"n": 4})]}
    )
    drained(log, cloud)
    assert times(cloud) == {
        0: NOW_MS - 2_000,
        1: NOW_MS - 1_000,
        2: NOW_MS - 500,
        3: NOW_MS,
        4: 6_500 + 2 * OURS_MS,
    }
    log.close()


@pytest.mark.parametrize("change", ["boot = x'00'", "offset_ms = 'x'", "offset_ms = 1.5"])
def test_a_row_of_the_clocks_that_nobody_wrote_is_as_if_nothing_were_known(
    tmp_path: Path, change: str
) -> None:
    (log, _), cloud = unset(tmp_path / "log", 3), Cloud()
    log.close()
    with closing(sqlite3.connect(log.directory / LOG_NAME)) as db, db:
        assert db.execute(f"UPDATE clocks SET {change}").rowcount
    log = BareLog(log.directory, clock=log.clock)
    drained(log, cloud)
    assert cloud.heard("speed") == [0, 1, 2]
    assert times(cloud) == {n: 5_000 + 1_000 * n for n in range(3)}
    log.close()


@pytest.mark.parametrize("bit", [14, 20, 33, 40, 41, 50, 62])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_bit_that_flipped_in_a_clock_makes_no_time_that_never_was(
    tmp_path: Path, bit: int, sign: int
) -> None:
    """Behind 2100 a bridge refuses the frame, and all that is in it."""
    (log, clock), cloud = unset(tmp_path / "log", 3), Cloud()
    log.close()
    with closing(sqlite3.connect(log.directory / LOG_NAME)) as db, db:
        assert db.execute("UPDATE clocks SET offset_ms = offset_ms + ?", (sign << bit,)).rowcount
    log = BareLog(log.directory, clock=clock)
    drained(log, cloud)
    assert times(cloud) == {n: 5_000 + 1_000 * n for n in range(3)}, (
        "as they came: how long ago that was is not known"
    )
    log.close()


# ages


def lane_of(age_s: float) -> dict[Lane, LaneQuota]:
    return {Lane.NORMAL: LaneQuota(age_s=age_s)}


@pytest.mark.parametrize(("waits_s", "left"), [(59.999, 1), (60.0, 1), (60.001, 0)])
def test_what_is_exactly_as_old_as_it_may_be_stays(
    tmp_path: Path, waits_s: float, left: int
) -> None:
    clock = FakeClock()
    log = BareLog(tmp_path / "log", replace(LIMITS, lane_quotas=lane_of(60)), clock)
    log.put({"speed": [(1, {"n": 0})]})
    clock.advance(waits_s)
    log.store.apply(Work(positions={"turn": "1"}))
    assert log.store.backlog()[0] == left + (1 - left), "a gap takes the place of what went"
    assert log.store.counters.get("lost_age", 0) == 1 - left
    log.close()


@pytest.mark.parametrize("year_ms", [0, 4_102_444_800_000], ids=["1970", "2100"])
@pytest.mark.parametrize("boots", [False, True], ids=["the same start", "another start"])
def test_a_clock_of_another_time_gives_up_nothing_of_what_came_just_now(
    tmp_path: Path, year_ms: int, boots: bool
) -> None:
    """It is set right in between: within one start the machine knows how long it ran."""
    clock = FakeClock(year_ms)
    log, cloud = (
        BareLog(
            tmp_path / "log", replace(LIMITS, lane_quotas=lane_of(3_600), clock_wait_s=0), clock
        ),
        Cloud(),
    )
    log.put({"speed": [(year_ms, {"n": 0})]})
    if boots:
        log.restart(boots=True)
    clock.jump((NOW_MS - clock.now_ms()) / 1000)
    log.store.apply(Work(positions={"turn": "1"}))
    assert log.store.counters.get("lost_age", 0) == 0
    drained(log, cloud)
    assert cloud.heard("speed") == [0]
    log.close()


@pytest.mark.parametrize("bit", [21, 33, 40, 41, 50, 62])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_bit_that_flipped_in_a_clock_makes_nothing_old(
    tmp_path: Path, bit: int, sign: int
) -> None:
    """A backlog was given up as years old."""
    clock = FakeClock()
    log = BareLog(tmp_path / "log", replace(LIMITS, lane_quotas=lane_of(3_600)), clock)
    clock.advance(600)
    log.put({"speed": [(1, {"n": 0})]})
    log.close()
    with closing(sqlite3.connect(log.directory / LOG_NAME)) as db, db:
        assert db.execute("UPDATE clocks SET offset_ms = offset_ms + ?", (sign << bit,)).rowcount
    log = BareLog(log.directory, log.limits, clock)
    log.store.apply(Work(positions={"turn": "1"}))
    assert log.store.counters.get("lost_age", 0) == 0
    log.close()


# the clocks alone


def test_the_clock_being_set_is_noted_however_little_it_moved() -> None:
    known = Clocks().noted(1, "boot", CLOCK_FLOOR_MS - 1, 100)
    assert len(known.noted(2, "boot", CLOCK_FLOOR_MS, 100).spans) == 2
    assert known.noted(2, "boot", CLOCK_FLOOR_MS - 1 + STEP_MS - 2, STEP_MS + 98) is known


@pytest.mark.parametrize(
    ("change_ms", "spans"),
    [(0, 1), (STEP_MS - 1, 1), (STEP_MS, 2), (-STEP_MS + 1, 1), (-STEP_MS, 2)],
)
def test_a_step_of_the_clock_is_noted_from_its_bound_on(change_ms: int, spans: int) -> None:
    known = Clocks().noted(1, "boot", NOW_MS, 100)
    assert len(known.noted(2, "boot", NOW_MS + change_ms, 100).spans) == spans
    assert len(known.noted(2, "other", NOW_MS, 100).spans) == 2


def test_only_so_many_are_kept_and_of_older_commits_nothing_is_known() -> None:
    known = Clocks()
    for commit in range(1, SPANS_MAX + 3):
        known = known.noted(commit, "boot", NOW_MS + commit * STEP_MS, 100)
    assert len(known.spans) == SPANS_MAX
    assert known.at(2) is None
    assert known.at(3) == known.spans[0]
    assert known.at(10**9) == known.spans[-1]


BEGAN_MS = NOW_MS - 1_000
"""The machine's start, by a clock that is right."""


@pytest.mark.parametrize(
    ("boot", "accepted_at", "age_ms"),
    [("boot", NOW_MS - 600, 600), ("other", NOW_MS - 600, 900_600), ("", NOW_MS - 600, 900_600),
        ("boot", NOW_MS, 0),
     ("boot", NOW_MS + STEP_MS - 1, 0), ("boot", NOW_MS + STEP_MS, 900_000 - STEP_MS),
     ("other", CLOCK_FLOOR_MS - 1, 0),
     ("other", CLOCK_FLOOR_MS, NOW_MS + 900_000 - CLOCK_FLOOR_MS)],
    ids=["of this start", "of another", "of no start that is known", "now", "a drift ahead",
        "repaired", "by a clock that was not set",
         "by one that was"],
)  # fmt: skip
def test_an_age_is_by_the_run_within_one_start_and_by_the_wall_clock_else(
    boot: str, accepted_at: int, age_ms: int
) -> None:
    """By a clock that was not set nothing is old: a device that starts twice before it knows the
    time would give up all that waits.
    """
    known = Clocks((Span(5, "boot", BEGAN_MS),))
    assert known.age_ms(7, accepted_at, boot, NOW_MS + 900_000, 1_000) == age_ms
    assert known.age_ms(4, NOW_MS, "boot", NOW_MS + 900_000, 1_000) == 900_000, (
        "of a commit before all that is known"
    )


@pytest.mark.parametrize(
    ("t", "moved"),
    [(CLOCK_FLOOR_MS - 1, True), (CLOCK_FLOOR_MS, False), (CLOCK_FLOOR_MS - 1 - OURS_MS, True),
                     (CLOCK_FLOOR_MS - 2 - OURS_MS, False)],
)  # fmt: skip
def test_a_stamp_is_moved_where_the_unset_clock_made_it(t: int, moved: bool) -> None:
    assert repaired(t, CLOCK_FLOOR_MS - 1, 7) == t + 7 * moved


@pytest.mark.parametrize(
    ("boot", "monotonic_ms", "found"),
    [("boot", 500, True), ("other", 500, False), ("", 500, False), ("boot", 2 << 50, False)],
)
def test_a_time_without_a_clock_is_known_of_this_start_only(
    boot: str, monotonic_ms: int, found: bool
) -> None:
    known = Clocks((Span(1, "boot", 4_000), Span(2, "boot", NOW_MS)))
    assert known.unset(boot, monotonic_ms) == (known.spans[0] if found else None)


def test_of_a_machine_that_names_no_start_nothing_is_known_not_even_of_itself() -> None:
    known = Clocks((Span(1, "", 4_000),))
    assert known.unset("", 500) is None
    assert known.shift_ms(1, "", NOW_MS) is None
    assert known.ran_ms(1, 4_100, "", 500) is None


def test_the_log_keeps_as_many_clocks_as_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "SPANS_MAX", 3)
    clock = FakeClock()
    log = BareLog(tmp_path / "log", clock=clock)
    for n in range(6):
        clock.jump(3_600)
        log.put({"speed": [(1, {"n": n})]})
    kept = log.store._db.execute(
        "SELECT commit_number FROM clocks ORDER BY commit_number"
    ).fetchall()
    assert [commit for (commit,) in kept] == list(range(log.store.commit - 2, log.store.commit + 1))
    log.close()
