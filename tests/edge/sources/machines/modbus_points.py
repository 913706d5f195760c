"""Points and configurations of Modbus devices for tests."""

from __future__ import annotations

from collections.abc import Mapping

from edgewake.edge.sources.machines.modbus import NumberType, Point, Table
from edgewake.edge.sources.machines.modbus_tcp import ModbusTcpConfig


def point(
    address: int,
    number: NumberType = NumberType.UINT16,
    table: Table = Table.HOLDING,
    **more: object,
) -> Point:
    """A point that is named by its place."""
    settings = {"scale": 1.0, "offset": 0.0, "low_word_first": False} | more
    return Point(f"{table}_{address}", table, address, number, **settings)  # type: ignore[arg-type]


def configured(port: int, *points: Mapping[str, object], **more: object) -> ModbusTcpConfig:
    """Reads these points ten times a second; one without a name is called p0, p1 …"""
    named = [{"name": f"p{number}"} | dict(each) for number, each in enumerate(points)]
    values = {
        "type": "modbus_tcp",
        "stream": "s",
        "host": "127.0.0.1",
        "port": port,
        "interval_s": 0.1,
        "timeout_s": 0.5,
        "point": named,
    }
    return ModbusTcpConfig.checked(values | more)
