"""What is remembered of results that may have to be withdrawn: aborted batches, bounds, and a
process before this one.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.results import emitted_rows
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows, Ranked
from tests.examples import examples

PLACE = (0, 60, '{"device":"a"}')


def test_what_was_told_stands_until_it_changes() -> None:
    memory = EmittedRows()
    assert memory.is_unchanged(PLACE, "", 1), "what was never told need not be withdrawn"
    memory.mark(PLACE, "x", 1)
    assert memory.is_unchanged(PLACE, "x", 2)
    assert not memory.is_unchanged(PLACE, "y", 2)
    assert not memory.is_unchanged(PLACE, "", 2)


def test_a_revision_that_is_tried_again_says_all_of_it_again() -> None:
    memory = EmittedRows()
    memory.mark(PLACE, "x", 1)
    assert not memory.is_unchanged(PLACE, "x", 1), (
        "the transaction of revision 1 may have been aborted"
    )
    memory.mark(PLACE, "", 2)
    assert not memory.is_unchanged(PLACE, "", 2)
    assert memory.is_unchanged(PLACE, "", 3)


def test_what_another_process_may_have_told_is_withdrawn_once() -> None:
    memory = EmittedRows(unknown_to=60)
    assert not memory.is_unchanged(PLACE, "", 1)
    memory.mark(PLACE, "", 1)
    assert memory.is_unchanged(PLACE, "", 2)
    assert memory.is_unchanged((60, 120, "{}"), "", 1)


def test_beyond_its_bound_everything_counts_as_perhaps_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emitted_rows, "ROWS_MAX", 1)
    memory = EmittedRows()
    memory.mark(PLACE, "x", 1)
    memory.mark((60, 120, "{}"), "x", 1)
    assert [len(rows) for rows in memory.marked.values()] == [1, 0]
    assert not memory.is_unchanged((60, 120, "{}"), "", 2)
    assert memory.is_unchanged((120, 180, "{}"), "", 2)


STEPS = st.tuples(
    st.sampled_from(["tell", "put", "leave", "forget"]), st.integers(0, 4), st.sampled_from("abc")
)


@given(st.lists(STEPS, max_size=60), st.integers(1, 8))
@settings(max_examples=examples(100))
def test_rows_are_counted_as_they_come_and_go(steps: list[tuple[str, int, str]], most: int) -> None:
    memory = EmittedRows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emitted_rows, "ROWS_MAX", most)
        for revision, (what, window, group) in enumerate(steps):
            place = (60 * window, 60 * window + 60, group)
            if what == "tell":
                memory.mark(place, "x", revision)
            elif what == "forget":
                memory.forget(60 * window)
            else:
                memory.rank(place, Ranked((revision,), "x") if what == "put" else None)
            assert memory.marked_count == sum(map(len, memory.marked.values())) <= most
            assert memory.ranked_rows == sum(map(len, memory.windows.values()))


def test_closed_windows_are_forgotten() -> None:
    memory = EmittedRows()
    memory.mark(PLACE, "x", 1)
    memory.rank(PLACE, Ranked((1,), "x"))
    memory.forget(59)
    assert (list(memory.marked), list(memory.windows)) == ([(0, 60)], [(0, 60)])
    memory.forget(60)
    assert (memory.marked, memory.windows) == ({}, {})


def test_the_first_of_a_window_are_those_of_the_smallest_rank() -> None:
    memory = EmittedRows()
    for group, rank in (("c", 2), ("a", 1), ("b", 1)):
        memory.rank((0, 60, group), Ranked((rank,), group))
    assert [group for group, _ in memory.first((0, 60), 2)] == ["a", "b"]
    memory.rank((0, 60, "a"), None)
    assert [group for group, _ in memory.first((0, 60), 2)] == ["b", "c"]
