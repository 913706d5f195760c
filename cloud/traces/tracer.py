"""Makes spans and gives them to an OpenTelemetry collector, beside the part's own work.

The one module that knows OpenTelemetry's library, which is imported where a part has an `endpoint`.
What travels from part to part are W3C Trace Context's two headers, `traceparent` and `tracestate`:
as user properties of MQTT, and as headers of Kafka's records. A collector that is away costs
nothing but its spans: they wait within a bound, and are dropped and counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from edgewake.cloud.metrics import counter
from edgewake.cloud.process_metrics import VERSION
from edgewake.cloud.traces.config import QUEUE_SPANS, TracesConfig
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.frames.record import TRACE_HEADERS

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import Span, SpanContext

log = logging.getLogger("edgewake.traces")

Carried: TypeAlias = tuple[tuple[str, bytes], ...]
"""The headers of a trace as Kafka's records have them; empty: not traced."""
Attributes: TypeAlias = Mapping[str, str | int | float | bool]

EXPORT_S: Final = 5.0
"""Seconds that one request to the collector may take, and that spans wait to be sent together."""
CLOSE_MS: Final = 2000
"""Milliseconds that a part which stops waits for its last spans."""
STATE_CHARS_MAX: Final = 512
"""Characters of a `tracestate` that are carried on, as W3C asks at least."""
_NS_PER_MS: Final = 1_000_000


def of_headers(headers: Iterable[tuple[str, bytes | None]]) -> Carried:
    """What of a record's headers is its trace's."""
    return tuple((name, value) for name, value in headers if value and name in TRACE_HEADERS)


class Tracer(Collector):
    """Begins spans; `collect` says what became of them. For several threads."""

    def __init__(self, exporter: SpanExporter, *, part: str, name: str) -> None:
        """`part` is e.g. bridge; `name` tells processes of a part apart."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._outcomes: Counter[str] = Counter()
        resource = Resource(
            {
                "service.namespace": "edgewake",
                "service.name": f"edgewake-{part}",
                "service.instance.id": name,
                "service.version": VERSION,
            }
        )
        # Whether a message is traced is decided before a span begins.
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=resource,
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_attributes=32, max_links=128, max_attribute_length=256),
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                _counted(exporter, self._outcomes),
                max_queue_size=QUEUE_SPANS,
                max_export_batch_size=QUEUE_SPANS // 4,
                schedule_delay_millis=EXPORT_S * 200,
                export_timeout_millis=EXPORT_S * 1000,
            )
        )
        self._tracer = self._provider.get_tracer("edgewake", VERSION)
        self._propagator = TraceContextTextMapPropagator()

    def context(self, carried: Iterable[tuple[str, str | bytes]]) -> SpanContext | None:
        """What headers or user properties say of a trace; None where nothing valid is said."""
        from opentelemetry.trace import get_current_span

        carrier: dict[str, str] = {}
        for name, value in carried:
            if name in TRACE_HEADERS and len(value) <= STATE_CHARS_MAX:
                text = value if isinstance(value, str) else value.decode("latin-1")
                carrier.setdefault(name, text)
        found = get_current_span(self._propagator.extract(carrier)).get_span_context()
        return found if found.is_valid else None

    def span(
        self,
        name: str,
        parent: SpanContext | None,
        *,
        began_ms: float,
        attributes: Attributes,
        links: Sequence[SpanContext] = (),
    ) -> Span:
        """Begin a span at a time of the wall clock, ms since 1970; `end` it."""
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, NonRecordingSpan, set_span_in_context

        self._outcomes["begun"] += 1
        within = Context()
        if parent is not None:
            within = set_span_in_context(NonRecordingSpan(parent), within)
        return self._tracer.start_span(
            name,
            context=within,
            attributes=dict(attributes),
            links=[Link(one) for one in links],
            start_time=int(began_ms * _NS_PER_MS),
        )

    def carried(self, span: Span) -> Carried:
        """The headers that make others' spans children of this one."""
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=set_span_in_context(span))
        return tuple((name, value.encode("latin-1")) for name, value in carrier.items())

    def end(self, span: Span, ended_ms: float, *, failed: str = "") -> None:
        """End a span; `failed` says why what it stands for was refused."""
        from opentelemetry.trace import Status, StatusCode

        if failed:
            span.set_status(Status(StatusCode.ERROR, failed[:256]))
        span.end(int(ended_ms * _NS_PER_MS))

    def collect(self) -> Iterable[Metric]:
        """The metrics in Prometheus' form."""
        yield counter(
            "edgewake_trace_spans",
            "Spans begun, exported, and failed (the collector did not take them); those that are "
            "neither wait, or were dropped",
            "outcome",
            self._outcomes,
        )

    def close(self) -> None:
        """Send what waits, for a bounded time."""
        self._provider.force_flush(CLOSE_MS)
        self._provider.shutdown()


def open_tracer(config: TracesConfig, *, part: str, name: str) -> Tracer | None:
    """A tracer where an endpoint is configured. Raises ConfigError."""
    if config.endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise ConfigError(
            f"[traces]: OpenTelemetry is not installed; pip install 'edgewake[traces]' ({error})"
        ) from error
    exporter = OTLPSpanExporter(
        endpoint=f"{config.endpoint.rstrip('/')}/v1/traces",
        headers=None if config.headers_file is None else read_headers(config.headers_file),
        certificate_file=None if config.ca_file is None else str(config.ca_file),
        timeout=EXPORT_S,
        compression=Compression.Gzip,
    )
    log.info(
        "spans go to %s", config.endpoint, extra={"event": "traces.on", "endpoint": config.endpoint}
    )
    return Tracer(exporter, part=part, name=name)


def gathered(tracer: Tracer | None) -> Iterable[Metric]:
    """The metrics of a tracer, where there is one."""
    return () if tracer is None else tracer.collect()


def close(tracer: Tracer | None) -> None:
    """Close it, where there is one."""
    if tracer is not None:
        tracer.close()


def read_headers(file: Path) -> dict[str, str]:
    """Lines `Name: value`, empty ones and those with # left out. Raises ConfigError."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"[traces] headers_file {file}: {error}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not value.strip():
            raise ConfigError(
                f"[traces] headers_file {file}, line {number}: expected `Name: value`"
            )
        found[name.strip()] = value.strip()
    return found


def _counted(exporter: SpanExporter, outcomes: Counter[str]) -> SpanExporter:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Counted(SpanExporter):
        """Counts what the collector took."""

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            found = exporter.export(spans)
            is_taken = found is SpanExportResult.SUCCESS
            outcomes["exported" if is_taken else "failed"] += len(spans)
            return found

        def shutdown(self) -> None:
            exporter.shutdown()

    return Counted()
