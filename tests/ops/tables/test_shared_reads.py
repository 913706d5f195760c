"""Deliveries, groups and refused events: rows of `ew.leases`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.ops.tables.shared_reads import SharedReads


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.booleans()), max_size=40))
def test_refused_events_are_counted_by_what_is_there(rows: list[tuple[str, int, bool]]) -> None:
    shared, naive = SharedReads(), set[tuple[str, int]]()
    for delivery, number, is_there in rows:
        shared.put(f"letter|{delivery}|{number}", b"{}" if is_there else None)
        (naive.add if is_there else naive.discard)((delivery, number))
    for delivery in "ab":
        assert shared.letters[delivery] == sum(one == delivery for one, _ in naive)


def test_rows_of_leases_are_passed_over() -> None:
    shared = SharedReads()
    shared.put("lease|x", b"{}")
    assert (shared.deliveries, shared.groups) == ({}, {})


@pytest.mark.parametrize("kind", ["delivery", "group"])
def test_a_row_that_cannot_be_read_is_refused_and_hides_the_one_before(kind: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (the words are the decoders')
        SharedReads().put(f"{kind}|x", b"[]")
    shared = SharedReads()
    shared.put(f"{kind}|x", None)
    assert (shared.deliveries, shared.groups) == ({}, {})
