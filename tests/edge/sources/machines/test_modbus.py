"""Modbus: registers to numbers, questions to blocks, and a real server of pymodbus."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from edgewake.edge.sources.machines.modbus import (
    REGISTERS_MAX,
    Block,
    NumberType,
    Point,
    Table,
    blocks,
    value_of,
)
from tests.edge.sources.cage import caged, served
from tests.edge.sources.machines.modbus_points import configured, point
from tests.services import free_ports


@asynccontextmanager
async def device(registers: list[int]) -> AsyncIterator[int]:
    """A Modbus server whose holding registers from 0 are these."""
    (port,) = free_ports(1)
    server = ModbusTcpServer(
        SimDevice(1, simdata=[SimData(0, values=registers, datatype=DataType.UINT16)]),
        address=("127.0.0.1", port),
    )
    await server.serve_forever(background=True)
    try:
        yield port
    finally:
        await server.shutdown()


async def test_the_values_of_a_device_become_one_reading_and_a_device_that_is_away_is_asked_again(
    tmp_path: Path,
) -> None:
    words = list(struct.unpack(">4H", struct.pack(">fi", 21.5, -70_000)))
    points = (
        {"name": "temperature", "address": 0, "type": "float32", "unit": "°C"},
        {"name": "power_w", "address": 2, "type": "int32", "scale": 0.5, "unit": "W"},
        {"name": "speed", "address": 4, "offset": -100.0},
    )
    async with device([*words, 350]) as port:
        async with caged(tmp_path, configured(port, *points)) as one:
            await one.until(lambda: one.intake.taken >= 2, "two readings")
            await one.until(lambda: one.column("temperature"), "a frame")
            assert (
                one.column("temperature")[0],
                one.column("power_w")[0],
                one.column("speed")[0],
            ) == (21.5, -35_000.0, 250.0)
            assert one.units() == {"temperature": "°C", "power_w": "W"}
        async with caged(tmp_path / "2", configured(port, {"name": "x", "address": 5000})) as one:
            await one.failed("holding 5000")
    async with caged(tmp_path / "3", configured(port, *points)) as one:
        await one.until(lambda: one.supervisor.failures >= 2, "nobody is there")


@pytest.mark.parametrize(
    "answer", [b"", b"\xff" * 40, b"\0" * 9], ids=["silent", "garbage", "zeros"]
)
async def test_a_device_that_answers_nothing_or_nonsense_is_left(
    tmp_path: Path, answer: bytes
) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            writer.write(answer)

    async with (
        served(handler) as port,
        caged(tmp_path, configured(port, {"name": "x", "address": 0})) as one,
    ):
        await one.until(lambda: one.supervisor.failures, "a failure")
        assert one.intake.taken == 0


def test_the_fewest_questions_that_read_little_over() -> None:
    found = blocks(
        [
            point(0),
            point(3, NumberType.FLOAT32),
            point(100),
            point(0, table=Table.INPUT),
            point(300, NumberType.INT64),
        ]
    )
    assert [(each.table.value, each.address, each.count) for each in found] == [
        ("holding", 0, 5), ("holding", 100, 1), ("holding", 300, 4), ("input", 0, 1),
    ]  # fmt: skip


@given(st.sets(st.integers(0, 65_000), min_size=1, max_size=100), st.sampled_from(list(NumberType)))
def test_every_point_is_in_one_question_that_the_protocol_allows(
    addresses: set[int], number: NumberType
) -> None:
    points = [point(address, number) for address in addresses]
    found = blocks(points)
    assert sorted(each.address for block in found for each in block.points) == sorted(addresses)
    for block in found:
        assert block.count <= REGISTERS_MAX
        assert all(
            block.address <= each.address
            and each.address + each.count <= block.address + block.count
            for each in block.points
        )


@given(st.floats(width=32), st.booleans())
def test_numbers_come_back_as_they_were_or_as_nothing(value: float, low: bool) -> None:
    words = struct.unpack(">2H", struct.pack(">f", value))
    one = point(7, NumberType.FLOAT32, low_word_first=low)
    found = value_of(one, Block(Table.HOLDING, 6, 3, (one,)), [0, *(words[::-1] if low else words)])
    assert found == value or (found is None and (value != value or abs(value) == float("inf")))


def test_an_answer_that_is_too_short_is_none() -> None:
    one = point(0, NumberType.INT32)
    with pytest.raises(ValueError, match="answered 1 registers of 2"):
        value_of(one, Block(Table.HOLDING, 0, 2, (one,)), [1])


def test_two_values_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two of the same name"):
        configured(1, {"name": "a", "address": 0}, {"name": "a", "address": 1})


@pytest.mark.parametrize(
    ("number", "words", "more", "value"),
    [
        (NumberType.UINT64, [0x8000, 0, 0, 1], {}, 2**63 + 1),
        (NumberType.BCD16, [0x1234], {}, 1234),
        (NumberType.BCD32, [0x0001, 0x2345], {"scale": 0.1}, 1234.5),
        (NumberType.BCD16, [0x12F4], {}, None),
        (NumberType.FLOAT32, [0xAC41, 0x0000], {"low_byte_first": True}, 21.5),
        (NumberType.FLOAT32, [0x0000, 0xAC41], {"low_byte_first": True, "low_word_first": True},
         21.5),
        (NumberType.BIT, [0x8000], {"bit": 15}, True),
        (NumberType.TEXT, [0x3130, 0x0032], {"length": 2, "low_byte_first": True}, "012"),
    ],
)  # fmt: skip
def test_registers_hold_many_things(
    number: NumberType, words: list[int], more: dict[str, Any], value: object
) -> None:
    keys = {"scale": 1.0, "offset": 0.0, "low_word_first": False} | more
    point = Point("p", Table.HOLDING, 5, number, **keys)
    assert value_of(point, Block(Table.HOLDING, 5, len(words), (point,)), words) == value
