"""Frames that wait: found by size, by age and by offset, whatever came and went."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.sequencer.order.arrival import Arrival
from edgewake.cloud.sequencer.order.holding import Holding
from edgewake.protocol.frames.record import Discipline, Placement
from tests.examples import examples


def arrival(offset: int, number: int, size: int) -> Arrival:
    placement = Placement(Discipline.ORDERED, "s", 1, number, number)
    return Arrival(offset, "d", placement, size, 0, held_at_s=float(offset))


STEPS = st.tuples(
    st.booleans(), st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 4), st.integers(1, 9)
)
"""Is it added, of which state, number, bytes."""


@given(st.lists(STEPS))
@settings(max_examples=examples(150))
def test_it_is_what_looking_through_all_would_find(
    steps: list[tuple[bool, bytes, int, int]],
) -> None:
    holding, plain = Holding(), dict[tuple[bytes, int], Arrival]()
    for offset, (is_added, key, number, size) in enumerate(steps):
        is_there = (key, number) in plain
        if is_added:
            one = arrival(offset, number, size)
            assert holding.add(key, one) is not is_there
            plain.setdefault((key, number), one)
        elif is_there:
            assert holding.remove(key, number) is plain.pop((key, number))
        sizes = dict.fromkeys((of for of, _ in plain), 0)
        for (of, _), one in plain.items():
            sizes[of] += one.bytes
        assert (len(holding), holding.bytes, set(holding)) == (
            len(plain),
            sum(sizes.values()),
            set(sizes),
        )
        assert holding.first_offset(-1) == min((one.offset for one in plain.values()), default=-1)
        if plain:
            assert sizes[holding.largest()] == max(sizes.values())
        for of in sizes:
            held = holding.get(of)
            assert held is not None
            mine = {number: one for (other, number), one in plain.items() if other == of}
            assert (held.lowest(), held.since_s) == (
                (min(mine), min(mine)),
                min(one.held_at_s for one in mine.values()),
            )
