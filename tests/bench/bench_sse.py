"""How many events a second an access server delivers to 1000 clients, how old they are on arrival, and what it costs in memory.

Kafka, the server, the clients and the writer share the machine. The rival is sse-starlette, event by event, with the same clients and
events in the same run. `python -m tests.bench.bench_sse [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bench.figures import Found, cpu_s, rss_mib, run
from tests.services import Process, free_ports, part, port_is_open, run_kafka, wait_until

CLIENTS = 1000
SECONDS = 8.0
CALM, BUSY = 400, 1200
"""Events a second that are written: an ordinary load for the latency, and one past the floor for the throughput."""
RIVAL_RATE = 100
"""More than the rival can deliver to all, so that its limit shows."""
STREAM = "bench_sse"
FLOOR, RSS_MIB_MAX = 500_000, 150


def measure(folder: Path, runs: int, *, theirs: dict[str, list[float]]) -> Found:
    """Start what is needed, run, and stop it again. `theirs`: name → what the rival did in each run."""
    ours: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        topic_admin.ensure_topics(KafkaConfig(bootstrap=node.bootstrap), [topics.stream_topic(STREAM)])
        for i in range(runs):
            _measure_ours(folder / f"run-{i}", node.bootstrap, ours)
            _measure_rival(folder / f"run-{i}", node.bootstrap, theirs)
    return ours


THROUGHPUT = "deliveries to 1000 clients"
MEMORY = "server's memory with 1000 clients"
CPU = "processor time of a delivery"


def _measure_ours(folder: Path, bootstrap: str, found: Found) -> None:
    with _access(folder, bootstrap) as (process, port):
        path = f"/v1/streams/{STREAM}/events"
        with _writing(bootstrap, folder, BUSY):
            busy = _read(port, path, process.pid)
            found[THROUGHPUT, "deliveries/s", FLOOR].append(busy["deliveries_per_s"])
            found[CPU, "µs", None].append(busy["cpu_us"])
            found[f"age on arrival, {BUSY} events/s, p50", "ms", None].append(busy["p50_ms"])
            found[f"age on arrival, {BUSY} events/s, p99", "ms", None].append(busy["p99_ms"])
            found[MEMORY, "MiB", RSS_MIB_MAX].append(busy["rss_mib"])
        with _writing(bootstrap, folder, CALM):
            calm = _read(port, path, process.pid)
            found[f"age on arrival, {CALM} events/s, p50", "ms", None].append(calm["p50_ms"])
            found[f"age on arrival, {CALM} events/s, p99", "ms", None].append(calm["p99_ms"])


def _measure_rival(folder: Path, bootstrap: str, found: dict[str, list[float]]) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.bench.sse_rival", bootstrap, topics.stream_topic(STREAM), str(port)]
    with Process(command, folder / "rival.log") as process:
        wait_until(lambda: port_is_open(port), "the rival serves")
        with _writing(bootstrap, folder, RIVAL_RATE):
            figures = _read(port, "/events", process.pid)
            found[THROUGHPUT].append(figures["deliveries_per_s"])
            found[CPU].append(figures["cpu_us"])
            found[MEMORY].append(figures["rss_mib"])


@contextlib.contextmanager
def _access(folder: Path, bootstrap: str) -> Iterator[tuple[Process, int]]:
    (port,) = free_ports(1)
    folder.mkdir(parents=True)
    config = folder / "access.toml"
    config.write_text(f'port = {port}\n[kafka]\nbootstrap = "{bootstrap}"\n')
    with part("access", config, folder / "access.log") as process:
        process.wait_for('"part.ready"')
        yield process, port


@contextlib.contextmanager
def _writing(bootstrap: str, folder: Path, rate: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.bench.sse_writer", bootstrap, STREAM, str(rate)]
    with Process(command, folder / f"writer-{rate}.log") as writer:
        writer.wait_for("writing")
        yield


def _read(port: int, path: str, pid: int) -> dict[str, float]:
    """Connect all clients, let things settle, measure for SECONDS, and look at the server's memory meanwhile."""
    command = [sys.executable, "-m", "tests.bench.sse_clients", str(port), path, str(CLIENTS), str(SECONDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        assert clients.stdout.readline() == "connected\n"
        time.sleep(2)  # a steady state is what is measured
        used = cpu_s(pid)
        clients.stdin.write("go\n")
        clients.stdin.flush()
        time.sleep(SECONDS / 2)
        resident_mib = rss_mib(pid)
        figures: dict[str, float] = json.loads(clients.stdout.readline())
        used = cpu_s(pid) - used
        assert figures["deliveries_per_s"] > 0, "nothing was delivered"
    return {**figures, "rss_mib": resident_mib, "cpu_us": used / max(1, figures["deliveries_per_s"] * SECONDS) * 1e6}


if __name__ == "__main__":
    theirs: dict[str, list[float]] = defaultdict(list)
    run(partial(measure, theirs=theirs), __doc__, theirs)
