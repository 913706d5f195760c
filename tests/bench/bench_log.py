"""How fast the agent's event log accepts, frames and frees, what it costs, and how much memory the
whole agent takes.

Alone on the machine. `python -m tests.bench.bench_log [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import contextlib
import gc
import random
import time
from collections import defaultdict
from pathlib import Path

import psutil

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog, LogBusyError, OutFrame, StreamLog
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import SystemClock
from tests.bench.figures import Found, percentile, run
from tests.services import part, run_mosquitto, wait_until

READINGS = 1_000_000
CHECKED = 200_000
LONE = 200
SETTLE_S = 5.0
READY = '"event":"part.ready"'
AGENT = """
device = "bench"
data_dir = "{folder}/agent"
[mqtt]
port = {port}
[[source]]
type = "host_metrics"
stream = "host_metrics"
"""


def measure(folder: Path, runs: int) -> Found:
    """All figures, as medians."""
    found: Found = defaultdict(list)
    readings = _readings()
    for i in range(runs):
        _accept(folder / f"accept-{i}", readings, found)
        _lone(folder / f"lone-{i}", readings, found)
        _check(readings, found)
        found["agent resident memory", "MiB", None].append(_agent_mib(folder / f"agent-{i}"))
    return found


def _readings() -> list[Reading]:
    rng = random.Random(1)
    return [
        (
            1_790_000_000_000 + i,
            {
                "speed": round(rng.random() * 100, 2),
                "lat": 53.1 + i * 1e-6,
                "lon": -6.2 - i * 1e-6,
                "battery": i % 100,
            },
        )
        for i in range(1000)
    ]


def _open(folder: Path, frames: list[OutFrame]) -> EventLog:
    config = LogConfig(linger_ms=2, queue_readings_max=50_000, quota_bytes=1 << 30)
    return EventLog(
        folder,
        config,
        UplinkConfig(),
        clock=SystemClock(),
        rng=random.Random(1),
        on_frames=frames.extend,
    )


def _accept(folder: Path, readings: list[Reading], found: Found) -> None:
    """A call per reading, until all are durable; then everything is framed, handed over and
    freed.
    """
    frames: list[OutFrame] = []
    gc.collect()
    with _open(folder, frames) as events:
        log = events.stream("vehicle_position")
        wall, cpu = time.perf_counter(), time.process_time()
        ticket = _append_all(log, readings)
        assert log.wait_accepted(ticket, timeout_s=60)
        found["log: readings accepted", "readings/s", 300_000].append(
            READINGS / (time.perf_counter() - wall)
        )
        found["log: CPU per reading", "us", None].append(
            (time.process_time() - cpu) / READINGS * 1e6
        )
        wall = time.perf_counter()
        events.start_sending()
        sent = 0
        while sent < READINGS:
            if not frames:
                time.sleep(0.0005)
                continue
            out = frames.pop(0)
            sent += out.count
            events.free(out.key)
        found["log: readings framed, handed over and freed", "readings/s", None].append(
            READINGS / (time.perf_counter() - wall)
        )
    other = folder.with_name(f"{folder.name}-kept")
    with _open(other, frames) as events:
        log = events.stream("vehicle_position")
        log.wait_accepted(_append_all(log, readings), timeout_s=60)
        events.close()
        found["log: bytes per reading on disk", "bytes", None].append(
            (other / "events.db").stat().st_size / READINGS
        )


def _append_all(log: StreamLog, readings: list[Reading]) -> int:
    append = log.append
    ticket = 0
    for i in range(READINGS):
        try:
            ticket = append(readings[i % 1000])
        except LogBusyError:
            log.wait_for_room(timeout_s=10)
            ticket = append(readings[i % 1000])
    return ticket


def _lone(folder: Path, readings: list[Reading], found: Found) -> None:
    """From `append` of one reading on an idle log until its frame may be sent."""
    frames: list[OutFrame] = []
    times = []
    with _open(folder, frames) as events:
        log = events.stream("vehicle_position")
        events.start_sending()
        before = _written_bytes()
        for i in range(LONE):
            began = time.perf_counter()
            log.append(readings[i])
            while not frames:
                time.sleep(0.0002)
            times.append((time.perf_counter() - began) * 1000)
            events.free(frames.pop().key)
        found["log: flash written per lone reading", "bytes", None].append(
            (_written_bytes() - before) / LONE
        )
    for percent in (50, 99):
        found[f"log: lone reading until it may be sent, p{percent}", "ms", None].append(
            percentile(times, percent)
        )


def _written_bytes() -> int:
    """What this process gave to the disk, in whole pages."""
    found: int = psutil.Process().io_counters().write_bytes
    return found


def _check(readings: list[Reading], found: Found) -> None:
    """The border alone."""
    intake = Intake("bench", None, Policy.BLOCK, SystemClock())  # type: ignore[arg-type]
    bodies = [{"t": t, **fields} for t, fields in readings]
    wall = time.perf_counter()
    for i in range(CHECKED):
        intake.check(bodies[i % 1000])
    found["intake: readings checked", "readings/s", None].append(
        CHECKED / (time.perf_counter() - wall)
    )


def _agent_mib(folder: Path) -> float:
    """Host metrics once a second, sent to a broker; the larger of what is seen while it settles."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(run_mosquitto(folder / "mosquitto"))
        config = folder / "agent.toml"
        config.write_text(AGENT.format(folder=folder, port=broker.port))
        agent = stack.enter_context(part("agent", config, folder / "agent.log"))
        wait_until(lambda: READY in agent.output(), "the agent serves")
        seen = [0.0]
        process = psutil.Process(agent.pid)
        until = time.monotonic() + SETTLE_S

        def settled() -> bool:
            seen[0] = max(seen[0], process.memory_info().rss / (1 << 20))
            return time.monotonic() >= until

        wait_until(settled, "settled")
        return seen[0]


if __name__ == "__main__":
    run(measure, __doc__)
