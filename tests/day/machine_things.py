"""Machines that are asked, or speak on a bus: Modbus registers (pymodbus), an OPC UA server
(asyncua), messages of a CAN bus (python-can, over multicast on the loopback), and a program.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import can
from asyncua import Server, ua
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from tests.day.oracle import Oracle
from tests.day.things import ARRIVAL_MS, Thing, now_ms

REGISTERS = 4
GROUP = "239.74.163.7"
"""Multicast group of the CAN bus."""


class Modbus:
    """One server, a unit for each device. A unit says its next number when it is read."""

    def __init__(self, count: int, port: int, oracle: Oracle) -> None:
        self.things = [
            Thing("modbus", f"meter-{unit}", oracle, promised=False) for unit in range(1, count + 1)
        ]
        self._port, self._oracle = port, oracle
        self._server: ModbusTcpServer | None = None

    async def start(self) -> None:
        units = [
            SimDevice(
                number,
                simdata=[SimData(0, values=[0] * REGISTERS, datatype=DataType.UINT16)],
                action=partial(_answer, thing),
            )
            for number, thing in enumerate(self.things, 1)
        ]
        self._server = ModbusTcpServer(units, address=("127.0.0.1", self._port))
        await self._server.serve_forever(background=True)

    async def say(self) -> None:
        """Only what is asked for."""

    async def restart(self) -> None:
        begin = now_ms()
        await self.stop()
        await self.start()
        # What was read before it ended may not have been sent.
        self._oracle.away(["modbus"], begin - 1000, now_ms())

    async def fall_silent(self) -> None:
        """It is asked no more. What was read before may not have been sent."""
        begin = now_ms()
        await self.stop()
        self._oracle.away(["modbus"], begin - 1000, now_ms())

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.shutdown()
            self._server = None

    @property
    def waiting(self) -> int:
        return 0


async def _answer(
    thing: Thing, _code: int, _begin: int, _address: int, _count: int, registers: list[int], _: Any
) -> None:
    put = thing.say(late_ms=ARRIVAL_MS)
    assert not isinstance(put.value, str)
    registers[:REGISTERS] = struct.unpack(">4H", struct.pack(">If", put.n, put.value))


class OpcUa:
    """A server with an object for each device, two numbers at each turn."""

    def __init__(self, count: int, port: int, oracle: Oracle) -> None:
        self.things = [Thing("opcua", f"plc-{i}", oracle, promised=False) for i in range(count)]
        self._port, self._oracle = port, oracle
        self._server: Server | None = None
        self._nodes: list[tuple[Any, Any]] = []
        self._last_ms = 0

    async def start(self) -> None:
        server = Server()
        await server.init()
        server.set_endpoint(f"opc.tcp://127.0.0.1:{self._port}/")
        await server.register_namespace("urn:day")
        self._nodes = []
        for i in range(len(self.things)):
            found = await server.nodes.objects.add_object(f"ns=2;s=P{i}", f"2:P{i}")
            # Numbers begin with 1: what a server has before is nobody's.
            n = await found.add_variable(
                f"ns=2;s=P{i}.n", "2:n", ua.Variant(0, ua.VariantType.UInt32)
            )
            value = await found.add_variable(
                f"ns=2;s=P{i}.value", "2:value", ua.Variant(0.0, ua.VariantType.Double)
            )
            self._nodes.append((n, value))
        await server.start()
        self._server = server

    async def say(self) -> None:
        for _ in range(2):
            for thing, (n, value) in zip(self.things, self._nodes, strict=True):
                # All of them share a stream: what has another time is another reading.
                thing.offset_ms = max(0, self._last_ms + 1 - now_ms())
                put = thing.say()
                self._last_ms = put.t_ms
                at = datetime.fromtimestamp(put.t_ms / 1000, UTC).replace(
                    microsecond=put.t_ms % 1000 * 1000
                )
                for node, said, kind in (
                    (n, put.n, ua.VariantType.UInt32), (value, put.value, ua.VariantType.Double),
                ):  # fmt: skip
                    variant = ua.Variant(said, kind)
                    await node.write_value(ua.DataValue(variant, SourceTimestamp=at))

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop()

    @property
    def waiting(self) -> int:
        return 0


class CanBus:
    """Messages of a bus, one for each device.

    `port`: of the bus; whoever listens to the same one on this machine hears all groups.
    """

    def __init__(self, count: int, port: int, oracle: Oracle) -> None:
        self.things = [Thing("can", f"Unit{i}", oracle, promised=False) for i in range(count)]
        self._port = port
        self._bus: can.BusABC | None = None

    async def start(self) -> None:
        self._bus = can.Bus(interface="udp_multicast", channel=GROUP, port=self._port)

    async def say(self) -> None:
        assert self._bus is not None
        for number, thing in enumerate(self.things):
            put = thing.say(late_ms=ARRIVAL_MS)
            data = struct.pack("<II", put.n, put.n)  # a value is half of it
            self._bus.send(
                can.Message(arbitration_id=0x100 + number, data=data, is_extended_id=False)
            )

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        assert self._bus is not None
        self._bus.shutdown()

    @property
    def waiting(self) -> int:
        return 0


class Program:
    """What a program writes, a line a reading: `tail` of a file that grows."""

    def __init__(self, count: int, file: Path, oracle: Oracle) -> None:
        self.things = [Thing("exec", f"tick-{i}", oracle, promised=False) for i in range(count)]
        self._file = file

    async def start(self) -> None:
        self._file.touch()

    async def say(self) -> None:
        puts = [thing.say() for thing in self.things]
        lines = [
            json.dumps({"thing": one.device, "t": one.t_ms, "n": one.n, "value": one.value}) + "\n"
            for one in puts
        ]
        with self._file.open("a") as file:
            file.writelines(lines)

    async def restart(self) -> None:
        """Another file of that name."""
        self._file.rename(self._file.with_suffix(".old"))
        self._file.touch()

    async def stop(self) -> None:
        """It is a file."""

    @property
    def waiting(self) -> int:
        return 0


def environment(port: int) -> dict[str, str]:
    """By which python-can learns the port of the bus."""
    return {"CAN_CONFIG": json.dumps({"port": port})}


def dbc(path: Path, count: int) -> None:
    """The file that says what the messages of a CanBus mean."""
    text = 'VERSION ""\nNS_ :\nBS_:\nBU_: ECU\n'
    for number in range(count):
        text += f"BO_ {0x100 + number} Unit{number}: 8 ECU\n"
        text += ' SG_ n : 0|32@1+ (1,0) [0|4294967295] "" ECU\n'
        text += ' SG_ value : 32|32@1+ (0.5,0) [0|2147483647] "" ECU\n'
    path.write_text(text)


def sources(modbus: int, opcua: int, ports: Sequence[int], file: Path, written: Path) -> str:
    """The agent's tables that read them. `written`: by the program."""
    text = (
        '[[source]]\ntype = "exec"\nstream = "ticks"\ntime = { field = "t" }\n'
        f'command = ["tail", "-n", "0", "-F", "{written}"]\n'
    )
    for unit in range(1, modbus + 1):
        text += (
            f'[[source]]\ntype = "modbus_tcp"\nstream = "meter_{unit}"\nhost = "127.0.0.1"\n'
            f"port = {ports[0]}\nunit = {unit}\ninterval_s = 1.0\ntimeout_s = 30\npoint = [\n"
            '  { name = "n", address = 0, type = "uint32" },\n'
            '  { name = "value", address = 2, type = "float32" },\n]\n'
        )
    nodes = ",\n".join(
        f'  {{ name = "{name}_{i}", id = "ns=2;s=P{i}.{name}" }}'
        for i in range(opcua)
        for name in ("n", "value")
    )
    text += (
        f'[[source]]\ntype = "opcua"\nstream = "plc"\nurl = "opc.tcp://127.0.0.1:{ports[1]}/"\n'
        f"node = [\n{nodes},\n]\n"
    )
    return text + (
        f'[[source]]\ntype = "can"\nstream = "bus"\ninterface = "udp_multicast"\n'
        f'channel = "{GROUP}"\ndbc = "{file}"\ninterval_s = 0\n'
    )
