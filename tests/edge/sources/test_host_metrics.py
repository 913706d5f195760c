"""The machine's own metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.edge.sources.host_metrics import HostMetrics, HostMetricsConfig, Rate
from edgewake.protocol.clock import FakeClock

FIELDS = {"cpu_percent", "memory_percent", "memory_used_mib", "disk_percent", "load_1m", "process_count"}
RATES = {"net_sent_bytes_s", "net_recv_bytes_s"}


def test_a_reading_has_every_field_and_sane_values() -> None:
    clock = FakeClock()
    source = HostMetrics(HostMetricsConfig(type="host_metrics", stream="s", disk_path=Path("/")), clock)
    source.measure()
    clock.advance(1)
    reading = source.measure()
    assert set(reading) == FIELDS | RATES
    assert 0 < reading["memory_percent"] < 100
    assert reading["process_count"] >= 1
    assert reading["net_sent_bytes_s"] >= 0


def test_a_rate_needs_two_counts_and_is_unknown_after_the_counter_began_anew() -> None:
    rate = Rate()
    assert [rate.of(100, 0), rate.of(300, 2), rate.of(50, 3), rate.of(60, 4), rate.of(60, 4)] == [None, 100, None, 10, None]


def test_a_disk_that_is_not_there_costs_its_own_field_only(caplog: pytest.LogCaptureFixture) -> None:
    source = HostMetrics(HostMetricsConfig(type="host_metrics", stream="s", disk_path=Path("/mnt/not-there")), FakeClock())
    first, second = source.measure(), source.measure()
    assert first["disk_percent"] is second["disk_percent"] is None
    assert first["memory_percent"] > 0
    assert caplog.text.count("cannot be measured") == 1, "said once"
