"""Metrics of every process: its version, its uptime, and when its certificates expire."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from edgewake.protocol.clock import Clock, SystemClock

VERSION: Final = metadata.version("edgewake")


def register(
    registry: CollectorRegistry,
    part: str,
    *,
    certificates: Sequence[Path | None] = (),
    clock: Clock | None = None,
) -> None:
    """Adds metrics of the process: build, uptime, and when `certificates` expire.

    `part` is e.g. bridge.
    """
    registry.register(_Own(part, certificates, clock or SystemClock()))
    ProcessCollector(registry=registry)


class _Own(Collector):
    def __init__(self, part: str, certificates: Sequence[Path | None], clock: Clock) -> None:
        self._part = part
        self._certificates = [file for file in certificates if file is not None]
        self._clock = clock
        self._began_s = clock.monotonic_s()

    def collect(self) -> Iterator[Metric]:
        labels = {"part": self._part, "version": VERSION, "python": platform.python_version()}
        build = GaugeMetricFamily("edgewake_build_info", "1; what runs", labels=list(labels))
        build.add_metric(list(labels.values()), 1)
        yield build
        uptime = self._clock.monotonic_s() - self._began_s
        yield GaugeMetricFamily("edgewake_uptime_seconds", "Since the part started", value=uptime)
        if self._certificates:
            yield self._ends()

    def _ends(self) -> Metric:
        """Read at each scrape, since a renewed certificate lies in the same file."""
        family = GaugeMetricFamily(
            "edgewake_certificate_end_timestamp_seconds",
            "Since 1970, when the first certificate in a file ends; 0 where it cannot be read",
            labels=["file"],
        )
        for file in self._certificates:
            family.add_metric([file.name], first_end_s(file))
        return family


def first_end_s(file: Path) -> float:
    """When the first certificate in a PEM file ends, in seconds since 1970; 0 if unreadable."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(file.read_bytes())
        return min(one.not_valid_after_utc.timestamp() for one in found)
    except (OSError, ValueError):
        return 0.0
