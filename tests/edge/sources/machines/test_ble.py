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
    async with caged(tmp_path, configured("ble", **keys)) as one:
        await one.until(lambda: told, "the scanner")
        for sender in (address, "AA:AA:AA:AA:AA:AA", address):
            advertised = AdvertisementData(None, {RUUVI: RUUVI_5}, {}, [], None, -60, ())
            told[0](BLEDevice(sender, None, None), advertised)
        await one.until(lambda: len(one.times()) == 2, "two readings")
        assert one.column("thing") == ["cellar", "AA-AA-AA-AA-AA-AA"]
        assert (one.column("temperature"), one.column("rssi")) == ([24.3, 24.3], [-60, -60])
