"""What is shown of a dead letter: an agent's frame as JSON, whatever form it came in."""

from __future__ import annotations

import pytest
import zstandard

from edgewake.cloud.ops.letters.dead_letters import PREVIEW_CHARS, preview_of
from edgewake.protocol.frames.frame import FRAME_TYPE, FRAME_ZSTD_TYPE, Frame, encode
from edgewake.protocol.frames.packed import PACKED_TYPE, pack

T0 = 1_790_000_000_000
FRAME = Frame(3, 12, 1101, [T0 + n * 1000 for n in range(3)], {"speed": [51.2, None, 49.8]})
PACKED = pack(FRAME) or b""


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (encode(FRAME), FRAME_TYPE),
        (zstandard.compress(encode(FRAME)), FRAME_ZSTD_TYPE),
        (PACKED, PACKED_TYPE),
    ],
    ids=["json", "zstd", "packed"],
)
def test_a_frame_is_shown_as_json(value: bytes, content_type: str) -> None:
    assert preview_of(value, content_type) == encode(FRAME).decode()


@pytest.mark.parametrize("content_type", [FRAME_TYPE, FRAME_ZSTD_TYPE, PACKED_TYPE, ""])
@pytest.mark.parametrize("value", [b"", b"\xff" * 9, PACKED[:-1], b"x" * 9999])
def test_a_damaged_one_is_shown_by_its_bytes_and_never_long(
    value: bytes, content_type: str
) -> None:
    shown = preview_of(value, content_type)
    assert shown == value.decode("utf-8", "replace")[:PREVIEW_CHARS]
