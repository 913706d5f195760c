"""Resident memory of each part of a running `edgewake up`, its children included (Spark's virtual
machine, for one).

As many starts as runs, on the same data, measured after 20 s with everything at work: this
machine's metrics, twenty vehicles, the built-in queries, and one client on the page's streams.
`python -m tests.bench.bench_memory [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from pathlib import Path

import orjson

from edgewake.simulators.clients import Event, Follower
from tests.bench.figures import Found, rss_mib, run
from tests.services import Process, free_ports
from tests.story.system import until

FLOORS_MIB = {"agent": 32.0}
STREAMS = ("host_metrics", "vehicle_position", "part_status")
UP_S = 600.0
SETTLE_S = 20.0


def measure(folder: Path, runs: int) -> Found:
    """Start, measure, stop; as often as asked."""
    found: Found = defaultdict(list)
    base = free_ports(1)[0]
    for i in range(runs):
        command = [
            sys.executable,
            "-m",
            "edgewake.deploy.cli",
            "up",
            "--data",
            str(folder / "data"),
            "--port-base",
            str(base),
        ]
        with Process(command, folder / f"up-{i}.log") as process:
            for part, mib in asyncio.run(_one(process, base)).items():
                found[f"memory: {part}", "MiB", FLOORS_MIB.get(part)].append(mib)
    return found


async def _one(process: Process, base: int) -> dict[str, float]:
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
    await asyncio.sleep(SETTLE_S)
    found = {part: rss_mib(pid, family=True) for part, pid in sorted(pids.items())}
    found["supervisor"] = rss_mib(process.pid)
    await client.sleep()
    return found


if __name__ == "__main__":
    run(measure, __doc__)
