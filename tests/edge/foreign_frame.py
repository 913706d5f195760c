"""A reader of frames that uses none of our code: as docs/protocol.md has them, read as any other
cloud would.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mqtt5
import zstandard

PLAIN = "application/vnd.edgewake.frame+json"
COMPRESSED = "application/vnd.edgewake.frame+json+zstd"
PACKED = "application/vnd.edgewake.frame+packed"
COMPACT = "ew/2"
BYTES_MAX = 1 << 20
PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


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


@dataclass(frozen=True)
class ForeignMessage:
    """A message with a frame, whatever of it was said and what goes without saying."""

    content_type: str | None
    body: bytes
    response_topic: str | None
    correlation_data: bytes | None
    sent_at: int | None


def opened(packet: mqtt5.PublishPacket) -> ForeignMessage:
    """A publish, compact or not."""
    if packet.content_type != COMPACT:
        sent_at = dict(packet.user_properties).get("sent_at")
        answer, number = packet.response_topic, None if sent_at is None else int(sent_at)
        return ForeignMessage(
            packet.content_type, packet.payload, answer, packet.correlation_data, number
        )
    assert (packet.response_topic, packet.correlation_data, packet.user_properties) == (
        None,
        None,
        [],
    )
    bits = _Bytes(packet.payload)
    sent_at, begins, form, epoch, frame = (
        bits.number(),
        bits.at,
        bits.take(1)[0],
        bits.number(),
        bits.number(),
    )
    body = packet.payload[begins if form == 2 else bits.at :]
    _, _, device, _, stream = packet.topic.split("/")
    name = f"{stream}|{epoch}|{frame}".encode()
    return ForeignMessage(
        (PLAIN, COMPRESSED, PACKED)[form], body, f"ew/v1/{device}/acks", name, sent_at
    )


def inflate(payload: bytes, content_type: str | None) -> bytes:
    """The JSON of a message."""
    if content_type == COMPRESSED:
        return zstandard.ZstdDecompressor().decompress(payload, max_output_size=BYTES_MAX)
    if content_type == PACKED:
        return json.dumps(_unpacked(payload)).encode()
    assert content_type == PLAIN, content_type
    return payload


def parse(text: bytes) -> ForeignFrame:
    """Read the JSON of a frame; AssertionError for what is none."""
    found = json.loads(text, parse_constant=_no_constant)
    numbers = (found["epoch"], found["frame"], found["seq"])
    assert all(type(number) is int and number > 0 for number in numbers), numbers
    gap = found.get("gap")
    assert set(found) <= {"epoch", "frame", "first_frame", "seq", "t", "fields", "gap"}, (
        found.keys()
    )
    t, fields = found.get("t", []), found.get("fields", {})
    assert (gap is None) is ("t" in found), "columns or a gap, and not both"
    assert all(len(column) == len(t) for column in fields.values()), "columns of different lengths"
    first = found.get("first_frame", found["frame"])
    return ForeignFrame(
        *numbers[:2],
        first,
        numbers[2],
        t,
        fields,
        None if gap is None else ForeignGap(gap["reason"], gap["count"]),
    )


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@cache
def _dictionary() -> bytes:
    found = re.search(
        r"<!-- generated: names -->\n```text\n(.*?)```", PROTOCOL.read_text("utf-8"), re.DOTALL
    )
    assert found is not None
    return found[1].replace("\n", "").encode()


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        (byte,) = self.take(1)
        return byte if byte < 128 else byte - 128 + 128 * self.number()

    def signed(self) -> int:
        number = self.number()
        return number // 2 if number % 2 == 0 else -(number + 1) // 2

    def bits(self, width: int, count: int) -> list[int]:
        octets = self.take(-(-width * count // 8))
        digits = "".join(f"{octet:08b}"[::-1] for octet in octets)
        return [int(digits[i * width : (i + 1) * width][::-1] or "0", 2) for i in range(count)]

    def integers(self, count: int) -> list[int]:
        (head,) = self.take(1)
        base = self.signed()
        if head < 128:
            return [base + offset for offset in self.bits(head, count)]
        numbers = [self.signed()]
        for offset in self.bits(head - 128, count - 1):
            numbers.append(numbers[-1] + base + offset)
        return numbers

    def column(self, count: int) -> list[Any]:
        (form,) = self.take(1)
        if form < 128:
            return self.values(form, count)
        there = self.bits(1, count)
        values = iter(self.values(form - 128, sum(there)))
        return [next(values) if one else None for one in there]

    def values(self, form: int, count: int) -> list[Any]:
        if form == 32:
            return [struct.unpack("<d", self.take(8))[0] for _ in range(count)]
        if form == 33:
            distinct = json.loads(self.take(self.number()))
            return [distinct[place] for place in self.integers(count)]
        digits = form % 16
        numbers = self.integers(count)
        if form < 16:
            return numbers if digits == 0 else [number / 10**digits for number in numbers]
        return [
            number // 10**digits if number % 10**digits == 0 else number / 10**digits
            for number in numbers
        ]


def _unpacked(payload: bytes) -> dict[str, Any]:
    bits = _Bytes(payload)
    form, epoch, frame, seq, count = (
        bits.take(1)[0],
        bits.number(),
        bits.number(),
        bits.number(),
        bits.number(),
    )
    assert form == 2
    names = (
        zlib.decompressobj(-15, zdict=_dictionary()).decompress(bits.take(bits.number())).decode()
    )
    t = bits.integers(count)
    fields = {name: bits.column(count) for name in names.split(",") if name}
    assert bits.at == len(payload)
    return {"epoch": epoch, "frame": frame, "seq": seq, "t": t, "fields": fields}
