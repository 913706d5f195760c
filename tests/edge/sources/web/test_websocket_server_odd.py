"""WebSocket servers that are odd, slow or hostile, and what their values may do to what we say to
them.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, Pong, Request, TextMessage

from edgewake.edge.sources.web.http_client import RETRY_AFTER_MAX_S
from edgewake.edge.sources.web.websocket_pull import (
    RESUME_BYTES_MAX,
    WebSocketPull,
    WebSocketPullConfig,
    hello_of,
    last_value,
)
from edgewake.protocol.errors import RemoteError, Unavailable
from tests.edge.sources.cage import answered, scripted, served
from tests.edge.sources.sink import MemorySink, context, running
from tests.services import PATIENCE_S


def source(
    port: int, position: str | None = None, path: str = "/", **more: object
) -> WebSocketPull:
    config = WebSocketPullConfig(
        type="websocket_pull", stream="s", url=f"ws://127.0.0.1:{port}{path}", **more
    )  # type: ignore[arg-type]
    return WebSocketPull(config, context(position))


class Server:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = WSConnection(ConnectionType.SERVER)
        self.request: Request | None = None
        self.heard: list[object] = []

    async def hears(self, kind: type) -> object:
        while not any(isinstance(each, kind) for each in self.heard):
            self._protocol.receive_data(await self._reader.read(65_536) or None)
            self.heard += self._protocol.events()
        return next(each for each in self.heard if isinstance(each, kind))

    def send(self, *events: object) -> None:
        """Events, or bytes as they are; one write."""
        self._writer.write(
            b"".join(
                each if isinstance(each, bytes) else self._protocol.send(each) for each in events
            )
        )  # type: ignore[arg-type]

    async def accept(self) -> None:
        found = await self.hears(Request)
        assert isinstance(found, Request)
        self.request = found
        self.send(AcceptConnection())


by = partial(scripted, Server)


def frame(
    payload: bytes, opcode: int = 1, *, final: bool = True, reserved: int = 0, masked: bool = False
) -> bytes:
    """A frame of RFC 6455 as bytes, right or wrong."""
    first = bytes([0x80 * final | reserved << 4 | opcode])
    mask = 0x80 * masked
    if len(payload) < 126:
        return first + bytes([mask | len(payload)]) + b"\0\0\0\0" * masked + payload
    if len(payload) < 65_536:
        return (
            first + bytes([mask | 126]) + len(payload).to_bytes(2) + b"\0\0\0\0" * masked + payload
        )
    return first + bytes([mask | 127]) + len(payload).to_bytes(8) + b"\0\0\0\0" * masked + payload


async def error_of(*events: object, **more: object) -> tuple[BaseException | None, MemorySink]:
    """What a source says to a server that accepts, sends this and waits."""

    async def script(server: Server) -> None:
        await server.accept()
        server.send(*events)

    async with served(by(script)) as port, running(source(port, **more)) as one:
        return await one.error(), one.sink


@pytest.mark.parametrize(
    ("sent", "kind", "says"),
    [
        ((CloseConnection(1000),), Unavailable, "over, code 1000"),
        ((CloseConnection(1013, "later"),), Unavailable, "over, code 1013 ('later')"),
        ((frame(b"x" * 2000),), RemoteError, "more than 1024 bytes"),
        ((frame(b"x" * 600, final=False), frame(b"x" * 600, 0)), RemoteError,
            "more than 1024 bytes"),
        ((frame(b"\xff\xfe"),), Unavailable, "code 1007 ("),
        ((frame(b"{}", reserved=4),), Unavailable, "code 1002 ("),
        ((frame(b"{}", 3),), Unavailable, "code 1002 ("),
        ((frame(b"{}", 0),), Unavailable, "code 1002 ("),
        ((frame(b"{", final=False), frame(b"}")), Unavailable, "code 1002 ("),
        ((frame(b"x" * 126, 9),), Unavailable, "code 1002 ("),
        ((frame(b"", 9, final=False),), Unavailable, "code 1002 ("),
        ((frame(b"\x03", 8),), Unavailable, "code 1002 ("),
        ((b"\x81\x7f" + b"\xff" * 8,), Unavailable, "code 1002 ("),
        ((frame(b"{}", masked=True),), Unavailable, "code 1002 ("),
    ],
    ids=[
        "an orderly end", "try again later", "a message past the bound", "one in two frames",
        "no UTF-8", "a reserved bit",
        "a kind that is none", "a continuation of nothing", "a message inside a message",
        "a ping past its bound", "a ping in pieces", "half a code of an end",
        "a frame of 2^63 bytes", "a mask, which is the client's",
    ],
)  # fmt: skip
async def test_a_server_that_is_over_or_says_nonsense_is_left_and_named(
    sent: tuple[object, ...], kind: type[Exception], says: str
) -> None:
    error, sink = await error_of(*sent, message_bytes_max=1024)
    assert isinstance(error, kind), error
    assert says in str(error)
    assert sink.readings == []


async def test_a_message_of_just_the_bound_is_taken() -> None:
    text = '{"n": 1' + " " * 1016 + "}"
    error, sink = await error_of(TextMessage(text), CloseConnection(1000), message_bytes_max=1024)
    assert (len(text), sink.values()) == (1024, [1]), error


async def test_the_bound_is_of_each_message_and_not_of_all() -> None:
    text = '{"n": 1' + " " * 600 + "}"
    error, sink = await error_of(
        *[TextMessage(text)] * 5, CloseConnection(1000), message_bytes_max=1024
    )
    assert sink.values() == [1] * 5, error


async def test_messages_that_are_none_cost_themselves_only() -> None:
    sent = [
        TextMessage(text)
        for text in (
            "",
            "nonsense",
            "5",
            "null",
            "[]",
            '["x"]',
            '{"n": 1}',
            '{"n": "\\u0000"}',
            '{"n": 2}',
        )
    ]
    _, sink = await error_of(*sent, CloseConnection(1000))
    assert sink.values() == [1, 2]
    assert sink.lost == {"refused": 6}


@pytest.mark.parametrize(
    ("answer", "says", "wait_s"),
    [
        (answered(b"", status="403 Forbidden"), "HTTP 403", 0),
        (answered(b"", "Retry-After: 120", status="503 Busy"), "HTTP 503", 120),
        (answered(b"", "RETRY-AFTER: 120", status="429 Too Many Requests"), "HTTP 429", 120),
        (answered(b"", "Retry-After: 99999999", status="503 Busy"), "HTTP 503", RETRY_AFTER_MAX_S),
        (answered(b"", "Retry-After: soon", status="503 Busy"), "HTTP 503", 0),
        (answered(b"", "Location: /", status="302 Found"), "HTTP 302", 0),
        (answered(b"{}"), "HTTP 200", 0),
    ],
    ids=[
        "no right",
        "busy",
        "in large letters",
        "for years",
        "a wait that is none",
        "a redirect",
        "no WebSocket at all",
    ],
)
async def test_a_server_that_does_not_let_us_in_is_named_and_given_the_time_that_it_asks_for(
    answer: bytes, says: str, wait_s: float
) -> None:
    async def script(server: Server) -> None:
        await server.hears(Request)
        server.send(answer)

    async with served(by(script)) as port, running(source(port)) as one:
        error = await one.error()
    assert isinstance(error, Unavailable)
    assert says in str(error)
    assert error.retry_after_s == wait_s


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"]
)
async def test_what_is_no_websocket_is_left(answer: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with served(handler) as port, running(source(port)) as one:
        assert isinstance(await one.error(), Unavailable | RemoteError)


async def test_a_silent_server_is_pinged_and_then_left() -> None:
    """On a busy machine the connection itself may take longer than the silence that is allowed
    here: then it is made again.
    """
    pinged = asyncio.Event()

    async def script(server: Server) -> None:
        await server.accept()
        await server.hears(Ping)
        pinged.set()

    async with served(by(script)) as port, asyncio.timeout(PATIENCE_S):
        while not pinged.is_set():
            async with running(source(port, silence_s=0.06)) as one:
                assert "nothing heard" in str(await one.error())


async def test_a_server_whose_pings_are_all_that_comes_is_alive_and_answered() -> None:
    servers: list[Server] = []

    async def script(server: Server) -> None:
        await server.accept()
        server.send(Ping(b"abc"))
        await server.hears(Pong)
        server.send(TextMessage('{"n": 1}'))

    async with served(by(script, servers)) as port, running(source(port)) as one:
        await one.until(lambda: one.sink.values() == [1])
    (pong,) = [each for each in servers[0].heard if isinstance(each, Pong)]
    assert bytes(pong.payload) == b"abc"


async def test_a_value_that_the_log_kept_is_said_in_the_address_and_in_the_first_message() -> None:
    """A value that a hostile server chose says nothing else than itself in either of them."""
    servers: list[Server] = []
    value = 'a"},{"b&c=d#/é\\'

    async def script(server: Server) -> None:
        await server.accept()
        await server.hears(TextMessage)
        server.send(TextMessage(json.dumps({"n": 1})))

    to = {"path": "/x?after={resume}&more=1", "hello": '{"from": "{resume}"}', "resume_field": "id"}
    async with served(by(script, servers)) as port, running(source(port, value, **to)) as one:  # type: ignore[arg-type]
        await one.until(lambda: one.sink.values() == [1])
        assert one.sink.positions == [], "no value came, and the one before stays"
    (server,) = servers
    assert server.request is not None
    assert parse_qs(urlsplit(server.request.target).query) == {"after": [value], "more": ["1"]}
    (hello,) = [each for each in server.heard if isinstance(each, TextMessage)]
    assert json.loads(hello.data) == {"from": value}


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=30))
def test_any_value_stands_in_a_json_text_as_itself(value: str) -> None:
    assert json.loads(hello_of('{"go": "{resume}", "n": 1}', value)) == {"go": value, "n": 1}


def test_a_hello_without_a_place_for_it_is_said_as_it_is() -> None:
    assert hello_of('{"subscribe": "a\\"b"}', "x") == '{"subscribe": "a\\"b"}'


@pytest.mark.parametrize(
    ("items", "value"),
    [
        ([{"id": 1}, {"id": 2}], "2"),
        ([{"id": "a"}, {"other": 1}], "a"),
        ([{"id": 1}, {"id": None}], "1"),
        ([{"id": 1}, {"id": True}], "1"),
        ([{"id": 1}, {"id": 1.5}], "1"),
        ([{"id": 1}, {"id": {"x": 1}}], "1"),
        ([{"id": 1}, {"id": "x" * RESUME_BYTES_MAX}], "x" * RESUME_BYTES_MAX),
        ([{"id": 1}, {"id": "x" * (RESUME_BYTES_MAX + 1)}], "1"),
        ([{"id": 1}, {"id": "é" * (RESUME_BYTES_MAX // 2 + 1)}], "1"),
        ([b'{"id": 7}', b"nonsense"], "7"),
        ([5, "x", None, [1]], "before"),
        ([], "before"),
        ([{"id": -3}], "-3"),
        ([{"id": ""}], ""),
    ],
)
def test_the_last_value_that_can_be_kept_counts(items: list[object], value: str) -> None:
    assert last_value(items, "id", "before") == value


@pytest.mark.parametrize(("last", "positions"), [(3, ["3"]), (None, [])])
async def test_a_place_is_committed_with_its_readings_and_only_when_it_moved(
    last: int | None, positions: list[str]
) -> None:
    body = {"n": 1} if last is None else {"n": 1, "id": last}
    _, sink = await error_of(
        TextMessage(json.dumps(body)),
        TextMessage(json.dumps(body)),
        CloseConnection(1000),
        resume_field="id",
    )
    assert (sink.values(), sink.positions) == ([1, 1], positions)


async def test_a_put_that_failed_leaves_the_place_where_it_was() -> None:
    targets: list[str] = []

    async def script(server: Server) -> None:
        await server.accept()
        assert server.request is not None
        targets.append(server.request.target)
        server.send(TextMessage('{"n": 1, "id": 1}'), CloseConnection(1000))

    sink = MemorySink()
    sink.failures = [RuntimeError("the log")]
    async with served(by(script)) as port:
        same = source(port, path="/?after={resume}", resume_field="id")
        for _ in range(3):
            async with running(same, sink) as one:
                assert await one.error() is not None
    assert (targets, sink.positions) == (["/?after=", "/?after=", "/?after=1"], ["1"])
