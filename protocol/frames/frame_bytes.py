"""Tells the form of a frame's bytes by their beginning, and reads the frame in them. Pure."""

from __future__ import annotations

from edgewake.protocol.frames import packed
from edgewake.protocol.frames.frame import (
    FRAME_TYPE,
    FRAME_ZSTD_TYPE,
    Frame,
    decode,
    inflate,
    is_compressed,
)


def content_type_of(payload: bytes) -> str:
    """FRAME_TYPE, FRAME_ZSTD_TYPE or PACKED_TYPE."""
    if is_compressed(payload):
        return FRAME_ZSTD_TYPE
    return packed.PACKED_TYPE if payload[:1] == bytes([packed.FORM]) else FRAME_TYPE


def read(payload: bytes) -> Frame:
    """The frame; raises Rejected."""
    match content_type_of(payload):
        case packed.PACKED_TYPE:
            return packed.unpack(payload)[0]
        case content_type:
            return decode(inflate(payload) if content_type == FRAME_ZSTD_TYPE else payload)
