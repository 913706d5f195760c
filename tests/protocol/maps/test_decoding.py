"""No payload, however broken, raises or changes what becomes of another."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.protocol.errors import RejectReason
from edgewake.protocol.maps import presets
from edgewake.protocol.maps.applying import apply
from edgewake.protocol.maps.compiling import compile_maps, compile_presets
from edgewake.protocol.maps.decoders import influx
from edgewake.protocol.maps.decoding import known_kinds
from edgewake.protocol.maps.preview import preview, sample_topic
from edgewake.protocol.maps.rule import Maps
from tests.examples import examples

NOW_MS = 1_790_000_000_000
KEYS = st.sampled_from(
    ["a", "b", "t", "ts", "time", "device", "seq", "list", "x.y", "ä", "\0", ""]
)  # fmt: skip
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["2026-01-01T10:00:00+14:00", "0001-01-01T00:00:00+14:00", "9" * 400])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def _encoded(value: object) -> bytes:
    import json

    return json.dumps(value).encode()


PAYLOADS = (
    st.binary(max_size=60) | VALUES.map(_encoded) | VALUES.map(_encoded).map(lambda p: p[:-1])
)


def _general() -> Maps:
    kinds = [kind for kind in known_kinds() if kind != "csv"]
    rows = [
        f"""
[[map]]
topic = "k/{kind}/{{device}}"
payload = "{kind}"
device = "{{device}}"
stream = "{{$.a}}"
time = {{ path = ["ts", "$.time", "list[0]"], zone = "Europe/Berlin" }}
seq = "seq"
each = "list"
when = {{ path = "b", not = 3 }}
[map.fields]
"a.*" = {{ name = "*", as = "number", scale = 1e300 }}
"b" = {{ as = "time" }}
"$.list[*].a" = "x_*"
[[map]]
topic = "k/{kind}/{{device}}"
payload = "{kind}"
device = "{{device}}"
stream = "s"
time = "auto"
"""
        for kind in kinds
    ]
    rows.append(
        '[[map]]\ntopic = "k/csv/{device}"\npayload = "csv"\ncolumns = ["ts", "a"]\ntime = "ts"\n'
    )
    return compile_maps("".join(rows), "general")


GENERAL = _general()
TOPICS = [f"k/{kind}/d" for kind in known_kinds()]


@pytest.mark.parametrize("topic", TOPICS)
@settings(max_examples=examples(150), deadline=None)
@given(payload=PAYLOADS)
def test_no_payload_raises_and_none_changes_what_becomes_of_another(
    topic: str, payload: bytes
) -> None:
    seen = preview(GENERAL, topic, payload, now_ms=NOW_MS)
    assert all(one.detail for one in seen.refused)
    after = preview(GENERAL, "k/json/d", b'{"v": 1, "b": 3, "ts": 1790000000}', now_ms=NOW_MS)
    assert [(one.t, one.fields) for one in after.stored] == [(1790000000000, {"v": 1, "b": 3})]


@pytest.mark.parametrize("name", presets.names())
@settings(max_examples=examples(60), deadline=None)
@given(payload=PAYLOADS)
def test_no_preset_raises(name: str, payload: bytes) -> None:
    maps = compile_presets([name])
    for one in maps.maps:
        preview(maps, sample_topic(one), payload, now_ms=NOW_MS)


@given(topic=st.text(max_size=40))
def test_no_topic_raises(topic: str) -> None:
    apply(GENERAL, topic, b"1", NOW_MS)


def test_what_passes_is_json() -> None:
    outcome = apply(
        GENERAL, "k/json/d", b'{"list":[{"a":{"x":2}}],"a":"s","ts":1790000000}', NOW_MS
    )
    assert orjson.dumps(outcome.readings[0].body)


@given(st.lists(st.text("ab=, \r\n1.5i", max_size=20), max_size=6))
def test_lines_of_influx_mean_the_same_beside_one_with_quotes_and_escapes(lines: list[str]) -> None:
    """Without either they are split by a faster way."""
    text = "\n".join(lines)
    plain = influx.points(text.encode())
    beside = influx.points(f'm,a\\ b=1 v="x\\"\ny"\n{text}'.encode())
    shown = [one if isinstance(one, dict) else str(one.why) for one in plain]
    assert [one if isinstance(one, dict) else str(one.why) for one in beside[1:]] == shown


def test_a_line_of_influx_with_too_many_fields_is_refused_by_itself() -> None:
    many = ",".join(f"f{n}=1" for n in range(influx.FIELDS_OF_LINE_MAX + 1))
    refused, taken = influx.points(f"m {many}\nm v=1".encode())
    assert refused.why.reason is RejectReason.SHAPE
    assert "1001 fields: expected at most 1000" in str(refused.why)
    assert taken["fields"] == {"v": 1.0}
