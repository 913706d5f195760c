"""Keys in their order, as they come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.access.latest import key_order
from edgewake.cloud.access.latest.key_order import KeyOrder

KEYS = st.text("ab/\u00e9", max_size=4)


@given(st.lists(KEYS, max_size=60), st.lists(KEYS, max_size=20), KEYS, st.integers(1, 5))
def test_it_is_as_a_sorted_set(come: list[str], go: list[str], after: str, piece_max: int) -> None:
    before, key_order.PIECE_MAX = key_order.PIECE_MAX, piece_max  # type: ignore[misc]
    try:
        order, known = KeyOrder(), set[str]()
        for key in come:
            if key not in known:
                known.add(key)
                order.add(key)
        for key in go:
            if key in known:
                known.discard(key)
                order.remove(key)
    finally:
        key_order.PIECE_MAX = before  # type: ignore[misc]
    assert list(order.after(None)) == sorted(known)
    assert list(order.after(after)) == sorted(key for key in known if key > after)
