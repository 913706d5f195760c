"""Modbus on a serial line."""

from __future__ import annotations

import os
import pty
import threading
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pymodbus.server import ModbusSerialServer
from pymodbus.simulator import DataType, SimData, SimDevice

from edgewake.protocol.errors import Unavailable
from tests.edge.sources.cage import caged, configured


@asynccontextmanager
async def line(registers: list[int]) -> AsyncIterator[str]:
    """A device on a serial line: two pseudo-terminals, and a thread that is the cable."""
    ends = [pty.openpty() for _ in range(2)]
    for master, slave in ends:
        tty.setraw(master)
        tty.setraw(slave)

    def cable(source: int, target: int) -> None:
        while True:
            try:
                os.write(target, os.read(source, 256))
            except OSError:
                return

    (one, _), (two, _) = ends
    for source, target in ((one, two), (two, one)):
        threading.Thread(target=cable, args=(source, target), daemon=True).start()
    device, agent = (os.ttyname(slave) for _, slave in ends)
    data = [SimData(0, values=registers, datatype=DataType.UINT16)]
    simulated = [SimDevice(unit, simdata=data) for unit in (7, 9)]
    server = ModbusSerialServer(simulated, port=device, baudrate=9600)
    await server.serve_forever(background=True)
    try:
        yield agent
    finally:
        await server.shutdown()
        for end in ends:
            for fd in end:
                os.close(fd)


async def test_a_device_on_a_serial_line_is_asked_and_what_it_lacks_is_null_alone(
    tmp_path: Path,
) -> None:
    points = [
        {"name": "temperature", "address": 0, "type": "int16", "scale": 0.1},
        {"name": "alarm", "address": 1, "type": "bit", "bit": 3},
        {"name": "serial", "address": 2, "type": "text", "length": 2},
        {"name": "missing", "address": 400},
    ]
    async with line([215, 0b1000, 0x4142, 0x4300]) as port:
        keys = {"path": port, "unit": 7, "interval_s": 0.1, "parity": "none", "point": points}
        async with caged(tmp_path, configured("modbus_rtu", **keys)) as one:
            await one.until(lambda: len(one.column("temperature")) >= 2, "two readings")
            for name, value in (("temperature", 21.5), ("alarm", True), ("serial", "ABC")):
                assert one.column(name)[:2] == [value, value]
            assert one.column("missing")[:2] == [None, None]
            assert any("not there" in what for what in one.intake.remarks)
            assert one.supervisor.failures == 0


async def test_several_units_of_one_line_are_asked_side_by_side(tmp_path: Path) -> None:
    async with line([215, 8]) as port:
        keys = {"path": port, "interval_s": 0.05, "parity": "none"}
        points = [{"name": "temperature", "address": 0, "type": "int16", "scale": 0.1}]
        others = [{"name": "alarm", "address": 1}]
        (tmp_path / "one").mkdir()
        (tmp_path / "other").mkdir()
        first = configured("modbus_rtu", unit=7, point=points, **keys)
        second = configured("modbus_rtu", unit=9, point=others, **keys)
        assert first.owns() != second.owns()
        async with caged(tmp_path / "one", first) as one:
            async with caged(tmp_path / "other", second) as other:
                await other.until(lambda: len(other.column("alarm")) >= 20, "the second one's")
                assert {*other.column("alarm")} == {8}
            count = len(one.column("temperature"))
            assert count >= 2, "the first one was not held up"
            await one.until(
                lambda: len(one.column("temperature")) >= count + 2, "it goes on when that ended"
            )
            assert {*one.column("temperature")} == {21.5}
            assert (one.supervisor.failures, other.supervisor.failures) == (0, 0)
            slower = configured("modbus_rtu", unit=9, point=others, baud=4800, **keys)
            with pytest.raises(Unavailable, match="expected the same in both"):
                await slower.connected()
