"""Modbus RTU over a pair of pseudo-terminals, CAN over python-can's virtual bus, OPC UA against a
server of asyncua, and Bluetooth's advertisements as their specifications have them.
"""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
import threading
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import can
import pytest
from asyncua import Server, ua
from asyncua.crypto.cert_gen import setup_self_signed_certificate
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st
from pymodbus.server import ModbusSerialServer
from pymodbus.simulator import DataType, SimData, SimDevice

from edgewake.edge.sources.config import kind
from edgewake.edge.sources.machines import ble, opcua
from edgewake.edge.sources.machines.beacons import (
    BTHOME,
    ENVIRONMENT,
    RUUVI,
    XIAOMI,
    decoded,
)
from edgewake.edge.sources.machines.modbus import Block, NumberType, Point, Table, value_of
from edgewake.protocol.errors import Unavailable
from tests.edge.sources.cage import caged
from tests.services import free_ports


def config(type_: str, **keys: Any) -> Any:
    return kind(type_).checked({"type": type_, "stream": "s", **keys})


# Modbus


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
        async with caged(tmp_path, config("modbus_rtu", **keys)) as one:
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
        first = config("modbus_rtu", unit=7, point=points, **keys)
        second = config("modbus_rtu", unit=9, point=others, **keys)
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
            slower = config("modbus_rtu", unit=9, point=others, baud=4800, **keys)
            with pytest.raises(Unavailable, match="expected the same in both"):
                await slower.connected()


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


# CAN

DBC = """VERSION ""
NS_ :
BS_:
BU_: ECU
BO_ 256 Engine: 8 ECU
 SG_ Speed : 0|16@1+ (0.1,0) [0|6553.5] "km/h" ECU
 SG_ Temp : 16|8@1- (1,0) [-128|127] "C" ECU
 SG_ Gear : 24|8@1+ (1,0) [0|8] "" ECU
VAL_ 256 Gear 0 "Neutral" 1 "First" ;
"""


async def test_messages_of_a_bus_are_read_by_a_dbc_file_and_not_more_often_than_wanted(
    tmp_path: Path,
) -> None:
    (tmp_path / "car.dbc").write_text(DBC)
    channel = f"dbc-{tmp_path.name}"
    keys = {"interface": "virtual", "channel": channel, "dbc": str(tmp_path / "car.dbc")}
    sender = can.Bus(interface="virtual", channel=channel)
    try:
        async with caged(tmp_path / "log", config("can", interval_s=0.0, **keys)) as one:
            data = bytes([0xE8, 0x03, 0xF6, 0x01, 0, 0, 0, 0])

            def is_heard() -> bool:
                for number in (0x100, 0x200):
                    sender.send(can.Message(arbitration_id=number, data=data, is_extended_id=False))
                return bool(one.times())

            await one.until(is_heard, "a reading")
            assert (one.column("Speed")[0], one.column("Temp")[0]) == (100.0, -10)
            assert (one.column("Gear")[0], one.column("message")[0]) == ("First", "Engine")
        async with caged(tmp_path / "log2", config("can", interval_s=3600.0, **keys)) as one:
            await one.until(lambda: (is_heard() and False) or bool(one.intake.taken), "a reading")
            for _ in range(50):
                is_heard()
            await asyncio.sleep(0.5)  # several turns of the thread: no condition says that
            assert one.intake.taken == 1
    finally:
        sender.shutdown()


async def test_a_car_is_asked_by_obd(tmp_path: Path) -> None:
    channel = f"obd-{tmp_path.name}"
    car = can.Bus(interface="virtual", channel=channel)
    ended = threading.Event()
    answers = {0x0C: [0x1A, 0xF8], 0x0D: [50], 0x05: [130]}

    def drive() -> None:
        while not ended.is_set():
            asked = car.recv(0.05)
            if asked is None or asked.arbitration_id != 0x7DF:
                continue
            pid = asked.data[2]
            said = [2 + len(answers[pid]), 0x41, pid, *answers[pid]]
            car.send(can.Message(arbitration_id=0x7E8, data=said, is_extended_id=False))

    thread = threading.Thread(target=drive)
    thread.start()
    keys = {"interface": "virtual", "channel": channel, "interval_s": 0.1}
    try:
        wanted = ["rpm", "speed", "coolant_temperature"]
        async with caged(tmp_path / "log", config("can", obd=wanted, **keys)) as one:
            await one.until(lambda: len(one.column("rpm")) >= 2, "two readings")
            found = {name: one.column(name)[1] for name in wanted}
            assert found == {"rpm": 1726.0, "speed": 50, "coolant_temperature": 90}
    finally:
        ended.set()
        thread.join()
        car.shutdown()


def test_a_bus_that_is_none_and_a_file_that_is_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`dbc` or `obd`"):
        config("can")
    with pytest.raises(ValueError, match="expected some of"):
        config("can", obd=["warp"])


# OPC UA


@asynccontextmanager
async def opcua_server(port: int, certificates: Path | None = None) -> AsyncIterator[Any]:
    server = Server()
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/")
    if certificates is not None:
        server.set_security_policy([ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt])
        await server.load_certificate(str(certificates / "server.der"))
        await server.load_private_key(str(certificates / "server.pem"))
    await server.register_namespace("urn:test")
    boiler = await server.nodes.objects.add_object("ns=2;s=Boiler", "2:Boiler")
    value = await boiler.add_variable("ns=2;s=Boiler.Temperature", "2:Temperature", 20.5)
    state = await boiler.add_variable("ns=2;s=Boiler.State", "2:State", "idle")
    async with server:
        yield value, state


NODES = [
    {"name": "temperature", "id": "ns=2;s=Boiler.Temperature"},
    {"name": "state", "id": "ns=2;s=Boiler.State"},
]


async def test_changes_of_a_server_come_with_their_times_and_after_it_was_away(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    keys = {
        "url": f"opc.tcp://127.0.0.1:{port}/", "publish_s": 0.05,
        "node": [*NODES, {"name": "gone", "id": "ns=2;s=no"}],
    }  # fmt: skip
    moment = datetime(2026, 3, 1, 8, 15, 30, tzinfo=UTC)
    async with caged(tmp_path, config("opcua", **keys)) as one:
        await one.failed("opc.tcp")
        async with opcua_server(port) as (value, state):
            await one.until(lambda: 20.5 in one.column("temperature"), "the first value")
            for number in range(5):
                at = moment + timedelta(seconds=number)
                variant = ua.Variant(21.5 + number, ua.VariantType.Double)
                await value.write_value(ua.DataValue(variant, SourceTimestamp=at))
                await one.until(lambda n=number: 21.5 + n in one.column("temperature"), "a change")
            await state.write_value("heating")
            await one.until(lambda: "heating" in one.column("state"), "the state")
        start_ms = int(moment.timestamp() * 1000)
        changed = dict(zip(one.column("temperature"), one.times(), strict=True))
        assert [changed[21.5 + number] for number in range(5)] == [
            start_ms + 1000 * number for number in range(5)
        ]
        assert any("gone" in what for what in one.intake.remarks)
        failures = one.supervisor.failures
        await one.until(lambda: one.supervisor.failures > failures, "the loss")
        async with opcua_server(port) as (value, _):
            await one.until(lambda: one.column("temperature").count(20.5) == 2, "it is back")
            await value.write_value(99.5)
            await one.until(lambda: 99.5 in one.column("temperature"), "a change")


@pytest.mark.parametrize("remembers", [True, False], ids=["remembers", "control"])
async def test_values_that_did_not_change_while_the_agent_was_away_are_not_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    """A server tells all values that it has to who subscribes."""
    if not remembers:
        monkeypatch.setattr(opcua.Told, "newest", lambda _: "{}")
    (port,) = free_ports(1)
    keys = {"url": f"opc.tcp://127.0.0.1:{port}/", "publish_s": 0.05, "node": NODES}
    async with opcua_server(port) as (value, state):
        at = datetime(2026, 3, 1, 8, 15, 30, tzinfo=UTC)
        for node, said in ((value, 21.5), (state, "heating")):
            await node.write_value(ua.DataValue(ua.Variant(said), SourceTimestamp=at))
        async with caged(tmp_path, config("opcua", **keys)) as one:
            await one.until(lambda: 21.5 in one.column("temperature"), "the value")
            await one.until(lambda: "heating" in one.column("state"), "the state")
            await one.intake.durable()
        async with caged(tmp_path, config("opcua", **keys)) as one:
            if remembers:
                later = at + timedelta(seconds=1)
                changed = ua.Variant(22.5)
                await value.write_value(ua.DataValue(changed, SourceTimestamp=later))
                await one.until(lambda: 22.5 in one.column("temperature"), "the change")
            else:
                await one.until(lambda: one.column("temperature").count(21.5) == 2, "a repeat")
            assert one.column("temperature").count(21.5) == (1 if remembers else 2)


@pytest.mark.long
async def test_a_server_is_talked_to_encrypted_and_only_where_it_is_the_known_one(
    tmp_path: Path,
) -> None:
    for name, use in (
        ("server", ExtendedKeyUsageOID.SERVER_AUTH),
        ("agent", ExtendedKeyUsageOID.CLIENT_AUTH),
        ("other", ExtendedKeyUsageOID.SERVER_AUTH),
    ):
        await setup_self_signed_certificate(
            tmp_path / f"{name}.pem", tmp_path / f"{name}.der", f"urn:edgewake:{name}",
            "localhost", [use], {"commonName": name},
        )  # fmt: skip
    (port,) = free_ports(1)
    keys = {
        "url": f"opc.tcp://127.0.0.1:{port}/", "node": NODES, "publish_s": 0.05,
        "security": "Basic256Sha256", "cert_file": str(tmp_path / "agent.der"),
        "key_file": str(tmp_path / "agent.pem"),
    }  # fmt: skip
    async with opcua_server(port, tmp_path):
        known = {"server_cert_file": str(tmp_path / "server.der")}
        async with caged(tmp_path / "log", config("opcua", **keys, **known)) as one:
            await one.until(lambda: 20.5 in one.column("temperature"), "a value")
        other = {"server_cert_file": str(tmp_path / "other.der")}
        async with caged(tmp_path / "log2", config("opcua", **keys, **other)) as one:
            await one.until(lambda: one.supervisor.failures, "a failure")
            assert one.intake.taken == 0
        plain = {"url": keys["url"], "node": NODES}
        async with caged(tmp_path / "log3", config("opcua", **plain)) as one:
            await one.until(lambda: one.supervisor.failures, "a failure: it wants encryption")
            assert one.intake.taken == 0


# Bluetooth

RUUVI_5 = bytes.fromhex("0512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F")
ADVERTISED = [
    ({RUUVI: RUUVI_5}, {}, ("ruuvi", {
        "temperature": 24.3, "humidity": 53.49, "pressure": 1000.44, "acceleration_x": 0.004,
        "acceleration_y": -0.004, "acceleration_z": 1.036, "battery_v": 2.977,
        "tx_power_dbm": 4, "movements": 66, "number": 205})),
    ({RUUVI: bytes.fromhex("058000FFFFFFFF800080008000FFFFFFFFFFFFFFFFFFFFFF")}, {}, ("ruuvi", {
        "temperature": None, "humidity": None, "pressure": None, "acceleration_x": None,
        "acceleration_y": None, "acceleration_z": None, "battery_v": None,
        "tx_power_dbm": None, "movements": None, "number": None})),
    ({RUUVI: bytes.fromhex("03291A1ECE1EFC18F94202CA0B53")}, {}, ("ruuvi", {
        "temperature": 26.3, "humidity": 20.5, "pressure": 1027.66, "acceleration_x": -1.0,
        "acceleration_y": -1.726, "acceleration_z": 0.714, "battery_v": 2.899})),
    ({}, {BTHOME: bytes.fromhex("4002CA0903BF13")}, ("bthome", {
        "temperature": 25.06, "humidity": 50.55})),
    ({}, {BTHOME: bytes.fromhex("44001A01640204F6210105138A14")}, ("bthome", {
        "packet": 26, "battery": 100, "temperature": -25.56, "motion": True,
        "illuminance": 13460.67})),
    ({}, {BTHOME: bytes.fromhex("40530C48656C6C6F20576F726C6421")}, ("bthome", {
        "text": "Hello World!"})),
    ({}, {BTHOME: bytes.fromhex("4102CA09")}, None),
    ({}, {ENVIRONMENT: bytes.fromhex("AABBCC38C1A4" + "6009A00FB80B" + "500700")},
     ("atc", {"temperature": 24.0, "humidity": 40.0, "battery_v": 3.0, "battery": 80,
              "number": 7})),
    ({}, {ENVIRONMENT: bytes.fromhex("A4C138AABBCC" + "00F0" + "28" + "50" + "0BB8" + "07")},
     ("atc", {"temperature": 24.0, "humidity": 40, "battery_v": 3.0, "battery": 80,
              "number": 7})),
    ({}, {XIAOMI: bytes.fromhex("5020AA01DA" + "2E3A5836D84C" + "0D1004" + "FE00" + "4802")},
     ("xiaomi", {"temperature": 25.4, "humidity": 58.4, "number": 218})),
    ({}, {XIAOMI: bytes.fromhex("5858AA01DA2E3A5836D84C0D1004FE004802")}, None),
    ({76: b"\x02\x15"}, {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("makers", "services", "expected"), ADVERTISED)
def test_what_sensors_advertise(
    makers: dict[int, bytes], services: dict[str, bytes], expected: object
) -> None:
    assert decoded(makers, services) == expected


@given(st.binary(max_size=40), st.sampled_from([BTHOME, ENVIRONMENT, XIAOMI, RUUVI]))
def test_no_advertisement_raises(data: bytes, where: str | int) -> None:
    decoded({where: data} if isinstance(where, int) else {}, {str(where): data})


async def test_each_sensor_is_taken_as_often_as_wanted_and_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The radio alone is ours: no adapter is here. What it tells is bleak's own."""
    told: list[Any] = []

    class Radio:
        def __init__(self, on_advertisement: Any) -> None:
            told.append(on_advertisement)

        async def __aenter__(self) -> Radio:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(ble, "BleakScanner", Radio)
    address = "C1:45:12:AA:BB:CC"
    keys = {"interval_s": 3600.0, "names": {address.lower(): "cellar"}}
    async with caged(tmp_path, config("ble", **keys)) as one:
        await one.until(lambda: told, "the scanner")
        for sender in (address, "AA:AA:AA:AA:AA:AA", address):
            advertised = AdvertisementData(None, {RUUVI: RUUVI_5}, {}, [], None, -60, ())
            told[0](BLEDevice(sender, None, None), advertised)
        await one.until(lambda: len(one.times()) == 2, "two readings")
        assert one.column("thing") == ["cellar", "AA-AA-AA-AA-AA-AA"]
        assert (one.column("temperature"), one.column("rssi")) == ([24.3, 24.3], [-60, -60])


# What an agent without them does not pay


@pytest.fixture(scope="module")
def imported() -> set[str]:
    code = (
        "import sys\nimport edgewake.edge.run, edgewake.edge.commands.cli\n"
        "from edgewake.edge.sources.config import kinds\nkinds()\n"
        "import edgewake.edge.sources.lines.json_lines\n"
        "import edgewake.edge.sources.web.http_intake\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(said.stdout.split())


def test_an_agent_without_these_sources_imports_none_of_their_libraries(imported: set[str]) -> None:
    libraries = {"asyncua", "can", "cantools", "bleak", "serial", "pymodbus", "google",
        "opentelemetry", "cbor2", "cryptography"}  # fmt: skip
    assert imported & libraries == set()
    assert "edgewake" in imported, "control"
