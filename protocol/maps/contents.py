"""Reads payloads by their content type, where no map says what they are. Pure.

A content type counts without its parameters, whatever its case. It is JSON (`…+json` as well), JSON
lines, SenML (RFC 8428) or CloudEvents 1.0; a list needs no content type, since no single reading
begins so. A CloudEvent in binary mode has its attributes beside its data: by MQTT 5 as user
properties, by HTTP as headers that begin with `ce-`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.maps.decoding import BadItem, json_of, module_of
from edgewake.protocol.maps.rule import Maps

JSON: Final = "application/json"
EVENT, EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"
SENML: Final = frozenset({"application/senml+json", "application/sensml+json"})
SENML_CBOR: Final = frozenset({"application/senml+cbor", "application/sensml+cbor"})
LINES: Final = frozenset(
    {
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/jsonlines",
        "application/x-jsonlines",
    }
)
_PACKS: Final = frozenset({EVENT, EVENTS}) | SENML | SENML_CBOR
KINDS: Final = _PACKS | LINES
"""The content types that are more than JSON."""
_OURS: Final = "application/vnd.edgewake"
_VERSION: Final = "specversion"
"""The attribute that makes a message with attributes a CloudEvent."""

Properties: TypeAlias = Sequence[tuple[str, str]]


class WithUnits(NamedTuple):
    """An object such as a plain device sends, and the units that its message says."""

    body: dict[str, Any]
    units: Mapping[str, str]
    """Name of a field → its unit."""


def media_type(content_type: str | None) -> str:
    """A content type without its parameters, in lower case; empty: none."""
    return (content_type or "").partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Is it a name for JSON?"""
    return media in (JSON, "text/json") or media.endswith("+json")


def has_items(payload: bytes, content_type: str | None, properties: Properties = ()) -> bool:
    """Are there several readings in it, or one in a form of its own? Asked of every message."""
    if properties and _is_event(properties):
        return True
    if content_type is None:
        return payload[:1] == b"["
    if content_type.startswith(_OURS):
        return False
    media = media_type(content_type)
    if media in LINES or media in _PACKS:
        return True
    return payload[:1] == b"[" and not media.startswith(_OURS) and (not media or is_json(media))


def is_pack(content_type: str | None, properties: Properties) -> bool:
    """Is it SenML or a CloudEvent, which only its content type and properties tell?"""
    return media_type(content_type) in _PACKS or _is_event(properties)


def items(
    payload: bytes, content_type: str | None, properties: Properties, now_ms: int
) -> Sequence[Any]:
    """What is in a message that `has_items`.

    Objects such as a plain device sends, some with units (WithUnits), lines of JSON, and what is
    wrong (BadItem). Raises Rejected for all of it.
    """
    media = media_type(content_type)
    if media in SENML | SENML_CBOR:
        module = module_of("senml-cbor" if media in SENML_CBOR else "senml")
        return _of_senml(module.readings(payload, now_ms), payload, now_ms)
    if media in LINES:
        return [line for line in payload.split(b"\n") if line.strip()]
    if media in (EVENT, EVENTS):
        return [_of_event(one, now_ms) for one in events(payload, media)]
    if (event := binary_event(payload, content_type, properties)) is not None:
        return [_of_event(event, now_ms)]
    found = json_of(payload)
    if type(found) is not list:
        raise Rejected(RejectReason.SHAPE, "expected a list of JSON objects")
    return found


def events(body: bytes, media: str) -> Sequence[Any]:
    """The CloudEvents in a structured one or a batch, unchecked. Raises Rejected."""
    found = json_of(body)
    if media == EVENT:
        return [found]
    if not isinstance(found, list):
        raise Rejected(RejectReason.SHAPE, "a batch of CloudEvents: expected a list")
    return found


def _is_event(properties: Iterable[tuple[str, str]]) -> bool:
    return any(name == _VERSION for name, _ in properties)


def binary_event(
    body: bytes, content_type: str | None, properties: Iterable[tuple[str, str]]
) -> dict[str, Any] | None:
    """A CloudEvent in binary mode (MQTT protocol binding, section 3.1).

    None where the message says of itself that it is another one. Raises Rejected.
    """
    if not properties or not _is_event(properties) or media_type(content_type) in (EVENT, EVENTS):
        return None
    return event_of(dict(properties), media_type(content_type), body)


def event_of(attributes: Mapping[str, str], media: str, body: bytes) -> dict[str, Any]:
    """A CloudEvent of its attributes and data. Raises Rejected."""
    event: dict[str, Any] = dict(attributes)
    if media:
        event["datacontenttype"] = media
    if body and (is_json(media) or not media):
        event["data"] = json_of(body)
    elif body:
        try:
            event["data"] = body.decode()
        except UnicodeDecodeError:
            event["data_base64"] = base64.b64encode(body).decode()
    return event


def check_event(one: Any) -> None:
    """Checks the required attributes (CloudEvents 1.0, section 3.1). Raises Rejected."""
    if not isinstance(one, dict):
        raise Rejected(RejectReason.SHAPE, "a CloudEvent: expected an object")
    if str(one.get(_VERSION, "")) not in ("1.0", "1.0.2"):
        raise Rejected(RejectReason.SHAPE, "a CloudEvent: expected specversion 1.0")
    for name in ("id", "source", "type"):
        if not isinstance(one.get(name), str) or not one[name]:
            raise Rejected(RejectReason.SHAPE, f"a CloudEvent: {name} is missing")


def _of_senml(readings: Sequence[Any], payload: bytes, now_ms: int) -> Sequence[Any]:
    """Readings of SenML as plain objects, by the preset of the same name."""
    from edgewake.protocol.maps.applying import apply

    outcome = apply(_maps(), "senml/device", payload, now_ms, document=readings)
    found: list[Any] = [WithUnits(one.body, one.units) for one in outcome.readings]
    return [*found, *(BadItem(one.why, orjson.dumps(one.item)) for one in outcome.refused)]


def _of_event(one: Any, now_ms: int) -> Any:
    """A CloudEvent as a plain object, by the preset of the same name."""
    from edgewake.protocol.maps.applying import apply

    try:
        text = orjson.dumps(one)
    except TypeError as error:  # nested too deep, or half of a character
        why = Rejected(RejectReason.SHAPE, f"a CloudEvent that JSON cannot hold: {error}")
        return BadItem(why, b"")
    try:
        check_event(one)
    except Rejected as error:
        return BadItem(error, text)
    outcome = apply(_maps(), "cloudevents/device", text, now_ms, document=one)
    if outcome.refused:
        return BadItem(outcome.refused[0].why, text)
    return outcome.readings[0].body


@cache
def _maps() -> Maps:
    from edgewake.protocol.maps.compiling import compile_presets

    return compile_presets(["cloudevents", "senml"])
