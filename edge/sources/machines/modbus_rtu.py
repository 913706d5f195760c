"""A device with Modbus on a serial line (RTU), such as RS-485."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, Literal

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
        return f"{self.asked} at {self.path}"

    async def connected(self) -> SharedClient:
        """The line, opened, for this source and for others of its units. Raises Unavailable."""
        how = (self.baud, self.parity, self.stop_bits)
        line = _LINES.get(self.path)
        if line is not None and line.users and line.how != how:
            raise Unavailable(
                f"{self.path}: another source has it open with baud, parity and stop_bits "
                f"{line.how}, this one has {how}: expected the same in both"
            )
        if line is None or line.how != how or line.is_over:
            line = _LINES[self.path] = SharedClient(self, how)
        line.users += 1
        try:
            async with line.opening:
                is_open = line.connected or await line.connect()
        except BaseException:
            line.close()
            raise
        if not is_open:
            line.close()
            raise Unavailable(f"{self.path}: cannot be opened")
        return line


class SharedClient(AsyncModbusSerialClient):
    """A serial line that several sources ask, one question after the other.

    It is closed when the last of them has closed it.
    """

    def __init__(self, config: ModbusRtuConfig, how: tuple[object, ...]) -> None:
        super().__init__(
            str(config.path),
            baudrate=config.baud,
            parity=config.parity[0].upper(),
            stopbits=config.stop_bits,
            timeout=config.timeout_s,
            retries=1,
            reconnect_delay=0,
        )
        self.how = how
        """Baud, parity and stop bits."""
        self.users = 0
        self.opening = asyncio.Lock()
        self._was_open = False

    async def connect(self) -> bool:
        """Open it; False: it cannot be opened."""
        self._was_open = await super().connect()
        return self._was_open

    @property
    def is_over(self) -> bool:
        """Was it open, and is it not any more? Nobody can ask it again."""
        return self._was_open and not self.connected

    def close(self) -> None:
        """One source has done with it."""
        self.users -= 1
        if self.users <= 0:
            super().close()


_LINES: Final[dict[Path, SharedClient]] = {}
"""The line of each port, also one that is closed."""
