"""Splits a message with several readings of a plain device. No I/O.

By its content type it is a JSON list, JSON lines, or SenML. Each reading is a message of its own
from here on. A list needs no content type: no single reading begins so.
"""

from __future__ import annotations

from typing import Any, Final

import mqtt5
import orjson

from edgewake.cloud.bridge.admission import request_key
from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.cloud.bridge.admission.records import is_answerable
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame import FRAME_BYTES_MAX
from edgewake.protocol.json_text import parse
from edgewake.protocol.maps.decoders import senml
from edgewake.protocol.maps.rule import READINGS_MAX

SENML_TYPE: Final = "application/senml+json"
LINES_TYPES: Final = ("application/x-ndjson", "application/jsonl", "application/jsonlines")
_JSON_TYPES: Final = (None, "", "application/json")


def is_batch(payload: bytes, content_type: str | None) -> bool:
    """May there be several readings in it? Asked of every message."""
    if content_type in _JSON_TYPES:
        return payload[:1] == b"["
    return content_type == SENML_TYPE or content_type in LINES_TYPES


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
        items = _items(payload, packet.content_type, received_at)
    except Rejected as error:
        return [Part(packet, error)]
    if not any(isinstance(one, dict | bytes) for one in items):
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


def _items(payload: bytes, content_type: str | None, received_at: int) -> list[Any]:
    """Raises Rejected."""
    if content_type == SENML_TYPE:
        return [_flat(one) for one in senml.readings(payload, received_at)]
    if content_type in LINES_TYPES:
        return [line for line in payload.split(b"\n") if line.strip()]
    try:
        items = parse(payload)
    except orjson.JSONDecodeError as error:
        raise Rejected(RejectReason.JSON, f"not JSON: {error}") from error
    if type(items) is not list:
        raise Rejected(RejectReason.SHAPE, "expected a list of JSON objects")
    return items


def _flat(one: dict[str, Any]) -> dict[str, Any]:
    """A reading of SenML: its fields, their units, and its base name."""
    found: dict[str, Any] = {f"{name}_unit": unit for name, unit in one["units"].items()}
    for name, value in one["fields"].items():
        found["t_" if name == "t" else name] = value
    if one["name"]:
        found["base_name"] = one["name"]
    found["t"] = round(one["time"] * 1000)
    return found


def _part(packet: mqtt5.PublishPacket, item: Any, key: str | None, index: int) -> Part:
    try:
        payload = item if isinstance(item, bytes) else orjson.dumps(item)
    except TypeError as error:
        return Part(packet, Rejected(RejectReason.SHAPE, f"a value that JSON cannot hold: {error}"))
    properties = packet.user_properties
    if key is not None:
        others = [one for one in properties if one[0] not in (request_key.KEY, request_key.INDEX)]
        properties = [*others, *request_key.numbered(key, index)]
    return Part(mqtt5.PublishPacket(packet.topic, payload, user_properties=properties))
