"""Requests of other systems' clients at the HTTP intake, decoded by maps.

They are imported only where a source has maps: a small device pays for what it uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from edgewake.edge.sources.mqtt.mqtt_maps import SourceMaps
from edgewake.edge.sources.web.http_request import KINDS, Refusal, Wanted, asked_of
from edgewake.protocol.maps.applying import Refusal as Unmapped
from edgewake.protocol.maps.device_tokens import DeviceTokens
from edgewake.protocol.maps.http_forms import (
    Form,
    Head,
    Outcome,
    Reply,
    form_of,
    is_question,
    messages,
    reply,
    unpacked,
)
from edgewake.protocol.maps.http_identity import identified, refusal
from edgewake.protocol.names import THING

KIND: Final = "kind"
"""Field with the stream that a map gives, where it is another one than the source's, and all that
comes at the port is in one stream."""


NO_QUESTIONS: Final = (
    "an agent takes telemetry and attributes; for commands, questions for attributes and firmware "
    "ask a bridge with [http]"
)
"""What a device of ThingsBoard is told that asks here."""


class Bodies(NamedTuple):
    """The contents of a request."""

    items: Sequence[dict[str, Any]]
    units: Sequence[tuple[str, Mapping[str, str]]]
    """Units of fields, each with the stream where that is not the source's own."""
    refused: Sequence[Unmapped]
    remarks: Sequence[str]


class Foreign(NamedTuple):
    """A request that a map is asked for."""

    form: Form
    head: Head
    asked: Wanted

    def reply(self, outcome: Outcome) -> Reply:
        """In the words of its own server."""
        return reply(self.form, self.head, outcome)


class MappedRequests:
    """The mapped requests of one source."""

    def __init__(self, maps: SourceMaps, tokens: DeviceTokens | None, body_bytes_max: int) -> None:
        self.maps = maps
        self.tokens = tokens
        self._body_bytes_max = body_bytes_max

    def look(self) -> None:
        """Read again what changed. Blocking."""
        self.maps.look()
        if self.tokens is not None:
            self.tokens.look()

    def wanted(
        self, method: str, target: str, headers: Mapping[str, str], token: str | None
    ) -> Foreign | Reply | None:
        """Classify a request; None: it is one of our own kind.

        `token`: what all clients must send, unless they send a device's own.
        """
        head = Head.of(method, target, headers)
        form = form_of(head, self.maps.filters)
        if form is Form.OTHER and head.path == "/" and head.content_type in KINDS:
            return None
        found = identified(head, token, self.tokens, form=form)
        if isinstance(found, Reply):
            return found
        if form is Form.THINGSBOARD and is_question(found):
            return refusal(form, head, 404, NO_QUESTIONS)
        asked = asked_of(headers)
        if isinstance(asked, Refusal):
            return refusal(form, head, asked.status, asked.why)
        return Foreign(form, found, asked)

    def bodies(self, request: Foreign, body: bytes, now_ms: int) -> Bodies:
        """The objects in a request. Raises Rejected."""
        coding = request.head.headers.get("content-encoding", "")
        plain = unpacked(body, coding, self._body_bytes_max)
        items: list[dict[str, Any]] = []
        units: list[tuple[str, Mapping[str, str]]] = []
        unmapped: list[Unmapped] = []
        remarks: list[str] = []
        for message in messages(request.form, request.head, plain, now_ms):
            outcome = self.maps.outcome(message.topic, message.payload, now_ms, message.document)
            found = self.maps.all_bodies(outcome.readings, KIND)
            if request.head.device:  # who shows a device's own token is that device
                found = [one | {THING: request.head.device} for one in found]
            items += found
            units += [(self.maps.other(one), one.units) for one in outcome.readings if one.units]
            unmapped += outcome.refused
            remarks += outcome.remarks
        return Bodies(items, units, unmapped, remarks)
