"""Spans: their parents, and parts that make none."""

from __future__ import annotations

import random
import subprocess
import sys

import mqtt5
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from edgewake.cloud.bridge.admission.records import KafkaRecord
from edgewake.cloud.bridge.traces import BridgeTraces
from edgewake.cloud.traces.config import SampledConfig, TracesConfig
from edgewake.cloud.traces.sampling import Sampling
from edgewake.cloud.traces.tracer import Tracer, of_headers, open_tracer, read_headers
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import ConfigError

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"


def decided(config: SampledConfig) -> Sampling:
    return Sampling(config, random.Random(1))


@pytest.fixture
def told() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def bridge(told: InMemorySpanExporter, **config: float) -> tuple[BridgeTraces, Tracer]:
    tracer = Tracer(told, part="bridge", name="b")
    return BridgeTraces(tracer, decided(SampledConfig(**config)), SystemClock()), tracer


def sent(traces: BridgeTraces, *properties: tuple[str, str]) -> KafkaRecord:
    packet = mqtt5.PublishPacket("ew/v1/d/up/s", b"{}", user_properties=list(properties))
    record = KafkaRecord(topics.UP, "d", b"{}", [("ew", b"placement")], 1000)
    return traces.begun(record, packet, 0.0)


def test_a_traceparent_becomes_the_parent_and_tracestate_goes_along(told: InMemorySpanExporter):
    traces, tracer = bridge(told)
    record = sent(traces, ("sent_at", "1"), ("traceparent", HEADER), ("tracestate", "x=1"))
    traces.stored(record, 3, 7)
    tracer.close()
    (span,) = told.get_finished_spans()
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    assert span.attributes is not None
    assert span.attributes["edgewake.place"] == "3:7"
    assert record.headers[0] == ("ew", b"placement"), "the sequencer looks at the first one first"
    assert dict(of_headers(record.headers)) == {
        "traceparent": f"00-{TRACE}-{span.context.span_id:016x}-01".encode(),
        "tracestate": b"x=1",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        "", "no", HEADER.replace("01", "00"), HEADER[:-3], f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", HEADER.upper(), HEADER * 100,
        "00-\u2603-☃-01",
    ],
)  # fmt: skip
def test_what_is_not_sampled_or_no_traceparent_leaves_the_record_as_it_is(
    told: InMemorySpanExporter, wrong: str
):
    traces, tracer = bridge(told)
    record = sent(traces, ("traceparent", wrong))
    assert (record.headers, record.span) == ([("ew", b"placement")], None)
    tracer.close()
    assert told.get_finished_spans() == ()


def test_a_part_without_an_endpoint_never_loads_what_makes_spans():
    text = (
        "import sys, edgewake.cloud.bridge.service, edgewake.cloud.sequencer.sequencer, "
        "edgewake.cloud.access.run\n"
        "from edgewake.cloud.traces.config import TracesConfig\n"
        "from edgewake.cloud.traces.tracer import open_tracer\n"
        "assert open_tracer(TracesConfig(), part='p', name='n') is None\n"
        "assert not [one for one in sys.modules if one.startswith('opentelemetry.sdk')]\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_headers_and_what_is_wrong_with_them_or_with_the_endpoint(tmp_path):
    file = tmp_path / "headers"
    file.write_text("# of the collector\nAuthorization: Bearer a:b\n\nX-Scope: one\n")
    assert read_headers(file) == {"Authorization": "Bearer a:b", "X-Scope": "one"}
    file.write_text("Authorization\n")
    with pytest.raises(ConfigError, match="line 1: expected `Name: value`"):
        open_tracer(
            TracesConfig(endpoint="http://127.0.0.1:1", headers_file=file), part="p", name="n"
        )
    with pytest.raises(ConfigError, match="headers_file"):
        read_headers(tmp_path / "missing")
    with pytest.raises(ValueError, match="endpoint is missing"):
        TracesConfig(headers_file=file)
    with pytest.raises(ValueError, match="endpoint"):
        TracesConfig(endpoint="127.0.0.1:4318")
