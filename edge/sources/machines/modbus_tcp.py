"""A device with Modbus over TCP."""

from __future__ import annotations

from typing import Literal

from pymodbus.client import AsyncModbusTcpClient

from edgewake.edge.sources.address import resolved
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.machines.modbus_device import ModbusConfig, ModbusDevice
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.plain import key


class ModbusTcpConfig(ModbusConfig):
    """A Modbus TCP device that is asked at intervals."""

    type: Literal["modbus_tcp"]
    host: str
    """Name or address of the device."""
    port: int = key(default=502, ge=1, le=65_535)
    """TCP port."""

    def source(self, context: SourceContext) -> ModbusDevice:
        return ModbusDevice(self, context.clock, self.connected)

    def owns(self) -> str:
        return f"{self.asked} of {self.host}:{self.port}"

    async def connected(self) -> AsyncModbusTcpClient:
        """A connection.

        The name is looked up beside pymodbus: its look-up would hold up the stop of the agent.
        Raises Unavailable.
        """
        try:
            addresses = await resolved(self.host, self.port)
        except OSError as error:
            raise Unavailable(f"{self.host}: {error}") from error
        for address in addresses:
            client = AsyncModbusTcpClient(
                address, port=self.port, timeout=self.timeout_s, retries=1, reconnect_delay=0
            )
            if await client.connect():
                return client
            client.close()
        raise Unavailable(f"{self.host}:{self.port}: no connection")
