"""Positions survive their row; a foreign row is a ValueError."""

import pytest

from edgewake.protocol.frames.sequence import Position, decode_positions, encode_positions


def test_positions_survive_their_row() -> None:
    positions = {3: Position(10, 20, 15, 1_790_000_000_000), 19: Position()}
    assert decode_positions(encode_positions(positions)) == positions


@pytest.mark.parametrize("value", [b"[]", b"{", b'{"1":2}', b'{"1":[1,2,3,4,5]}'])
def test_a_foreign_row_is_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"positions|JSON|unexpected"):
        decode_positions(value)
