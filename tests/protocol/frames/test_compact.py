"""Compact messages."""

from __future__ import annotations

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames import compact, packed
from edgewake.protocol.frames.compact import COMPACT_TYPE, Compact
from edgewake.protocol.frames.frame import COUNTER_MAX, FRAME_TYPE, FRAME_ZSTD_TYPE, Frame
from tests.edge import foreign_frame

NUMBER = st.integers(0, COUNTER_MAX)
BITS = packed.pack(Frame(3, 12, 1101, [1_790_000_000_000], {"n": [1]})) or b""


@given(
    NUMBER, NUMBER, NUMBER, st.sampled_from([FRAME_TYPE, FRAME_ZSTD_TYPE]), st.binary(max_size=20)
)
def test_what_goes_in_comes_out(sent_at, epoch, frame, content_type, body):
    one = Compact(sent_at, epoch, frame, content_type, body)
    assert compact.decode(compact.encode(one)) == one


def test_a_packed_frame_says_its_numbers_once():
    one = Compact(1_790_000_000_100, 3, 12, packed.PACKED_TYPE, BITS)
    data = compact.encode(one)
    assert len(data) == len(BITS) + 6
    assert compact.decode(data) == one


@pytest.mark.parametrize("content_type", [FRAME_TYPE, FRAME_ZSTD_TYPE, packed.PACKED_TYPE])
def test_a_reader_that_is_not_ours_agrees(content_type):
    body = BITS if content_type == packed.PACKED_TYPE else b"body"
    data = compact.encode(Compact(1_790_000_000_100, 3, 12, content_type, body))
    found = foreign_frame.opened(
        mqtt5.PublishPacket("ew/v1/car-07/up/speed", data, content_type=COMPACT_TYPE)
    )
    assert found == foreign_frame.ForeignMessage(
        content_type, body, "ew/v1/car-07/acks", b"speed|3|12", 1_790_000_000_100
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", RejectReason.ENCODING),
        (b"\x01\x00\x01", RejectReason.ENCODING),
        (b"\x01\x03\x01\x01", RejectReason.VERSION),
        (b"\xff" * (1 << 20), RejectReason.ENCODING),
    ],
)
def test_what_is_none_is_refused(data, reason):
    with pytest.raises(Rejected) as found:
        compact.decode(data)
    assert found.value.reason is reason
