"""Prometheus figures that cost almost nothing: plain integers, gathered when somebody asks.

A Counter of prometheus_client takes a lock and half a microsecond; the hot paths count with
`counts[label] += 1` instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

LATENCY_BOUNDS_S: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)


class Histogram:
    """Counts of values up to each bound, in seconds."""

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def metric(self, name: str, text: str) -> Metric:
        """As Prometheus wants it: cumulative."""
        total = 0
        buckets = []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self._sum)


def counter(name: str, text: str, label: str, counts: dict[str, int]) -> Metric:
    """A counter with one label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in list(counts.items()):
        family.add_metric([value], count)
    return family


def gauge(name: str, text: str, value: float) -> Metric:
    """A gauge without labels."""
    return GaugeMetricFamily(name, text, value=value)


def gauges(name: str, text: str, label: str, values: Mapping[object, float]) -> Metric:
    """A gauge with one label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, figure in list(values.items()):
        family.add_metric([str(value)], figure)
    return family
