"""Clocks that are not set yet, that are set, and that jump: times are repaired, nothing is lost,
order stays.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgewake.edge.log.config import LaneConfig, LogConfig
from edgewake.edge.log.damage.clocks import OURS_MS, STEP_MS, Clocks, repaired
from edgewake.edge.log.event_log import EventLog
from edgewake.protocol.clock import CLOCK_FLOOR_MS, FakeClock
from tests.edge.helpers import Sent, frame_of, opened
from tests.examples import examples
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.usefixtures("short_waits")

NOW_MS = 1_790_000_000_000
STEPS = st.lists(
    st.tuples(st.integers(0, 3_600_000), st.integers(-3_600_000, 3_600_000)),
    min_size=1,
    max_size=40,
)


@given(STEPS)
@example([(0, 0), (0, 1), (0, 3_600_000)])
def test_an_age_is_told_by_the_machines_run_whatever_the_wall_clock_does(
    steps: list[tuple[int, int]],
) -> None:
    clocks, wall, run = Clocks(), NOW_MS, 0
    accepted: list[tuple[int, int, int]] = []
    for commit, (ran_ms, jump_ms) in enumerate(steps):
        wall, run = wall + ran_ms + jump_ms, run + ran_ms
        clocks = clocks.noted(commit, "boot", wall, run)
        accepted.append((commit, wall, run))
    for commit, at, ran in accepted:
        assert abs(clocks.age_ms(commit, at, "boot", wall, run) - (run - ran)) < STEP_MS
        assert clocks.age_ms(commit, at, "another", wall, run) == wall - at
    assert len(clocks.spans) <= len(steps)


@given(
    st.integers(0, CLOCK_FLOOR_MS - 1),
    st.lists(st.tuples(st.integers(0, 600_000), st.booleans()), min_size=1, max_size=30),
)
def test_a_stamp_of_a_clock_that_was_not_set_becomes_the_time_at_which_it_was_made(
    began: int, steps: list[tuple[int, bool]]
) -> None:
    """However often the machine's clock starts from another wrong time before it is set."""
    clocks, wall, run = Clocks(), began // 2, 0
    stamps: list[tuple[int, int, int]] = []
    for commit, (ran_ms, jumps) in enumerate(steps):
        run, wall = run + ran_ms, min(CLOCK_FLOOR_MS - 1, wall + ran_ms + (5_000 if jumps else 0))
        clocks = clocks.noted(commit, "boot", wall, run)
        stamps.append((commit, wall, run))
    for commit, t, ran in stamps:
        shift_ms = clocks.shift_ms(commit, "boot", NOW_MS - run)
        assert shift_ms is not None
        assert abs(repaired(t, t, shift_ms) - (NOW_MS - (run - ran))) < 1_000
        assert clocks.shift_ms(commit, "another", NOW_MS - run) is None


def test_a_steady_clock_is_written_once() -> None:
    clocks = Clocks()
    for commit in range(1_000):
        clocks = clocks.noted(
            commit, "boot", NOW_MS + 60_000 * commit + commit % 7, 60_000 * commit
        )
    assert len(clocks.spans) == 1


def test_what_a_source_knows_better_stays() -> None:
    assert repaired(NOW_MS, 5_000, 1 << 40) == NOW_MS
    assert repaired(OURS_MS + 6_000, 5_000, 1 << 40) == OURS_MS + 6_000
    assert repaired(6_000, 5_000, 1 << 40) == 6_000 + (1 << 40)


def measure(events: EventLog, clock: FakeClock, n: int, t: int | None = None) -> None:
    """A reading of now, accepted."""
    log = events.stream("speed")
    assert log.wait_accepted(
        log.append((clock.now_ms() if t is None else t, {"n": n})), timeout_s=PATIENCE_S
    )


def times(sent: Sent) -> dict[object, int]:
    """Event time of each reading that was sent."""
    return {
        n: t
        for out in sent
        for n, t in zip(frame_of(out).fields.get("n", ()), frame_of(out).t, strict=True)
    }


def test_stamps_from_before_the_clock_was_set_are_repaired_before_they_are_framed(
    tmp_path: Path,
) -> None:
    """Also over a restart of the agent; a stamp that a source gave from elsewhere stays."""
    clock, sent = FakeClock(5_000), Sent()
    with opened(tmp_path, clock=clock, boot="this") as events:
        measure(events, clock, 1)
        clock.advance(600)
    with opened(tmp_path, sent=sent, clock=clock, boot="this") as events:
        events.start_sending()
        measure(events, clock, 2)
        measure(events, clock, 3, t=NOW_MS - 77)
        clock.advance(30)
        measure(events, clock, 4)
        assert not sent, "frames wait for the clock"
        clock.jump((NOW_MS - clock.now_ms()) / 1000)
        wait_until(lambda: len(times(sent)) == 4, "repaired and sent")
        # It waited for its commit while the clock was set.
        measure(events, clock, 5, t=clock.now_ms() - NOW_MS + 635_000)
        wait_until(lambda: len(times(sent)) == 5, "the next")
        assert "unset_clock" not in events._writer.store.counters
    assert times(sent) == {
        1: NOW_MS - 630_000,
        2: NOW_MS - 30_000,
        3: NOW_MS - 77,
        4: NOW_MS,
        5: NOW_MS,
    }
    assert sent.ns() == [1, 2, 3, 4, 5]


def test_of_an_earlier_start_nothing_can_be_repaired_and_that_is_said(tmp_path: Path) -> None:
    """The control, too: without the start's id the machine cannot know how long ago it was."""
    clock, sent = FakeClock(5_000), Sent()
    with opened(tmp_path, clock=clock, boot="first") as events:
        measure(events, clock, 1)
    clock.jump((NOW_MS - clock.now_ms()) / 1000)
    with opened(tmp_path, sent=sent, clock=clock, boot="second") as events:
        events.start_sending()
        wait_until(lambda: len(times(sent)) == 1, "sent")
        assert events.status().unset_clock_readings == 1
    assert times(sent) == {1: 5_000}


def test_where_the_clock_is_never_set_readings_do_not_wait_for_ever(tmp_path: Path) -> None:
    clock, sent = FakeClock(5_000), Sent()
    config = LogConfig(linger_ms=0, reserve_bytes=0, clock_wait_s=60)
    with opened(tmp_path, sent=sent, clock=clock, boot="this", config=config) as events:
        events.start_sending()
        measure(events, clock, 1)
        clock.advance(59)
        measure(events, clock, 2)
        assert not sent
        clock.advance(2)
        wait_until(lambda: len(times(sent)) == 2, "sent as they are")
        assert events.status().unset_clock_readings == 2
    assert times(sent) == {1: 5_000, 2: 64_000}


@settings(max_examples=examples(30))
@given(
    st.lists(
        st.tuples(st.floats(0, 60), st.sampled_from([-3600.0, 0.0, 3600.0])),
        min_size=1,
        max_size=20,
    )
)
def test_jumps_of_an_hour_neither_lose_nor_reorder(steps: list[tuple[float, float]]) -> None:
    """Although readings older than half an hour go: these never were."""
    clock, sent = FakeClock(), Sent()
    config = LogConfig(linger_ms=0, reserve_bytes=0, normal=LaneConfig(age_s=1800))
    with (
        tempfile.TemporaryDirectory() as directory,
        opened(Path(directory), sent=sent, clock=clock, config=config) as events,
    ):
        epoch = events.epoch
        for n, (seconds, jump_s) in enumerate(steps):
            measure(events, clock, n)
            clock.advance(seconds)
            clock.jump(jump_s)
        events.start_sending()
        wait_until(lambda: sum(out.count for out in sent) == len(steps), "sent")
        assert (events.epoch, events.status().lost) == (epoch, {})
    assert sent.ns() == list(range(len(steps)))
    assert [out.key.frame for out in sent] == list(range(1, len(sent) + 1))
