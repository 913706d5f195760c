"""Which streams get no frame now: asked to wait, of a lane that is closed, or waiting for company;
told by commits alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import Work
from edgewake.edge.log.writing import filling
from edgewake.edge.log.writing.batching import COMPANY
from edgewake.edge.log.writing.filling import Filling
from edgewake.edge.log.writing.framing import Framing
from tests.edge.helpers import reading
from tests.edge.log.bare_log import LIMITS, BareLog

LINGER_S = {Lane.URGENT: 0.0, Lane.NORMAL: 0.2, Lane.BULK: 1.0}
READINGS_MAX = 100
NOW_S = 50.0
BUSY = 40
"""Readings of each of the commits that make a stream busy."""


def busy(of: Filling, stream: str, seconds: int = 5) -> None:
    """A stream that brings forty readings ten times a second, all of which are framed."""
    for tenth in range(10 * seconds):
        at_s = NOW_S - seconds + tenth / 10
        of.committed(stream, BUSY, at_s, since_s=at_s)
    of.framed(stream)


@pytest.mark.parametrize(
    ("lane", "waiting", "due_s"),
    [(Lane.NORMAL, 1, 0.2), (Lane.BULK, 1, 1.0), (Lane.URGENT, 1, None),
        (Lane.NORMAL, READINGS_MAX - 1, 0.2),
     (Lane.NORMAL, READINGS_MAX, None),      (Lane.NORMAL, READINGS_MAX + 1, None)],
    ids=["normal", "bulk", "urgent", "one too few", "full", "more than full"],
)  # fmt: skip
def test_a_frame_of_a_busy_stream_waits_as_long_as_its_lane_and_not_when_it_is_full(
    lane: Lane, waiting: int, due_s: float | None
) -> None:
    of = Filling(LINGER_S, readings_max=READINGS_MAX)
    busy(of, "speed")
    of.committed("speed", waiting, NOW_S, since_s=NOW_S)
    assert of.due_s("speed", lane, waiting) == (
        None if due_s is None else pytest.approx(NOW_S + due_s)
    )


def test_a_frame_waits_from_its_first_reading_on_however_many_follow() -> None:
    of = Filling(LINGER_S, readings_max=READINGS_MAX)
    busy(of, "speed")
    for tenth in range(5):
        of.committed("speed", 1, NOW_S + tenth / 10, since_s=NOW_S + tenth / 10 - 0.05)
    assert of.due_s("speed", Lane.NORMAL, 5) == pytest.approx(NOW_S - 0.05 + 0.2)
    of.framed("speed")
    assert of.due_s("speed", Lane.NORMAL, 5) is None
    assert of.waiting == []


def test_where_too_few_come_no_frame_waits() -> None:
    """Below the company that is to be expected, waiting would delay each reading and save
    nothing.
    """
    rare, often = (
        Filling(LINGER_S, readings_max=READINGS_MAX),
        Filling(LINGER_S, readings_max=READINGS_MAX),
    )
    for second in range(60):
        rare.committed("speed", 1, NOW_S + second, since_s=NOW_S + second)
        often.committed(
            "speed",
            round(COMPANY / LINGER_S[Lane.NORMAL]) + 2,
            NOW_S + second,
            since_s=NOW_S + second,
        )
    assert rare.due_s("speed", Lane.NORMAL, 1) is None
    assert often.due_s("speed", Lane.NORMAL, 1) is not None


def test_a_clock_that_stands_still_breaks_no_rate() -> None:
    of = Filling(LINGER_S, readings_max=READINGS_MAX)
    for _ in range(3):
        of.committed("speed", 10, NOW_S, since_s=NOW_S)
    assert of.due_s("speed", Lane.NORMAL, 1) is None
    assert of.due_s("nobody", Lane.NORMAL, 1) is None
    of.framed("nobody")


def test_so_many_streams_are_remembered_and_the_one_unheard_for_longest_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filling, "STREAMS_MAX", 2)
    of = Filling(LINGER_S, readings_max=READINGS_MAX)
    for stream in ("a", "b", "a", "c"):
        of.committed(stream, 1, NOW_S, since_s=NOW_S)
    assert of.waiting == ["a", "c"]


# with a log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[BareLog]:
    found = BareLog(tmp_path / "log", LIMITS)
    yield found
    found.close()


def framing() -> Framing:
    """With a busy stream `speed`."""
    of = Filling(LINGER_S, readings_max=READINGS_MAX)
    busy(of, "speed")
    return Framing(of, lambda stream: Lane.BULK if stream == "bulk" else Lane.NORMAL)


def test_what_is_held_back_is_what_waits_and_what_is_of_a_closed_lane(log: BareLog) -> None:
    log.put({"speed": [reading(1)], "bulk": [reading(1)], "street": [reading(1)]})
    of = framing()
    assert of.held_back(log.store) == frozenset()
    of.paused, of.closed = frozenset({"street", "unknown"}), frozenset({Lane.NORMAL})
    assert of.held_back(log.store) == {"street", "unknown", "speed", "bulk"}, (
        "in this log all streams are of the lane normal"
    )
    of.paused = of.closed = frozenset()
    assert of.held_back(log.store) == frozenset()


def test_a_stream_fills_its_frame_until_it_is_due_and_what_comes_now_counts(log: BareLog) -> None:
    of = framing()
    coming = {"speed": [reading(n) for n in range(BUSY)]}
    of.takes(coming, NOW_S)
    assert of.filling(log.store, NOW_S, coming) == {"speed"}
    log.put(coming)
    of.done(log.store)
    assert of.filling(log.store, NOW_S + 0.19) == {"speed"}
    assert of.due_s(log.store, NOW_S, NOW_S + 9) == pytest.approx(NOW_S + 0.2)
    assert of.filling(log.store, NOW_S + 0.21) == frozenset()
    assert of.due_s(log.store, NOW_S + 0.21, NOW_S + 9) == NOW_S + 9, (
        "what is due already wakes nobody"
    )
    more = {"speed": [reading(n) for n in range(READINGS_MAX - BUSY)]}
    assert of.filling(log.store, NOW_S, more) == frozenset(), "with what comes it is full"


def test_when_all_of_a_stream_is_framed_it_waits_for_nothing(log: BareLog) -> None:
    of = framing()
    of.takes({"speed": [reading(1)]}, NOW_S)
    log.put({"speed": [reading(1)]})
    log.store.apply(Work(sending=True))
    of.done(log.store)
    assert of.filling(log.store, NOW_S) == frozenset()
    assert of.due_s(log.store, NOW_S, NOW_S + 9) == NOW_S + 9


def test_an_agent_that_stops_lets_no_frame_wait(log: BareLog) -> None:
    of = framing()
    of.takes({"speed": [reading(1)]}, NOW_S)
    log.put({"speed": [reading(1)]})
    assert of.filling(log.store, NOW_S) == {"speed"}
    of.hurries = True
    assert of.filling(log.store, NOW_S) == frozenset()


def test_readings_that_lingered_before_their_commit_have_waited_already(log: BareLog) -> None:
    of = framing()
    of.first_came_s = NOW_S - 0.15
    of.takes({"speed": [reading(1)]}, NOW_S)
    log.put({"speed": [reading(1)]})
    assert of.due_s(log.store, NOW_S, NOW_S + 9) == pytest.approx(NOW_S + 0.05)
    assert of.first_came_s is None, "of that commit only"
