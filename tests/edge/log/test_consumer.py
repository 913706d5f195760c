"""The newest readings in memory: filled by the writer's thread, emptied by a consumer's, and never
with a hole.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log import consumer
from edgewake.edge.log.consumer import TAIL_READINGS_MAX, Tail
from edgewake.edge.log.tables.consumers import Received
from tests.edge.helpers import reading
from tests.services import PATIENCE_S


def part(first: int, count: int) -> Received:
    return Received(
        "speed", first, [reading(position, gone=None) for position in range(first, first + count)]
    )


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "skip", "read", "jump", "clear"]), st.integers(1, 40)),
    max_size=60,
)


@given(STEPS)
def test_what_it_gives_follows_the_cursor_without_a_hole_and_it_holds_no_more_than_its_bound(
    steps: list[tuple[str, int]],
) -> None:
    bound, tail = 50, Tail()
    last = at = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer, "TAIL_READINGS_MAX", bound)
        for step, count in steps:
            if step == "add":
                tail.add(part(last + 1, count))
                last += count
            elif step == "skip":  # what was written while nobody listened
                last += count
            elif step == "jump":  # the consumer read so much from the log
                at = min(last, at + count)
            elif step == "clear":
                tail.clear()
            else:
                for got in tail.after(at, count):
                    assert (got.first, got.stream) == (at + 1, "speed")
                    assert [fields for _, fields in got.readings] == [
                        {"n": place} for place in range(got.first, got.last + 1)
                    ]
                    at = got.last
                assert at <= last
            assert sum(len(one.readings) for one in tail._parts) == tail._count <= bound


def test_a_reader_far_behind_gets_nothing_from_memory_and_one_that_is_ahead_nothing_twice() -> None:
    tail = Tail()
    tail.add(part(100, 10))
    assert not tail.has_after(50)
    assert tail.has_after(99)
    assert [got.first for got in tail.after(104, 100)] == [105]
    assert not tail.has_after(104)


class Interrupted(deque[Received]):
    """Between the look whether there is something and the look at it another thread does its part,
    if it may.
    """

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def __bool__(self) -> bool:
        found, meanwhile = len(self) > 0, self.meanwhile
        self.meanwhile = lambda: None
        meanwhile()
        return found


@pytest.mark.parametrize(
    "look",
    [lambda tail: tail.has_after(0), lambda tail: list(tail.after(0, 10))],
    ids=["has_after", "after"],
)
def test_a_flood_that_empties_it_while_a_consumer_looks_ends_no_consumer(
    look: Callable[[Tail], object],
) -> None:
    tail = Tail()
    tail._parts = Interrupted()
    tail.add(part(1, 10))
    writers: list[threading.Thread] = []

    def flood() -> None:
        writers.append(threading.Thread(target=lambda: tail.add(part(11, TAIL_READINGS_MAX))))
        writers[0].start()
        writers[0].join(0.2)  # it waits for the consumer, or has emptied it by now

    tail._parts.meanwhile = flood
    look(tail)
    writers[0].join(PATIENCE_S)
    assert not writers[0].is_alive()
    assert tail._count == sum(len(one.readings) for one in tail._parts)
