"""When the writer's next turn is due, decided without a thread: what waits for company, how long at
most, and what waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import Commit, FrameKey, OutFrame, Work
from edgewake.edge.log.mode import LogMode
from edgewake.edge.log.state import LogBusyError, LogClosedError
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.consumers import Passed
from edgewake.edge.log.writing.waiting import FREE_LINGER_S, LOSS_LINGER_S, Waiting
from tests.edge.helpers import reading
from tests.edge.log.bare_log import BareLog

LANES = {"alarm": Lane.URGENT, "bulk": Lane.BULK}
NOW_S = 1_000.0


class Desk:
    """What others leave, and a log for it. Nothing is written but by `turn`."""

    def __init__(self, directory: Path, **config: object) -> None:
        self.log = BareLog(directory)
        given = LogConfig(**({"linger_ms": 0, "queue_readings_max": 5} | config))  # type: ignore[arg-type]
        self.waiting = Waiting(
            given, lambda stream: LANES.get(stream, Lane.NORMAL), readings_max=10
        )

    @property
    def store(self) -> LogStore:
        return self.log.store

    def left(
        self, stream: str, *numbers: int, place: tuple[str, str] | None = None, lost: int = 0
    ) -> None:
        """By a source."""
        queue = self.waiting.queues.of(stream, LANES.get(stream, Lane.NORMAL))
        self.waiting.check_room(queue)
        self.waiting.add(
            queue, [reading(n) for n in numbers], place, {"refused": lost} if lost else {}
        )

    def lose(self, stream: str, count: int, now_s: float, reason: str = "queue_full") -> None:
        self.waiting.lose(self.waiting.queues.of(stream, Lane.NORMAL), count, reason, now_s)

    def is_due(self, now_s: float) -> bool:
        return self.waiting.is_due(self.store, now_s)

    def taken(self, now_s: float) -> Work | None:
        return self.waiting.take(self.store, now_s)[0]

    def turn(self, now_s: float) -> list[OutFrame]:
        """Take what is there and make it durable."""
        work = self.taken(now_s)
        if work is None:
            return []
        done = self.store.apply(work)
        self.waiting.accepted(work, self.store, now_s)
        return list(done.frames)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path / "log")
    yield found
    found.log.close()


def test_where_nothing_was_left_nothing_is_due_and_no_turn_does_anything(desk: Desk) -> None:
    assert not desk.is_due(NOW_S)
    assert desk.taken(NOW_S) is None


def test_a_reading_is_due_at_once(desk: Desk) -> None:
    desk.left("speed", 1)
    assert desk.is_due(NOW_S)
    work = desk.taken(NOW_S)
    assert work is not None
    assert work.readings == {"speed": [reading(1)]}
    assert desk.taken(NOW_S) is None, "it is taken once"


def test_a_place_without_a_reading_is_due_at_once(desk: Desk) -> None:
    desk.left("speed", place=("file", "17"))
    work = desk.taken(NOW_S)
    assert work is not None
    assert (work.positions, work.readings) == ({"file": "17"}, {})


# losses


def test_losses_wait_for_company_counted_from_the_first(desk: Desk) -> None:
    desk.lose("speed", 1, NOW_S)
    desk.lose("speed", 2, NOW_S + LOSS_LINGER_S - 0.1)
    assert not desk.is_due(NOW_S + LOSS_LINGER_S - 0.01)
    assert desk.is_due(NOW_S + LOSS_LINGER_S)
    work = desk.taken(NOW_S + LOSS_LINGER_S)
    assert work is not None
    assert work.lost == {"speed": {"queue_full": 3}}
    assert not desk.is_due(NOW_S + 100), "they are said once"


def test_losses_do_not_go_with_readings_that_come_before_their_time(desk: Desk) -> None:
    desk.lose("speed", 1, NOW_S)
    desk.left("speed", 1)
    work = desk.taken(NOW_S + 0.5)
    assert work is not None
    assert (work.lost, set(work.readings)) == ({}, {"speed"})
    assert desk.is_due(NOW_S + LOSS_LINGER_S)


def test_losses_go_with_the_place_of_their_source_whenever_that_comes(desk: Desk) -> None:
    desk.lose("speed", 1, NOW_S)
    desk.left("speed", 1, place=("file", "18"), lost=2)
    work = desk.taken(NOW_S)
    assert work is not None
    assert work.lost == {"speed": {"queue_full": 1, "refused": 2}}


def test_a_place_takes_no_other_streams_losses_along_before_their_time(desk: Desk) -> None:
    """Unless there are some of its own: then one turn says all."""
    desk.lose("street", 1, NOW_S)
    desk.left("speed", 1, place=("file", "18"))
    work = desk.taken(NOW_S)
    assert work is not None
    assert work.lost == {}


# cursors and answers


def test_a_cursor_waits_for_company_from_the_first_and_one_that_is_awaited_does_not(
    desk: Desk,
) -> None:
    desk.store.register("mean", ["speed"], at_end=False)
    desk.waiting.commit(Commit(consumer="mean", passed=Passed({"speed": 1})), NOW_S)
    desk.waiting.commit(
        Commit(consumer="mean", passed=Passed({"speed": 2})), NOW_S + FREE_LINGER_S / 2
    )
    assert not desk.is_due(NOW_S + FREE_LINGER_S - 0.01)
    assert desk.is_due(NOW_S + FREE_LINGER_S)
    desk.waiting.commit(
        Commit(consumer="mean", passed=Passed({"speed": 3}), is_awaited=True), NOW_S
    )
    assert desk.is_due(NOW_S)
    desk.waiting.commit(Commit(consumer="peak", passed=Passed({"speed": 1})), NOW_S)
    assert desk.is_due(NOW_S), "one that waits holds back none that is awaited"
    assert desk.waiting.passed("mean") == Passed({"speed": 3})
    work = desk.taken(NOW_S)
    assert work is not None
    assert work.passed["mean"] == Passed({"speed": 3})
    assert desk.waiting.passed("mean") is None


def test_answers_come_with_the_turn_that_takes_what_they_are_for(desk: Desk) -> None:
    answer = desk.waiting.commit(Commit({"speed": [reading(1)]}), NOW_S)
    work, answers = desk.waiting.take(desk.store, NOW_S)
    assert work is not None
    assert answers == [answer]
    assert desk.waiting.take(desk.store, NOW_S) == (None, [])


def test_a_commit_of_nothing_is_answered_with_the_next_turn(desk: Desk) -> None:
    desk.waiting.commit(Commit(), NOW_S)
    assert not desk.is_due(NOW_S)
    desk.left("speed", 1)
    assert len(desk.waiting.take(desk.store, NOW_S)[1]) == 1


@pytest.mark.parametrize("stream", ["speed", "street"])
def test_a_commit_that_has_no_room_in_one_queue_leaves_nothing_in_any(
    desk: Desk, stream: str
) -> None:
    desk.left("street", *range(5))
    with pytest.raises(LogBusyError):
        desk.waiting.commit(
            Commit({"speed": [reading(1)], "street": [reading(2)]}, {"file": "3"}), NOW_S
        )
    work = desk.taken(NOW_S)
    assert work is not None
    assert (set(work.readings), len(work.readings["street"]), work.positions) == ({"street"}, 5, {})
    desk.left(stream, 1)


def test_after_the_end_nothing_is_taken_and_what_is_here_waits_for_nothing(desk: Desk) -> None:
    desk.lose("speed", 1, NOW_S)
    desk.waiting.stopping = True
    for leave in (
        lambda: desk.left("speed", 1),
        lambda: desk.lose("speed", 1, NOW_S),
        lambda: desk.waiting.commit(Commit(), NOW_S),
    ):
        with pytest.raises(LogClosedError):
            leave()
    assert desk.is_due(NOW_S)
    work = desk.taken(NOW_S)
    assert work is not None
    assert work.lost == {"speed": {"queue_full": 1}}


# what the cloud acknowledged


def sent(desk: Desk, *numbers: int) -> list[OutFrame]:
    """One frame of these is out."""
    desk.waiting.sending = True
    desk.left("speed", *numbers)
    return desk.turn(NOW_S)


def test_deletions_wait_for_company_from_the_first_unless_their_room_is_wanted(desk: Desk) -> None:
    (out,) = sent(desk, 1)
    desk.waiting.free(out.key, None, NOW_S)
    desk.waiting.free(FrameKey("speed", 1, 99), None, NOW_S + 0.4)
    assert not desk.is_due(NOW_S + FREE_LINGER_S - 0.01)
    assert desk.is_due(NOW_S + FREE_LINGER_S)
    desk.left("speed", 2)
    assert desk.is_due(NOW_S)
    desk.turn(NOW_S)
    assert desk.store.backlog()[0] == 1


def test_deletions_that_the_disk_did_not_take_come_first_the_next_time(desk: Desk) -> None:
    (out,) = sent(desk, 1)
    other = FrameKey("speed", 1, 99)
    desk.waiting.free(out.key, None, NOW_S)
    work = desk.waiting.take_freed(desk.store, NOW_S)
    assert work is not None
    assert (work.readings, list(work.freed)) == ({}, [(out.key, None)])
    desk.waiting.free(other, None, NOW_S)
    desk.waiting.put_back(work.freed)
    again = desk.waiting.take_freed(desk.store, NOW_S)
    assert again is not None
    assert list(again.freed) == [(out.key, None), (other, None)]
    assert desk.waiting.take_freed(desk.store, NOW_S) is None


def test_on_a_full_disk_no_frame_is_formed_of_a_stream_that_was_asked_to_wait(desk: Desk) -> None:
    (out,) = sent(desk, 1)
    desk.waiting.sending = False
    for stream in ("speed", "street"):
        desk.left(stream, 2)
    desk.turn(NOW_S)
    desk.waiting.sending, desk.waiting.framing.paused = True, frozenset({"street"})
    desk.waiting.free(out.key, None, NOW_S)
    work = desk.waiting.take_freed(desk.store, NOW_S)
    assert work is not None
    assert [frame.key.stream for frame in desk.store.apply(work).frames] == ["speed"]


def test_who_wants_room_is_told_of_an_acknowledgement_at_once(desk: Desk) -> None:
    assert not desk.waiting.wants_room(desk.store)
    for n in range(8):
        desk.left("speed", n)
        desk.turn(NOW_S)
    assert desk.waiting.wants_room(desk.store), "readings wait for their frame"
    desk.waiting.framing.paused = frozenset({"speed"})
    assert not desk.waiting.wants_room(desk.store)


# the modes


def test_where_it_is_logged_when_it_is_sent_a_reading_waits_for_somebody_who_sends(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path / "log", mode=LogMode.SBML)
    desk.left("speed", 1)
    assert not desk.is_due(NOW_S)
    desk.waiting.sending = True
    assert desk.is_due(NOW_S)
    assert desk.waiting.wants_room(desk.store)
    desk.waiting.sending, desk.waiting.stopping = False, True
    work = desk.taken(NOW_S)
    assert work is not None
    assert set(work.readings) == {"speed"}, "an orderly end logs it"
    desk.log.close()


@pytest.mark.parametrize("mode", list(LogMode))
def test_every_mode_says_what_it_does(mode: LogMode) -> None:
    flags = mode.flags
    assert flags.is_durable == (mode is not LogMode.NONE)
    assert flags.on_receipt == (mode is not LogMode.SBML)
    assert flags.is_synchronous == (mode in (LogMode.RBML, LogMode.RBML_SBML))
    assert flags.copies_sent == (mode is LogMode.RBML_SBML)


# company


@pytest.mark.parametrize(("stream", "due_s"), [("alarm", 0.01), ("speed", 0.2), ("bulk", 1.0)])
def test_on_a_busy_device_a_commit_waits_as_long_as_the_most_urgent_lane_may(
    tmp_path: Path, stream: str, due_s: float
) -> None:
    desk = Desk(
        tmp_path / "log",
        linger_urgent_ms=10,
        linger_ms=200,
        linger_bulk_ms=1_000,
        queue_readings_max=5_000,
    )
    for n in range(40):  # a thousand a second, for two
        desk.left(stream, *range(50))
        desk.turn(NOW_S + n * 0.05)
    begins = NOW_S + 2
    desk.left("bulk", 1)
    desk.left(stream, 1)
    since: dict[Lane, float] = {}
    assert desk.waiting.linger_s(desk.store, since, begins) == pytest.approx(due_s)
    assert desk.waiting.linger_s(desk.store, since, begins + due_s + 0.001) < 0
    desk.log.close()


def test_a_queue_that_has_enough_waits_for_no_more(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "log", commit_readings_max=3, queue_readings_max=10)
    for n in range(2):
        desk.left("speed", n)
    assert desk.waiting.linger_s(desk.store, {}, NOW_S) >= 0
    desk.left("speed", 3)
    assert desk.waiting.linger_s(desk.store, {}, NOW_S) == 0.0
    desk.log.close()
