"""The form of a frame's bytes is told by their beginning."""

from __future__ import annotations

from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames import packed
from edgewake.protocol.frames.frame_bytes import content_type_of, read
from tests.protocol.frames.test_packed import frame, packed_bytes


def test_a_frame_is_told_by_its_first_bytes():
    one = frame({"n": list(range(60))})
    text = frames.encode(one)
    for data in (text, frames.compress(text)[0], packed_bytes(one)):
        assert frames.encode(read(data)) == text
    assert content_type_of(packed_bytes(one)) == packed.PACKED_TYPE
