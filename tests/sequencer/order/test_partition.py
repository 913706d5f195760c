"""A partition's position: what is read again, what was deleted unread, when something is due."""

from __future__ import annotations

from edgewake.cloud.sequencer.order.arrival import Arrival
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.partition import SWEEP_S, TICK_S, Partition
from edgewake.protocol.frames.record import Discipline, Placement
from edgewake.protocol.frames.sequence import Position

T0 = 1_790_000_000_000


def frame(offset: int, number: int) -> Arrival:
    placement = Placement(Discipline.ORDERED, "s", 1, number, number, number, 1)
    return Arrival(offset, "a", placement, 100, T0)


def partition(read_from: int = 0, emitted_before: int = 0, waits_from: int = 0) -> Partition:
    position = Position(read_from, emitted_before, waits_from, T0)
    return Partition.restore(0, Bounds(), position=position, blocks={})


def test_what_was_not_emitted_is_read_from_there_on() -> None:
    one = partition(read_from=3, emitted_before=7, waits_from=5)
    assert one.start_at(0, 10, now_s=0) == 0
    assert (one.position.read_from, one.next_offset) == (3, 7)


def test_what_was_deleted_before_it_was_emitted_is_counted_and_waited_for_no_longer() -> None:
    one = partition(read_from=3, emitted_before=7, waits_from=5)
    assert one.start_at(9, 20, now_s=0) == 2
    assert one.position == Position(9, 9, 9, T0)


def test_a_topic_that_ends_before_the_position_was_made_again_and_is_read_from_its_beginning() -> (
    None
):
    one = partition(read_from=300, emitted_before=700, waits_from=500)
    assert one.start_at(0, 10, now_s=0) == 0
    assert one.position == Position(0, 0, 0, T0)


def test_without_a_change_nothing_is_written() -> None:
    one = partition()
    one.start_at(0, 0, now_s=0)
    assert one.is_due(0)
    assert one.step([], 0, now_s=0, now_ms=T0) is None
    assert not one.is_due(0)


def test_a_step_emits_moves_the_position_and_keeps_the_last_reception() -> None:
    one = partition()
    one.start_at(0, 2, now_s=0)
    first = frame(0, 1)
    step = one.step([first], 1, now_s=0, now_ms=T0)
    assert step is not None
    assert list(step.outputs) == [first]
    assert (step.position.emitted_before, step.position.received_at) == (1, T0)
    assert one.position == step.position


def test_while_a_frame_waits_it_is_looked_at_often_otherwise_once_in_a_while() -> None:
    one = partition()
    one.start_at(0, 3, now_s=0)
    one.step([frame(0, 1)], 1, now_s=0, now_ms=T0)
    assert not one.is_due(TICK_S)
    assert one.is_due(SWEEP_S)
    one.step([frame(1, 3)], 2, now_s=0, now_ms=T0)  # number 2 is missing
    assert one.order.held == 1
    assert not one.is_due(TICK_S / 2)
    assert one.is_due(TICK_S)


def test_what_was_emitted_before_is_replayed_in_silence() -> None:
    one = partition(read_from=0, emitted_before=2)
    one.start_at(0, 2, now_s=0)
    one.replay([frame(0, 1), frame(1, 2)], 2, now_s=0)
    assert not one.order.outcomes
    repeat, new = frame(2, 2), frame(3, 3)
    step = one.step([repeat, new], 4, now_s=0, now_ms=T0)
    assert step is not None
    assert list(step.outputs) == [new]
