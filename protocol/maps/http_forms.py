"""Reads the requests of other systems' HTTP clients as messages for maps, and writes the replies.

Pure. A form is known by path and headers; its clients are moved here by changing an address:

    /write, /api/v2/write                         InfluxDB 1 and 2, line protocol → influx/DEVICE
    /v1/metrics                                   OpenTelemetry (OTLP)            → otlp/DEVICE
    ce-specversion, application/cloudevents…      CloudEvents 1.0, three modes    → cloudevents/…
    application/senml+json, …+cbor                SenML (RFC 8428)                → senml/DEVICE
    /pub, /owntracks                              OwnTracks                       → owntracks/USER/…
    /api/v1/TOKEN/telemetry, …/attributes         ThingsBoard's devices      → v1/devices/DEVICE/…
    /api/v1/TOKEN/rpc, …/firmware, a GET of …     their questions: no readings (`is_question`)
    any other path                                                                → that path

A map file that reads such a question's path as a topic goes first (`form_of`).

The topics are those of the presets of the same name, so one map serves MQTT and HTTP.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import orjson

from edgewake.protocol import varint
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.maps.contents import (
    EVENT,
    EVENTS,
    JSON,
    SENML,
    SENML_CBOR,
    check_event,
    event_of,
    events,
    media_type,
)
from edgewake.protocol.maps.decoding import BadItem, json_of, module_of
from edgewake.protocol.maps.path import MISSING
from edgewake.protocol.maps.rule import READINGS_MAX
from edgewake.protocol.maps.topic import matches

PRESETS: Final = ("influx", "otlp", "cloudevents", "senml", "owntracks", "thingsboard")
"""The maps that read these forms."""
ITEMS_MAX: Final = 10_000
"""The most readings of one request; further ones are refused."""
LEVEL_CHARS_MAX: Final = 200
"""The most characters of a topic level that is made of a client's name."""
PROTOBUF: Final = "application/x-protobuf"
FORM_BODY: Final = "application/x-www-form-urlencoded"
_LISTED: Final = frozenset({"clientKeys", "sharedKeys"})
"""Words of ThingsBoard's queries that are lists: with commas, or once for each item."""


class Form(StrEnum):
    """The protocol of a request."""

    INFLUX_1 = "influx 1"
    INFLUX_2 = "influx 2"
    OTLP = "otlp"
    CLOUDEVENTS = "cloudevents"
    SENML = "senml"
    OWNTRACKS = "owntracks"
    THINGSBOARD = "thingsboard"
    OTHER = "other"


class Head(NamedTuple):
    """The head of a request: all but its body."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    device: str = ""
    """The device whose own token was sent: all readings belong to it. Empty: the payload may
    name devices.
    """
    gateway: str = ""
    """The gateway whose token was sent: it may send for devices behind it."""

    @classmethod
    def of(cls, method: str, target: str, headers: Mapping[str, str]) -> Head:
        """Parses a request line's target."""
        path, _, query = target.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        words = dict(pairs)
        for listed in _LISTED & words.keys():
            words[listed] = ",".join(value for name, value in pairs if name == listed)
        return cls(method, path, words, headers)

    @property
    def content_type(self) -> str:
        """Returns the content type without its parameters, in lower case."""
        return media_type(self.headers.get("content-type"))

    @property
    def event_attributes(self) -> list[tuple[str, str]]:
        """Returns the attributes of a CloudEvent in binary mode (HTTP binding, section 3.1)."""
        return [
            (name.removeprefix("ce-"), unquote(value))
            for name, value in self.headers.items()
            if name.startswith("ce-")
        ]


class HttpMessage(NamedTuple):
    """A message that maps can be applied to (`applying.apply`)."""

    topic: str
    payload: bytes
    document: Any
    """The decoded payload; MISSING: the map decodes it."""


class Outcome(NamedTuple):
    """The outcome of a request, from which its reply is written."""

    status: int
    """200: stored; 202: accepted; 4xx: refused; 503: try again."""
    taken: int = 0
    refused: int = 0
    detail: str = ""
    """The reason of a refusal."""


class Reply(NamedTuple):
    """The answer to the client."""

    status: int
    body: bytes = b""
    content_type: str = JSON


def form_of(head: Head, filters: Iterable[str] = ()) -> Form:
    """Recognises the protocol of a request by its head.

    `filters` are the topics that the maps read: a path among them is theirs, also where it looks
    like a question of ThingsBoard's devices.
    """
    fixed = _PATHS.get(head.path)
    if fixed is not None:
        return fixed
    if head.content_type in (EVENT, EVENTS) or "ce-specversion" in head.headers:
        return Form.CLOUDEVENTS
    if head.content_type in SENML | SENML_CBOR:
        return Form.SENML
    kind = thingsboard_kind(head)
    if kind in _THINGSBOARD_READINGS:
        return Form.THINGSBOARD
    if kind:
        topic = _topic(head)
        is_theirs = any(matches(one, topic) for one in filters)
        return Form.OTHER if is_theirs else Form.THINGSBOARD
    return Form.OWNTRACKS if head.path.startswith("/owntracks/") else Form.OTHER


_PATHS: Final = {
    "/write": Form.INFLUX_1,
    "/api/v2/write": Form.INFLUX_2,
    "/v1/metrics": Form.OTLP,
    "/pub": Form.OWNTRACKS,
    "/owntracks": Form.OWNTRACKS,
}


_THINGSBOARD: Final = re.compile(
    r"/api/v1/([^/]+)/(telemetry|attributes|attributes/updates|rpc|rpc/[0-9]{1,10}|claim"
    r"|firmware|software)"
)
_THINGSBOARD_READINGS: Final = ("telemetry", "attributes")


def _thingsboard(path: str) -> tuple[str, str] | None:
    """Token and kind."""
    found = _THINGSBOARD.fullmatch(path)
    return None if found is None else (unquote(found[1]), found[2])


def thingsboard_kind(head: Head) -> str:
    """What a request of ThingsBoard's device API is about, e.g. `rpc/7`; empty for all others."""
    found = _thingsboard(head.path)
    return "" if found is None else found[1]


def is_question(head: Head) -> bool:
    """Does a device of ThingsBoard ask or answer something, in place of sending readings?"""
    kind = thingsboard_kind(head)
    return bool(kind) and (head.method == "GET" or kind not in _THINGSBOARD_READINGS)


def thingsboard_name(head: Head) -> str:
    """The name of a device of ThingsBoard, which shows nothing but its token."""
    found = _thingsboard(head.path)
    assert found is not None, "form_of said so"
    return head.device or f"thing-{hashlib.sha256(found[0].encode()).hexdigest()[:12]}"


def probe(head: Head) -> Reply | None:
    """Answers what a client asks before it sends: a ping, or whether its database exists."""
    if head.method in ("GET", "HEAD") and head.path in ("/ping", "/health", "/ready"):
        said = b'{"name":"edgewake","status":"pass","version":"v2"}'
        return Reply(204) if head.path == "/ping" else Reply(200, said)
    if head.path == "/query" and head.query.get("q", "").upper().startswith("CREATE DATABASE"):
        return Reply(200, b'{"results":[{"statement_id":0}]}')
    return None


def shown_token(head: Head, form: Form | None = None) -> str:
    """Returns the token that a client sent, wherever its form puts it; empty: none."""
    scheme, _, shown = head.headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "token"):
        return shown.strip()
    if scheme.lower() == "basic":
        return _of_basic(head)[1]
    if form is not Form.OTHER and (own := _thingsboard(head.path)) is not None:
        return own[0]
    return head.query.get("p", head.query.get("token", ""))


def shown_login(head: Head, form: Form | None = None) -> tuple[str, str]:
    """Returns name and password that a client sent; empty: none.

    Basic; `NAME:PASSWORD` where a client has one word for both; InfluxDB's `u` and `p`.
    """
    scheme, _, _ = head.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        return _of_basic(head)
    has_path = form is not Form.OTHER and _thingsboard(head.path) is not None
    if not scheme and not has_path and "p" in head.query:
        return head.query.get("u", ""), head.query["p"]
    name, _, password = shown_token(head, form).partition(":")
    return name, password


def _of_basic(head: Head) -> tuple[str, str]:
    import binascii

    _, _, shown = head.headers.get("authorization", "").partition(" ")
    try:
        pair = binascii.a2b_base64(shown.encode()).decode()
    except ValueError:
        return "", ""
    name, _, password = pair.partition(":")
    return name, password


MEMBERS_MAX: Final = 100
"""The most members of a compressed body: even an empty one costs a copy of the rest."""


def unpacked(body: bytes, coding: str, most: int) -> bytes:
    """Decodes the content coding of a body, to `most` bytes at most. Raises Rejected."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise Rejected(RejectReason.ENCODING, f"content coding {coding[:40]!r}: expected gzip")
    found = bytearray()
    members = 0
    try:
        while body and len(found) <= most:
            members += 1
            if members > MEMBERS_MAX:
                raise Rejected(
                    RejectReason.ENCODING, f"{coding}: expected at most {MEMBERS_MAX} members"
                )
            one = zlib.decompressobj(wbits=47)  # 47: gzip and zlib, by their headers
            found += one.decompress(body, most + 1 - len(found))
            if len(found) <= most and not one.eof:
                raise Rejected(RejectReason.ENCODING, f"{coding}: cut off")
            body = one.unused_data
    except zlib.error as error:
        raise Rejected(RejectReason.ENCODING, f"{coding}: {error}") from error
    if len(found) > most:
        raise Rejected(RejectReason.OVERSIZE, f"more than {most} bytes when unpacked")
    return bytes(found)


def messages(form: Form, head: Head, body: bytes, now_ms: int) -> list[HttpMessage]:
    """Decodes a request to messages by device, in order. Raises Rejected for all of it."""
    return _READERS[form](head, body, now_ms)


def _by_device(
    head: Head, base: str, items: Iterable[tuple[str, Any]], body: bytes
) -> list[HttpMessage]:
    """Groups (device, reading) to messages of one device, each of READINGS_MAX at most."""
    grouped: dict[str, list[Any]] = {}
    for device, item in items:
        grouped.setdefault(level(head.device or device), []).append(item)
    return [
        HttpMessage(f"{base}/{device}", body, found[at : at + READINGS_MAX])
        for device, found in grouped.items()
        for at in range(0, len(found), READINGS_MAX)
    ]


def level(text: str) -> str:
    """Converts a client's name to one level of a topic."""
    plain = text.replace("/", ".").replace("+", "_").replace("#", "_").replace("\0", "_")
    return plain[:LEVEL_CHARS_MAX].strip() or "unnamed"


def _checked_count(items: Sequence[Any]) -> Sequence[Any]:
    if len(items) > ITEMS_MAX:
        raise Rejected(RejectReason.OVERSIZE, f"expected at most {ITEMS_MAX} readings at once")
    return items


NANOSECONDS: Final = {
    "": 1, "ns": 1, "n": 1, "u": 10**3, "us": 10**3, "µ": 10**3,
    "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
"""InfluxDB's `precision` in either interface → nanoseconds of its unit."""


def _influx(head: Head, body: bytes, _now_ms: int) -> list[HttpMessage]:
    precision = head.query.get("precision", "")
    if precision not in NANOSECONDS:
        raise Rejected(
            RejectReason.TIME, f"precision {precision[:20]!r}: expected ns, us, ms, s, m or h"
        )
    where = head.query.get("db") or head.query.get("bucket") or "influx"
    found: list[tuple[str, Any]] = []
    for point in _checked_count(module_of("influx").points(body, ITEMS_MAX + 1)):
        if isinstance(point, BadItem):
            found.append((where, point))
            continue
        if "time" in point:
            point["time"] *= NANOSECONDS[precision]
        found.append((point["tags"].get("host") or where, point))
    return _by_device(head, "influx", found, body)


def _otlp(head: Head, body: bytes, _now_ms: int) -> list[HttpMessage]:
    found = module_of("otlp").readings(body, is_json=head.content_type == JSON, most=ITEMS_MAX + 1)
    items = ((one.pop("device", "otlp"), one) for one in _checked_count(found))
    return _by_device(head, "otlp", items, body)


def _senml(head: Head, body: bytes, now_ms: int) -> list[HttpMessage]:
    module = module_of("senml-cbor" if head.content_type in SENML_CBOR else "senml")
    named = head.path.strip("/").rpartition("/")[2]
    items = (
        (named or one["name"].rstrip("/:") or "senml", one)
        for one in _checked_count(module.readings(body, now_ms))
    )
    return _by_device(head, "senml", items, body)


def _cloudevents(head: Head, body: bytes, _now_ms: int) -> list[HttpMessage]:
    """CloudEvents 1.0, HTTP protocol binding, sections 3.1 to 3.3."""
    if head.content_type in (EVENT, EVENTS):
        found = events(body, head.content_type)
    else:
        found = [event_of(dict(head.event_attributes), head.content_type, body)]
    for one in _checked_count(found):
        check_event(one)
    items = ((str(one["source"]), one) for one in found)
    return _by_device(head, "cloudevents", items, body)


def _owntracks(head: Head, body: bytes, _now_ms: int) -> list[HttpMessage]:
    """Names the device by what the app sends, or by the topic that it would have published to."""
    document = json_of(body)
    user = head.query.get("u") or head.headers.get("x-limit-u", "")
    phone = head.query.get("d") or head.headers.get("x-limit-d", "")
    told = document.get("topic") if isinstance(document, dict) else None
    if not (user and phone) and isinstance(told, str) and told.count("/") >= 2:
        _, user, phone = told.split("/", 3)[:3]
    kind = document.get("_type") if isinstance(document, dict) else None
    topic = f"owntracks/{level(user or 'owntracks')}/{level(head.device or phone or 'phone')}"
    return [HttpMessage(topic + ("/event" if kind == "transition" else ""), body, document)]


def _of_thingsboard(head: Head, body: bytes, _now_ms: int) -> list[HttpMessage]:
    topic = f"v1/devices/{level(thingsboard_name(head))}/{thingsboard_kind(head)}"
    return [HttpMessage(topic, body, json_of(body))]


def _other(head: Head, body: bytes, _now_ms: int) -> list[HttpMessage]:
    """Uses the path as the topic. The query of a GET, and a form's fields, become an object."""
    document: Any = MISSING
    if head.method == "GET":
        secrets = _shown_in_query(head)
        document = {name: _cell(value) for name, value in head.query.items() if name not in secrets}
    elif head.content_type == FORM_BODY:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        document = {name: _cell(value) for name, value in pairs}
    return [HttpMessage(_topic(head), body or b"{}", document)]


def _topic(head: Head) -> str:
    """The topic that a path is."""
    return "/".join(level(unquote(one)) for one in head.path.strip("/").split("/"))


def _shown_in_query(head: Head) -> frozenset[str]:
    """Returns the query parameters that carry credentials: they are not fields of a reading."""
    if "authorization" in head.headers or not (head.device or head.gateway):
        return frozenset({"token"})
    return frozenset({"u", "p", "token"} if "p" in head.query else {"token"})


def _cell(text: str) -> Any:
    """A number where it is one as JSON writes it; else text."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, int | float) else text


_READERS: Final = {
    Form.INFLUX_1: _influx,
    Form.INFLUX_2: _influx,
    Form.OTLP: _otlp,
    Form.CLOUDEVENTS: _cloudevents,
    Form.SENML: _senml,
    Form.OWNTRACKS: _owntracks,
    Form.THINGSBOARD: _of_thingsboard,
    Form.OTHER: _other,
}


def reply(form: Form, head: Head, what: Outcome) -> Reply:
    """Writes the reply that the form's own server would send."""
    if form is Form.OTLP:
        return _otlp_reply(head, what)
    is_good = what.status < 300
    if form in (Form.INFLUX_1, Form.INFLUX_2):
        if is_good and not what.refused:
            return Reply(204)
        status = 400 if is_good or what.status == 422 else what.status
        partial = f"partial write: {what.refused} refused: " if is_good else ""
        said = partial + what.detail
        if form is Form.INFLUX_1:
            return Reply(status, orjson.dumps({"error": said}))
        code = {
            401: "unauthorized",
            413: "request too large",
            429: "too many requests",
            503: "unavailable",
        }
        return Reply(status, orjson.dumps({"code": code.get(status, "invalid"), "message": said}))
    if form is Form.OWNTRACKS and is_good:
        return Reply(200, b"[]")
    if form is Form.THINGSBOARD and is_good:
        return Reply(200)
    told: dict[str, Any] = {"taken": what.taken, "refused": what.refused}
    if what.detail:
        told["error"] = what.detail
    return Reply(what.status, orjson.dumps(told))


def _otlp_reply(head: Head, what: Outcome) -> Reply:
    """Replies by OTLP 1.x, section "OTLP/HTTP Response", in the request's own encoding."""
    is_json = head.content_type == JSON
    kind = JSON if is_json else PROTOBUF
    if what.status < 300:
        if not what.refused:
            return Reply(200, b"{}" if is_json else b"", kind)
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceResponse,
        )

        partial = {"rejectedDataPoints": str(what.refused), "errorMessage": what.detail}
        if is_json:
            return Reply(200, orjson.dumps({"partialSuccess": partial}), kind)
        message = ExportMetricsServiceResponse()
        message.partial_success.rejected_data_points = what.refused
        message.partial_success.error_message = what.detail
        return Reply(200, message.SerializeToString(), kind)
    status = 400 if what.status == 422 else what.status
    if is_json:
        return Reply(status, orjson.dumps({"message": what.detail}), kind)
    return Reply(status, _status_message(what.detail), kind)


def _status_message(detail: str) -> bytes:
    """Encodes a google.rpc.Status that has only field 2, `message`."""
    text = detail.encode()[:2000]
    return b"\x12" + varint.encode(len(text)) + text
