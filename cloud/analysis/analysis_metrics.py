"""The metrics of the analysis' lanes for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.queries.lane_kind import LaneKind


def gather(
    lanes: Mapping[tuple[str, LaneKind], tuple[Counters, bool]], summary: Counters, *, left_out: int
) -> Iterable[Metric]:
    """The analysis' metrics, from the counters of its lanes and of the summaries.

    `lanes`: stream and kind → the lane's counters and whether it runs; `summary`: the counters of
    the minute summaries; `left_out`: number of streams without summaries.
    """
    texts = {
        "batches": "micro-batches committed",
        "readings": "readings computed",
        "results": "records of results written",
        "late": "readings that came after their window was final",
        "flagged": "frames whose event times were corrected",
        "forgotten": "micro-batches after which more was open than is kept",
    }
    places = list(lanes.items())
    counters = [(stream, str(kind), counts) for (stream, kind), (counts, _) in places]
    for name, text in texts.items():
        family = CounterMetricFamily(f"edgewake_analysis_{name}", text, labels=["stream", "lane"])
        for stream, kind, counts in (*counters, ("", "summary", summary)):
            family.add_metric([stream, kind], getattr(counts, name))
        yield family
    yield GaugeMetricFamily(
        "edgewake_analysis_summaries_left_out",
        "streams that cannot be summed up now",
        value=left_out,
    )
    running = GaugeMetricFamily(
        "edgewake_analysis_lane_running", "1 where the lane runs", labels=["stream", "lane"]
    )
    for (stream, kind), (_, runs) in places:
        running.add_metric([stream, kind], float(runs))
    yield running
