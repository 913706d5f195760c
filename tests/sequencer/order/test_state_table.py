"""States by key in one block of memory."""

import random

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.partition import Partition
from edgewake.cloud.sequencer.order.state_rows import BlockRow, encode_block
from edgewake.cloud.sequencer.order.state_table import (
    BLOCKS,
    SLOT_BYTES,
    State,
    StateTable,
    line_digest,
    seconds,
    state_key,
)
from edgewake.protocol.frames.record import Discipline
from edgewake.protocol.frames.sequence import Position


def key(device: int, epoch: int = 1) -> bytes:
    return state_key(line_digest(f"d{device}", "s", Discipline.ORDERED), epoch)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3), st.integers(0, 2**53)), max_size=200)
)
def test_it_remembers_what_a_dict_remembers(entries: list[tuple[int, int, int]]) -> None:
    table, naive = StateTable(), {}
    for device, epoch, number in entries:
        slot = table.find(key(device, epoch))
        if slot < 0:
            slot = table.insert(key(device, epoch))
        table.write(slot, number, 7, 1, 2)
        naive[key(device, epoch)] = State(number, 7, 1, 2)
    assert dict(table.states()) == naive
    assert len(table) == len(naive)
    assert table.find(key(99)) == -1


@given(st.sets(st.integers(0, 3000), max_size=300), st.randoms())
def test_blocks_hold_every_state_once_and_load_into_another_table(
    devices: set[int], rng: random.Random
) -> None:
    table = StateTable()
    for device in devices:
        table.write(table.insert(key(device)), device, 0, 1, 0)
    blocks = {number: table.block(number) for number in range(BLOCKS)}
    assert all(
        raw[0] == number and len(raw) == SLOT_BYTES
        for number, raws in blocks.items()
        for raw in raws
    )
    copy = StateTable()
    raws = [raw for raws in blocks.values() for raw in raws]
    rng.shuffle(raws)
    half = len(raws) // 2
    copy.load(raws[:half])
    copy.load(raws[half:])

    assert dict(copy.states()) == dict(table.states())


def test_a_partition_is_restored_without_moving_a_state() -> None:
    """Blocks come in the order of their digests.

    A table that grows meanwhile holds them all in its first slots, so that each search passes
    thousands: a million states took minutes. It is made as large as it must be, which its memory
    shows.
    """
    table = StateTable()
    for device in range(5000):
        table.write(table.insert(key(device)), device, 0, 1, 0)
    blocks = {
        number: encode_block(BlockRow(7, table.block(number), {}, {}, {}))
        for number in range(BLOCKS)
    }
    order = Partition.restore(0, Bounds(), position=Position(), blocks=blocks).order
    assert dict(order.table.states()) == dict(table.states())
    assert order.table.memory_bytes <= (len(table) * 100 // 80 + 1) * SLOT_BYTES


def test_the_epochs_of_a_line_are_found_and_one_can_give_way_to_another() -> None:
    table = StateTable()
    for device in range(100):
        for epoch in range(3):
            table.write(table.insert(key(device, epoch)), epoch, 0, 1, 0)
    line = table.line(key(50)[:12])
    assert sorted(epoch for epoch, _ in line) == [0, 1, 2]
    table.rename(dict(line)[1], key(50, 9))
    assert sorted(epoch for epoch, _ in table.line(key(50)[:12])) == [0, 2, 9]
    assert table.find(key(50, 1)) == -1


def test_states_can_be_forgotten() -> None:
    table = StateTable()
    for device in range(100):
        table.write(table.insert(key(device)), device, 0, 1, 0)
    assert table.retain(lambda _key, state: state.next >= 60) == 60
    assert sorted(state.next for _, state in table.states()) == list(range(60, 100))


def test_memory_stays_below_eighty_bytes_a_state_while_it_grows() -> None:
    table = StateTable()
    for device in range(20_000):
        table.insert(key(device))
        if device > 1000:
            assert table.memory_bytes <= 80 * len(table)


def test_times_outside_their_range_are_clamped() -> None:
    assert (seconds(0), seconds(1_577_836_801_000), seconds(10**15)) == (0, 1, 2**32 - 1)
