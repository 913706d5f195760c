"""What sensors advertise by Bluetooth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.machines.beacons import (
    BTHOME,
    ENVIRONMENT,
    RUUVI,
    XIAOMI,
    decoded,
)

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
