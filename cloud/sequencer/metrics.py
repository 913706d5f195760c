"""What the sequencer counts; gathered by Prometheus from metrics_port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import Metric

from edgewake.cloud.metrics import Histogram, counter, gauge, gauges
from edgewake.cloud.sequencer.lag import Lag


@dataclass(slots=True)
class SequencerMetrics:
    """Plain counts; see cloud.metrics."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """passed, repeat, held, released, late, opened, unknown, gap, restarted, forgotten
    (frame_order); foreign: not a record of a bridge; overtaken: records that Kafka deleted before
    they were read."""
    transactions: Counter[str] = field(default_factory=Counter)
    """committed, failed."""
    latency: Histogram = field(default_factory=Histogram)
    """Seconds from the bridge's clock to the commit, of the oldest record in each turn."""
    held: int = 0
    held_bytes: int = 0
    open_holes: int = 0
    states: int = 0
    states_bytes: int = 0
    shards: int = 0
    ready: bool = False
    lags: Mapping[int, Lag] = field(default_factory=dict)

    @property
    def lag_records(self) -> int:
        """Records that wait, in all."""
        return sum(lag.records for lag in self.lags.values())

    @property
    def lag_s(self) -> float:
        """Seconds behind, of the partition that is behind most."""
        return max((lag.seconds for lag in self.lags.values()), default=0.0)

    def gather(self) -> Iterable[Metric]:
        """The metrics in Prometheus' form."""
        yield counter("edgewake_sequencer_records", "Records by outcome", "outcome", self.outcomes)
        yield counter(
            "edgewake_sequencer_transactions",
            "Transactions by outcome",
            "outcome",
            self.transactions,
        )
        yield gauge(
            "edgewake_sequencer_held_frames", "Frames that wait for an earlier one", self.held
        )
        yield gauge(
            "edgewake_sequencer_held_bytes", "Bytes that wait for an earlier frame", self.held_bytes
        )
        yield gauge(
            "edgewake_sequencer_open_holes", "Holes that may still be filled", self.open_holes
        )
        yield gauge(
            "edgewake_sequencer_states", "Devices, epochs and streams remembered", self.states
        )
        yield gauge(
            "edgewake_sequencer_states_bytes", "Memory of what is remembered", self.states_bytes
        )
        yield gauge(
            "edgewake_sequencer_shards", "Shards served by this process; 16 in all", self.shards
        )
        yield gauge(
            "edgewake_sequencer_ready",
            "1: serves all its shards and is at most 10 s behind",
            self.ready,
        )
        yield gauge(
            "edgewake_sequencer_lag_records", "Records of ew.up that wait, in all", self.lag_records
        )
        yield gauge(
            "edgewake_sequencer_lag_seconds",
            "Seconds behind, of the partition that is behind most",
            self.lag_s,
        )
        lags = sorted(self.lags.items())
        yield gauges(
            "edgewake_sequencer_partition_lag_records",
            "Records that wait",
            "partition",
            {p: lag.records for p, lag in lags},
        )
        yield gauges(
            "edgewake_sequencer_partition_lag_seconds",
            "Seconds behind",
            "partition",
            {p: lag.seconds for p, lag in lags},
        )
        yield self.latency.metric(
            "edgewake_sequencer_latency_seconds", "From the bridge to the commit"
        )
