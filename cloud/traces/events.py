"""Spans of traced events: from their record's arrival at a server to the bytes for its readers."""

from __future__ import annotations

from typing import Final, NamedTuple

from edgewake.cloud.traces.tracer import Carried, Tracer
from edgewake.protocol.clock import Clock

SPAN: Final = "access"


class Traced(NamedTuple):
    """Where a traced record came from, and when."""

    headers: Carried
    topic: str
    partition: int
    offset: int
    arrived_ms: int
    """The server's clock when it read the record, ms since 1970."""


class EventTraces:
    """Makes a span each time that a record's events are encoded for those who read alike."""

    def __init__(self, tracer: Tracer, clock: Clock) -> None:
        self._tracer, self._clock = tracer, clock

    def now_ms(self) -> int:
        """The server's clock."""
        return self._clock.now_ms()

    def sent(self, traced: Traced, protocol: str) -> bytes:
        """The `traceparent` by which a reader of the event goes on; its span is over."""
        span = self._tracer.span(
            SPAN,
            self._tracer.context(traced.headers),
            began_ms=traced.arrived_ms,
            attributes={
                "messaging.system": "kafka",
                "messaging.destination.name": traced.topic,
                "messaging.destination.partition.id": str(traced.partition),
                "messaging.kafka.offset": traced.offset,
                "network.protocol.name": protocol,
            },
        )
        self._tracer.end(span, self._clock.now_ms())
        return dict(self._tracer.carried(span))["traceparent"]
