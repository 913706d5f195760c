"""What the sequencer counts; gathered by Prometheus from metrics_port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.core import Metric

from edgewake.cloud.metrics import Histogram, counter, gauge


@dataclass(slots=True)
class SequencerMetrics:
    """Plain counts; see cloud.metrics."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """passed, repeat, held, released, late, gap, forgotten (see place.py), and foreign: not a record of a bridge."""
    transactions: Counter[str] = field(default_factory=Counter)
    """committed, failed."""
    latency: Histogram = field(default_factory=Histogram)
    """Seconds from the bridge's clock to the commit, of the oldest record in each transaction."""
    held: int = 0
    held_bytes: int = 0
    states: int = 0
    partitions: int = 0

    def gather(self) -> Iterable[Metric]:
        """As Prometheus wants them."""
        yield counter("edgewake_sequencer_records", "Records by outcome", "outcome", self.outcomes)
        yield counter("edgewake_sequencer_transactions", "Transactions by outcome", "outcome", self.transactions)
        yield gauge("edgewake_sequencer_held_frames", "Frames that wait for an earlier one", self.held)
        yield gauge("edgewake_sequencer_held_bytes", "Bytes that wait for an earlier frame", self.held_bytes)
        yield gauge("edgewake_sequencer_states", "Devices, epochs and streams remembered", self.states)
        yield gauge("edgewake_sequencer_partitions", "Partitions of ew.up served by this process", self.partitions)
        yield self.latency.metric("edgewake_sequencer_latency_seconds", "From the bridge to the commit")
