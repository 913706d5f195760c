"""Requests of foreign clients become messages of maps: by their head, within bounds."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.errors import Rejected
from edgewake.protocol.maps import http_forms
from edgewake.protocol.maps.applying import apply
from edgewake.protocol.maps.compiling import compile_presets
from edgewake.protocol.maps.decoders import senml_cbor
from edgewake.protocol.maps.device_tokens import DeviceTokens
from edgewake.protocol.maps.http_forms import (
    Form,
    Head,
    Outcome,
    form_of,
    messages,
    reply,
    unpacked,
)
from edgewake.protocol.maps.http_identity import identified
from tests.edge.sources.web.test_http_forms import T_MS


def test_members_without_contents_are_bounded() -> None:
    empty = gzip.compress(b"")
    assert unpacked(empty * 99 + gzip.compress(b"x"), "gzip", 100) == b"x"
    with pytest.raises(Rejected, match="at most 100 members"):
        unpacked(empty * 101, "gzip", 100)


@pytest.mark.parametrize("tag", [28, 29, 30, 35, 36])
def test_a_pack_has_no_tags_that_cost_time(tag: int) -> None:
    pack = [{"n": "a", "v": 1, "x": cbor2.CBORTag(tag, [3, 1 << 4000])}]
    with pytest.raises(Rejected, match="not CBOR"):
        senml_cbor.readings(cbor2.dumps(pack), T_MS)
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(Rejected, match="not CBOR"):
        senml_cbor.readings(cbor2.dumps(deep), T_MS)


def test_a_request_of_thousands_is_taken_in_messages_that_a_map_reads() -> None:
    body = b"".join(b"cpu usage=%d %d\n" % (n, T_MS * 10**6 + n) for n in range(2500))
    head = Head.of("POST", "/write?db=d", {})
    found = messages(Form.INFLUX_1, head, body, T_MS)
    assert [(one.topic, len(one.document)) for one in found] == [
        ("influx/d", 1000), ("influx/d", 1000), ("influx/d", 500),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "headers", "form"),
    [
        ("/write?db=x", {}, Form.INFLUX_1),
        ("/api/v2/write", {}, Form.INFLUX_2),
        ("/v1/metrics", {}, Form.OTLP),
        ("/x", {"content-type": "application/cloudevents+json; charset=utf-8"}, Form.CLOUDEVENTS),
        ("/x", {"ce-specversion": "1.0"}, Form.CLOUDEVENTS),
        ("/", {"content-type": "application/sensml+cbor"}, Form.SENML),
        ("/api/v1/TOKEN/telemetry", {}, Form.THINGSBOARD),
        ("/api/v1/TOKEN/rpc", {}, Form.THINGSBOARD),
        ("/owntracks/x", {}, Form.OWNTRACKS),
    ],
)
def test_a_form_is_known_by_its_head(target: str, headers: dict[str, str], form: Form) -> None:
    assert form_of(Head.of("POST", target, headers)) is form


@pytest.mark.parametrize("kind", ["rpc", "rpc/7", "claim", "attributes/updates", "firmware"])
def test_a_path_that_the_maps_read_is_their_topic_and_no_question(
    tmp_path: Path, kind: str
) -> None:
    head = Head.of("GET", f"/api/v1/press/{kind}?temp=21.5&token=T", {})
    assert form_of(head, ["api/v1/+/other", "api/v1/+/+/+/x"]) is Form.THINGSBOARD
    presets = compile_presets(http_forms.PRESETS)
    assert form_of(head, presets.filters) is Form.THINGSBOARD
    form = form_of(head, ["api/v1/#"])
    assert form is Form.OTHER
    tokens = tmp_path / "tokens"
    tokens.write_text("T boiler\n")
    tokens.chmod(0o600)
    known = identified(head, None, DeviceTokens(tokens), form=form)
    assert isinstance(known, Head), "its token is where other clients show theirs"
    (found,) = messages(form, known, b"", T_MS)
    assert (found.topic, found.document) == (f"api/v1/press/{kind}", {"temp": 21.5})
    sends = Head.of("POST", "/api/v1/T/telemetry", {})
    assert form_of(sends, ["api/v1/#"]) is Form.THINGSBOARD, "as it was before"


@pytest.mark.parametrize(
    ("target", "headers", "device", "fields"),
    [
        ("/shellies?hum=47&temp=23.5&id=x", {}, "", {"hum": 47, "temp": 23.5}),
        ("/shellies?temp=23.5&id=x&token=secret", {}, "boiler", {"temp": 23.5}),
        ("/shellies?temp=23.5&id=x&u=boiler&p=secret", {}, "boiler", {"temp": 23.5}),
        # What is no secret stays: it is a pressure here.
        ("/shellies?id=x&p=2.5", {"authorization": "Bearer t"}, "boiler", {"p": 2.5}),
        ("/shellies?id=x&p=2.5", {}, "", {"p": 2.5}),
    ],
)
def test_a_report_of_shelly_is_a_reading_without_the_secret_that_it_shows(
    target: str, headers: dict[str, str], device: str, fields: dict[str, object]
) -> None:
    head = Head.of("GET", target, headers)._replace(device=device)
    (found,) = messages(form_of(head), head, b"", T_MS)
    maps = compile_presets(["shelly-gen1"], needs_names=True)
    done = apply(maps, found.topic, found.payload, T_MS, document=found.document)
    (one,) = done.readings
    assert (one.device, one.stream, one.body) == ("x", "shelly_report", fields)


def test_each_form_hears_its_own_words_of_a_refusal() -> None:
    head = Head.of("POST", "/v1/metrics", {"content-type": "application/x-protobuf"})
    partial = reply(Form.OTLP, head, Outcome(200, 2, 1, "why"))
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceResponse,
    )

    said = ExportMetricsServiceResponse.FromString(partial.body).partial_success
    assert (said.rejected_data_points, said.error_message) == (1, "why")
    assert reply(Form.OTLP, head, Outcome(503, detail="x" * 300)).status == 503
    assert reply(Form.INFLUX_2, head, Outcome(422, refused=1, detail="why")).status == 400
    assert http_forms.level("a/b+c#d") == "a.b_c_d"


FORMS = st.sampled_from(
    [
        ("/write", ""), ("/api/v2/write?precision=s", ""), ("/v1/metrics", "application/json"),
        ("/v1/metrics", "application/x-protobuf"), ("/", "application/cloudevents+json"),
        ("/", "application/cloudevents-batch+json"), ("/", "application/senml+json"),
        ("/", "application/senml+cbor"), ("/pub?u=a&d=b", "application/json"),
        ("/api/v1/T/telemetry", "application/json"), ("/any/path", "text/plain"),
    ]
)  # fmt: skip


@given(FORMS, st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_no_body_of_any_form_raises_but_a_refusal(form: tuple[str, str], body: bytes) -> None:
    """And what it gives, a map takes."""
    target, kind = form
    head = Head.of("POST", target, {"content-type": kind})
    maps = compile_presets(http_forms.PRESETS)
    try:
        found = messages(form_of(head), head, body, T_MS)
    except Rejected:
        return
    for one in found:
        apply(maps, one.topic, one.payload, T_MS, document=one.document)


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "br", ""]))
def test_no_coding_of_a_body_raises_but_a_refusal(body: bytes, coding: str) -> None:
    with suppress(Rejected):
        assert len(http_forms.unpacked(body, coding, 100)) <= max(100, len(body))
    assert http_forms.unpacked(gzip.compress(body), "gzip", 200) == body
