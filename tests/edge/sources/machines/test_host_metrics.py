"""The machine's own metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.edge.sources.machines.host_metrics import HostMetrics, HostMetricsConfig, Rate
from edgewake.protocol.clock import FakeClock
from tests.edge.sources.sink import running
from tests.edge.sources.web.test_http_poll_odd import Patient

FIELDS = {
    "cpu_percent",
    "memory_percent",
    "memory_used_mib",
    "disk_percent",
    "load_1m",
    "process_count",
}
RATES = {"net_sent_bytes_s", "net_recv_bytes_s"}


def test_a_reading_has_every_field_and_sane_values() -> None:
    clock = FakeClock()
    source = HostMetrics(
        HostMetricsConfig(type="host_metrics", stream="s", disk_path=Path("/")), clock
    )
    source.measure()
    clock.advance(1)
    reading = source.measure()
    assert set(reading) == FIELDS | RATES
    assert 0 < reading["memory_percent"] < 100
    assert reading["process_count"] >= 1
    assert reading["net_sent_bytes_s"] >= 0


def test_a_rate_needs_two_counts_and_is_unknown_after_the_counter_began_anew() -> None:
    rate = Rate()
    assert [rate.of(100, 0), rate.of(300, 2), rate.of(50, 3), rate.of(60, 4), rate.of(60, 4)] == [
        None,
        100,
        None,
        10,
        None,
    ]


def test_a_disk_that_is_not_there_costs_its_own_field_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = HostMetrics(
        HostMetricsConfig(type="host_metrics", stream="s", disk_path=Path("/mnt/not-there")),
        FakeClock(),
    )
    first, second = source.measure(), source.measure()
    assert first["disk_percent"] is second["disk_percent"] is None
    assert first["memory_percent"] > 0
    assert caplog.text.count("cannot be measured") == 1, "said once"


@pytest.mark.parametrize(
    ("counts", "rates"),
    [
        (((0, 0), (0, 1)), [None, 0.0]),
        (((10, 0), (10, 0)), [None, None]),
        (((10, 1), (20, 0.5)), [None, None]),
        (((10, 0), (9, 1), (19, 2)), [None, None, 10.0]),
        (((0, 0), (1, 3)), [None, 0.3]),
        (((0, 0), (2**63, 1)), [None, float(2**63)]),
    ],
    ids=[
        "nothing was counted",
        "no time passed",
        "time went back",
        "the counter began anew",
        "rounded",
        "a huge count",
    ],
)
def test_a_rate_is_never_a_guess(
    counts: tuple[tuple[float, float], ...], rates: list[float | None]
) -> None:
    rate = Rate()
    assert [rate.of(count, now_s) for count, now_s in counts] == rates


async def test_readings_keep_their_interval_and_those_that_are_overdue_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Patient()
    takes_s = iter([0.0, 0.25, 5.0, 0.0])

    def measure(_self: HostMetrics) -> dict[str, object]:
        clock.advance(next(takes_s))
        return {"n": 1}

    monkeypatch.setattr(HostMetrics, "measure", measure)
    async with running(
        HostMetrics(HostMetricsConfig(type="host_metrics", stream="s"), clock)
    ) as one:
        for number in range(1, 5):
            await one.until(lambda number=number: len(clock.slept) == number)
            clock.go.release()
        await one.until(lambda: len(one.sink.readings) == 4)
    assert clock.slept[:4] == [1.0, 1.0, 0.75, 0.0]
