"""Makes metrics for Prometheus from the tables at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from edgewake.cloud.ops.tables.devices import DevicePresence
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.protocol.ops.query import Progress, QueryState

PART_STATES: Final = frozenset(
    {
        "starting", "ready", "restarting", "stopped", "failed", "unknown", "not ready", "hangs",
        "silent",
    }
)  # fmt: skip


class TablesCollector(Collector):
    """The tables as metrics."""

    def __init__(self, tables: OpsTables) -> None:
        self._tables = tables

    def collect(self) -> Iterator[Metric]:
        tables = self._tables
        yield _by(
            "edgewake_devices",
            "Devices by presence",
            "state",
            {one.value: tables.devices.presences[one] for one in DevicePresence},
        )
        yield _by(
            "edgewake_parts",
            "Parts by state",
            "state",
            Counter(_state(part.state) for part in tables.parts.values()),
        )
        yield GaugeMetricFamily("edgewake_leases", "Leases of sleeping clients", len(tables.leases))
        yield GaugeMetricFamily("edgewake_streams", "Streams in the catalogue", len(tables.streams))
        progress = {name: p for name, p in tables.progress.items() if name in tables.queries}
        yield _by(
            "edgewake_query_lag_offsets",
            "Offsets not yet computed",
            "query",
            {n: p.lag for n, p in progress.items()},
        )
        computed = {name: _computed(p) for name, p in progress.items()}
        yield _total(
            "edgewake_query_records", "Records computed since it was registered", "query", computed
        )
        yield _total(
            "edgewake_query_late_readings",
            "Readings counted as late",
            "query",
            {n: p.late for n, p in progress.items()},
        )
        shed = {name: p.shed for name, p in progress.items()}
        yield _total(
            "edgewake_query_shed_readings", "Readings left out because it lagged", "query", shed
        )
        yield _states({name: _query_state(tables, name) for name in tables.queries})
        until = {
            name: p.watermark / 1000 for name, p in progress.items() if p.watermark is not None
        }
        yield _by(
            "edgewake_query_watermark_timestamp_seconds",
            "Event time up to which windows are final",
            "query",
            until,
        )
        yield _by(
            "edgewake_query_kept",
            "Share of readings that is computed now",
            "query",
            {n: p.kept for n, p in progress.items()},
        )
        yield _by(
            "edgewake_query_isolated",
            "1 where it is isolated in a lane of its own because it is slow",
            "query",
            {n: p.isolated for n, p in progress.items()},
        )
        yield _by(
            "edgewake_query_stands",
            "1 where its event time is held back",
            "query",
            {n: p.stands for n, p in progress.items()},
        )
        # Each stream and query is one label value, so STREAMS_MAX and QUERIES_MAX bound the series.
        records = {
            name: count for name, count in tables.rates.counts.items() if name in tables.streams
        }
        yield _total(
            "edgewake_stream_records",
            "Records of a stream since this process started",
            "stream",
            records,
        )
        yield CounterMetricFamily(
            "edgewake_ops_dropped_devices",
            "Devices dropped from the full table",
            tables.devices.dropped,
        )
        left_out = tables.requests.left_out
        yield CounterMetricFamily(
            "edgewake_ops_left_out_requests",
            "Requests of devices dropped because too many were open",
            left_out,
        )
        dead = CounterMetricFamily(
            "edgewake_dead_letters", "Dead letters since this process started", labels=["reason"]
        )
        for reason, count in tables.dead.items():
            dead.add_metric([reason], count)
        yield dead
        yield CounterMetricFamily(
            "edgewake_ops_unreadable_records",
            "Records of our own topics that could not be read",
            tables.unreadable,
        )


def _state(state: str) -> str:
    return state if state in PART_STATES else "other"


def _computed(progress: Progress) -> int:
    """Counts records that a query computed; a lower bound if a partition's beginning is unknown."""
    reached = progress.reached.values()
    return sum(
        offset - one.joined_at_offsets.get(partition, 0)
        for one in reached
        for partition, offset in one.offsets.items()
    )


def _query_state(tables: OpsTables, name: str) -> str:
    """Returns the state as `query list` shows it: without reports a query is starting."""
    registration, progress = tables.queries[name], tables.progress.get(name)
    if registration.paused:
        return QueryState.PAUSED
    if progress is None or progress.registered_at not in (None, registration.registered_at):
        return QueryState.STARTING
    return progress.state


def _states(states: Mapping[str, str]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "edgewake_query_state", "1 for the state that a query is in", labels=["query", "state"]
    )
    for query, state in states.items():
        family.add_metric([query, state], 1)
    return family


def _total(name: str, text: str, label: str, values: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _by(name: str, text: str, label: str, values: Mapping[str, float | None]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        if value is not None:
            family.add_metric([key], value)
    return family
