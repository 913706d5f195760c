"""What a small system costs: `edgewake up` with this machine's metrics, twenty vehicles and the
built-in queries, minute after minute.

`python -m tests.bench.bench_idle [--minutes 15] [--json FILE]`. Processor time is taken over the
last third of the minutes, when the JVM has compiled what it runs. Latency is from a window's end to
the arrival of its last row at a client, for every window and vehicle that ended in that time;
negative where a vehicle's last reading came before the end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from pathlib import Path

import orjson
import psutil

from edgewake.simulators.clients import Event, Follower
from tests.bench.figures import Found, percentile, rss_mib, run
from tests.services import Process, free_ports
from tests.story.system import until

QUERY = "vehicles_10s"
UP_S = 600.0
SETTLED_MS = 5_000
"""A window counts when it ended so long before the end of the measurement: its last row has
come."""


class Watch:
    """What a client sees: process ids of the parts, and when the last row of each window came."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.rows: dict[tuple[int, str], int] = {}
        """(end of window, device) → arrival of its latest row, ms."""

    def on_event(self, _client: str, event: Event) -> None:
        if event.name != "message":
            return
        body = orjson.loads(event.data)
        if body.get("stream") == "part_status":
            if body["state"] == "ready":
                self.pids[body["part"]] = int(body["pid"])
        elif "window_end" in body:
            self.rows[body["window_end"], body["device"]] = time.time_ns() // 1_000_000


def measure(folder: Path, runs: int, minutes: int) -> Found:
    """Start, let it run, measure, stop.

    Once: it takes its time, and within it thousands of batches are the many runs.
    """
    found: Found = defaultdict(list)
    for i in range(min(runs, 1)):
        base, data = free_ports(1)[0], folder / f"data-{i}"
        command = [
            sys.executable,
            "-m",
            "edgewake.deploy.cli",
            "up",
            "--data",
            str(data),
            "--port-base",
            str(base),
        ]
        with Process(command, folder / f"up-{i}.log") as process:
            asyncio.run(_one(process, base, data, minutes * 60, found))
    return found


async def _one(process: Process, base: int, data: Path, seconds: float, found: Found) -> None:
    watch = Watch()
    client = Follower(
        "bench", [("127.0.0.1", base)], ("part_status", QUERY), watch.on_event, start="latest"
    )
    client.wake()

    def is_working() -> bool:
        assert process.is_running(), f"edgewake up ended: {process.output()[-3000:]}"
        return {"analysis", "kafka"} <= set(watch.pids) and bool(watch.rows)

    await until(is_working, "results of the analysis", timeout_s=UP_S)
    await asyncio.sleep(seconds * 2 / 3)
    names = ("analysis", "kafka")
    before, began_s, began_ms = (
        [_cpu_s(watch.pids[name]) for name in names],
        time.monotonic(),
        time.time_ns() // 1_000_000,
    )
    await asyncio.sleep(seconds / 3)
    took_s, now_ms = time.monotonic() - began_s, time.time_ns() // 1_000_000
    analysis, kafka = (
        (_cpu_s(watch.pids[name]) - used) / took_s for name, used in zip(names, before, strict=True)
    )
    delays = [
        at - end for (end, _), at in watch.rows.items() if began_ms < end < now_ms - SETTLED_MS
    ]
    jvm = next(
        child
        for child in psutil.Process(watch.pids["analysis"]).children()
        if "java" in child.name()
    )
    found["idle: analysis, all of it", "cores", 0.2].append(analysis)
    found["idle: Kafka", "cores", 0.1].append(kafka)
    found["idle: driver's JVM, resident", "MiB", 700.0].append(rss_mib(jvm.pid))
    found["idle: files of checkpoints and lake", "files", None].append(_files(data / "analysis"))
    found["idle: result after its window's end, p50", "ms", 1000.0].append(percentile(delays, 50))
    found["idle: result after its window's end, p99", "ms", None].append(percentile(delays, 99))
    found["idle: windows that ended in that time", "windows", None].append(len(delays))
    await client.sleep()


def _cpu_s(pid: int) -> float:
    """Of a process and its children, the ended ones too."""
    total = 0.0
    for process in (psutil.Process(pid), *psutil.Process(pid).children()):
        times = process.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _files(folder: Path) -> int:
    return sum(
        1
        for name in ("checkpoints", "lake")
        for path in (folder / name).rglob("*")
        if path.is_file()
    )


if __name__ == "__main__":
    run(measure, __doc__, sizes={"minutes": 15})
