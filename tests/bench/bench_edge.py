"""What the whole agent costs per reading, and how long a reading waits: agent process, mTLS, a real
Mosquitto, a cloud that acknowledges.

`python -m tests.bench.bench_edge [--runs 3] [--seconds 20] [--json FILE]`. Readings come as JSON
lines through a pipe, one write per reading, evenly. Host metrics: eight fields, 176 bytes of JSON,
random digits (harder than a real machine's); GPS: four fields that change slowly. CPU and flash are
of the agent's process (user and system time; bytes that it caused to be written to the disk), after
a warm-up. Wire: TCP payload, TLS records and MQTT included, also the answers and the periodic
status, counted by a proxy before the broker; its bound holds for both directions together. Wait:
from the source's call to the moment when the frame with the reading is handed to the uplink, in a
process of its own without the agent around the log, percentile 99. Accepted: readings a second from
the source's call, its check included, until they are durable. A call brings objects as a parser of
JSON makes them: 500, as a document of the HTTP intake or 64 KiB of a pipe do, 20, or 1, which is
also put alone. Completeness: every reading written during the measurement arrived exactly once, or
the run fails.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from edgewake.edge.intake.intake import Intake, LogSink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog, OutFrame
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import SystemClock
from tests.bench.figures import Found, cpu_s, percentile, rss_mib, run
from tests.edge.helpers import frame_of
from tests.edge.mtls import broker_with_mtls, certificates
from tests.edge.peer import Peer

WARM_UP_S = 5.0
SETTLE_S = 2.5
"""Longer than any linger, the deletion of what is acknowledged, and a round trip."""
WAIT_S = 5.0
WAITS_MS = {Lane.URGENT: 20.0, Lane.NORMAL: 250.0, Lane.BULK: 1500.0}
AGENT = """
device = "bench"
data_dir = "{folder}/data"
[mqtt]
host = "localhost"
port = {port}
ca_file = "{folder}/ca.pem"
cert_file = "{folder}/device.pem"
key_file = "{folder}/device.key"
[[source]]
type = "json_lines"
stream = "{stream}"
lane = "{lane}"
"""


def measure(folder: Path, runs: int, seconds: int = 20) -> Found:
    """All figures."""
    found: Found = defaultdict(list)
    for i in range(runs):
        for rate, lane, make in CASES:
            asyncio.run(
                _agent(
                    folder / f"{i}-{rate}-{lane}-{make.__name__}", found, rate, lane, make, seconds
                )
            )
        for name, more, call, floor in ACCEPTED:
            asyncio.run(
                _accept(folder / f"accept-{i}-{len(more)}-{call}", name, more, call, floor, found)
            )
        for lane in Lane:
            _wait(folder / f"wait-{i}-{lane}", lane, found)
    return found


def host_metrics(rng: random.Random, _n: int) -> dict[str, Any]:
    """As the source of that name has them."""
    return {
        "cpu_percent": round(rng.random() * 100, 1),
        "memory_percent": round(40 + rng.random() * 5, 1),
        "memory_used_mib": round(3000 + rng.random() * 100, 1),
        "disk_percent": 41.3,
        "load_1m": round(rng.random() * 2, 2),
        "net_sent_bytes_s": round(rng.random() * 1e5, 1),
        "net_recv_bytes_s": round(rng.random() * 1e5, 1),
        "process_count": rng.randrange(90, 110),
    }


def gps(rng: random.Random, n: int) -> dict[str, Any]:
    """A vehicle."""
    return {
        "lat": round(53.1 + n * 1e-5, 5),
        "lon": round(-6.2 - n * 1e-5, 5),
        "speed_kmh": round(50 + rng.random(), 1),
        "heading": rng.randrange(88, 93),
    }


CASES = (
    (100, Lane.NORMAL, host_metrics),
    (100, Lane.BULK, host_metrics),
    (1000, Lane.NORMAL, host_metrics),
    (100, Lane.NORMAL, gps),
    (100, Lane.BULK, gps),
)


@dataclass
class Wire:
    """Bytes that went by."""

    port: int = 0
    up: int = 0
    down: int = 0


@asynccontextmanager
async def _counting_proxy(target: int) -> AsyncIterator[Wire]:
    wire = Wire()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, upstream = await asyncio.open_connection("127.0.0.1", target)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, name: str) -> None:
            while data := await source.read(65_536):
                setattr(wire, name, getattr(wire, name) + len(data))
                sink.write(data)
            sink.close()

        await asyncio.gather(
            copy(reader, upstream, "up"), copy(answers, writer, "down"), return_exceptions=True
        )

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    async with server:
        yield wire


async def _agent(
    folder: Path,
    found: Found,
    rate: int,
    lane: Lane,
    make: Callable[[random.Random, int], dict[str, Any]],
    seconds: int,
) -> None:
    folder.mkdir(parents=True)
    certificates(folder)
    stream = make.__name__
    with broker_with_mtls(folder) as (port, tls_port):
        async with Peer(port) as peer, _counting_proxy(tls_port) as wire:
            config = folder / "agent.toml"
            config.write_text(
                AGENT.format(folder=folder, port=wire.port, stream=stream, lane=lane), "utf-8"
            )
            agent = subprocess.Popen(
                [sys.executable, "-m", "edgewake.deploy.cli", "agent", "--config", str(config)],
                stdin=subprocess.PIPE,
                stderr=(folder / "agent.log").open("wb"),
            )
            try:
                await _measure(
                    agent,
                    peer,
                    wire,
                    found,
                    f"{make.__name__}, {rate}/s, {lane}",
                    rate,
                    make,
                    stream,
                    seconds,
                )
            finally:
                agent.terminate()
                await asyncio.to_thread(agent.wait, 15)


async def _measure(
    agent: subprocess.Popen[bytes],
    peer: Peer,
    wire: Wire,
    found: Found,
    name: str,
    rate: int,
    make: Callable[[random.Random, int], dict[str, Any]],
    stream: str,
    seconds: int,
) -> None:
    rng = random.Random(3)
    process = psutil.Process(agent.pid)
    sent = 0

    async def feed(count: int) -> None:
        nonlocal sent
        begin_s = time.monotonic()
        for i in range(count):
            assert agent.stdin is not None
            agent.stdin.write(orjson.dumps(make(rng, sent)) + b"\n")
            agent.stdin.flush()
            sent += 1
            await asyncio.sleep(max(0.0, begin_s + (i + 1) / rate - time.monotonic()))

    await feed(1)
    await peer.until(lambda: peer.taken, timeout_s=60)
    await feed(int(WARM_UP_S * rate))
    await asyncio.sleep(SETTLE_S)
    before = (
        cpu_s(agent.pid),
        process.io_counters().write_bytes,
        wire.up,
        wire.down,
        time.monotonic(),
        len(peer.taken),
    )
    await feed(seconds * rate)
    elapsed_s = time.monotonic() - before[4]
    cpu = cpu_s(agent.pid) - before[0]
    await asyncio.sleep(SETTLE_S)
    count = seconds * rate
    await peer.until(lambda: sum(len(taken.frame.t) for taken in peer.taken) >= sent, timeout_s=60)
    assert len(peer.kept.readings("bench", stream)) == sent, "not each reading exactly once"
    payload = len(orjson.dumps(make(rng, sent)))
    ceilings = (
        2.0,
        1024.0 if rate == 100 else 3.0 * payload,
        (25.0 if make is host_metrics else 15.0) if rate == 100 else None,
    )
    found[f"edge: CPU, {name}", "% of a core", ceilings[0] if rate == 100 else None].append(
        100 * cpu / elapsed_s
    )
    found[f"edge: flash, {name}", "bytes/reading", ceilings[1]].append(
        (process.io_counters().write_bytes - before[1]) / count
    )
    up, down = wire.up - before[2], wire.down - before[3]
    found[f"edge: wire, both ways, {name}", "bytes/reading", ceilings[2]].append(
        (up + down) / count
    )
    found[f"edge: wire up, {name}", "bytes/reading", None].append(up / count)
    found[f"edge: wire down, {name}", "bytes/reading", None].append(down / count)
    found[f"edge: readings per frame, {name}", "readings", None].append(
        count / max(1, len(peer.taken) - before[5])
    )
    found[f"edge: memory, mTLS, {name}", "MiB", 32.0 if rate == 100 else None].append(
        rss_mib(agent.pid)
    )


ACCEPTED: tuple[tuple[str, dict[str, Any], int, float | None], ...] = (
    ("numbers", {}, 500, 600_000.0),
    ("with a string", {"state": "driving"}, 500, 300_000.0),
    ("numbers, 20 a call", {}, 20, None),
    ("with a string, 20 a call", {"state": "driving"}, 20, None),
    ("numbers, 1 a call", {}, 1, None),
)
"""What is offered, how many readings by one call of the source, and the goal."""
ACCEPT_READINGS = 600_000


async def _accept(
    folder: Path, name: str, more: dict[str, Any], call: int, floor: float | None, found: Found
) -> None:
    """From the source's call, the check included, until the last reading is durable."""
    bodies = [
        {"t": 1_790_000_000_000 + i, "speed": i * 0.25, "lat": 53.1 + i * 1e-6, "battery": i % 100}
        | more
        for i in range(1000)
    ]
    log_config = LogConfig(queue_readings_max=50_000, quota_bytes=1 << 30)
    with EventLog(
        folder,
        log_config,
        UplinkConfig(),
        clock=SystemClock(),
        rng=random.Random(1),
        on_frames=lambda _: None,
    ) as events:
        intake = Intake("bench", LogSink(events.stream("s")), Policy.BLOCK, SystemClock())
        begin_s = time.perf_counter()
        for first in range(0, ACCEPT_READINGS, call):
            start = first % 1000
            await intake.put(intake.check_all(bodies[start : start + call]))
        await intake.durable()
        rate = ACCEPT_READINGS / (time.perf_counter() - begin_s)
    found[f"edge: accepted durably, check included, {name}", "readings/s", floor].append(rate)


def _wait(folder: Path, lane: Lane, found: Found) -> None:
    """100 readings a second for WAIT_S: from the call to the hand-over of the frame."""
    called: dict[int, float] = {}
    waits: list[float] = []

    def on_frames(frames: Any) -> None:
        now_s = time.perf_counter()
        for out in frames:
            assert isinstance(out, OutFrame)
            waits.extend(now_s - called[n] for n in frame_of(out).fields["n"])  # type: ignore[index]
            events.free(out.key)

    events = EventLog(
        folder,
        LogConfig(),
        UplinkConfig(),
        clock=SystemClock(),
        rng=random.Random(1),
        on_frames=on_frames,
        lanes={"s": lane},
    )
    with events:
        events.start_sending()
        log = events.stream("s")
        count = int(WAIT_S * 100)
        begin_s = time.perf_counter()
        for n in range(count):
            called[n] = time.perf_counter()
            log.append((1_790_000_000_000 + n, {"n": n}))
            time.sleep(max(0.0, begin_s + (n + 1) / 100 - time.perf_counter()))
        deadline_s = time.perf_counter() + 20
        while len(waits) < count and time.perf_counter() < deadline_s:
            time.sleep(0.01)
    assert len(waits) == count, "not each reading once"
    found[f"edge: accept to may be sent, p99, {lane}", "ms", WAITS_MS[lane]].append(
        percentile(waits, 99) * 1000
    )


if __name__ == "__main__":
    run(measure, __doc__, sizes={"seconds": 20})
