"""Publishes the state of every part as an ordinary stream, one plain JSON object each, so that the page reads it like any other.

    ew/v1/supervisor/up/part_status
    {"part":"bridge-1","state":"ready","pid":812,"restarts":0,"rss_mib":61.3,"cpu_percent":4.2,"uptime_s":17.0,"t":1790000000000}

One-way (QoS 0): what is lost is told again two seconds later. The broker may be away; then nothing is queued.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

import aiomqtt
import orjson
import psutil

from edgewake.deploy.lifecycle import BACKOFF_FIRST_S, BACKOFF_MAX_S
from edgewake.deploy.supervisor import Keeper
from edgewake.protocol import topics
from edgewake.protocol.cancellation import raise_if_cancelled
from edgewake.protocol.clock import Clock

DEVICE: Final = "supervisor"
STREAM: Final = "part_status"
INTERVAL_S: Final = 2.0
_MIB: Final = 1 << 20


class Meter:
    """What the operating system says of a part: its process and all descendants."""

    def __init__(self) -> None:
        self._families: dict[int, dict[int, psutil.Process]] = {}
        """Kept between reads, because CPU percent is a difference."""

    def read(self, pid: int) -> tuple[float, float]:
        """(resident MiB, CPU percent of one core since the last read); zeros for a process that is gone."""
        rss = cpu = 0.0
        for process in self._family(pid):
            try:
                rss += process.memory_info().rss / _MIB
                cpu += process.cpu_percent()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return round(rss, 1), round(cpu, 1)

    def _family(self, pid: int) -> list[psutil.Process]:
        before = self._families.pop(pid, {})
        try:
            parent = before.get(pid) or psutil.Process(pid)
            family = {pid: parent} | {child.pid: before.get(child.pid, child) for child in parent.children(recursive=True)}
        except psutil.NoSuchProcess:
            return []
        self._families[pid] = family
        # A descendant counts from the second look: one that has just been forked still shows its parent's memory as its own.
        return [process for number, process in family.items() if number == pid or number in before]


def reading(keeper: Keeper, meter: Meter, clock: Clock) -> dict[str, object]:
    """One part's line."""
    pid = keeper.child.pid if keeper.child else None
    rss, cpu = meter.read(pid) if pid else (0.0, 0.0)
    return {
        "part": keeper.part.name,
        "state": keeper.state.value,
        "pid": pid,
        "restarts": keeper.restarts,
        "rss_mib": rss,
        "cpu_percent": cpu,
        "uptime_s": round(clock.monotonic_s() - keeper.since_s, 1) if pid else 0.0,
        "t": clock.now_ms(),
    }


async def publish(keepers: Iterable[Keeper], port: int, clock: Clock, rng: random.Random, *, host: str = "127.0.0.1") -> None:
    """Publish every INTERVAL_S until cancelled, through all absences of the broker."""
    meter = Meter()
    keepers = list(keepers)
    wait_s = BACKOFF_FIRST_S
    while True:
        try:
            async with aiomqtt.Client(host, port, identifier=DEVICE, protocol=aiomqtt.ProtocolVersion.V5) as client:
                wait_s = BACKOFF_FIRST_S
                while True:
                    for keeper in keepers:
                        await client.publish(topics.up(DEVICE, STREAM), orjson.dumps(reading(keeper, meter, clock)), qos=0)
                        raise_if_cancelled()
                    await clock.sleep(INTERVAL_S)
        except aiomqtt.MqttError:
            raise_if_cancelled()
            await clock.sleep(wait_s * (0.5 + rng.random() / 2))
            wait_s = min(BACKOFF_MAX_S, wait_s * 2)
