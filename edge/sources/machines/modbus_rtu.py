"""A device with Modbus on a serial line (RTU), such as RS-485."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pymodbus.client import AsyncModbusSerialClient

from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.serial_lines import Baud
from edgewake.edge.sources.machines.modbus_device import ModbusConfig, ModbusDevice
from edgewake.protocol.errors import Unavailable


class ModbusRtuConfig(ModbusConfig):
    """A Modbus device on a serial line that is asked at intervals."""

    type: Literal["modbus_rtu"]
    path: Path
    """The port, e.g. `/dev/ttyUSB0`, or better its name in `/dev/serial/by-id`, which stays."""
    baud: Baud = 9600
    """Bits a second."""
    parity: Literal["none", "even", "odd"] = "even"
    """The standard has even; many devices are delivered with none."""
    stop_bits: Literal[1, 2] = 1
    """Two where there is no parity, says the standard; most devices take one."""

    def source(self, context: SourceContext) -> ModbusDevice:
        return ModbusDevice(self, context.clock, self.connected)

    def owns(self) -> str:
        return f"the port {self.path}"

    async def connected(self) -> AsyncModbusSerialClient:
        """The line, opened. Raises Unavailable."""
        client = AsyncModbusSerialClient(
            str(self.path),
            baudrate=self.baud,
            parity=self.parity[0].upper(),
            stopbits=self.stop_bits,
            timeout=self.timeout_s,
            retries=1,
            reconnect_delay=0,
        )
        if not await client.connect():
            client.close()
            raise Unavailable(f"{self.path}: cannot be opened")
        return client
