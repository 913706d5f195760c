"""Registers of Modbus to values.

Pure. (Modbus Application Protocol V1.1b3, section 4.4: registers are 16 bits, high byte first.)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from edgewake.protocol.frame import Scalar


class Table(StrEnum):
    """Where a value is."""

    HOLDING = "holding"
    INPUT = "input"
    COIL = "coil"
    DISCRETE = "discrete"


class ValueType(StrEnum):
    """What registers hold."""

    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    FLOAT32 = "float32"
    INT64 = "int64"
    UINT64 = "uint64"
    FLOAT64 = "float64"
    BCD16 = "bcd16"
    BCD32 = "bcd32"
    TEXT = "text"
    BIT = "bit"


FORMATS: Final = {
    ValueType.INT16: ">h", ValueType.UINT16: ">H", ValueType.INT32: ">i",
    ValueType.UINT32: ">I", ValueType.FLOAT32: ">f",
    ValueType.INT64: ">q", ValueType.UINT64: ">Q", ValueType.FLOAT64: ">d",
}  # fmt: skip
_DIGITS: Final = {ValueType.BCD16: 1, ValueType.BCD32: 2}
"""Registers of four decimal digits each."""
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
    type: ValueType
    scale: float = 1.0
    offset: float = 0.0
    low_word_first: bool = False
    low_byte_first: bool = False
    registers: int = 1
    """Of a text."""
    bit: int = 0
    """Of a bit: 0 is the lowest of its register."""

    @property
    def count(self) -> int:
        """Registers, or bits, that it takes."""
        if self.table in (Table.COIL, Table.DISCRETE) or self.type is ValueType.BIT:
            return 1
        if self.type is ValueType.TEXT:
            return self.registers
        return _DIGITS.get(self.type) or struct.calcsize(FORMATS[self.type]) // 2


@dataclass(frozen=True, slots=True)
class Block:
    """One question."""

    table: Table
    address: int
    count: int
    points: tuple[Point, ...]


def blocks(points: Sequence[Point], gap_max: int = GAP_MAX) -> list[Block]:
    """The fewest questions that bring all points, without reading far over what nobody asked
    for.
    """
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
    """Questions for the same points that ask for nothing else: a device may not have what stands
    between them.
    """
    return blocks(block.points, gap_max=0)


def smaller(block: Block) -> list[Block]:
    """Questions for the same points after the device said that it has not all of these registers:
    first without what nobody asked for, then each point by itself. Empty: it is one already.
    """
    parts = without_gaps(block)
    if len(parts) > 1:
        return parts
    if len(block.points) == 1:
        return []
    return [Block(one.table, one.address, one.count, (one,)) for one in block.points]


def value_of(point: Point, block: Block, registers: Sequence[int]) -> Scalar:
    """A point's value from its block's registers; None where it is no number (NaN, infinite, BCD
    with a digit above 9).

    Raises ValueError where they are too few.
    """
    at = point.address - block.address
    words = list(registers[at : at + point.count])
    if len(words) < point.count or not all(0 <= word <= 0xFFFF for word in words):
        raise ValueError(
            f"{point.name}: the device answered {len(registers)} registers of {block.count}"
        )
    if point.low_word_first:
        words.reverse()
    if point.type is ValueType.BIT:
        return bool(words[0] >> point.bit & 1)
    data = struct.pack(f"{'<' if point.low_byte_first else '>'}{len(words)}H", *words)
    if point.type is ValueType.TEXT:
        return data.partition(b"\0")[0].decode("utf-8", "replace").strip()
    if point.type in _DIGITS:
        digits = data.hex()
        if not digits.isdecimal():
            return None
        value: int | float = int(digits)
    else:
        value = struct.unpack(FORMATS[point.type], data)[0]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if point.scale == 1 and point.offset == 0:
        return value
    scaled = value * point.scale + point.offset
    return round(scaled, 9) if math.isfinite(scaled) else None
