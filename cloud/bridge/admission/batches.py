"""Splits a message with several readings of a plain device. No I/O.

By its content type (`edgewake.protocol.maps.contents`) it is a JSON list, JSON lines, SenML or
CloudEvents. Each reading is a message of its own from here on.
"""

from __future__ import annotations

from typing import Any

import mqtt5
import orjson

from edgewake.cloud.bridge.admission import request_key
from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.cloud.bridge.admission.records import is_answerable
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame import FRAME_BYTES_MAX
from edgewake.protocol.maps.applying import NO_UNITS
from edgewake.protocol.maps.contents import WithUnits
from edgewake.protocol.maps.contents import items as items_in
from edgewake.protocol.maps.decoding import BadItem
from edgewake.protocol.maps.rule import READINGS_MAX


def parts(packet: mqtt5.PublishPacket, received_at: int) -> list[Part] | None:
    """The readings and refusals in a message; None: it is a single message.

    That is so where it asks for another kind of answer, or nothing in it is meant as a reading.
    """
    if packet.response_topic is not None and not is_answerable(packet):
        return None
    payload = packet.payload
    try:
        if len(payload) > FRAME_BYTES_MAX:
            raise Rejected(
                RejectReason.OVERSIZE, f"{len(payload)} bytes: expected at most {FRAME_BYTES_MAX}"
            )
        items = items_in(payload, packet.content_type, packet.user_properties, received_at)
    except Rejected as error:
        return [Part(packet, error)]
    if not any(isinstance(one, dict | bytes | BadItem | WithUnits) for one in items):
        return None
    try:
        named = request_key.key_in(packet.user_properties)
        key = None if named is None else request_key.of_request(named, payload)
    except Rejected as error:
        return [Part(packet, error)]
    found = [_part(packet, one, key, at) for at, one in enumerate(items[:READINGS_MAX])]
    if len(items) > READINGS_MAX:
        why = Rejected(
            RejectReason.OVERSIZE,
            f"{len(items)} readings in a message: expected at most {READINGS_MAX}; those before "
            "passed",
        )
        found.append(Part(packet, why))
    return found or None


def _part(packet: mqtt5.PublishPacket, item: Any, key: str | None, index: int) -> Part:
    if isinstance(item, BadItem):
        return Part(mqtt5.PublishPacket(packet.topic, item.text), item.why)
    units = NO_UNITS
    if isinstance(item, WithUnits):
        item, units = item
    try:
        payload = item if isinstance(item, bytes) else orjson.dumps(item)
    except TypeError as error:
        return Part(packet, Rejected(RejectReason.SHAPE, f"a value that JSON cannot hold: {error}"))
    properties = packet.user_properties
    if key is not None:
        others = [one for one in properties if one[0] not in (request_key.KEY, request_key.INDEX)]
        properties = [*others, *request_key.numbered(key, index)]
    packet = mqtt5.PublishPacket(packet.topic, payload, user_properties=properties)
    return Part(packet, units=units)
