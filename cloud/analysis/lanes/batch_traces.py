"""Spans of the micro-batches that hold traced frames.

A batch adds up frames of many traces and its results are of all of them. So each of these traces
gets a span as long as the batch; the results go on in the first, and the others are linked to it.
Which frames of a batch are traced is read from their headers in Kafka, once more and only where
traces are configured. Whatever fails at that costs spans, and never a batch.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Final

from edgewake.cloud.analysis.checkpoints.log_reader import LogReader
from edgewake.cloud.analysis.results.batch_commit import Offsets
from edgewake.cloud.traces.config import TracesConfig
from edgewake.cloud.traces.tracer import Carried, Tracer, of_headers, open_tracer
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

log = logging.getLogger("edgewake.analysis")

SPAN: Final = "analysis"
RECORDS_MAX: Final = 2000
"""Newest records of a batch and partition whose headers are looked at, 20 ms of a core; of a larger
batch, which is one that catches up, the others are not traced here."""
SPANS_MAX: Final = 16
"""Traces of a batch that get a span; the newest of more."""


@cache
def tracer_of(config: TracesConfig) -> Tracer | None:
    """The tracer of this process, opened when it is first asked for. Raises ConfigError."""
    return open_tracer(config, part="analysis", name="analysis")


class BatchTraces:
    """Makes the spans of one lane's batches."""

    def __init__(self, tracer: Tracer, lane: str, log_reader: LogReader, clock: Clock) -> None:
        self._tracer, self._lane, self._log, self._clock = tracer, lane, log_reader, clock
        self._open: list[Span] = []
        """At most SPANS_MAX, of the batch under way."""

    def begun(self, before: Offsets, reached: Offsets, began_ms: int) -> Carried:
        """Begin the spans of a batch between two places; the headers of its results."""
        found = self._traced(before, reached)[-SPANS_MAX:]
        self._open = []
        for parent in found:
            links = [self._open[0].get_span_context()] if self._open else []
            attributes = {"messaging.system": "kafka", "edgewake.lane": self._lane}
            span = self._tracer.span(
                SPAN, parent, began_ms=began_ms, attributes=attributes, links=links
            )
            self._open.append(span)
        return self._tracer.carried(self._open[0]) if self._open else ()

    def committed(self, revision: int, results: int) -> None:
        """Its results are there for all who read."""
        now_ms = self._clock.now_ms()
        for span in self._open:
            span.set_attribute("edgewake.revision", revision)
            span.set_attribute("edgewake.results", results)
            self._tracer.end(span, now_ms)
        self._open = []

    def _traced(self, before: Offsets, reached: Offsets) -> list[SpanContext]:
        found: list[SpanContext] = []
        try:
            for topic, partitions in reached.items():
                for partition, stop in partitions.items():
                    first = max(before.get(topic, {}).get(partition, 0), stop - RECORDS_MAX)
                    for message in self._log.read(topic, partition, first, stop):
                        context = self._tracer.context(of_headers(message.headers() or ()))
                        if context is not None and context.trace_flags.sampled:
                            found.append(context)
        except Unavailable as error:
            log.info(
                "lane %s: which frames are traced is not known: %s",
                self._lane,
                error,
                extra={"event": "traces.unknown"},
            )
        return found
