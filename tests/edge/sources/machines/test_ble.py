"""Sensors that advertise: which are taken, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData

from edgewake.edge.config import AgentConfig
from edgewake.edge.sources.machines import ble
from edgewake.edge.sources.machines.beacons import BTHOME, RUUVI
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError
from tests.edge.sources.cage import caged, configured
from tests.edge.sources.machines.test_beacons import RUUVI_5
from tests.edge.sources.machines.test_sealed_beacons import KEY, PLACE, bthome


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Who is told of advertisements.

    The radio alone is ours: no adapter is here. What it tells is bleak's own.
    """
    found: list[Any] = []

    class Radio:
        def __init__(self, on_advertisement: Any) -> None:
            found.append(on_advertisement)

        async def __aenter__(self) -> Radio:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(ble, "BleakScanner", Radio)
    return found


def advertised(sender: str) -> tuple[BLEDevice, AdvertisementData]:
    data = AdvertisementData(None, {RUUVI: RUUVI_5}, {}, [], None, -60, ())
    return BLEDevice(sender, None, None), data


async def test_each_sensor_is_taken_as_often_as_wanted_and_by_its_name(
    tmp_path: Path, told: list[Any]
) -> None:
    address = "C1:45:12:AA:BB:CC"
    keys = {"interval_s": 3600.0, "names": {address.lower(): "cellar"}}
    async with caged(tmp_path, configured("ble", **keys)) as one:
        await one.until(lambda: told, "the scanner")
        for sender in (address, "AA:AA:AA:AA:AA:AA", address):
            told[0](*advertised(sender))
        await one.until(lambda: len(one.times()) == 2, "two readings")
        assert one.column("thing") == ["cellar", "AA-AA-AA-AA-AA-AA"]
        assert (one.column("temperature"), one.column("rssi")) == ([24.3, 24.3], [-60, -60])


async def test_readings_without_room_are_losses(
    tmp_path: Path, told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ble, "WAITING_MAX", 1)
    async with caged(tmp_path, configured("ble")) as one:
        await one.until(lambda: told, "the scanner")
        for number in range(3):  # before the source has its turn
            told[0](*advertised(f"AA:AA:AA:AA:AA:0{number}"))
        await one.until(lambda: one.events.status().lost == {"refused": 2}, "the gap")
        assert dict(one.intake.refused) == {"quota": 2}
        await one.until(lambda: one.column("thing") == ["AA-AA-AA-AA-AA-00"], "the first")


def encrypted(data: bytes, sender: str = PLACE) -> tuple[BLEDevice, AdvertisementData]:
    told = AdvertisementData(None, {}, {BTHOME.upper(): data}, [], None, -60, ())
    return BLEDevice(sender, None, None), told


async def test_a_sensor_s_key_opens_what_it_says_and_what_is_wrong_is_said_by_its_name(
    tmp_path: Path, told: list[Any]
) -> None:
    wrong, none = "AA:AA:AA:AA:AA:01", "AA:AA:AA:AA:AA:02"
    config = configured(
        "ble",
        interval_s=0,
        keys={PLACE.lower(): KEY, wrong: "00" * 16},
        names={PLACE: "cellar", wrong: "attic", none: "hall"},
    )
    async with caged(tmp_path, config) as one:
        await one.until(lambda: told, "the scanner")
        for data in (bthome(500, "02CA09"), bthome(501, "02CB09"), bthome(500, "02CA09")):
            told[0](*encrypted(data))
        for sender in (wrong, wrong, none):
            told[0](*encrypted(bthome(1), sender))
        told[0](*encrypted(bthome(502, "02CC09")))
        await one.until(lambda: len(one.times()) == 3, "three readings")
        assert one.column("temperature") == [25.06, 25.07, 25.08]
        assert one.column("thing") == ["cellar"] * 3
        assert dict(one.intake.refused) == {"foreign_device": 1, "encoding": 1}
        assert dict(one.intake.remarks) == {
            "cellar: its number was passed before: somebody sends again what it said": 1,
            "attic: its key (`keys`) does not open what it says": 1,
            "hall encrypts what it says: it needs a key": 1,
        }


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"cellar": KEY}, "'cellar': expected an address like C1:45:12:AA:BB:CC"),
        ({PLACE: "secret"}, f"{PLACE}: expected a key of 32 hexadecimal digits"),
    ],
)
def test_a_key_that_cannot_be_one_is_said_before_the_start_and_not_shown(
    keys: dict[str, str], why: str
) -> None:
    source = {"type": "ble", "stream": "s", "keys": keys}
    values = {"device": "d", "data_dir": "/var/lib/x", "source": [source]}
    with pytest.raises(ConfigError, match=why) as refused:
        parse(AgentConfig, values, "agent.toml")
    assert "secret" not in str(refused.value)
