"""Rows of `ew.sequence`: what is written is read, what is foreign is refused, and no row is too
large for Kafka.
"""

import pytest

from edgewake.cloud.sequencer.order.holes import Hole, Holes
from edgewake.cloud.sequencer.order.state_rows import (
    ROW_BYTES_MAX,
    BlockRow,
    block_key,
    decode_block,
    decode_block_key,
    encode_block,
)
from edgewake.cloud.sequencer.order.state_table import SLOT_BYTES


def a_row(holes: int = 1, wide: int = 1) -> BlockRow:
    named = {}
    for i in range(holes):
        named[i.to_bytes(20, "big")] = one = Holes(f"device-{i}", "stream", 3)
        one.open(Hole(2, 9, 11, 91, 5, counted=False))
    windows = {i.to_bytes(20, "big"): (1 << 1023) + i for i in range(wide)}
    return BlockRow(77, [bytes([1]) * SLOT_BYTES], named, windows, {})


def test_a_block_survives_its_row() -> None:
    row = decode_block(encode_block(a_row()))
    assert (row.through, row.slots, row.wide) == (77, [bytes([1]) * SLOT_BYTES], a_row().wide)
    (holes,) = row.holes.values()
    assert ((holes.device, holes.stream, holes.epoch), list(holes)) == (
        ("device-0", "stream", 3),
        [Hole(2, 9, 11, 91, 5, counted=False)],
    )


def test_a_row_leaves_out_windows_and_then_holes_rather_than_be_too_large() -> None:
    assert len(decode_block(encode_block(a_row(holes=100, wide=3000))).holes) == 100
    assert decode_block(encode_block(a_row(holes=100, wide=3000))).wide == {}
    assert decode_block(encode_block(a_row(holes=20_000))).holes == {}
    assert len(encode_block(a_row(holes=20_000, wide=3000))) < ROW_BYTES_MAX


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"\x02" + bytes(12),
        b"\x01" + bytes(8) + b"\x01\0\0\0",
        encode_block(a_row())[:-4],
    ],
)
def test_a_foreign_block_is_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"block row|JSON|EOF|unexpected"):
        decode_block(value)


def test_the_key_of_a_block_names_its_partition() -> None:
    assert decode_block_key(block_key(17, 255)) == (17, 255)
