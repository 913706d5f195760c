"""The table of all benchmarks."""

from __future__ import annotations

from tests.bench import report
from tests.bench.report import Figure


def test_a_figure_is_read_from_a_benchmark_s_json() -> None:
    row = {"name": "log", "value": 412_000, "unit": "readings/s", "floor": 300_000, "runs": [400_000, 412_000, 420_000]}
    assert report.figure("log", row) == Figure("log", "log", 412_000.0, "readings/s", 300_000, None, [400_000, 412_000, 420_000])


def test_a_floor_is_a_ceiling_where_less_is_better() -> None:
    assert Figure("b", "n", 2.0, "readings/s", 1.0).met
    assert not Figure("b", "n", 2.0, "MiB", 1.0).met
    assert Figure("b", "n", 0.9, "ms", 1.0).met


def test_what_misses_its_floor_is_said_in_both_tables() -> None:
    figures = [Figure("sse", "p99", 200.0, "ms", 150.0, "nchan 1", [190.0, 200.0, 210.0]), Figure("sse", "other", 12_345.6, "events/s")]
    text = report.markdown(figures, {"CPU": "2 cores"}, {"sse": "2026-11-21 10:00 UTC"})
    assert "| p99 | 200.0 | ms | ≤ 150.0 | 190.0 – 210.0 | nchan 1 | missed |" in text
    assert "| other | 12,346 | events/s |  |  |  |  |" in text
    assert "Measured 2026-11-21 10:00 UTC." in text
    assert "`analysis` has no figures" in text
    assert "missed" in report.table(figures)


def test_a_section_says_how_it_was_measured_and_what_limits_it() -> None:
    text = report.markdown([Figure("push", "p99", 200.0, "ms")], {"CPU": "2 cores"}, {"push": "2026-11-21 10:00 UTC"})
    assert "each client must be woken exactly as its policy says" in text
    assert "python -m tests.bench.bench_push" not in text
    assert report.limits("push") in text
    assert len(report.limits("push")) > 100


def test_the_machine_and_the_versions_are_named() -> None:
    where = report.machine()
    assert where["date"].endswith("UTC")
    assert all(where.values())
