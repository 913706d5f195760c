"""A message that says less than it means: what its device is answered, and where."""

from __future__ import annotations

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.bridge.admission.expand_compact import expand_compact
from edgewake.protocol.frames.ack import is_joinable


@pytest.mark.parametrize(
    ("payload", "correlation"),
    [
        pytest.param(b'{"seq": 17, "x": 1}', b"weather|17", id="a reading"),
        pytest.param(b'[{"seq": 17}, {"seq": 18}]', b"weather|18", id="several"),
        pytest.param(b'{"x": 1}', b"weather|", id="no number"),
        pytest.param(b'{"seq": "17"}', b"weather|", id="a number as text"),
        pytest.param(b'{"seq": true}', b"weather|", id="no number but true"),
        pytest.param(b"[]", b"weather|", id="nothing"),
        pytest.param(b"{", b"weather|", id="no JSON"),
        pytest.param(b'{"seq": 1, "x": "' + b"x" * 70_000 + b'"}', b"weather|", id="too long"),
    ],
)
def test_a_device_without_response_topics_is_answered_by_stream_and_number(
    payload: bytes, correlation: bytes
) -> None:
    packet = mqtt5.PublishPacket(
        "ew/v1/shed/up/weather/ack", payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=7
    )
    found = expand_compact(packet)
    assert isinstance(found, mqtt5.PublishPacket)
    assert (found.topic, found.response_topic) == ("ew/v1/shed/up/weather", "ew/v1/shed/acks")
    assert (found.correlation_data, found.payload) == (correlation, payload)
    assert (found.qos, found.packet_id) == (packet.qos, 7)


@pytest.mark.parametrize(
    "topic", ["ew/v1/shed/up/ack", "ew/v1/shed/status/ack", "home/shed/ack", "ew/v1//up/x/ack"]
)
def test_other_topics_that_end_so_stay_as_they_are(topic: str) -> None:
    packet = mqtt5.PublishPacket(topic, b'{"seq": 1}')
    assert expand_compact(packet) is packet


@given(st.binary(max_size=200))
def test_whatever_it_says_its_answer_can_be_sent(payload: bytes) -> None:
    found = expand_compact(mqtt5.PublishPacket("ew/v1/shed/up/weather/ack", payload))
    assert isinstance(found, mqtt5.PublishPacket)
    assert is_joinable(found.correlation_data)
