"""Puts the AsyncAPI 3 document together; served as /asyncapi.json, beside /openapi.json. Pure.

Actions are the server's: it *sends* what clients and devices hear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from edgewake.cloud.access.asyncapi import devices, schemas, sockets, webhooks
from edgewake.cloud.access.asyncapi.schemas import Schema, ref

VERSION: Final = "3.0.0"
JSON: Final = "application/json"
EVENTS: Final[Mapping[str, Schema]] = {
    "reading": schemas.READING,
    "result": schemas.RESULT,
    "selected": schemas.SELECTED,
    "watermark": schemas.WATERMARK,
    "gap": schemas.GAP,
    "checkpoint": schemas.CHECKPOINT,
    "warning": schemas.WARNING,
    "behind": schemas.BEHIND,
    "conflated": schemas.CONFLATED,
    "heartbeat": schemas.HEARTBEAT,
    "problem": schemas.PROBLEM,
    "end": schemas.END,
}
"""The events of an event stream by their names; the first three have no name."""
UNNAMED: Final = ("reading", "result", "selected")
PARAMETERS: Final = {
    "name": {"description": "A stream, a query or a publication."},
    "stream": {"description": "A stream."},
    "device": {"description": "The device: its MQTT client id."},
    "gateway": {"description": "The gateway: its MQTT client id."},
    "thing": {"description": "The thing, as the gateway calls it."},
}
PARAMETER: Final = re.compile(r"\{(\w+)\}")


@cache
def document() -> dict[str, Any]:
    """The document."""
    made = _Document()
    made.event_streams()
    made.sockets()
    made.devices()
    made.webhooks()
    return made.whole()


class _Document:
    def __init__(self) -> None:
        self._channels: dict[str, Any] = {}
        self._operations: dict[str, Any] = {}
        self._messages: dict[str, Any] = {}

    def whole(self) -> dict[str, Any]:
        return {
            "asyncapi": VERSION,
            "info": {
                "title": "Edgewake",
                "version": "1",
                "description": "What clients, devices and endpoints hear and say. What is asked by "
                "HTTP and answered once is in /openapi.json.",
            },
            "defaultContentType": JSON,
            "servers": {
                "access": _server("127.0.0.1:8700", "http", "Event streams (SSE)."),
                "sockets": _server("127.0.0.1:8700", "ws", "The same server's WebSocket."),
                "broker": _server("127.0.0.1:8710", "mqtt", "MQTT 3.1.1 or 5."),
                "endpoint": _server("example.org", "https", "An endpoint that is called."),
            },
            "channels": self._channels,
            "operations": self._operations,
            "components": {"messages": self._messages},
        }

    def event_streams(self) -> None:
        """Streams: one, several with one cursor, or a publication."""
        messages = {
            name: self._message(
                f"event_{name}",
                schema,
                "No event name." if name in UNNAMED else f"`event: {name}`",
                bindings={"http": {"bindingVersion": "0.3.0"}},
            )
            for name, schema in EVENTS.items()
        }
        for name, address in (
            ("events", "/v1/streams/{name}/events"),
            ("severalEvents", "/v1/events"),
            ("publishedEvents", "/v1/publications/{name}/events"),
        ):
            self._channel(name, address, "access", messages)
            self._operation(name, "send", name, messages)

    def sockets(self) -> None:
        """One channel, both ways."""
        said = {
            f"say_{name}": self._message(f"say_{name}", schema, f"`type`: {name}")
            for name, schema in sockets.said().items()
        }
        heard = {
            f"hear_{name}": self._message(f"hear_{name}", schema, f"`type`: {name}")
            for name, schema in sockets.heard().items()
        }
        self._channel("socket", "/v1/ws", "sockets", said | heard)
        self._operation("socketSaid", "receive", "socket", said)
        self._operation("socketHeard", "send", "socket", heard)

    def devices(self) -> None:
        """The topics of MQTT."""
        for topic in devices.mqtt_topics():
            messages = {
                name: self._message(
                    f"{topic.name}_{name}",
                    schema,
                    topic.meaning,
                    content_type=topic.content_types.get(name),
                )
                for name, schema in topic.messages.items()
            }
            self._channel(topic.name, topic.address, "broker", messages)
            action = "receive" if topic.is_from_device else "send"
            self._operation(topic.name, action, topic.name, messages)

    def webhooks(self) -> None:
        """Calls of endpoints; whoever registers one says its address."""
        messages = {
            name: self._message(name, schema, name, headers=webhooks.HEADERS)
            for name, schema in webhooks.CALLS.items()
        }
        self._channel("webhook", None, "endpoint", messages)
        self._operation("webhook", "send", "webhook", messages)

    def _message(
        self,
        name: str,
        payload: Schema,
        summary: str,
        *,
        headers: Schema | None = None,
        content_type: str | None = None,
        bindings: Mapping[str, Any] | None = None,
    ) -> Schema:
        found: dict[str, Any] = {"name": name, "summary": summary, "payload": payload}
        found["contentType"] = content_type or JSON
        if headers is not None:
            found["headers"] = headers
        if bindings is not None:
            found["bindings"] = dict(bindings)
        self._messages[name] = found
        return ref("messages", name)

    def _channel(
        self,
        name: str,
        address: str | None,
        server: str,
        messages: Mapping[str, Schema],
    ) -> None:
        found: dict[str, Any] = {
            "address": address,
            "servers": [{"$ref": f"#/servers/{server}"}],
            "messages": dict(messages),
        }
        if parameters := PARAMETER.findall(address or ""):
            found["parameters"] = {one: PARAMETERS[one] for one in parameters}
        self._channels[name] = found

    def _operation(
        self, name: str, action: str, channel: str, messages: Mapping[str, Schema]
    ) -> None:
        self._operations[name] = {
            "action": action,
            "channel": {"$ref": f"#/channels/{channel}"},
            "messages": [{"$ref": f"#/channels/{channel}/messages/{one}"} for one in messages],
        }


def _server(host: str, protocol: str, description: str) -> dict[str, str]:
    return {"host": host, "protocol": protocol, "description": description}
