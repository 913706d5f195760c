"""Turns HTTP requests into messages of plain devices, the only kind behind it. No I/O.

    /ew/v1/DEVICE/up/STREAM, …/status    a plain device, as it would publish to that MQTT topic
    any other path                       a form of other systems' clients (`protocol.maps`), or a
                                         topic of the map file

What is refused of a request is a dead letter, as with MQTT, and its sender hears of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

import mqtt5

from edgewake.cloud.bridge.admission import batches, request_key
from edgewake.cloud.bridge.admission.mapped import OWN, Mapper, Part
from edgewake.cloud.web.tls import Certificate
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.record import TRACE_HEADERS
from edgewake.protocol.maps.contents import KINDS, has_items
from edgewake.protocol.maps.device_tokens import DeviceTokens, Holder
from edgewake.protocol.maps.http_forms import (
    Form,
    Head,
    Outcome,
    Reply,
    form_of,
    messages,
    reply,
    unpacked,
)
from edgewake.protocol.maps.http_identity import Passwords, identified, refusal

_OUR_TYPES: Final = "application/vnd.edgewake"


class Certificates(Protocol):
    """Devices with a certificate."""

    def holder_of(self, shown: Certificate) -> Holder | None:
        """The device whose certificate it is; None: it was taken back, or is nobody's."""


class Asked(NamedTuple):
    """A request that may be taken."""

    form: Form
    head: Head
    topic: str = ""
    """The topic of a plain device; empty: a map decides."""

    @property
    def payer(self) -> str:
        """The device at whose expense it is; empty: nobody showed whose."""
        return self.head.device or self.head.gateway

    @property
    def is_named(self) -> bool:
        """Do its payloads name the devices?"""
        return not self.head.device

    @property
    def key(self) -> str | None:
        """The sender's name for the request. An event of CloudEvents has one: source and id."""
        headers = self.head.headers
        shown = headers.get("idempotency-key")
        if shown is not None or self.form is not Form.CLOUDEVENTS:
            return shown
        # In headers, or in the body, which is part of the key anyway.
        source, event = headers.get("ce-source", ""), headers.get("ce-id", "")
        return blake2b(f"{source}\0{event}".encode()).hexdigest()

    def reply(self, outcome: Outcome) -> Reply:
        """In the words of its own server."""
        return reply(self.form, self.head, outcome)


class Requests:
    """The HTTP requests of one bridge."""

    def __init__(
        self,
        mapper: Mapper,
        tokens: DeviceTokens | None,
        prefix: str,
        body_bytes_max: int,
        passwords: Passwords | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.mapper = mapper
        self._tokens = tokens
        self._passwords = passwords
        self._certificates = certificates
        self._prefix = prefix
        self._body_bytes_max = body_bytes_max

    def asked(
        self, head: Head, *, is_trusted: bool = False, shown: Certificate | None = None
    ) -> Asked | Reply:
        """What a request is, by its head, or an answer in place of taking it.

        `is_trusted`: its sender is not asked who he is, and may be any device. `shown`: the
        certificate that came with it.
        """
        is_own = head.path.startswith(OWN)
        form = Form.OTHER if is_own else form_of(head, self.mapper.maps.filters)
        certified = None
        if shown is not None and self._certificates is not None:
            certified = self._certificates.holder_of(shown)
            if certified is None:
                taken_back = f"the certificate of {shown.name!r} was taken back, or is another's"
                return refusal(form, head, 401, taken_back)
        if is_trusted:
            found = identified(head, None, None, form=form)
        else:
            found = identified(
                head, None, self._tokens, self._passwords, form=form, certified=certified
            )
        if isinstance(found, Reply):
            return found
        if form is Form.THINGSBOARD and found.gateway:
            # Its device API is a gateway's own, as `me` is by MQTT.
            found = found._replace(device=found.gateway, gateway="")
        key = head.headers.get("idempotency-key")
        if key is not None and not 1 <= len(key) <= request_key.KEY_CHARS_MAX:
            expected = f"expected 1 to {request_key.KEY_CHARS_MAX} characters"
            return refusal(form, head, 400, f"Idempotency-Key: {expected}")
        if not is_own:
            return Asked(form, found)
        topic = head.path.strip("/")
        why = self._why_not(found, topic, is_trusted=is_trusted)
        if why is not None:
            return refusal(form, head, *why)
        return Asked(form, found, topic)

    def _why_not(self, head: Head, topic: str, *, is_trusted: bool) -> tuple[int, str] | None:
        """May it publish to a topic of ours?"""
        device = topics.device_in(topic)
        expected = "expected /ew/v1/DEVICE/up/STREAM or /ew/v1/DEVICE/status"
        try:
            is_right = (
                topics.parse_status(topic) if topic.endswith("/status") else topics.parse_up(topic)
            )
        except Rejected as error:
            return 404, f"{error.detail}; {expected}"
        assert is_right, "these give names"
        if head.method != "POST":
            return 405, "readings are posted"
        if head.content_type.startswith(_OUR_TYPES):
            return 415, "frames of agents come by MQTT: expected JSON"
        if head.device and device != head.device:
            return 403, f"the token is that of device {head.device!r}: expected its own topics"
        is_foreign = not is_trusted and not head.device and device != head.gateway
        if is_foreign and not device.startswith(self._prefix):
            return 403, f"devices of others begin with {self._prefix!r} here"
        return None

    def parts(self, asked: Asked, body: bytes, now_ms: int) -> Sequence[Part]:
        """The readings, and what is refused of them."""
        found = self._parts(asked, body, now_ms)
        headers = asked.head.headers
        if trace := [(name, headers[name]) for name in TRACE_HEADERS if name in headers]:
            found = [_with(one, trace) for one in found]
        named = asked.key
        if named is None:
            return found
        key = request_key.of_request(named, body)
        at: Counter[str] = Counter()
        keyed: list[Part] = []
        for one in found:
            topic = one.packet.topic
            keyed.append(_with_key(one, key, at[topic]))
            at[topic] += 1
        return keyed

    def _parts(self, asked: Asked, body: bytes, now_ms: int) -> Sequence[Part]:
        try:
            plain = unpacked(
                body, asked.head.headers.get("content-encoding", ""), self._body_bytes_max
            )
            if asked.topic:
                return self._own_parts(asked, plain, now_ms)
            found = messages(asked.form, asked.head, plain, now_ms)
        except Rejected as error:
            # ThingsBoard's paths hold a secret, so no path is told.
            topic = asked.topic or f"http/{asked.form}"
            return [Part(mqtt5.PublishPacket(topic, body), error)]
        parts: list[Part] = []
        for one in found:
            packet = mqtt5.PublishPacket(one.topic, one.payload)
            parts += self.mapper.parts_of(packet, now_ms, one.document, asked.head.device)
        return parts

    def _own_parts(self, asked: Asked, body: bytes, now_ms: int) -> Sequence[Part]:
        """Raises Rejected."""
        kind: str | None = asked.head.content_type
        attributes = asked.head.event_attributes
        if not attributes and kind not in KINDS:
            kind = None  # curl's, unless it is told otherwise
        packet = mqtt5.PublishPacket(
            asked.topic, body, content_type=kind, user_properties=attributes
        )
        if not body:
            raise Rejected(RejectReason.JSON, "an empty body: expected JSON")
        found = batches.parts(packet, now_ms) if has_items(body, kind, attributes) else None
        return [Part(mqtt5.PublishPacket(asked.topic, body))] if found is None else found


def _with_key(part: Part, key: str, index: int) -> Part:
    return _with(part, request_key.numbered(key, index))


def _with(part: Part, more: Sequence[tuple[str, str]]) -> Part:
    """Add user properties to the message of a part."""
    packet = part.packet
    if not isinstance(packet, mqtt5.PublishPacket):
        return part
    properties = [*packet.user_properties, *more]
    packet = mqtt5.PublishPacket(
        packet.topic, packet.payload, content_type=packet.content_type, user_properties=properties
    )
    return part._replace(packet=packet)


def readings_in(parts: Sequence[Part]) -> int:
    """How many of them are readings, and no word about a device's presence."""
    return sum(not one.packet.topic.endswith("/status") for one in parts)
