"""How long a device waits when one of two bridges dies or freezes for good.

Method: three devices that wait for end-to-end acknowledgements and three plain ones send a message
each every 50 ms, window 1000, and send nothing again, so that what a dead bridge had comes out of
its session only. After 2 s one bridge is killed (-9) or stopped (SIGSTOP) and left so; the load
goes on for 10 s. A wait is from publishing a frame to its acknowledgement, seen every 5 ms. Fails
unless every frame is acknowledged and every plain reading is in Kafka. `python -m
tests.bench.bench_failover [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.bench.figures import Found, percentile, run
from tests.bridge.fleet import Fleet, until
from tests.bridge.running import World, world
from tests.services import Process, run_kafka, run_mosquitto

FAULTS: Final = {"killed": Process.kill, "frozen": Process.freeze}
BEFORE, AFTER = 40, 200
"""Messages of each device before and after the fault, one every 50 ms."""
WAIT_MAX_MS: Final = 5_000.0
"""What a dead bridge may cost."""


def measure(folder: Path, runs: int) -> Found:
    """Each fault in turn, on a broker of its own."""
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        for i in range(runs):
            for name, fault in FAULTS.items():
                here_folder = folder / f"{name}-{i}"
                with run_mosquitto(here_folder / "mosquitto") as broker:
                    here_folder.mkdir(exist_ok=True)
                    waits_s = asyncio.run(_fault(World(broker, node, here_folder), name, fault, i))
                found[
                    f"a bridge {name} for good: longest wait for an acknowledgement",
                    "ms",
                    WAIT_MAX_MS,
                ].append(max(waits_s) * 1000)
                found[f"a bridge {name} for good: p50 of waits", "ms", None].append(
                    percentile(waits_s, 50) * 1000
                )
    return found


async def _fault(made: World, name: str, fault: Callable[[Process], None], i: int) -> list[float]:
    async with world(made.broker, made.node, made.folder) as here:
        gone = here.bridge(f"{name}-{i}-1", site=f"{name}{i}")
        here.bridge(f"{name}-{i}-2", site=f"{name}{i}")
        fleet = Fleet(here, f"{name}{i}")
        await fleet.connected()
        await until(
            lambda: here.metric(f"{name}-{i}-2", "edgewake_bridge_others") == 1,
            "the bridges know each other",
        )
        waits_s: list[float] = []
        watching = asyncio.create_task(_watch(fleet, waits_s))
        await fleet.send(BEFORE, every_s=0.05)
        fault(gone)
        try:
            await fleet.send(AFTER, every_s=0.05)
            await fleet.all_arrived()
        finally:
            if fault is Process.freeze:
                gone.thaw()
            watching.cancel()
        assert len(waits_s) == len(fleet.agents) * fleet.sent
        return waits_s


async def _watch(fleet: Fleet, waits_s: list[float]) -> None:
    """Note how long each frame waited."""
    seen: set[tuple[str, int]] = set()
    while True:
        now_s = time.monotonic()
        for device in fleet.agents:
            for number in device.acks.keys() - {n for name, n in seen if name == device.name}:
                seen.add((device.name, number))
                waits_s.append(now_s - fleet.sent_s[number])
        await asyncio.sleep(0.005)


if __name__ == "__main__":
    run(measure, __doc__)
