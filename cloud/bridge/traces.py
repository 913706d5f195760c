"""Spans of the messages that a bridge traces: from their arrival to Kafka's confirmation.

A device's `traceparent` comes as a user property of MQTT, or as a header of HTTP. Those of one that
is refused end with an error, which says the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import mqtt5

from edgewake.cloud.bridge.admission.records import KafkaRecord, device_in
from edgewake.cloud.traces.sampling import Sampling
from edgewake.cloud.traces.tracer import Tracer
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Rejected
from edgewake.protocol.mqtt import Unreadable

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

SPAN: Final = "bridge"


class BridgeTraces:
    """Decides which messages are traced, and makes their spans."""

    def __init__(self, tracer: Tracer, sampling: Sampling, clock: Clock) -> None:
        self._tracer, self._sampling, self._clock = tracer, sampling, clock

    def begun(
        self, record: KafkaRecord, packet: mqtt5.PublishPacket | Unreadable, now_s: float
    ) -> KafkaRecord:
        """The record with an open span, and the headers by which others go on; or as it is."""
        if record.topic != topics.UP or isinstance(packet, Unreadable):
            return record
        parent = self._tracer.context(packet.user_properties)
        if not self._is_wanted(parent, device_in(packet.topic), now_s):
            return record
        span = self._tracer.span(
            SPAN,
            parent,
            began_ms=record.timestamp,
            attributes={
                "messaging.system": "mqtt",
                "messaging.destination.name": packet.topic,
                "messaging.message.body.size": len(packet.payload),
                "edgewake.device": record.key,
            },
        )
        return record._replace(headers=[*record.headers, *self._tracer.carried(span)], span=span)

    def _is_wanted(self, parent: SpanContext | None, device: str, now_s: float) -> bool:
        if parent is None:
            return self._sampling.begins()
        return parent.trace_flags.sampled and self._sampling.may(device, now_s)

    def stored(self, record: KafkaRecord, partition: int, offset: int) -> None:
        """Kafka has the record of an open span: a frame, or the dead letter that it became."""
        span = record.span
        assert span is not None
        span.set_attribute("edgewake.topic", record.topic)
        span.set_attribute("edgewake.place", f"{partition}:{offset}")
        failed = "" if record.topic == topics.UP else "dead letter: too large for Kafka"
        self._tracer.end(span, self._clock.now_ms(), failed=failed)

    def refused(
        self, packet: mqtt5.PublishPacket | Unreadable, why: Rejected, now_s: float
    ) -> None:
        """Tell a device that asked for a trace that its message was refused."""
        if isinstance(packet, Unreadable):
            return
        parent = self._tracer.context(packet.user_properties)
        device = device_in(packet.topic)
        if parent is None or not self._is_wanted(parent, device, now_s):
            return
        now_ms = self._clock.now_ms()
        attributes = {
            "messaging.system": "mqtt",
            "messaging.destination.name": packet.topic,
            "edgewake.device": device,
            "edgewake.reason": str(why.reason),
        }
        span = self._tracer.span(SPAN, parent, began_ms=now_ms, attributes=attributes)
        self._tracer.end(span, now_ms, failed=f"{why.reason}: {why.detail}")
