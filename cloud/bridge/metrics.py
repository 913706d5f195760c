"""What the bridge counts; gathered by Prometheus from metrics_port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, Metric

from edgewake.cloud.metrics import Histogram, counter, gauge


@dataclass(slots=True)
class BridgeMetrics:
    """Plain counts; see cloud.metrics."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """acked: in Kafka and answered; dead: refused and kept as a dead letter; status: a device's
    status; left_out: one in which nothing was new, or of too many of a device; counted: refused, of
    a device with more dead letters than one may have."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Refusals by RejectReason."""
    later: Counter[str] = field(default_factory=Counter)
    """Messages not accepted now, by LaterReason."""
    mapped: Counter[str] = field(default_factory=Counter)
    """Messages on topics of maps: mapped, with what was refused of them; ignored, as a map says; or
    kept, of which the broker had the last one since before."""
    http: Counter[str] = field(default_factory=Counter)
    """Requests by outcome: taken, partial (some of it was refused), refused, quota, unavailable
    (come again), denied (no token), asked (is somebody there?)."""
    sparkplug: Counter[str] = field(default_factory=Counter)
    """Events of Sparkplug's host: reading, presence, rebirth (requested), lost (messages), odd."""
    waits: Counter[str] = field(default_factory=Counter)
    """Times that reading stopped: full (in flight at its bound), queue (Kafka's client took no
    more) or behind (the sequencer is)."""
    held_back: bool = False
    """Is nothing accepted because the sequencer is too far behind?"""
    latency: Histogram = field(default_factory=Histogram)
    """Seconds from the socket to Kafka's confirmation."""
    inflight_messages: int = 0
    inflight_bytes: int = 0
    connections: int = 0
    others: int = 0
    """Other bridges on this broker that live."""
    maps_version: int = 0
    """The version of the pushed maps in use; 0: none."""
    adopted: int = 0
    """Sessions of dead bridges that this one emptied and ended."""
    readopted: int = 0
    """Messages that the broker sent again while they were on their way to Kafka, or already there:
    produced once."""
    sent_alone: int = 0
    """Records that Kafka refused with their batch, sent again each in a batch of its own."""

    sent_down: int = 0
    """Commands and settings sent to devices, repetitions included."""

    def gather(self) -> Iterable[Metric]:
        """The metrics in Prometheus' form."""
        yield counter("edgewake_bridge_messages", "Messages by outcome", "outcome", self.outcomes)
        yield counter(
            "edgewake_bridge_rejected", "Messages refused, by reason", "reason", self.rejected
        )
        yield counter(
            "edgewake_bridge_later", "Messages answered 'later', by reason", "reason", self.later
        )
        yield counter("edgewake_bridge_mapped", "Messages given to maps", "outcome", self.mapped)
        yield counter(
            "edgewake_bridge_sparkplug", "What Sparkplug's nodes said", "event", self.sparkplug
        )
        yield counter("edgewake_bridge_http", "HTTP requests by outcome", "outcome", self.http)
        yield counter(
            "edgewake_bridge_waits", "Times that reading stopped, by cause", "cause", self.waits
        )
        yield gauge(
            "edgewake_bridge_held_back",
            "1: accepts nothing, the sequencer is too far behind",
            self.held_back,
        )
        yield gauge(
            "edgewake_bridge_inflight_messages",
            "Messages taken and not yet in Kafka",
            self.inflight_messages,
        )
        yield gauge(
            "edgewake_bridge_inflight_bytes",
            "Bytes taken and not yet in Kafka",
            self.inflight_bytes,
        )
        yield CounterMetricFamily(
            "edgewake_bridge_mqtt_connections",
            "Connections made to the broker",
            value=self.connections,
        )
        yield gauge("edgewake_bridge_others", "Other bridges on this broker that live", self.others)
        yield gauge(
            "edgewake_bridge_maps_version",
            "Version of the pushed maps in use; 0: none",
            self.maps_version,
        )
        yield counter(
            "edgewake_bridge_adopted",
            "Sessions of dead bridges that were emptied and ended",
            "kind",
            {"session": self.adopted},
        )
        yield counter(
            "edgewake_bridge_readopted",
            "Messages the broker sent again that were in flight already",
            "kind",
            {"message": self.readopted},
        )
        yield counter(
            "edgewake_bridge_sent_alone",
            "Records refused with their batch and sent again alone",
            "kind",
            {"record": self.sent_alone},
        )
        yield counter(
            "edgewake_bridge_sent_down",
            "Commands and settings sent to devices",
            "kind",
            {"message": self.sent_down},
        )
        yield self.latency.metric(
            "edgewake_bridge_latency_seconds", "From the socket to Kafka's confirmation"
        )
