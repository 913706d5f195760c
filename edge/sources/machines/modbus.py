"""Registers of Modbus to numbers.

Pure. (Modbus Application Protocol V1.1b3, section 4.4: registers are 16 bits, high byte first.)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Table(StrEnum):
    """The table in which a value lies."""

    HOLDING = "holding"
    INPUT = "input"
    COIL = "coil"
    DISCRETE = "discrete"


class NumberType(StrEnum):
    """The type of number that registers hold."""

    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    FLOAT32 = "float32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UINT64 = "uint64"
    BCD16 = "bcd16"
    BCD32 = "bcd32"
    TEXT = "text"
    BIT = "bit"


FORMATS: Final = {
    NumberType.INT16: ">h", NumberType.UINT16: ">H", NumberType.INT32: ">i",
    NumberType.UINT32: ">I", NumberType.FLOAT32: ">f",
    NumberType.INT64: ">q", NumberType.FLOAT64: ">d", NumberType.UINT64: ">Q",
    NumberType.BCD16: ">H", NumberType.BCD32: ">I", NumberType.BIT: ">H",
}  # fmt: skip
REGISTERS_MAX: Final = 120
"""Registers of one question; the protocol allows 125."""
GAP_MAX: Final = 8
"""Registers that nobody asked for and that are read over, because one question is cheaper than
two."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a device."""

    name: str
    table: Table
    address: int
    type: NumberType
    scale: float
    offset: float
    low_word_first: bool
    low_byte_first: bool = False
    length: int = 1
    """Registers of a text."""
    bit: int = 0
    """The bit of a register, 0 the lowest."""

    @property
    def count(self) -> int:
        """Registers, or bits, that it takes."""
        if self.table in (Table.COIL, Table.DISCRETE):
            return 1
        if self.type is NumberType.TEXT:
            return self.length
        return struct.calcsize(FORMATS[self.type]) // 2


@dataclass(frozen=True, slots=True)
class Block:
    """The registers of one request."""

    table: Table
    address: int
    count: int
    points: tuple[Point, ...]


def blocks(points: Sequence[Point], gap_max: int = GAP_MAX) -> list[Block]:
    """The fewest requests that read all points, without reading far over what nobody asked for."""
    found: list[Block] = []
    for point in sorted(points, key=lambda each: (each.table, each.address)):
        end = point.address + point.count
        last = found[-1] if found else None
        near = (
            last is not None
            and last.table is point.table
            and point.address - (last.address + last.count) <= gap_max
        )
        if last is not None and near and end - last.address <= REGISTERS_MAX:
            count = max(last.count, end - last.address)
            found[-1] = Block(last.table, last.address, count, (*last.points, point))
        else:
            found.append(Block(point.table, point.address, point.count, (point,)))
    return found


def without_gaps(block: Block) -> list[Block]:
    """Requests for the same points without the registers between them, which a device may lack."""
    return blocks(block.points, gap_max=0)


def value_of(
    point: Point, block: Block, registers: Sequence[int]
) -> float | int | bool | str | None:
    """A point's value from its block's registers. Raises ValueError where they are too few.

    None where it is not a number (NaN, infinite, digits of BCD above 9).
    """
    at = point.address - block.address
    words = list(registers[at : at + point.count])
    if len(words) < point.count or not all(0 <= word <= 0xFFFF for word in words):
        raise ValueError(
            f"{point.name}: the device answered {len(registers)} registers of {block.count}"
        )
    if point.low_byte_first:
        words = [(word & 0xFF) << 8 | word >> 8 for word in words]
    if point.low_word_first:
        words.reverse()
    data = struct.pack(f">{len(words)}H", *words)
    if point.type is NumberType.TEXT:
        return data.partition(b"\0")[0].decode("utf-8", "replace").strip()
    if point.type is NumberType.BIT:
        return bool(words[0] >> point.bit & 1)
    if point.type in (NumberType.BCD16, NumberType.BCD32):
        digits = data.hex()
        return _scaled(point, int(digits)) if digits.isdecimal() else None
    return _scaled(point, struct.unpack(FORMATS[point.type], data)[0])


def _scaled(point: Point, value: float) -> float | int | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if point.scale == 1 and point.offset == 0:
        return value
    scaled = value * point.scale + point.offset
    return round(scaled, 9) if math.isfinite(scaled) else None
