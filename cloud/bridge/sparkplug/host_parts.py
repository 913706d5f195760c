"""Turns what a host application receives into messages of plain devices. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

import mqtt5
import orjson

from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.field_names import put_over
from edgewake.protocol.maps.applying import not_meant
from edgewake.protocol.maps.names import device_name
from edgewake.protocol.ops.device import DeviceState
from edgewake.protocol.sparkplug.host import Event, Odd, Reading, ThingPresence, marks_of


def parts_of(
    events: Iterable[Event], topic: str, payload: bytes, *, stream: str, prefix: str
) -> list[Part]:
    """Readings and presences in order, and dead letters of messages that are lost.

    `topic`, `payload`: of the message that brought the events.
    """
    found: list[Part] = []
    for one in events:
        if isinstance(one, Reading):
            body = not_meant(one.values) | {"t": one.t}
            put_over(body, marks_of(one))
            up = topics.up(device_name(one.thing, prefix), stream)
            found.append(Part(mqtt5.PublishPacket(up, orjson.dumps(body)), units=one.units))
        elif isinstance(one, ThingPresence):
            state = DeviceState.ONLINE if one.is_online else DeviceState.OFFLINE
            status = topics.status(device_name(one.thing, prefix))
            found.append(Part(mqtt5.PublishPacket(status, state.value.encode())))
        elif isinstance(one, Odd) and one.is_lost:
            why = Rejected(RejectReason.SHAPE, f"Sparkplug: {one.what}")
            packet = mqtt5.PublishPacket(one.topic or topic, b"" if one.topic else payload)
            found.append(Part(packet, why))
    return found
