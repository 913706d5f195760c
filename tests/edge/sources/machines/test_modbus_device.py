"""Modbus devices with holes between their registers, numbers at their limits, and answers that are
none.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from edgewake.edge.sources.machines.modbus import (
    FORMATS,
    GAP_MAX,
    REGISTERS_MAX,
    Block,
    NumberType,
    Table,
    blocks,
    value_of,
    without_gaps,
)
from edgewake.edge.sources.machines.modbus_device import POINTS_MAX
from edgewake.edge.sources.machines.modbus_tcp import ModbusTcpConfig
from edgewake.protocol.errors import Unavailable
from tests.edge.sources.cage import Handler, served
from tests.edge.sources.machines.modbus_points import configured, point
from tests.edge.sources.sink import MemorySink, context, intake_of, running


def fast(port: int, *points: Mapping[str, object], **more: object) -> ModbusTcpConfig:
    """Asks twenty times a second, with patience."""
    return configured(port, *points, **({"interval_s": 0.05, "timeout_s": 5.0} | more))


class Device:
    """A device that has these registers and no others, and says so (ILLEGAL DATA ADDRESS) where a
    question touches another one.
    """

    def __init__(self, registers: Mapping[int, int]) -> None:
        self.registers = registers
        self.asked: list[tuple[int, int]] = []
        """(address, count) of each question."""

    async def handler(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            transaction, _, _, unit = struct.unpack(">HHHB", await reader.readexactly(7))
            function, address, count = struct.unpack(">BHH", await reader.readexactly(5))
            self.asked.append((address, count))
            body = self.answer(function, address, count)
            writer.write(struct.pack(">HHHB", transaction, 0, len(body) + 1, unit) + body)

    def answer(self, function: int, address: int, count: int) -> bytes:
        asked = range(address, address + count)
        if not all(each in self.registers for each in asked):
            return bytes([function | 0x80, 2])
        if function in (1, 2):
            bits = [self.registers[each] & 1 for each in asked]
            packed = bytes(
                sum(bit << at for at, bit in enumerate(bits[start : start + 8]))
                for start in range(0, count, 8)
            )
            return bytes([function, len(packed)]) + packed
        return bytes([function, 2 * count]) + b"".join(
            struct.pack(">H", self.registers[each]) for each in asked
        )


async def test_a_device_that_lacks_a_register_that_nobody_asked_for_is_read_around_it() -> None:
    """Two values eight registers apart are asked for at once, which most devices like; this one has
    nothing between them.
    """
    device = Device({0: 7, 8: 9})
    async with (
        served(device.handler) as port,
        running(fast(port, {"address": 0}, {"address": 8}).source(context())) as one,
    ):
        await one.until(lambda: len(one.sink.readings) >= 2)
    assert one.sink.values("p0")[:2] == [7, 7]
    assert one.sink.values("p1")[:2] == [9, 9]
    assert device.asked[:5] == [(0, 9), (0, 1), (8, 1), (0, 1), (8, 1)], (
        "and it is not asked for too much again"
    )


async def test_a_register_that_a_device_lacks_is_named_and_costs_itself() -> None:
    device = Device({0: 7})
    async with (
        served(device.handler) as port,
        running(fast(port, {"address": 0}, {"address": 3}).source(context())) as one,
    ):
        await one.until(lambda: len(one.sink.readings) >= 2)
        assert any("holding 3, 1 of them" in what for what in one.intake.remarks)
    assert one.sink.values("p0")[:2] == [7, 7]
    assert one.sink.values("p1")[:2] == [None, None]


async def test_a_device_that_lacks_all_that_was_asked_for_fails_the_source() -> None:
    device = Device({0: 7})
    async with (
        served(device.handler) as port,
        running(fast(port, {"address": 3}).source(context())) as one,
    ):
        error = await one.error()
    assert isinstance(error, Unavailable)
    assert "holding 3, 1 of them" in str(error)


async def test_other_blocks_stay_one_question_each() -> None:
    device = Device({0: 1, 5: 2} | {n: n for n in range(100, 109)})
    points = [{"address": at} for at in (0, 5, 100, 108)]
    async with (
        served(device.handler) as port,
        running(fast(port, *points).source(context())) as one,
    ):
        await one.until(lambda: len(one.sink.readings) >= 2)
    assert device.asked[:7] == [(0, 6), (0, 1), (5, 1), (100, 9), (0, 1), (5, 1), (100, 9)]
    assert one.sink.readings[0][1] == {"p0": 1, "p1": 2, "p2": 100, "p3": 108}


async def test_bits_and_registers_of_every_table_are_one_reading() -> None:
    device = Device({n: n % 3 for n in range(20)})
    points = [{"address": 10, "table": table} for table in ("holding", "input", "coil", "discrete")]
    async with (
        served(device.handler) as port,
        running(fast(port, *points).source(context())) as one,
    ):
        await one.until(lambda: one.sink.readings)
    assert one.sink.readings[0][1] == {"p0": 1, "p1": 1, "p2": True, "p3": True}


@pytest.mark.parametrize("code", [1, 3, 4, 6, 11])
async def test_any_other_error_of_a_device_fails_the_source_with_its_reason(code: int) -> None:
    device = Device({})
    device.answer = lambda function, _address, _count: bytes([function | 0x80, code])  # type: ignore[method-assign]
    async with (
        served(device.handler) as port,
        running(fast(port, {"address": 0}, {"address": 4}).source(context())) as one,
    ):
        error = await one.error()
    assert isinstance(error, Unavailable)
    assert "holding 0, 5 of them" in str(error)
    assert len(device.asked) == 1


@pytest.mark.parametrize(
    ("table", "answer"),
    [("holding", b"\x03\x02\x00\x01"), ("holding", b"\x03\x00"), ("coil", b"\x01\x00")],
    ids=["one register of three", "none", "no bits"],
)
async def test_a_device_that_answers_less_than_was_asked_for_gives_no_reading(
    table: str, answer: bytes
) -> None:
    device = Device({})
    device.answer = lambda *_: answer  # type: ignore[method-assign]
    points = [{"address": 0, "table": table}, {"address": 2, "table": table}]
    async with (
        served(device.handler) as port,
        running(fast(port, *points, timeout_s=0.2).source(context())) as one,
    ):
        assert isinstance(await one.error(), Unavailable)
    assert one.sink.readings == []


def closing() -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    return handler


async def test_a_device_that_closes_the_connection_fails_the_source() -> None:
    async with (
        served(closing()) as port,
        running(fast(port, {"address": 0}, timeout_s=0.2).source(context())) as one,
    ):
        assert isinstance(await one.error(), Unavailable)


# questions


@pytest.mark.parametrize(
    ("addresses", "asked"),
    [
        ((0, 1), [(0, 2)]),
        ((0, GAP_MAX + 1), [(0, GAP_MAX + 2)]),
        ((0, GAP_MAX + 2), [(0, 1), (GAP_MAX + 2, 1)]),
        ((5, 0), [(0, 6)]),
        ((0, 0), [(0, 1)]),
        ((65_535,), [(65_535, 1)]),
        (tuple(range(REGISTERS_MAX)), [(0, REGISTERS_MAX)]),
        (tuple(range(REGISTERS_MAX + 1)), [(0, REGISTERS_MAX), (REGISTERS_MAX, 1)]),
    ],
)
def test_what_is_near_is_one_question_and_what_is_far_is_two(
    addresses: tuple[int, ...], asked: list[tuple[int, int]]
) -> None:
    assert [
        (block.address, block.count) for block in blocks([point(at) for at in addresses])
    ] == asked


def test_tables_are_never_mixed_and_values_may_overlap() -> None:
    points = [
        point(0, NumberType.FLOAT64),
        point(1, NumberType.INT32),
        point(4),
        point(0, table=Table.INPUT),
        point(0, table=Table.COIL),
    ]
    found = [
        (block.table, block.address, block.count, len(block.points)) for block in blocks(points)
    ]
    assert found == [(Table.COIL, 0, 1, 1), (Table.HOLDING, 0, 5, 3), (Table.INPUT, 0, 1, 1)]


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.sampled_from(list(NumberType))), min_size=1, max_size=30
    )
)
def test_without_gaps_nothing_is_asked_for_but_the_points(
    pairs: list[tuple[int, NumberType]],
) -> None:
    points = [point(at, number) for at, number in pairs]
    wanted = {
        register for each in points for register in range(each.address, each.address + each.count)
    }
    for block in blocks(points):
        parts = without_gaps(block)
        assert sorted(map(id, (each for part in parts for each in part.points))) == sorted(
            map(id, block.points)
        )
        assert all(
            register in wanted
            for part in parts
            for register in range(part.address, part.address + part.count)
        )


# numbers

LIMITS = {
    NumberType.INT16: (-(2**15), 2**15 - 1), NumberType.UINT16: (0, 2**16 - 1),
    NumberType.INT32: (-(2**31), 2**31 - 1),
    NumberType.UINT32: (0, 2**32 - 1), NumberType.INT64: (-(2**63), 2**63 - 1),
}  # fmt: skip


@pytest.mark.parametrize("low_word_first", [False, True], ids=["high word first", "low word first"])
@pytest.mark.parametrize(
    ("number", "value"),
    [(number, value) for number, pair in LIMITS.items() for value in (*pair, 1, 258)],
)
def test_whole_numbers_at_their_limits_are_themselves(
    number: NumberType, value: int, low_word_first: bool
) -> None:
    each = point(3, number, low_word_first=low_word_first)
    words = list(struct.unpack(f">{each.count}H", struct.pack(FORMATS[number], value)))
    registers = [0xDEAD, *(reversed(words) if low_word_first else words), 0xBEEF]
    assert value_of(each, Block(Table.HOLDING, 2, each.count + 2, (each,)), registers) == value


@given(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(-1e308, 1e308),
    st.floats(-1e308, 1e308),
)
@example(1e300, 1e300, 0.0)
@example(-1e300, 1e300, 0.0)
@example(1e308, 1.0, 1e308)
def test_whatever_a_device_says_one_value_never_spoils_the_reading(
    value: float, scale: float, offset: float
) -> None:
    """A scale may carry a number beyond what there is; then it is null, and the intake takes the
    others.
    """
    each = point(0, NumberType.FLOAT64, scale=scale, offset=offset)
    found = value_of(
        each,
        Block(Table.HOLDING, 0, 4, (each,)),
        list(struct.unpack(">4H", struct.pack(">d", value))),
    )
    assert found is None or math.isfinite(found)
    sink = MemorySink()
    reading = intake_of(sink).check({"good": 1, "other": found})
    assert reading is not None
    assert sink.lost == {}


@pytest.mark.parametrize(
    ("raw", "scale", "offset", "value"),
    [
        (215, 0.1, 0.0, 21.5),
        (215, 1.0, 0.0, 215),
        (215, 1.0, -40.0, 175.0),
        (3, 0.1, 0.0, 0.3),
        (0, -1.0, 0.0, 0.0),
        (7, 0.0, 5.0, 5.0),
    ],
)
def test_scale_and_offset(raw: int, scale: float, offset: float, value: float) -> None:
    each = point(0, scale=scale, offset=offset)
    found = value_of(each, Block(Table.HOLDING, 0, 1, (each,)), [raw])
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("registers", [[], [1], [1, -1], [1, 65_536]])
def test_registers_that_are_none_are_refused(registers: list[int]) -> None:
    each = point(0, NumberType.UINT32)
    with pytest.raises(ValueError, match="the device answered"):
        value_of(each, Block(Table.HOLDING, 0, 2, (each,)), registers)


# configuration


@pytest.mark.parametrize("number", list(NumberType))
def test_a_value_may_end_with_the_last_register_and_not_behind_it(number: NumberType) -> None:
    count = point(0, number).count
    fast(1, {"address": 65_536 - count, "type": number.value})
    if count > 1:
        with pytest.raises(ValidationError, match="ends behind the last register"):
            fast(1, {"address": 65_537 - count, "type": number.value})


def test_a_bit_takes_one_place_whatever_its_type_says() -> None:
    fast(1, {"address": 65_535, "type": "float64", "table": "coil"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": -1},
        {"address": 65_536},
        {"address": 0, "scale": math.inf},
        {"address": 0, "scale": math.nan},
        {"address": 0, "name": "a-b"},
    ],
)
def test_values_that_no_device_has_are_refused_at_the_border(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        fast(1, wrong)


def test_so_many_values_and_one_more() -> None:
    fast(1, *({"address": n} for n in range(POINTS_MAX)))
    with pytest.raises(ValidationError):
        fast(1, *({"address": n} for n in range(POINTS_MAX + 1)))
    with pytest.raises(ValidationError):
        fast(1)
