"""Sensors that advertise: which are taken, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData

from edgewake.edge.sources.machines import ble
from edgewake.edge.sources.machines.beacons import (
    RUUVI,
)
from tests.edge.sources.cage import caged, configured
from tests.edge.sources.machines.test_beacons import RUUVI_5


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
