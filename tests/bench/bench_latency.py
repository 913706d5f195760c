"""From a device to a client: one reading over SSE, and each window's complete result after the
window's end.

Broker, bridge, Kafka, sequencer, Spark and access server share the machine with the devices and the
client; the analysis has its defaults. 100 readings a second: twenty plain MQTT devices send five
each, one by one. 20,000 a second: fifty devices send twenty frames of twenty each, and none has a
reading of two windows. A query counts the readings of each device in five seconds. At either rate
the system is warm.

Every window that lies within a run is counted, for each device: its time is that from its end, by
the machine's clock, to the arrival of the first row that has all its readings. Where one never
comes, or the last row of one has another count than what was sent, it fails. `python -m
tests.bench.bench_latency [--runs 3] [--seconds 60] [--json FILE]`
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames.frame import FRAME_TYPE
from edgewake.simulators.clients import Event, Follower
from edgewake.simulators.outbox import Outbox
from edgewake.simulators.plain_device import Broker, PlainDevice
from tests.bench.figures import Found, percentile, run
from tests.story.system import System

WINDOW_MS: Final = 5_000
WARM_UP_S: Final = 200.0
"""At each rate. A calm stream has one or two batches in five seconds, a busy one five, and the JVM
compiles ever more of what plans them: at 20,000 readings a second results come sooner and sooner
for so long. Summaries begin 20 s after the first batch."""
AFTER_S: Final = 1.0
"""After a window's end its last frame was sent."""
COME_S: Final = 120.0
"""After which a row that did not come fails."""
LOOK_EVERY_S: Final = 0.1
FIRST_S: Final = 300.0
RAW: Final = "device to SSE, raw"
CEILINGS_MS: Final = {(RAW, 99): 150.0, ("window", 50): 400.0, ("window", 99): 1000.0}
SQL: Final = """-- name: {stream}_5s
-- description: How many readings a device sent in five seconds
-- lateness: 1 minute
SELECT device, count(*) AS readings
FROM {stream}
GROUP BY window(event_time, '5 seconds'), device
"""


@dataclass(frozen=True, slots=True)
class Load:
    """`devices` that each send `messages` of so many `readings` a second."""

    stream: str
    devices: int
    messages: int
    readings: int

    @property
    def query(self) -> str:
        """Its windows."""
        return f"{self.stream}_5s"

    @property
    def per_s(self) -> int:
        """Readings of all devices."""
        return self.devices * self.messages * self.readings


LOADS: Final = (Load("calm", 20, 5, 1), Load("busy", 50, 20, 20))


class Devices:
    """Senders that know what they sent in each window."""

    def __init__(self, port: int, name: str, load: Load) -> None:
        clock = SystemClock()
        self._load = load
        self.sent: dict[tuple[str, int], int] = defaultdict(int)
        """Device and begin of the window → readings."""
        self._devices = {
            f"{name}-{i}": PlainDevice(
                f"{name}-{i}", Broker(port=port), Outbox(window=4, lane_window=4, capacity=1000),
                clock=clock, rng=random.Random(i),
                on_change=lambda _: None,
            )
            for i in range(load.devices)
        }  # fmt: skip

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for i, (name, device) in enumerate(self._devices.items()):
                tasks.create_task(device.run())
                tasks.create_task(
                    self._send(name, device, i / len(self._devices) / self._load.messages)
                )

    async def _send(self, name: str, device: PlainDevice, phase_s: float) -> None:
        """A message at a fixed phase of each step; a frame has the readings of the step before,
        which ends when a window may.
        """
        step_ms = 1000 // self._load.messages
        seq = 1
        begin_ms = time.time_ns() // 1_000_000
        begin_ms += step_ms - begin_ms % step_ms
        for number in range(1, 1 << 62):
            await asyncio.sleep((begin_ms + number * step_ms) / 1000 + phase_s - time.time())
            t_ns = time.time_ns()
            if self._load.readings == 1:
                times = [t_ns // 1_000_000]
                device.offer(
                    name,
                    self._load.stream,
                    orjson.dumps(
                        {"t": times[0], "epoch": 1, "seq": seq, "at": t_ns / 1e9, "speed": 50}
                    ),
                )
            else:
                first_ms = begin_ms + (number - 1) * step_ms
                times = [
                    first_ms + step_ms * i // self._load.readings
                    for i in range(self._load.readings)
                ]
                fields = {"speed": [50 + i % 10 for i in range(len(times))]}
                frame = {"epoch": 1, "frame": number, "seq": seq, "t": times, "fields": fields}
                device.offer(
                    name,
                    self._load.stream,
                    orjson.dumps(frame),
                    readings=len(times),
                    content_type=FRAME_TYPE,
                )
            seq += len(times)
            for t in times:
                self.sent[name, t - t % WINDOW_MS] += 1

    def __len__(self) -> int:
        return len(self._devices)

    def given_up(self) -> int:
        """Messages that a device could not send in time."""
        return sum(device.outbox.given_up for device in self._devices.values())


class Stopwatch:
    """When events came."""

    def __init__(self, query: str) -> None:
        """`query`: whose rows are counted."""
        self._query = query
        self.raw_s: list[float] = []
        """Seconds from sending to seeing."""
        self.rows: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        """Device and begin of the window → readings of a row → when it came first; the last row's
        at the end."""

    def on_event(self, _client: str, event: Event) -> None:
        """Take in what the client is shown."""
        if event.name != "message":
            return
        now_s = time.time()
        body = orjson.loads(event.data)
        if body.get("query") == self._query:
            row = self.rows[body["device"], body["window_start"]]
            row[body["readings"]] = row.pop(body["readings"], now_s)
        elif "at" in body:
            self.raw_s.append(now_s - body["at"])

    async def windows_s(self, devices: Devices, first_ms: int, last_ms: int) -> list[float]:
        """Seconds from a window's end to its complete row, of every device's windows that begin in
        this time.

        AssertionError where a device sent nothing in one, one never comes, or the last row of one
        is not right.
        """
        right = {
            (device, start): sent
            for (device, start), sent in devices.sent.items()
            if first_ms <= start < last_ms
        }
        assert len(right) == len(devices) * ((last_ms - first_ms) // WINDOW_MS), (
            "every device sent in every window"
        )
        deadline = time.monotonic() + COME_S
        while missing := {
            place: (list(self.rows[place]), sent)
            for place, sent in right.items()
            if sent not in self.rows[place]
        }:
            assert time.monotonic() < deadline, (
                f"{len(missing)} of {len(right)} rows did not come: {list(missing.items())[:5]}"
            )
            await asyncio.sleep(LOOK_EVERY_S)
        wrong = {
            place: (last, sent)
            for place, sent in right.items()
            if (last := list(self.rows[place])[-1]) != sent
        }
        assert not wrong, f"the last rows have what was sent: {wrong}"
        return [
            self.rows[place][sent] - (place[1] + WINDOW_MS) / 1000 for place, sent in right.items()
        ]


def next_window() -> int:
    """When the next window begins, ms."""
    now_ms = time.time_ns() // 1_000_000
    return now_ms + WINDOW_MS - now_ms % WINDOW_MS


def measure(folder: Path, runs: int, seconds: int) -> Found:
    """Start the system once, measure each run on it."""
    return asyncio.run(_measure(folder, runs, seconds))


async def _measure(folder: Path, runs: int, seconds: int) -> Found:
    found: Found = defaultdict(list)
    async with System(folder, agents=(), stream=LOADS[0].stream, bridges=1, servers=1) as system:
        for load in LOADS:
            system.register(load.query, SQL.format(stream=load.stream))
        await system.start("access-1", "analysis", "sequencer", "bridge-1")
        for load in LOADS:
            await _run(system, load, f"warm-{load.stream}", WARM_UP_S)
            for i in range(runs):
                raw_s, window_s = await _run(system, load, f"{load.stream}-{i}", seconds)
                for percent in (50, 99):
                    if raw_s:
                        _note(found, RAW, percent, RAW, raw_s)
                    name = f"complete window to SSE after its end, {load.per_s:,} readings/s"
                    _note(found, name, percent, "window", window_s)
    return found


def _note(found: Found, name: str, percent: int, kind: str, values_s: list[float]) -> None:
    found[f"latency: {name}, p{percent}", "ms", CEILINGS_MS.get((kind, percent))].append(
        percentile(values_s, percent) * 1000
    )


async def _run(
    system: System, load: Load, name: str, seconds: float
) -> tuple[list[float], list[float]]:
    """Seconds of raw readings, where they are sent one by one, and of every window of every
    device.
    """
    devices = Devices(system.mqtt_port, name, load)
    watch = Stopwatch(load.query)
    raw = [load.stream] if load.readings == 1 else []
    client = Follower("bench", system.servers, [*raw, load.query], watch.on_event, start="latest")
    client.wake()
    sending = asyncio.create_task(devices.run())
    try:
        await system.until(lambda: watch.rows, "first rows", timeout_s=FIRST_S)
        watch.raw_s.clear()
        first_ms = next_window()
        last_ms = first_ms + int(seconds * 1000) // WINDOW_MS * WINDOW_MS
        await asyncio.sleep(last_ms / 1000 + AFTER_S - time.time())
        raw_s = list(watch.raw_s)
        window_s = await watch.windows_s(devices, first_ms, last_ms)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await client.sleep()
    assert devices.given_up() == 0, "no device was too slow"
    return raw_s, window_s


if __name__ == "__main__":
    run(measure, __doc__, sizes={"seconds": 60})
