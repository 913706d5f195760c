"""The rows of `ew.sequence` that hold blocks of states (positions: protocol/frames/sequence.py).

Bytes and values, no I/O.

A *block row* (key `<partition>|<block>`, two hexadecimal digits) holds every state whose digest
begins with that byte:

    version 1 · through 8 · states 4 · slots (45 bytes each, see state_table) · JSON: holes,
    windows, contents that a slot has no room for; of things, numbers and absences

`through`: records of `ew.up` below this offset are in the row, except the ones that wait, which are
read again.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Any, Final

import orjson

from edgewake.cloud.sequencer.order.contents import Contents
from edgewake.cloud.sequencer.order.holes import Hole, Holes
from edgewake.cloud.sequencer.order.state_table import SLOT_BYTES

ROW_BYTES_MAX: Final = 512 * 1024
"""Bytes of a block row; below any sensible `max.message.bytes`. At the bound the row leaves out
numbers of things, then which of them are offline, then contents, then windows, then holes: after a
restart what was in the last three would count as a repeat, what comes by a second gateway would
count twice, and a late reading would show a thing online that is not."""
_VERSION: Final = 1
_HEAD: Final = Struct("<BQI")


def block_key(partition: int, block: int) -> str:
    """The key of a block row."""
    return f"{partition}|{block:02x}"


def decode_block_key(key: str) -> tuple[int, int]:
    """Partition and block; raises ValueError."""
    partition, _, block = key.partition("|")
    return int(partition), int(block, 16)


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block row, decoded."""

    through: int
    slots: Sequence[bytes]
    holes: Mapping[bytes, Holes]
    wide: Mapping[bytes, int]
    contents: Mapping[bytes, Contents]
    numbers: Mapping[bytes, bytes] = field(default_factory=dict)
    """By key: what came of the numbers of a thing (`own_numbers`)."""
    absences: Mapping[bytes, int] = field(default_factory=dict)
    """By key: since when a thing is offline, ms (`absences`)."""


def encode_block(row: BlockRow) -> bytes:
    """The bytes of a row, at most ROW_BYTES_MAX where the slots alone allow it."""
    head = _HEAD.pack(_VERSION, row.through, len(row.slots)) + b"".join(row.slots)
    for holes, wide, contents, numbers, absences in (
        (row.holes, row.wide, row.contents, row.numbers, row.absences),
        (row.holes, row.wide, row.contents, {}, row.absences),
        (row.holes, row.wide, row.contents, {}, {}),
        (row.holes, row.wide, {}, {}, {}),
        (row.holes, {}, {}, {}, {}),
        ({}, {}, {}, {}, {}),
    ):
        tail = _tail(holes, wide, contents, numbers, absences)
        if len(head) + len(tail) <= ROW_BYTES_MAX:
            return head + tail
    return head


def _tail(
    holes: Mapping[bytes, Holes],
    wide: Mapping[bytes, int],
    contents: Mapping[bytes, Contents],
    numbers: Mapping[bytes, bytes],
    absences: Mapping[bytes, int],
) -> bytes:
    if not holes and not wide and not contents and not numbers and not absences:
        return b""
    body: dict[str, Any] = {
        "holes": [
            [key.hex(), one.device, one.stream, one.epoch, [tuple(hole) for hole in one], one.via]
            for key, one in holes.items()
        ],
        "wide": [[key.hex(), f"{window:x}"] for key, window in wide.items()],
        "contents": [
            [key.hex(), b64encode(one.ring).decode(), b64encode(one.before).decode()]
            for key, one in contents.items()
        ],
        "numbers": [[key.hex(), b64encode(one).decode()] for key, one in numbers.items()],
        "absences": [[key.hex(), since] for key, since in absences.items()],
    }
    return orjson.dumps(body)


def states_in(value: bytes) -> int:
    """The number of states in a row; raises ValueError."""
    if len(value) < _HEAD.size:
        raise ValueError(f"not a block row: {value[:80]!r}")
    return min(int(_HEAD.unpack_from(value)[2]), len(value) // SLOT_BYTES)


def decode_block(value: bytes) -> BlockRow:
    """Read a row; raises ValueError."""
    try:
        version, through, count = _HEAD.unpack_from(value)
        end = _HEAD.size + count * SLOT_BYTES
        if version != _VERSION or len(value) < end:
            raise ValueError(f"not a block row of version {_VERSION}: {value[:80]!r}")
        slots = [value[at : at + SLOT_BYTES] for at in range(_HEAD.size, end, SLOT_BYTES)]
        body = (
            orjson.loads(value[end:])
            if len(value) > end
            else {"holes": [], "wide": [], "contents": []}
        )
        return BlockRow(
            through,
            slots,
            dict(_decode_holes(body["holes"])),
            {bytes.fromhex(key): int(text, 16) for key, text in body["wide"]},
            {
                bytes.fromhex(key): Contents(b64decode(ring), b64decode(before))
                for key, ring, before in body["contents"]
            },
            {bytes.fromhex(key): b64decode(text) for key, text in body.get("numbers", ())},
            {bytes.fromhex(key): since for key, since in body.get("absences", ())},
        )
    except (error, KeyError, TypeError) as problem:
        raise ValueError(f"not a block row: {value[:80]!r}") from problem


def _decode_holes(rows: Iterable[Any]) -> Iterable[tuple[bytes, Holes]]:
    for key, device, stream, epoch, ranges, *via in rows:
        holes = Holes(device, stream, epoch, *via)
        for one in ranges:
            holes.open(Hole(*one))
        yield bytes.fromhex(key), holes
