"""What a client of ThingsBoard says by MQTT, and how it is answered. Pure.

v1/devices/me/telemetry, …/attributes             readings
v1/devices/me/attributes/request/N                asks for attributes → …/response/N
v1/devices/me/rpc/request/N                       asks for something  → …/rpc/response/N
v1/devices/me/rpc/request/N (to it), …/response/N a command, and its answer
v1/devices/me/claim                               is taken, and means nothing here
v2/fw/request/N/chunk/K, v2/sw/…                  asks for firmware, software → …/response/N/chunk/K
/provision/request                                asks for a token (`provisioning`)
v1/gateway/…                                      the same for devices behind it, by their names
v2/t, v2/a, v2/a/req/N, v2/r/res/N, …             the short names of the first five
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from edgewake.protocol.downlink.down_message import Command

DEVICE: Final = "v1/devices/me/"
GATEWAY: Final = "v1/gateway/"
ATTRIBUTES: Final = DEVICE + "attributes"
GATEWAY_ATTRIBUTES: Final = GATEWAY + "attributes"
GATEWAY_RPC: Final = GATEWAY + "rpc"
_ASKED: Final = ATTRIBUTES + "/request/"
_RPC_ASKED: Final = DEVICE + "rpc/request/"
_RPC_ANSWERED: Final = DEVICE + "rpc/response/"
_UP: Final = frozenset({DEVICE + "telemetry", ATTRIBUTES})
_GATEWAY_UP: Final = frozenset(
    {GATEWAY + "telemetry", GATEWAY_ATTRIBUTES, GATEWAY + "connect", GATEWAY + "disconnect"}
)
_SHORT: Final = {
    "v2/t": DEVICE + "telemetry",
    "v2/t/j": DEVICE + "telemetry",
    "v2/a": ATTRIBUTES,
    "v2/a/j": ATTRIBUTES,
}
"""Short topic → the one that is meant; protobuf (`v2/t/p`) is not read."""
_SHORT_BEGINNINGS: Final = {
    "v2/a/req/": ATTRIBUTES + "/request/",
    "v2/a/res/": ATTRIBUTES + "/response/",
    "v2/r/req/": DEVICE + "rpc/request/",
    "v2/r/res/": DEVICE + "rpc/response/",
}
"""How topics with a number at their end begin: short and long."""
_CHUNK: Final = re.compile(r"v2/(fw|sw)/request/([0-9]{1,10})/chunk/([0-9]{1,10})")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
SET_ATTRIBUTES: Final = "set_attributes"
"""The command that becomes shared attributes; every other one is an RPC of its name."""
QUESTION_BYTES_MAX: Final = 64 * 1024
"""Bytes of a question or an answer, as ThingsBoard has it: it is read at once, while nobody else is
served."""
INFLIGHT_MAX: Final = 100
"""Messages of a client that wait for Kafka."""
PAYLOAD_BYTES_MAX: Final = 1 << 20
"""Bytes of a message."""
_LIMITS: Final = {
    "maxPayloadSize": PAYLOAD_BYTES_MAX,
    "maxInflightMessages": INFLIGHT_MAX,
    "rateLimits": {"messages": "", "telemetryMessages": "", "telemetryDataPoints": ""},
}
"""Answer to `getSessionLimits`, which ThingsBoard's own client asks for before it sends."""


class Up(NamedTuple):
    """Readings, for the maps."""

    topic: str
    is_gateways: bool


class Attributes(NamedTuple):
    """Attributes are asked for."""

    number: int
    device: str
    """The device behind a gateway whose they are; empty: the client itself."""
    client: Sequence[str]
    shared: Sequence[str]


class Answered(NamedTuple):
    """A device has answered a command."""

    number: int
    device: str
    output: str


class Asked(NamedTuple):
    """A device asks its server to do something."""

    number: int
    method: str


class Chunk(NamedTuple):
    """A device asks for a piece of its firmware or software."""

    kind: str
    """`fw` or `sw`."""
    number: int
    """The request's."""
    piece: int
    size: int
    """Bytes of a piece; 0: all in one."""

    @property
    def topic(self) -> str:
        """Where the answer goes."""
        return f"v2/{self.kind}/response/{self.number}/chunk/{self.piece}"


class Passed(NamedTuple):
    """Nothing is to be done."""

    why: str


Word: TypeAlias = Up | Attributes | Answered | Asked | Chunk | Passed


class Publish(NamedTuple):
    """What is sent to a client."""

    topic: str
    payload: bytes


def standard(topic: str) -> str:
    """The long name of a topic."""
    if topic in _SHORT:
        return _SHORT[topic]
    for short_one, long_one in _SHORT_BEGINNINGS.items():
        if topic.startswith(short_one):
            return long_one + topic.removeprefix(short_one)
    return topic


def shortened(topic: str) -> str:
    """The short name of what is published to a device; the same topic where there is none."""
    if topic == ATTRIBUTES:
        return "v2/a"
    for short_one, long_one in _SHORT_BEGINNINGS.items():
        if topic.startswith(long_one):
            return short_one + topic.removeprefix(long_one)
    return topic


def read(topic: str, payload: bytes) -> Word:
    """What a message means."""
    topic = standard(topic)
    if topic in _UP or topic in _GATEWAY_UP:
        return Up(topic, topic in _GATEWAY_UP)
    if (chunk := _CHUNK.fullmatch(topic)) is not None:
        return _chunk(chunk, payload)
    if len(payload) > QUESTION_BYTES_MAX:
        expected = f"expected at most {QUESTION_BYTES_MAX}"
        return Passed(f"{len(payload)} bytes on {topic[:200]!r}: {expected}")
    body = object_of(payload)
    if topic.startswith(_ASKED) and (number := _number(topic, _ASKED)) is not None:
        return Attributes(number, "", _keys(body.get("clientKeys")), _keys(body.get("sharedKeys")))
    if topic.startswith(_RPC_ASKED) and (number := _number(topic, _RPC_ASKED)) is not None:
        return Asked(number, str(body.get("method", "")))
    if topic.startswith(_RPC_ANSWERED) and (number := _number(topic, _RPC_ANSWERED)) is not None:
        return Answered(number, "", payload.decode("utf-8", "replace"))
    if topic == GATEWAY_ATTRIBUTES + "/request":
        return _of_gateway(body)
    if topic == GATEWAY_RPC and isinstance(body.get("id"), int):
        data = orjson.dumps(body.get("data")).decode()
        return Answered(body["id"], str(body.get("device", "")), data)
    return Passed("claim" if topic.endswith("/claim") else f"nothing is done about {topic[:200]!r}")


def _chunk(found: re.Match[str], payload: bytes) -> Word:
    text = payload.decode("ascii", "replace").strip() or "0"
    if not _NUMBER.fullmatch(text):
        return Passed(f"a piece of firmware of {text[:20]!r} bytes: expected a number")
    kind, number, piece = found.groups()
    return Chunk(kind, int(number), int(piece), int(text))


def _of_gateway(body: Mapping[str, Any]) -> Word:
    number, device = body.get("id"), body.get("device")
    if not isinstance(number, int) or not isinstance(device, str):
        return Passed("attributes are asked for without `id` and `device`")
    if not isinstance(body.get("client"), bool) and ("client" in body or "shared" in body):
        return Attributes(number, device, _keys(body.get("client")), _keys(body.get("shared")))
    keys = _keys(body.get("keys", body.get("key")))
    is_client = body.get("client") is True
    return Attributes(number, device, keys if is_client else (), () if is_client else keys)


def object_of(payload: bytes) -> Mapping[str, Any]:
    """The object in a payload; an empty one where there is none."""
    try:
        body = orjson.loads(payload) if payload else {}
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


def _number(topic: str, beginning: str) -> int | None:
    text = topic.removeprefix(beginning)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _keys(said: object) -> Sequence[str]:
    if isinstance(said, str):
        return [one for one in said.split(",") if one]
    return [str(one) for one in said] if isinstance(said, list) else []


def attributes(asked: Attributes, known: Mapping[str, Mapping[str, Any]]) -> Publish:
    """The answer. `known`: what there is of its `client` and its `shared` attributes."""
    client = {name: known["client"][name] for name in asked.client if name in known["client"]}
    shared = {name: known["shared"][name] for name in asked.shared if name in known["shared"]}
    if not asked.device:
        body = {"client": client, "shared": shared}
        return Publish(f"{ATTRIBUTES}/response/{asked.number}", orjson.dumps(body))
    found = {**client, **shared}
    names = [*asked.client, *asked.shared]
    value = {"value": found.get(names[0])} if len(names) == 1 else {"values": found}
    of_gateway = {"id": asked.number, "device": asked.device, **value}
    return Publish(GATEWAY_ATTRIBUTES + "/response", orjson.dumps(of_gateway))


def replied(asked: Asked) -> Publish:
    """The answer to what a device asks for."""
    is_known = asked.method == "getSessionLimits"
    body = _LIMITS if is_known else {"error": f"nobody here does {asked.method[:100]!r}"}
    return Publish(f"{_RPC_ANSWERED}{asked.number}", orjson.dumps(body))


def number_of(command_id: str) -> int:
    """A command's number as an RPC: the same at each bridge, however often it is sent."""
    return int.from_bytes(blake2b(command_id.encode(), digest_size=4).digest()) & 0x7FFF_FFFF


def shared(values: Mapping[str, Any], device: str) -> Publish:
    """Shared attributes that were set. `device`: behind a gateway; empty: itself."""
    if device:
        return Publish(GATEWAY_ATTRIBUTES, orjson.dumps({"device": device, "data": values}))
    return Publish(ATTRIBUTES, orjson.dumps(values))


def command(asked: Command, device: str) -> Publish:
    """A command as an RPC. `device`: behind a gateway; empty: itself."""
    call = called(asked)
    if device:
        return Publish(GATEWAY_RPC, orjson.dumps({"device": device, "data": call}))
    number = call.pop("id")
    return Publish(f"{_RPC_ASKED}{number}", orjson.dumps(call))


def called(asked: Command) -> dict[str, Any]:
    """A command as a call, with its number."""
    number = number_of(asked.id)
    return {"id": number, "method": asked.name, "params": _params(asked.args)}


def shared_of(asked: Command) -> Mapping[str, Any]:
    """The attributes that a command sets: its first argument, an object."""
    return object_of(asked.args[0].encode()) if asked.args else {}


def _params(args: Sequence[str]) -> Any:
    values = [_value(one) for one in args]
    if not values:
        return {}
    return values[0] if len(values) == 1 else values


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
