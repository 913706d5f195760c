"""Prometheus figures that cost almost nothing where they are counted: plain integers, gathered only when somebody asks.

A Counter of prometheus_client takes a lock and half a microsecond; the hot paths count with `counts[label] += 1` instead.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import orjson
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from edgewake.cloud import process_metrics

LATENCY_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


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


class _Gathered(Collector):
    def __init__(self, gather: Callable[[], Iterable[Metric]]) -> None:
        self._gather = gather

    def collect(self) -> Iterable[Metric]:
        return self._gather()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    """A reader that never reads holds no end up."""


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """A scrape is no event."""


def serve(
    port: int | None,
    gather: Callable[[], Iterable[Metric]],
    *,
    part: str,
    certificates: Sequence[Path | None] = (),
    host: str = "127.0.0.1",
    is_alive: Callable[[], bool] = lambda: True,
    why_not_ready: Callable[[], str] = lambda: "",
) -> None:
    """Answer GET /metrics, /healthz and /readyz on `port` from a thread of its own; nothing where it is None.

    /healthz is 200 while `is_alive`, else 503: the loop that does the work hangs, and only another start helps. /readyz is 200 while
    there is nothing to `why_not_ready`, else 503 with that as `detail`: it works and is behind, or waits for somebody else.
    Raises OSError where the port is in use.
    """
    if port is None:
        return
    registry = CollectorRegistry()
    registry.register(_Gathered(gather))
    process_metrics.register(registry, part, certificates=certificates)
    metrics = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/healthz":
            found = {"status": "ok" if is_alive() else "hangs"}
        elif environ["PATH_INFO"] == "/readyz":
            detail = why_not_ready()
            found = {"status": "not_ready", "detail": detail} if detail else {"status": "ok"}
        else:
            answer: Iterable[bytes] = metrics(environ, start_response)
            return answer
        is_well = found["status"] == "ok"
        start_response("200 OK" if is_well else "503 Service Unavailable", [("Content-Type", "application/json")])
        return [orjson.dumps(found)]

    server = make_server(host, port, app, _Server, _Quiet)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
