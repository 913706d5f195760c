"""What each query of a lane costs in the driver."""

from __future__ import annotations

from edgewake.cloud.analysis.results.meter import Meter


def test_what_is_done_for_a_query_counts_for_it_until_it_is_asked() -> None:
    now = [0.0]
    meter = Meter(lambda: now[0])

    def work(seconds: float) -> None:
        now[0] += seconds

    for _ in meter.of("a", range(3)):
        work(1)
    work(100)
    meter.run("b", lambda: work(2))
    meter.run("a", lambda: work(0.5))
    assert meter.taken() == {"a": 3.5, "b": 2.0}
    assert meter.taken() == {}
