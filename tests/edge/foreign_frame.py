"""A reader of frames that uses none of our code: JSON and zstd as docs/protocol.md has them, read as any other cloud would."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import zstandard

PLAIN = "application/vnd.edgewake.frame+json"
COMPRESSED = "application/vnd.edgewake.frame+json+zstd"
BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class ForeignGap:
    """What was lost on the device."""

    reason: str
    count: int


@dataclass(frozen=True)
class ForeignFrame:
    """A frame."""

    epoch: int
    frame: int
    first_frame: int
    seq: int
    t: list[int]
    fields: dict[str, list[Any]]
    gap: ForeignGap | None


def inflate(payload: bytes, content_type: str | None) -> bytes:
    """The JSON of a message."""
    if content_type == COMPRESSED:
        return zstandard.ZstdDecompressor().decompress(payload, max_output_size=BYTES_MAX)
    assert content_type == PLAIN, content_type
    return payload


def parse(text: bytes) -> ForeignFrame:
    """Read the JSON of a frame; AssertionError for what is none."""
    found = json.loads(text, parse_constant=_no_constant)
    numbers = (found["epoch"], found["frame"], found["seq"])
    assert all(type(number) is int and number > 0 for number in numbers), numbers
    gap = found.get("gap")
    assert set(found) <= {"epoch", "frame", "first_frame", "seq", "t", "fields", "gap"}, found.keys()
    t, fields = found.get("t", []), found.get("fields", {})
    assert (gap is None) is ("t" in found), "columns or a gap, and not both"
    assert all(len(column) == len(t) for column in fields.values()), "columns of different lengths"
    first = found.get("first_frame", found["frame"])
    return ForeignFrame(*numbers[:2], first, numbers[2], t, fields, None if gap is None else ForeignGap(gap["reason"], gap["count"]))


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
