"""What the proxy counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.partitions = Gauge(
            "edgewake_push_partitions",
            "Partitions of leases that this proxy has",
            registry=registry,
        )
        self.leases = Gauge("edgewake_push_leases", "Leases managed", registry=registry)
        self.behind = Gauge(
            "edgewake_push_leases_behind",
            "Leases that are still being brought to the live end",
            registry=registry,
        )
        self.granted = Counter("edgewake_push_leases_granted", "Leases granted", registry=registry)
        self.expired = Counter(
            "edgewake_push_leases_expired", "Leases dropped at their end", registry=registry
        )
        self.disabled = Counter(
            "edgewake_push_leases_disabled", "Endpoints not tried any more", registry=registry
        )
        self.wakes = Counter("edgewake_push_wakes", "Wake-ups that were taken", registry=registry)
        self.calls = Counter(
            "edgewake_push_calls", "Webhook calls by outcome", ["outcome"], registry=registry
        )
        self.deliveries = Gauge(
            "edgewake_push_deliveries", "Webhook deliveries of this proxy", registry=registry
        )
        self.delivered = Counter(
            "edgewake_push_delivered_events", "Events that endpoints took", registry=registry
        )
        self.letters = Counter(
            "edgewake_push_delivery_letters",
            "Events that endpoints refused and that were set aside",
            registry=registry,
        )
        self.delivery_calls = Counter(
            "edgewake_push_delivery_calls",
            "Calls of deliveries by outcome",
            ["outcome"],
            registry=registry,
        )
