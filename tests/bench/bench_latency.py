"""From a device to a client: one reading over SSE, and a window's complete result after the window's end.

Broker, bridge, Kafka, sequencer, Spark and access server share the machine with the devices and the client. Twenty plain MQTT devices
send five readings a second each. `python -m tests.bench.bench_latency [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from pathlib import Path

import orjson

from edgewake.protocol.clock import SystemClock
from edgewake.simulators.clients import Event, Follower
from edgewake.simulators.outbox import Outbox
from edgewake.simulators.plain_device import Broker, PlainDevice
from tests.bench.figures import Found, percentile, run
from tests.story.system import System, until

DEVICES = 20
PER_SECOND = 5.0
STREAM = "latency"
QUERY = "latency_5s"
WINDOW_MS = 5_000
FLOORS_MS = {"device to SSE, raw, p99": 150.0, "complete window to SSE after its end, p99": 2000.0}
SECONDS = 30.0
"""Of a run."""
WARM_UP_S = 45.0
"""Spark's first batches are slow, and its second lane (the summaries) begins 20 s after the first."""
FIRST_S = 300.0
SQL = f"""-- name: {QUERY}
-- description: How many readings a device sent in five seconds
-- lateness: 1 minute
SELECT device, count(*) AS readings
FROM {STREAM}
GROUP BY window(event_time, '5 seconds'), device
"""


class Devices:
    """Senders that know what they sent in each window."""

    def __init__(self, port: int, name: str, *, count: int = DEVICES, per_second: float = PER_SECOND) -> None:
        clock = SystemClock()
        self._per_second = per_second
        self.sent: dict[tuple[str, int], int] = defaultdict(int)
        self._devices = {
            f"{name}-{i}": PlainDevice(
                f"{name}-{i}", Broker(port=port), Outbox(window=4, lane_window=4, capacity=1000), clock=clock, rng=random.Random(i),
                on_change=lambda _: None,
            )
            for i in range(count)
        }  # fmt: skip

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for i, (name, device) in enumerate(self._devices.items()):
                tasks.create_task(device.run())
                tasks.create_task(self._send(name, device, i / len(self._devices) / self._per_second))

    async def _send(self, name: str, device: PlainDevice, phase_s: float) -> None:
        next_s = time.monotonic() + phase_s
        seq = 0
        while True:
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            seq += 1
            t_ns = time.time_ns()
            t = t_ns // 1_000_000
            device.offer(name, STREAM, orjson.dumps({"t": t, "epoch": 1, "seq": seq, "at": t_ns / 1e9, "speed": 50 + seq % 10}))
            self.sent[name, t - t % WINDOW_MS] += 1
            next_s += 1 / self._per_second


class Stopwatch:
    """Seconds from sending to seeing, and from a window's end to its complete row."""

    def __init__(self, devices: Devices) -> None:
        self.raw_s: list[float] = []
        self.window_s: dict[tuple[str, int], float] = {}
        self.counted = False
        self._devices = devices

    def on_event(self, _client: str, event: Event) -> None:
        if event.name != "message":
            return
        now_s = time.time()
        body = orjson.loads(event.data)
        if "query" in body:
            self._on_row(body["device"], body["window_start"], body["readings"], now_s)
        elif self.counted:
            self.raw_s.append(now_s - body["at"])

    def _on_row(self, device: str, start_ms: int, readings: int, now_s: float) -> None:
        end_s = (start_ms + WINDOW_MS) / 1000
        if self.counted and readings == self._devices.sent[device, start_ms]:
            self.window_s.setdefault((device, start_ms), now_s - end_s)


def measure(folder: Path, runs: int) -> Found:
    """Start the system once, measure each run on it."""
    return asyncio.run(_measure(folder, runs))


async def _measure(folder: Path, runs: int) -> Found:
    found: Found = defaultdict(list)
    async with System(folder, agents=(), stream=STREAM, bridges=1, servers=1) as system:
        system.register(QUERY, SQL)
        await system.start("access-1", "analysis", "sequencer", "bridge-1")
        await _run(system, "warm-up", WARM_UP_S)
        for i in range(runs):
            raw_s, window_s = await _run(system, f"car-{i}", SECONDS)
            for percent in (50, 99):
                for name, values in (("device to SSE, raw", raw_s), ("complete window to SSE after its end", window_s)):
                    name = f"{name}, p{percent}"
                    found[f"latency: {name}", "ms", FLOORS_MS.get(name)].append(percentile(values, percent) * 1000)
    return found


async def _run(system: System, name: str, seconds: float) -> tuple[list[float], list[float]]:
    devices = Devices(system.mqtt_port, name)
    watch = Stopwatch(devices)
    client = Follower("bench", system.servers, [STREAM, QUERY], watch.on_event, start="latest")
    client.wake()
    sending = asyncio.create_task(devices.run())
    watch.counted = True
    try:
        await until(lambda: watch.window_s, "first complete windows", timeout_s=FIRST_S)
        watch.raw_s.clear()
        watch.window_s.clear()
        await asyncio.sleep(seconds)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await client.sleep()
    return watch.raw_s, list(watch.window_s.values())


if __name__ == "__main__":
    run(measure, __doc__)
