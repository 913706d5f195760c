"""Metrics of the machine the agent runs on, by psutil: one reading per interval.

Fields: cpu_percent, memory_percent, memory_used_mib, disk_percent, load_1m, process_count, and
net_sent_bytes_s, net_recv_bytes_s, rates from the counters of two readings (null in the first one,
and after a counter restarted). disk_percent is null while that disk is not there. A thread
measures: a disk that does not answer holds up nothing else.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final, Literal

import psutil

from edgewake.edge.daemon_thread import DaemonThread
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.protocol.clock import Clock
from edgewake.protocol.plain import key

log = logging.getLogger("edgewake.source")

UNITS: Final = {
    "cpu_percent": "%", "memory_percent": "%", "memory_used_mib": "MiB", "disk_percent": "%",
    "net_sent_bytes_s": "B/s", "net_recv_bytes_s": "B/s",
}  # fmt: skip


class HostMetricsConfig(SourceConfig):
    """Metrics of the machine that the agent runs on."""

    type: Literal["host_metrics"]
    interval_s: float = key(default=1.0, ge=0.05, le=3600)
    """Seconds between readings; rates are over this time."""
    disk_path: Path = Path("/")
    """The file system that is measured."""

    def source(self, context: SourceContext) -> HostMetrics:
        return HostMetrics(self, context.clock)


class Rate:
    """A counter's growth per second."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def of(self, count: float, now_s: float) -> float | None:
        """None at first, and where the counter fell or no time passed."""
        last, self._last = self._last, (count, now_s)
        if last is None or count < last[0] or now_s <= last[1]:
            return None
        return round((count - last[0]) / (now_s - last[1]), 1)


class HostMetrics:
    """Reads the machine's figures at each interval."""

    policy = Policy.DROP_NEWEST

    def __init__(self, config: HostMetricsConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._sent, self._received = Rate(), Rate()
        self._disk_is_missing = False

    async def run(self, intake: Intake) -> None:
        intake.note_units(UNITS)
        with DaemonThread("host_metrics") as thread:
            await thread.call(psutil.cpu_percent)  # the first call only begins the interval
            due_s = self._clock.monotonic_s()
            while True:
                due_s = max(due_s + self._config.interval_s, self._clock.monotonic_s())
                await self._clock.sleep(due_s - self._clock.monotonic_s())
                reading = intake.check(await thread.call(self.measure))
                if reading is not None:
                    await intake.put([reading])

    def measure(self) -> dict[str, Any]:
        """Measure one reading."""
        memory = psutil.virtual_memory()
        network = psutil.net_io_counters()
        now_s = self._clock.monotonic_s()
        return {
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": memory.percent,
            "memory_used_mib": round(memory.used / (1 << 20), 1),
            "disk_percent": self._disk_percent(),
            "load_1m": round(os.getloadavg()[0], 2),
            "net_sent_bytes_s": None
            if network is None
            else self._sent.of(network.bytes_sent, now_s),
            "net_recv_bytes_s": None
            if network is None
            else self._received.of(network.bytes_recv, now_s),
            "process_count": len(psutil.pids()),
        }

    def _disk_percent(self) -> float | None:
        try:
            percent: float = psutil.disk_usage(str(self._config.disk_path)).percent
        except OSError as error:
            if not self._disk_is_missing:
                log.warning(
                    "%s cannot be measured: %s",
                    self._config.disk_path,
                    error,
                    extra={"event": "source.disk_missing"},
                )
            self._disk_is_missing = True
            return None
        self._disk_is_missing = False
        return percent
