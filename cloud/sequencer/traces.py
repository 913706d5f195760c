"""Spans of the traced frames that a sequencer passes on: from Kafka's `ew.up` to its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edgewake.cloud.sequencer.order.arrival import Arrival
from edgewake.cloud.traces.tracer import Carried, Tracer
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock

if TYPE_CHECKING:
    from opentelemetry.trace import Span

SPAN: Final = "sequencer"


class SequencerTraces:
    """Makes spans within a transaction; what is not committed is never told."""

    def __init__(self, tracer: Tracer, clock: Clock) -> None:
        self._tracer, self._clock = tracer, clock
        self._open: list[Span] = []
        """The open transaction has at most one for each record that a turn reads."""

    def passed(self, arrival: Arrival, up_partition: int) -> Carried:
        """The headers of the frame's record on its stream's topic."""
        span = self._tracer.span(
            SPAN,
            self._tracer.context(arrival.trace),
            began_ms=arrival.received_at,
            attributes={
                "messaging.system": "kafka",
                "messaging.destination.name": topics.stream_topic(arrival.stream),
                "edgewake.device": arrival.device,
                "edgewake.stream": arrival.stream,
                "edgewake.token": f"{up_partition}:{arrival.offset}",
                "edgewake.late": arrival.late,
            },
        )
        self._open.append(span)
        return self._tracer.carried(span)

    def begin(self) -> None:
        """A transaction begins; what one before left open came to nothing."""
        self._open.clear()

    def committed(self) -> None:
        """What was passed since is there for all who read."""
        now_ms = self._clock.now_ms()
        for span in self._open:
            self._tracer.end(span, now_ms)
        self._open.clear()
