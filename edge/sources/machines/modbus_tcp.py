"""Asks a Modbus TCP device for registers at intervals, by pymodbus: one reading each time, with all
of its values.

A device that does not answer, or has none of the registers, fails the source: it is said with the
device's reason, and asked again later. A value that is no number, or whose register the device has
not, is null and the others stand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Final, Literal

from pymodbus.client import AsyncModbusTcpClient
from pymodbus.exceptions import ModbusException

from edgewake.edge.intake import Intake
from edgewake.edge.intake_policy import Policy
from edgewake.edge.sources.address import resolved
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.sources.machines.modbus import (
    REGISTERS_MAX,
    Block,
    Point,
    Table,
    ValueType,
    blocks,
    smaller,
    value_of,
)
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frame import Scalar
from edgewake.protocol.names import is_field
from edgewake.protocol.plain import Check, ConfigTable, key

ADDRESSES: Final = 65_536
"""Registers, or bits, of each table."""
POINTS_MAX: Final = 200
"""Values of one device; a reading may have as many fields."""


def _field(name: str) -> str:
    if not is_field(name):
        raise ValueError("expected a name of a field")
    return name


class PointConfig(ConfigTable):
    """A value of the device."""

    name: Annotated[str, Check(_field)]
    """The field of the reading."""
    address: int = key(ge=0, le=65_535)
    """Where it is, counted from 0: the register 40001 of a manual is the holding register 0."""
    table: Table = Table.HOLDING
    """holding, input: registers; coil, discrete: bits."""
    type: ValueType = ValueType.UINT16
    """What the registers hold."""
    scale: float = key(default=1.0, allow_inf_nan=False)
    """What the number is multiplied with."""
    offset: float = key(default=0.0, allow_inf_nan=False)
    """What is then added."""
    low_word_first: bool = False
    """The first register of several is the lowest; the standard says nothing, makers differ."""
    low_byte_first: bool = False
    """The first byte of a register is the lowest. Manuals call the four orders of two registers
    ABCD (the default), CDAB (`low_word_first`), BADC (`low_byte_first`) and DCBA (both)."""
    registers: int = key(default=1, ge=1, le=REGISTERS_MAX)
    """Of a text: registers of two characters each; it ends at the first NUL."""
    bit: int = key(default=0, ge=0, le=15)
    """Of a bit: which of its register, 0 is the lowest."""

    def __post_init__(self) -> None:
        if self.registers > 1 and self.type is not ValueType.TEXT:
            raise ValueError(f"registers: expected of a text alone, not of {self.type}")
        if self.bit and self.type is not ValueType.BIT:
            raise ValueError(f"bit: expected of a bit alone, not of {self.type}")
        if self.address + self.point().count > ADDRESSES:
            raise ValueError(
                f"address: a {self.type} at {self.address} ends behind the last register, "
                f"{ADDRESSES - 1}"
            )

    def point(self) -> Point:
        """As a value."""
        return Point(
            self.name,
            self.table,
            self.address,
            self.type,
            self.scale,
            self.offset,
            self.low_word_first,
            self.low_byte_first,
            self.registers,
            self.bit,
        )


class ModbusTcpConfig(SourceConfig):
    """A Modbus TCP device that is asked at intervals."""

    type: Literal["modbus_tcp"]
    host: str
    """Name or address of the device."""
    port: int = key(default=502, ge=1, le=65_535)
    """TCP port."""
    unit: int = key(default=1, ge=0, le=255)
    """Which device behind a gateway."""
    interval_s: float = key(default=10.0, ge=0.05, le=86_400)
    """Seconds from one reading to the next."""
    timeout_s: float = key(default=3.0, gt=0, le=60)
    """Seconds that the device has for an answer."""
    point: tuple[PointConfig, ...] = key(min_length=1, max_length=POINTS_MAX)
    """Its values."""

    def source(self, context: SourceContext) -> ModbusTcp:
        return ModbusTcp(self, context)

    def owns(self) -> str:
        return f"unit {self.unit} of {self.host}:{self.port} for the stream {self.stream}"

    def __post_init__(self) -> None:
        names = [point.name for point in self.point]
        if len(set(names)) < len(names):
            raise ValueError("point: two have one name")


class NoSuchAddress(Unavailable):
    """The device says that it has not all of these registers.

    It may be one that nobody asked for and that was read over.
    """

    CODE: Final = 2
    """ILLEGAL DATA ADDRESS (Modbus Application Protocol V1.1b3, section 7)."""


class ModbusTcp:
    """The source."""

    policy = Policy.DROP_NEWEST

    def __init__(self, config: ModbusTcpConfig, context: SourceContext) -> None:
        self._config = config
        self._clock = context.clock
        self._points = [point.point() for point in config.point]
        self._blocks = blocks(self._points)

    async def run(self, intake: Intake) -> None:
        config = self._config
        client = await self._connected()
        try:
            due_s = self._clock.monotonic_s()
            while True:
                reading = intake.check(await self._measure(client, intake.remark))
                if reading is not None:
                    await intake.put([reading])
                due_s = max(due_s + config.interval_s, self._clock.monotonic_s())
                await self._clock.sleep(due_s - self._clock.monotonic_s())
        finally:
            client.close()

    async def _connected(self) -> AsyncModbusTcpClient:
        """A connection.

        The name is looked up beside pymodbus: its look-up would hold up the stop of the agent.
        Raises Unavailable.
        """
        config = self._config
        try:
            addresses = await resolved(config.host, config.port)
        except OSError as error:
            raise Unavailable(f"{config.host}: {error}") from error
        for address in addresses:
            client = AsyncModbusTcpClient(
                address, port=config.port, timeout=config.timeout_s, retries=1, reconnect_delay=0
            )
            if await client.connect():
                return client
            client.close()
        raise Unavailable(f"{config.host}:{config.port}: no connection")

    async def _measure(
        self, client: AsyncModbusTcpClient, remark: Callable[[str], None]
    ) -> dict[str, Scalar]:
        """All values; null for those that the device has not. Raises Unavailable."""
        fields: dict[str, Scalar] = {}
        missing: NoSuchAddress | None = None
        waiting = deque(self._blocks)
        answered: list[Block] = []
        while waiting:
            block = waiting.popleft()
            try:
                fields |= await self._ask(client, block)
                answered.append(block)
            except NoSuchAddress as error:
                missing = error
                parts = smaller(block)
                waiting.extendleft(reversed(parts))
                if not parts:
                    remark(f"{block.points[0].name}: no such register")
        if missing is not None and not answered:
            raise missing
        self._blocks = answered
        return {point.name: fields.get(point.name) for point in self._points}

    async def _ask(self, client: AsyncModbusTcpClient, block: Block) -> dict[str, Scalar]:
        """The values of a block. Raises Unavailable with what the device said."""
        read = {
            Table.HOLDING: client.read_holding_registers,
            Table.INPUT: client.read_input_registers,
            Table.COIL: client.read_coils,
            Table.DISCRETE: client.read_discrete_inputs,
        }[block.table]
        try:
            answer = await read(block.address, count=block.count, device_id=self._config.unit)
        except ModbusException as error:
            raise Unavailable(f"{block.table} {block.address}: {error}") from error
        if answer.isError():
            kind = NoSuchAddress if answer.exception_code == NoSuchAddress.CODE else Unavailable
            raise kind(f"{block.table} {block.address}, {block.count} of them: {answer}")
        try:
            if block.table in (Table.COIL, Table.DISCRETE):
                return {
                    point.name: bool(answer.bits[point.address - block.address])
                    for point in block.points
                }
            return {point.name: value_of(point, block, answer.registers) for point in block.points}
        except (ValueError, IndexError) as error:
            raise Unavailable(f"{block.table} {block.address}: {error}") from error
