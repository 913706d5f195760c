"""Resident memory of each part of a running `edgewake up`, its children included (Spark's virtual machine, for one).

`python -m tests.bench.bench_memory [--runs 3] [--seconds 20] [--json FILE]`: as many starts on the same data, measured after so many
seconds with everything at work: this machine's metrics, twenty vehicles, the built-in queries, and one client on the page's streams.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import orjson
import psutil

from simulators.clients import Event, Follower
from tests.services import Process, free_ports
from tests.story.system import until

FLOORS_MIB = {"agent": 45.0}
STREAMS = ("host_metrics", "vehicle_position", "part_status")
UP_S = 600.0


async def measure(folder: Path, runs: int, seconds: float) -> list[dict[str, object]]:
    """Start, measure, stop; as often as asked."""
    found: dict[str, list[float]] = defaultdict(list)
    base = free_ports(1)[0]
    for i in range(runs):
        command = [sys.executable, "-m", "deploy.cli", "up", "--data", str(folder / "data"), "--port-base", str(base)]
        with Process(command, folder / f"up-{i}.log") as process:
            for part, mib in (await _one(process, base, seconds)).items():
                found[part].append(mib)
    return [
        {"name": f"memory: {part}", "value": statistics.median(values), "unit": "MiB", "floor": FLOORS_MIB.get(part), "runs": values}
        for part, values in found.items()
    ]


async def _one(process: Process, base: int, seconds: float) -> dict[str, float]:
    pids: dict[str, int] = {}
    seen: set[str] = set()

    def on_event(_client: str, event: Event) -> None:
        if event.name != "message":
            return
        body = orjson.loads(event.data)
        seen.add(body["stream"])
        if body["stream"] == "part_status" and body["state"] == "ready":
            pids[body["part"]] = int(body["pid"])

    client = Follower("bench", [("127.0.0.1", base)], STREAMS, on_event, start="latest")
    client.wake()

    def is_working() -> bool:
        assert process.is_running(), f"edgewake up ended: {process.output()[-3000:]}"
        return seen == set(STREAMS) and "analysis" in pids

    await until(is_working, "everything is shown", timeout_s=UP_S)
    await asyncio.sleep(seconds)
    found = {part: _rss_mib(pid) for part, pid in sorted(pids.items())}
    found["supervisor"] = psutil.Process(process.pid).memory_info().rss / (1 << 20)
    await client.sleep()
    return found


def _rss_mib(pid: int) -> float:
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return float(sum(member.memory_info().rss for member in family)) / (1 << 20)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder), arguments.runs, arguments.seconds))
    for figure in figures:
        floor = f"   floor {figure['floor']:>9,.0f}" if figure["floor"] else ""
        print(f"{figure['name']:<40} {figure['value']:>10,.1f} {figure['unit']}{floor}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
