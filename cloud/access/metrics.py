"""What an access server counts, for Prometheus.

Names begin with `edgewake_access_`; labels come from closed lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

TICK_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)


class Total(Collector):
    """A counter kept elsewhere, exported at each scrape."""

    def __init__(self, name: str, text: str, registry: CollectorRegistry) -> None:
        self._name = name
        self._text = text
        self._value = 0
        registry.register(self)

    def set(self, value: int) -> None:
        """Set the value to what was reached."""
        self._value = value

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._text, value=self._value)


class Metrics:
    """One server's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.clients = Gauge("edgewake_access_clients", "Streams open now", registry=self.registry)
        self.sockets = Gauge(
            "edgewake_access_sockets", "WebSockets open now", registry=self.registry
        )
        self.behind = Gauge(
            "edgewake_access_clients_behind", "Open streams that catch up", registry=self.registry
        )
        self.views = Gauge(
            "edgewake_access_views", "Different subscriptions open now", registry=self.registry
        )
        self.followed = Gauge(
            "edgewake_access_followed",
            "Streams and queries read from Kafka",
            registry=self.registry,
        )
        self.tail_bytes = Gauge(
            "edgewake_access_tail_bytes", "Bytes of records kept in memory", registry=self.registry
        )
        self.chunk_bytes = Gauge(
            "edgewake_access_chunk_bytes",
            "Bytes made ready for clients and kept",
            registry=self.registry,
        )
        self.cohorts = Gauge(
            "edgewake_access_cohorts",
            "Different places at which chunks are being made",
            registry=self.registry,
        )
        self.writes = Counter(
            "edgewake_access_writes", "Writes to connections", registry=self.registry
        )
        self.answer_bytes = Gauge(
            "edgewake_access_answer_bytes",
            "Bytes of answers of rows and of pages that are being sent",
            registry=self.registry,
        )
        self.answers_cut = Total(
            "edgewake_access_cut_answers",
            "Answers of rows and pages whose client took too little of them",
            self.registry,
        )
        self.records = Total("edgewake_access_records", "Records read", self.registry)
        self.unreadable = Total(
            "edgewake_access_unreadable_records", "Records that could not be read", self.registry
        )
        self.replayed = Total(
            "edgewake_access_replayed_blocks", "Blocks of older records read", self.registry
        )
        self.started = Counter(
            "edgewake_access_started",
            "Streams opened, by where they began",
            ["how"],
            registry=self.registry,
        )
        self.ended = Counter(
            "edgewake_access_ended", "Streams ended, by reason", ["why"], registry=self.registry
        )
        self.refused = Counter(
            "edgewake_access_refused",
            "Requests refused, by reason",
            ["code"],
            registry=self.registry,
        )
        self.gaps = Counter(
            "edgewake_access_gaps",
            "Cursors that could not be continued exactly, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.slow = Gauge(
            "edgewake_access_slow_clients",
            "Open streams that take less than there is, by what is done about it",
            ["policy"],
            registry=self.registry,
        )
        self.slow_acts = Counter(
            "edgewake_access_slow_acts",
            "Slow streams that something was done about, by what",
            ["policy"],
            registry=self.registry,
        )
        self.superseded = Counter(
            "edgewake_access_superseded",
            "Events that conflation left out, because later ones took their place",
            ["how"],
            registry=self.registry,
        )
        self.sent_bytes = Counter(
            "edgewake_access_sent_bytes", "Bytes of streams written", registry=self.registry
        )
        self.tick = Histogram(
            "edgewake_access_tick_seconds",
            "Longest turn of reading, filtering and writing since the tick before",
            buckets=TICK_BUCKETS_S,
            registry=self.registry,
        )
