"""The tail: complete between its ends, within its bound, and honest about which places are the
same.
"""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.log.decode import Record
from edgewake.cloud.log.tail import RECORD_OVERHEAD_BYTES, Tail


def filled(start: int, *offsets: int) -> Tail:
    tail = Tail(start)
    for offset in offsets:
        tail.append(Record(offset, 0, b"v", is_result=False))
    return tail


def offsets_from(tail: Tail, offset: int, index: int = 0) -> list[int]:
    return [record.offset for record in tail.read_from((offset, index))]


def test_a_reader_gets_what_is_at_its_position_and_after() -> None:
    assert offsets_from(filled(5, 5, 7, 8), 6) == [7, 8]
    assert offsets_from(filled(5, 5, 7, 8), 7, index=3) == [7, 8]


def test_a_record_that_was_seen_is_passed_over() -> None:
    assert offsets_from(filled(5, 5, 6, 5, 6), 0) == [5, 6]


def test_eviction_moves_the_start_and_frees_the_bytes() -> None:
    tail = Tail(0)
    added = sum(tail.append(Record(offset, 0, b"xy", is_result=False)) for offset in range(3))
    assert added == 3 * (2 + RECORD_OVERHEAD_BYTES)
    assert tail.evict() == 2 + RECORD_OVERHEAD_BYTES
    assert (tail.start, tail.has((0, 0)), tail.has((1, 0))) == (1, False, True)


def test_positions_with_the_same_records_before_them_have_one_canonical_form() -> None:
    tail = filled(0, 0, 3)
    tail.reaches(6)
    assert tail.canonical((4, 0)) == tail.canonical((6, 0)) == (4, 0)
    assert tail.canonical((1, 0)) == tail.canonical((3, 0)) == (1, 0)
    assert tail.canonical((3, 1)) == (3, 1)
    assert tail.canonical((9, 0)) == (9, 0), "past the end nothing is known"


def test_eviction_does_not_change_the_canonical_form() -> None:
    tail = filled(0, 0, 3)
    tail.reaches(6)
    for _ in range(2):
        before = tail.canonical((6, 0))
        tail.evict()
        assert tail.canonical((6, 0)) == before


def test_who_has_passed_all_records_stands_at_the_end() -> None:
    tail = filled(0, 0, 3)
    tail.reaches(6)
    assert [tail.end_of((offset, 0)) for offset in (3, 4, 6, 8)] == [(3, 0), (6, 0), (6, 0), (8, 0)]


@given(st.lists(st.integers(1, 3), max_size=3000), st.integers(0, 3000))
def test_reading_after_any_evictions_gives_all_that_is_left(
    steps: list[int], evictions: int
) -> None:
    offsets = [sum(steps[: i + 1]) for i in range(0, len(steps), 7)]
    tail = filled(0, *offsets)
    for _ in range(min(evictions, len(offsets))):
        tail.evict()
    assert offsets_from(tail, 0) == offsets[min(evictions, len(offsets)) :]
    assert len(tail) == len(offsets_from(tail, 0))


def test_reading_near_the_end_passes_over_nothing_before() -> None:
    """Ten thousand readers at the live end of a long tail are looked at each second."""
    tail = Tail(0)
    for offset in range(200_000):
        tail.append(Record(offset, 0, b"", is_result=False))
    assert [record.offset for record in tail.read_from((199_998, 0))] == [199_998, 199_999]

    def seconds(offset: int) -> float:
        began = time.perf_counter()
        for _ in range(200):
            assert next(iter(tail.read_from((offset, 0)))).offset == offset
        return time.perf_counter() - began

    first, last = (min(seconds(offset) for _ in range(5)) for offset in (0, 199_999))
    assert last < 50 * first, "a walk through all records takes a thousand times as long"
