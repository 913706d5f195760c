"""Names in order, whatever was added and removed between two looks."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.ops.tables import name_index
from edgewake.cloud.ops.tables.name_index import NameIndex
from tests.examples import examples

NAMES = st.sampled_from([f"n{number}" for number in range(6)])


@given(st.lists(st.tuples(st.booleans(), NAMES)), st.none() | NAMES, st.integers(1, 4))
@settings(max_examples=examples(100))
def test_it_is_what_a_sorted_set_is(
    changes: list[tuple[bool, str]], after: str | None, merge_at: int
) -> None:
    index, expected = NameIndex(), set[str]()
    before, name_index.MERGE_AT = name_index.MERGE_AT, merge_at  # type: ignore[misc]
    try:
        for looks, name in changes:
            if name in expected:
                index.remove(name)
                expected.discard(name)
            else:
                index.add(name)
                expected.add(name)
            if looks:
                assert list(index.after(None)) == sorted(expected)
    finally:
        name_index.MERGE_AT = before  # type: ignore[misc]
    names = sorted(expected)
    assert list(index.after(after)) == names[0 if after is None else bisect_right(names, after) :]


def test_names_with_a_beginning_are_found_without_a_look_at_the_others() -> None:
    index = NameIndex()
    for name in ("bus-2", "car-1", "bus-10", "bus", "a", "busy"):
        index.add(name)
    assert list(index.beginning_with("bus-")) == ["bus-10", "bus-2"]
    assert list(index.beginning_with("bus")) == ["bus", "bus-10", "bus-2", "busy"]
    assert list(index.beginning_with("d")) == []
    assert list(index.beginning_with("")) == sorted(
        ("bus-2", "car-1", "bus-10", "bus", "a", "busy")
    )
