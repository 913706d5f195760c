"""Bounded values by key, found again by block."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.sequencer.order.by_block import ByBlock

MOST = 3
KEYS = st.sampled_from([b"\x00a", b"\x00b", b"\x01a", b"\x01b", b"\xffa"])


@given(st.lists(st.tuples(KEYS, st.integers() | st.none()), max_size=40))
def test_the_newest_are_there_and_each_is_in_its_block(
    steps: list[tuple[bytes, int | None]],
) -> None:
    kept: ByBlock[int] = ByBlock(MOST)
    model: dict[bytes, int] = {}
    for key, value in steps:
        if value is None:
            if key in kept:
                kept.drop(key)
            model.pop(key, None)
        else:
            kept.put(key, value)
            model.pop(key, None)
            model[key] = value
            model = dict(list(model.items())[-MOST:])
        assert len(kept) == len(model)
        assert all(kept.get(one) == model.get(one) for one in {key, *model})
    found = {block: kept.of(block) for block in (0, 1, 255)}
    assert found == {
        block: {key: value for key, value in model.items() if key[0] == block} for block in found
    }
