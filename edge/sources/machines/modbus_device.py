"""Reads registers of a Modbus device at intervals, by pymodbus: one reading each time.

This is what TCP and serial lines have in common. A device that does not answer fails the source:
its reason is logged, and it is asked again later. A register that it does not have is null,
counted, and the others stand; without any the source fails. A value that is not a number is null.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from pymodbus.client.base import ModbusBaseClient
from pymodbus.exceptions import ModbusException

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceConfig
from edgewake.edge.sources.machines.modbus import (
    Block,
    NumberType,
    Point,
    Table,
    blocks,
    value_of,
    without_gaps,
)
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frames.field_names import UNIT_CHARS_MAX
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.names import is_field
from edgewake.protocol.plain import Check, ConfigTable, Length, key

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
    type: NumberType = NumberType.UINT16
    """What the registers hold."""
    scale: float = key(default=1.0, allow_inf_nan=False)
    """What the number is multiplied with."""
    offset: float = key(default=0.0, allow_inf_nan=False)
    """What is then added."""
    unit: Annotated[str, Length(0, UNIT_CHARS_MAX)] = ""
    """What the value is measured in, as `°C` or `kWh`: the unit of the stream's field."""
    low_word_first: bool = False
    """The first register of several is the lowest; the standard says nothing, makers differ."""
    low_byte_first: bool = False
    """The low byte of each register comes first, against the standard."""
    length: int = key(default=1, ge=1, le=120)
    """With `text`: its registers, two characters each; it ends before a NUL."""
    bit: int = key(default=0, ge=0, le=15)
    """With `bit`: which one of a register, 0 the lowest."""

    def __post_init__(self) -> None:
        if self.address + self.point().count > ADDRESSES:
            raise ValueError(
                f"address: a {self.type} at {self.address} ends behind the last register, "
                f"{ADDRESSES - 1}"
            )

    def point(self) -> Point:
        """The point that this configures."""
        return Point(
            self.name,
            self.table,
            self.address,
            self.type,
            self.scale,
            self.offset,
            self.low_word_first,
            self.low_byte_first,
            self.length,
            self.bit,
        )


class ModbusConfig(SourceConfig):
    """A device with registers."""

    unit: int = key(default=1, ge=0, le=255)
    """Which device behind a gateway, or on the line."""
    interval_s: float = key(default=10.0, ge=0.05, le=86_400)
    """Seconds from one reading to the next."""
    timeout_s: float = key(default=3.0, gt=0, le=60)
    """Seconds that the device has for an answer."""
    point: tuple[PointConfig, ...] = key(min_length=1, max_length=POINTS_MAX)
    """Its values."""

    @property
    def asked(self) -> str:
        """What is asked of which unit: sources that ask other things of one do not disturb it."""
        points = sorted(f"{one.table} {one.address}" for one in self.point)
        return f"{', '.join(points)} of unit {self.unit}"

    def __post_init__(self) -> None:
        names = [point.name for point in self.point]
        if len(set(names)) < len(names):
            raise ValueError("point: two of the same name; expected each name once")


class NoSuchAddress(Unavailable):
    """The device says that it has not all of these registers.

    It may be one that nobody asked for and that was read over.
    """

    CODE: Final = 2
    """ILLEGAL DATA ADDRESS (Modbus Application Protocol V1.1b3, section 7)."""


class ModbusDevice:
    """The source: `connect` gives a connection, and raises Unavailable."""

    policy = Policy.DROP_NEWEST

    def __init__(
        self,
        config: ModbusConfig,
        clock: Clock,
        connect: Callable[[], Awaitable[ModbusBaseClient]],
    ) -> None:
        self._config = config
        self._clock = clock
        self._connect = connect
        self._blocks = blocks([point.point() for point in config.point])

    async def run(self, intake: Intake) -> None:
        config = self._config
        client = await self._connect()
        intake.note_units({point.name: point.unit for point in config.point if point.unit})
        try:
            due_s = self._clock.monotonic_s()
            while True:
                reading = intake.check(await self._measure(client, intake))
                if reading is not None:
                    await intake.put([reading])
                due_s = max(due_s + config.interval_s, self._clock.monotonic_s())
                await self._clock.sleep(due_s - self._clock.monotonic_s())
        finally:
            client.close()

    async def _measure(self, client: ModbusBaseClient, intake: Intake) -> dict[str, Scalar]:
        fields: dict[str, Scalar] = {}
        missing: list[NoSuchAddress] = []
        for block in tuple(self._blocks):
            try:
                fields |= await self._ask(client, block)
            except NoSuchAddress as error:
                at = self._blocks.index(block)
                self._blocks[at : at + 1] = parts = without_gaps(block)
                if len(parts) == 1:
                    missing.append(error)
                    self._take_apart(block)
                    fields |= dict.fromkeys(point.name for point in block.points)
                    continue
                for part in parts:
                    fields |= await self._ask_or_miss(client, part, missing)
        if missing and all(value is None for value in fields.values()):
            raise missing[0]
        for one in missing:
            intake.remark(f"not there: {one}")
        return fields

    async def _ask_or_miss(
        self, client: ModbusBaseClient, block: Block, missing: list[NoSuchAddress]
    ) -> dict[str, Scalar]:
        try:
            return await self._ask(client, block)
        except NoSuchAddress as error:
            missing.append(error)
            self._take_apart(block)
            return dict.fromkeys(point.name for point in block.points)

    def _take_apart(self, block: Block) -> None:
        """Ask for each of its values alone from now on: one of them is not there."""
        at = self._blocks.index(block)
        self._blocks[at : at + 1] = [
            Block(point.table, point.address, point.count, (point,)) for point in block.points
        ]

    async def _ask(self, client: ModbusBaseClient, block: Block) -> dict[str, Scalar]:
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
