"""The fleet's connections: how many, how fast, and what it tells of readings that nobody took."""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import sys
from pathlib import Path

import pytest

from edgewake.protocol.clock import SystemClock
from edgewake.simulators.fleet import IN_FLIGHT_MAX, Fleet, FleetPlan, in_flight
from edgewake.simulators.plain_device import Broker
from edgewake.simulators.world import World
from tests.deploy.children import until
from tests.services import PATIENCE_S, free_ports, run_mosquitto


def fleet(port: int, vehicles: int, **plan: object) -> Fleet:
    """A fleet on a broker."""
    return Fleet(
        World(vehicles=vehicles, seed=1),
        FleetPlan(Broker(port=port), **plan),
        clock=SystemClock(),
        rng=random.Random(1),
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interval_s", "expected"), [(1.0, 1), (10.0, 1), (0.1, 10), (0.04, 25), (0.001, IN_FLIGHT_MAX)]
)
def test_the_way_there_and_back_is_not_the_pace_of_a_fast_device(
    interval_s: float, expected: int
) -> None:
    assert in_flight(interval_s) == expected


async def test_readings_that_were_given_up_are_logged_while_it_drives_and_when_it_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no bridge here, so nobody acknowledges."""
    caplog.set_level(logging.INFO, "edgewake.simulate")
    with run_mosquitto(tmp_path) as broker:
        driving = asyncio.create_task(
            fleet(broker.port, 2, interval_s=0.01, waiting_max=70, report_s=0.1).run()
        )
        await until(
            lambda: any(getattr(r, "event", "") == "fleet.given_up" for r in caplog.records),
            "it is logged",
        )
        driving.cancel()
        await asyncio.wait([driving])
    (last,) = [
        record for record in caplog.records if getattr(record, "event", "") == "fleet.stopped"
    ]
    assert (last.given_up > 0, last.acked) == (True, 0)  # type: ignore[attr-defined]
    assert f"{last.given_up} given_up" in last.getMessage()  # type: ignore[attr-defined]


async def test_a_large_fleet_is_connected_at_once(tmp_path: Path) -> None:
    """Each vehicle is an MQTT client of its own, without a task of its own for it."""
    with run_mosquitto(tmp_path) as broker:
        large = fleet(broker.port, 300)
        driving = asyncio.create_task(large.run())
        await until(
            lambda: all(device.counts.sent for device in large.devices.values()),
            "each vehicle sent",
        )
        assert len(asyncio.all_tasks()) < 2 * 300 + 10
        driving.cancel()
        await asyncio.wait([driving])


def test_too_few_open_files_are_one_sentence() -> None:
    (port,) = free_ports(1)
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)); from "
        "edgewake.deploy.cli import main; main()"
    )
    command = [
        sys.executable,
        "-c",
        limited,
        "simulate",
        "fleet",
        "--vehicles",
        "500",
        "--port",
        str(port),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert (
        "edgewake: 500 vehicles need 564 open files, and this user may have 200: raise `ulimit "
        "-Hn`, or simulate fewer" in done.stderr
    )
