"""What a client of ThingsBoard says, and how it is answered, as ThingsBoard's documents have it."""

from __future__ import annotations

import orjson
import pytest

from edgewake.cloud.bridge.thingsboard import words
from edgewake.cloud.bridge.thingsboard.words import (
    Answered,
    Asked,
    Attributes,
    Chunk,
    Passed,
    Up,
)
from edgewake.protocol.downlink.down_message import Command

KNOWN = {"client": {"fw": "1.2"}, "shared": {"interval": 10}}


@pytest.mark.parametrize(
    ("topic", "payload", "meant"),
    [
        ("v1/devices/me/telemetry", b"{}", Up("v1/devices/me/telemetry", False)),
        ("v1/gateway/connect", b"{}", Up("v1/gateway/connect", True)),
        (
            "v1/devices/me/attributes/request/7",
            b'{"clientKeys":"a,b","sharedKeys":"c"}',
            Attributes(7, "", ["a", "b"], ["c"]),
        ),
        (
            "v1/gateway/attributes/request",
            b'{"id":1,"device":"A","client":true,"key":"a"}',
            Attributes(1, "A", ["a"], ()),
        ),
        (
            "v1/gateway/attributes/request",
            b'{"id":1,"device":"A","client":["a"],"shared":["b","c"]}',
            Attributes(1, "A", ["a"], ["b", "c"]),
        ),
        ("v2/t", b"{}", Up("v1/devices/me/telemetry", False)),
        ("v2/t/j", b"{}", Up("v1/devices/me/telemetry", False)),
        ("v2/a", b"{}", Up("v1/devices/me/attributes", False)),
        ("v2/a/req/7", b'{"sharedKeys":"c"}', Attributes(7, "", [], ["c"])),
        ("v2/r/req/3", b'{"method":"getTime"}', Asked(3, "getTime")),
        ("v2/r/res/3", b"[1]", Answered(3, "", "[1]")),
        ("v2/t/p", b"", Passed("nothing is done about 'v2/t/p'")),
        (
            "v2/r/res/3",
            b"x" * (words.QUESTION_BYTES_MAX + 1),
            Passed("65537 bytes on 'v1/devices/me/rpc/response/3': expected at most 65536"),
        ),
        ("v1/devices/me/rpc/request/3", b'{"method":"getTime"}', Asked(3, "getTime")),
        ("v1/devices/me/rpc/response/3", b"[1]", Answered(3, "", "[1]")),
        ("v1/gateway/rpc", b'{"device":"A","id":4,"data":{"x":1}}', Answered(4, "A", '{"x":1}')),
        ("v1/devices/me/claim", b"{}", Passed("claim")),
        ("v2/fw/request/2/chunk/5", b"1024", Chunk("fw", 2, 5, 1024)),
        ("v2/sw/request/2/chunk/0", b"", Chunk("sw", 2, 0, 0)),
        (
            "v2/fw/request/2/chunk/0",
            b"-1",
            Passed("a piece of firmware of '-1' bytes: expected a number"),
        ),
        ("v1/gateway/rpc", b"broken", Passed("nothing is done about 'v1/gateway/rpc'")),
        (
            "v1/devices/me/rpc/request/x",
            b"{}",
            Passed("nothing is done about 'v1/devices/me/rpc/request/x'"),
        ),
    ],
)
def test_what_a_message_means(topic: str, payload: bytes, meant: words.Word) -> None:
    assert words.read(topic, payload) == meant


@pytest.mark.parametrize(
    ("asked", "topic", "body"),
    [
        (
            Attributes(7, "", ["fw", "none"], ["interval"]),
            "v1/devices/me/attributes/response/7",
            {"client": {"fw": "1.2"}, "shared": {"interval": 10}},
        ),
        (
            Attributes(1, "A", ["fw"], ()),
            "v1/gateway/attributes/response",
            {"id": 1, "device": "A", "value": "1.2"},
        ),
        (
            Attributes(1, "A", (), ["interval", "none"]),
            "v1/gateway/attributes/response",
            {"id": 1, "device": "A", "values": {"interval": 10}},
        ),
    ],
)
def test_attributes_are_answered(asked: Attributes, topic: str, body: object) -> None:
    found = words.attributes(asked, KNOWN)
    assert (found.topic, orjson.loads(found.payload)) == (topic, body)


@pytest.mark.parametrize(
    ("args", "params"),
    [((), {}), (("5",), 5), (("on",), "on"), (('{"a":1}',), {"a": 1}), (("1", "x"), [1, "x"])],
)
@pytest.mark.parametrize("device", ["", "A"])
def test_a_command_is_an_rpc_of_its_name(
    args: tuple[str, ...], params: object, device: str
) -> None:
    found = words.command(Command(id="1", name="open", args=args), device)
    number = words.number_of("1")
    body = orjson.loads(found.payload)
    if device:
        wanted = {"device": "A", "data": {"id": number, "method": "open", "params": params}}
        assert (found.topic, body) == ("v1/gateway/rpc", wanted)
    else:
        wanted = {"method": "open", "params": params}
        assert (found.topic, body) == (f"v1/devices/me/rpc/request/{number}", wanted)


def test_a_command_sets_shared_attributes() -> None:
    asked = Command(id="1", name="set_attributes", args=('{"interval": 10}',))
    found = words.shared(words.shared_of(asked), "")
    assert (found.topic, found.payload) == ("v1/devices/me/attributes", b'{"interval":10}')
    assert words.shared(words.shared_of(asked), "A").topic == "v1/gateway/attributes"


def test_a_command_has_the_same_number_wherever_it_is_sent() -> None:
    numbers = {words.number_of(f"{n:016x}") for n in range(1000)}
    assert len(numbers) == 1000
    assert all(0 <= one < 2**31 for one in numbers)
    assert words.number_of("9f2c") == words.number_of("9f2c")
