"""Which older block is read next: partitions take turns, and one that cannot be read leaves the
threads to the others.
"""

from __future__ import annotations

from edgewake.cloud.log.replay import FAILURE_PAUSE_S, BlockKey, TurnsOfPartitions


def key(partition: int, offset: int = 0) -> BlockKey:
    return "topic", "id", partition, offset


def test_partitions_take_turns_and_each_is_read_by_one_thread() -> None:
    turns = TurnsOfPartitions()
    for partition, offset in ((0, 0), (0, 512), (0, 1024), (1, 0)):
        turns.add(key(partition, offset))
    assert [turns.next(), turns.next(), turns.next()] == [key(0, 0), key(1, 0), None]
    assert turns.done(key(0, 0), failed_at=None) == []
    assert turns.next() == key(0, 512)


def test_a_partition_that_fails_fails_all_its_blocks_at_once_and_holds_up_no_other() -> None:
    turns = TurnsOfPartitions()
    for partition, offset in ((0, 0), (0, 512), (1, 0)):
        turns.add(key(partition, offset))
    assert turns.next() == key(0, 0)
    assert turns.done(key(0, 0), failed_at=100.0) == [key(0, 512)]
    assert turns.next() == key(1, 0)
    assert turns.is_failing(key(0, 4096), 100.0)
    assert not turns.is_failing(key(1, 4096), 100.0)
    assert not turns.is_failing(key(0, 4096), 100.0 + FAILURE_PAUSE_S)


def test_a_partition_that_can_be_read_again_is_forgiven() -> None:
    turns = TurnsOfPartitions()
    turns.add(key(0))
    turns.next()
    turns.done(key(0), failed_at=100.0)
    turns.add(key(0))
    turns.next()
    turns.done(key(0), failed_at=None)
    assert not turns.is_failing(key(0), 100.0)
