"""What was given up is a counted range with a reason: ranges join where they may, and one that
nobody wrote says nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.keeping.rows import LogRows
from edgewake.edge.log.tables.consumers import Missed, outside, rows_after
from edgewake.edge.log.tables.gaps import (
    GivenUp,
    delete_gap,
    forget_unsound_gaps,
    gap_at,
    gap_before,
    gaps_behind,
    write_gap,
)
from edgewake.edge.log.tables.schema import open_in_memory
from edgewake.edge.log.tables.streams import StreamState
from tests.examples import examples

REASONS = ("quota", "queue_full", "age")


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """The tables of a log."""
    found = open_in_memory()
    yield found
    found.close()


def all_of(db: sqlite3.Connection, stream: int = 1) -> list[tuple[int, int, str]]:
    """First position, count and reason of each, in order."""
    return [(gap.first, gap.count, gap.reason) for gap in gaps_behind(db, stream, -1, 1 << 60)]


@pytest.mark.parametrize(
    ("there", "given", "after", "expected"),
    [
        ([], (5, 3, "quota"), 0, [(5, 3, "quota")]),
        ([(1, 4, "quota")], (5, 3, "quota"), 0, [(1, 7, "quota")]),
        ([(8, 2, "quota")], (5, 3, "quota"), 0, [(5, 5, "quota")]),
        ([(1, 4, "quota"), (8, 2, "quota")], (5, 3, "quota"), 0, [(1, 9, "quota")]),
        ([(1, 4, "age"), (8, 2, "age")], (5, 3, "quota"), 0,
            [(1, 4, "age"), (5, 3, "quota"), (8, 2, "age")]),
        ([(1, 3, "quota")], (5, 3, "quota"), 0, [(1, 3, "quota"), (5, 3, "quota")]),
        ([(9, 2, "quota")], (5, 3, "quota"), 0, [(5, 3, "quota"), (9, 2, "quota")]),
        ([(1, 4, "quota")], (5, 3, "quota"), 1, [(1, 4, "quota"), (5, 3, "quota")]),
        ([(2, 3, "quota")], (5, 3, "quota"), 1, [(2, 6, "quota")]),
        ([(5, 1, "age")], (5, 3, "quota"), 0, [(5, 3, "quota")]),
    ],
    ids=["alone", "behind one", "before one", "between two", "of other reasons", "apart behind",
        "apart before", "what is framed stays",
         "just behind what is framed", "in the place of another"],
)  # fmt: skip
def test_ranges_of_one_reason_that_touch_are_one(
    db: sqlite3.Connection,
    there: list[tuple[int, int, str]],
    given: tuple[int, int, str],
    after: int,
    expected: list[tuple[int, int, str]],
) -> None:
    for first, count, reason in there:
        write_gap(db, GivenUp(1, first, count, reason))
    LogRows(db).give_up(1, *given, after=after)
    assert all_of(db) == expected


def test_ranges_of_another_stream_are_left_alone(db: sqlite3.Connection) -> None:
    write_gap(db, GivenUp(2, 1, 4, "quota"))
    write_gap(db, GivenUp(2, 8, 4, "quota"))
    LogRows(db).give_up(1, 5, 3, "quota")
    assert (all_of(db, 1), all_of(db, 2)) == ([(5, 3, "quota")], [(1, 4, "quota"), (8, 4, "quota")])


@given(st.permutations(range(1, 25)), st.lists(st.sampled_from(REASONS), min_size=24, max_size=24))
@settings(max_examples=examples(40))
def test_in_whatever_order_positions_are_given_up_each_is_told_once_with_its_reason(
    order: list[int], reasons: list[str]
) -> None:
    db = open_in_memory()
    for position in order:
        LogRows(db).give_up(1, position, 1, reasons[position - 1])
    found = all_of(db)
    assert [reason for _, count, reason in found for _ in range(count)] == reasons
    assert all(one[2] != after[2] for one, after in pairwise(found)), "those that touch are one"
    db.close()


def test_a_range_is_found_where_it_begins_and_nowhere_else(db: sqlite3.Connection) -> None:
    gap = GivenUp(1, 5, 3, "quota")
    write_gap(db, gap)
    assert [gap_at(db, 1, first) for first in (4, 5, 6)] == [None, gap, None]
    assert [gap_before(db, 1, first) for first in (5, 6, 100)] == [None, gap, gap]
    assert [
        list(gaps_behind(db, 1, after, last)) for after, last in ((4, 5), (5, 9), (4, 4), (0, 5))
    ] == [[gap], [], [], [gap]]
    assert gap.last == 7
    assert gap_at(db, 2, 5) is None
    delete_gap(db, GivenUp(2, 5, 3, "quota"))
    assert gap_at(db, 1, 5) == gap
    delete_gap(db, gap)
    assert gap_at(db, 1, 5) is None


@pytest.mark.parametrize(
    "change",
    [
        "count = 4",
        "reason = 'age'",
        "crc = crc + 1",
        "reason = x'71756f7461'",
        "count = 3.5",
        "first = 6",
        "stream = 2",
        "crc = 'x'",
    ],
)
def test_a_range_that_nobody_wrote_says_nothing_and_goes(
    db: sqlite3.Connection, change: str
) -> None:
    write_gap(db, GivenUp(1, 5, 3, "quota"))
    write_gap(db, GivenUp(1, 20, 2, "age"))
    db.execute(f"UPDATE gaps SET {change} WHERE first = 5")
    assert all_of(db) == [(20, 2, "age")]
    assert all_of(db, 2) == []
    assert forget_unsound_gaps(db) == 1
    assert forget_unsound_gaps(db) == 0
    assert db.execute("SELECT count(*) FROM gaps").fetchone() == (1,)


# what a consumer is told

GAPS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 12), st.sampled_from(REASONS)), max_size=8
)


@given(GAPS, st.integers(0, 70), st.integers(1, 70))
@settings(max_examples=examples(40))
def test_a_hole_is_told_whole_part_by_part_each_with_its_reason(
    gaps: list[tuple[int, int, str]], after: int, last: int
) -> None:
    """Where nobody gave anything up the disk lost it."""
    db, reasons = open_in_memory(), dict[int, str]()
    for first, count, reason in gaps:
        if reasons.keys().isdisjoint(range(first, first + count)):
            write_gap(db, GivenUp(1, first, count, reason))
            reasons |= dict.fromkeys(range(first, first + count), reason)
    found, at = rows_after(
        db, StreamState(1, "speed", last, last), after, readings_max=1_000, bytes_max=1_000
    )
    told = [
        (place, one.reason)
        for one in found
        if isinstance(one, Missed)
        for place in range(one.first, one.last + 1)
    ]
    assert told == [(place, reasons.get(place, "corrupt")) for place in range(after + 1, last + 1)]
    assert at == max(after, last)
    assert all(one.count > 0 for one in found if isinstance(one, Missed))
    db.close()


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 6)), max_size=8),
    st.integers(-3, 35),
    st.integers(-3, 35),
)
def test_what_is_outside_of_ranges_is_what_is_in_none(
    pairs: list[tuple[int, int]], first: int, last: int
) -> None:
    ranges, end = list[tuple[int, int]](), 0
    for skip, length in pairs:
        ranges.append((end + skip, end + skip + length - 1))
        end += skip + length
    inside = {place for begins, ends in ranges for place in range(begins, ends + 1)}
    found = list(outside(ranges, first, last))
    assert [place for begins, ends in found for place in range(begins, ends + 1)] == [
        place for place in range(first, last + 1) if place not in inside
    ]
    assert all(begins <= ends for begins, ends in found)
