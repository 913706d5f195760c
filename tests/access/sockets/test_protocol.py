"""A WebSocket's connection at its bounds, without a network: what is answered and what is dropped.

The frames of a client come from wsproto, as the ones of a browser would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import wsproto
from uvicorn.config import Config
from uvicorn.server import ServerState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    Request,
    TextMessage,
)

from edgewake.cloud.access.connection import EXTENSION, Connection
from edgewake.cloud.access.sockets.protocol import MESSAGE_BYTES_MAX, SocketProtocol
from tests.log.memory_hub import turns


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 6)})
        self.sent = b""
        self.is_over = self.reads_not = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def pause_reading(self) -> None:
        self.reads_not = True

    def resume_reading(self) -> None:
        self.reads_not = False


class World:
    """A connection that is open, and its client."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.connection: Connection
        self.transport = Transport()
        config = Config(self._app, interface="asgi3", log_config=None, ws_ping_interval=None)
        config.load()
        self.protocol = SocketProtocol(config, ServerState(), {})
        self.client = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.protocol.connection_made(self.transport)
        self.send(Request(host="localhost", target="/v1/ws"))

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.connection = scope["extensions"][EXTENSION]
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        while True:
            await self.takes.wait()
            found = await receive()
            self.heard.append(found)
            if found["type"] == "websocket.disconnect":
                return

    def send(self, *events: Event) -> None:
        self.protocol.data_received(b"".join(map(self.client.send, events)))

    def answers(self) -> list[Event]:
        """What its client was sent."""
        data, self.transport.sent = self.transport.sent, b""
        self.client.receive_data(data)
        return list(self.client.events())


@asynccontextmanager
async def opened() -> AsyncIterator[World]:
    here = World()
    await turns()
    assert [type(one) for one in here.answers()] == [AcceptConnection]
    yield here
    here.takes.set()
    if here.protocol.close_timer is not None:
        here.protocol.close_timer.cancel()
    here.protocol.connection_lost(None)
    await turns()
    assert here.heard[-1]["type"] == "websocket.disconnect"


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("is_text", [True, False])
async def test_the_largest_message_is_heard_in_however_many_fragments(
    parts: int, is_text: bool
) -> None:
    async with opened() as w:
        for event in fragments(MESSAGE_BYTES_MAX, parts, is_text=is_text):
            w.send(event)
        await turns()
        (found,) = w.heard
        assert len(found["text" if is_text else "bytes"]) == MESSAGE_BYTES_MAX


@pytest.mark.parametrize("parts", [1, 7])
async def test_one_byte_more_is_answered_with_1009_once_and_all_after_it_is_dropped(
    parts: int,
) -> None:
    async with opened() as w:
        for event in fragments(MESSAGE_BYTES_MAX + 1, parts):
            w.send(event)
        w.send(*fragments(2 * MESSAGE_BYTES_MAX, 2), Ping(b"are you there"))
        (close,) = w.answers()
        assert isinstance(close, CloseConnection)
        assert (close.code, str(MESSAGE_BYTES_MAX) in (close.reason or "")) == (1009, True)
        await turns()
        assert [(one["type"], one["code"]) for one in w.heard] == [("websocket.disconnect", 1009)]
        assert not w.transport.is_over, "it waits for the other side's close frame"
        w.send(close.response())
        assert w.transport.is_over


def fragments(size: int, parts: int, *, is_text: bool = True) -> list[Event]:
    """A message of so many bytes."""
    sizes = [size // parts] * (parts - 1)
    sizes.append(size - sum(sizes))
    kind: Any = TextMessage if is_text else BytesMessage
    unit: Any = "x" if is_text else b"x"
    ends = [False] * (parts - 1) + [True]
    return [
        kind(data=unit * each, message_finished=is_last)
        for each, is_last in zip(sizes, ends, strict=True)
    ]


async def test_bytes_of_a_text_are_counted_and_not_its_characters() -> None:
    async with opened() as w:
        w.send(TextMessage(data="é" * (MESSAGE_BYTES_MAX // 2)))
        w.send(TextMessage(data="é" * (MESSAGE_BYTES_MAX // 2 + 1)))
        await turns()
        assert [one["type"] for one in w.heard] == ["websocket.receive", "websocket.disconnect"]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x01x", 1002),  # without a mask
        (b"\x83\x80\0\0\0\0", 1002),  # an opcode that there is not
        (b"\x80\x80\0\0\0\0", 1002),  # a continuation of nothing
        (b"\x81\x82\0\0\0\0\xff\xff", 1007),  # text that is not UTF-8
    ],
)
async def test_a_violation_is_answered_with_its_code_and_nothing_after_it_is_read(
    frame: bytes, code: int
) -> None:
    async with opened() as w:
        w.protocol.data_received(frame)
        (close,) = w.answers()
        assert isinstance(close, CloseConnection)
        assert close.code == code
        w.protocol.data_received(b"\x81\x01x" * 5)
        w.protocol.data_received(b"")
        assert w.answers() == []
        await turns()
        assert [one["code"] for one in w.heard] == [code]


async def test_of_pings_that_came_while_nothing_could_be_written_the_last_is_answered() -> None:
    async with opened() as w:
        w.send(Ping(b"one"))
        assert w.answers() == [Pong(b"one")]
        w.protocol.pause_writing()
        w.send(Ping(b"two"), Ping(b"three"))
        assert w.answers() == []
        w.protocol.resume_writing()
        w.protocol.resume_writing()
        assert w.answers() == [Pong(b"three")]


async def test_a_ping_that_waits_is_not_answered_behind_our_close_frame() -> None:
    async with opened() as w:
        w.protocol.pause_writing()
        w.send(Ping(b"one"))
        for event in fragments(MESSAGE_BYTES_MAX + 1, 1):
            w.send(event)
        w.protocol.resume_writing()
        assert [type(one) for one in w.answers()] == [CloseConnection]


async def test_nothing_is_read_while_a_message_waits_to_be_heard() -> None:
    async with opened() as w:
        w.takes.clear()
        w.send(TextMessage(data="first"))  # its handler waits for one already
        await turns()
        w.send(TextMessage(data="second"))
        await turns()
        assert w.transport.reads_not
        w.takes.set()
        await turns()
        assert not w.transport.reads_not
        assert [one.get("text") for one in w.heard] == ["first", "second"]


async def test_who_writes_is_told_when_it_can_and_when_the_connection_is_lost() -> None:
    async with opened() as w:
        told: list[str] = []
        w.connection.on_writable = lambda: told.append(f"writable {w.connection.is_paused}")
        w.connection.on_lost = lambda: told.append("lost")
        w.protocol.on_gone = lambda: told.append("gone")
        w.protocol.pause_writing()
        assert w.connection.is_paused
        w.protocol.resume_writing()
    assert told == ["writable False", "gone", "lost"]


async def test_a_client_that_closes_is_answered_with_its_code() -> None:
    async with opened() as w:
        w.send(CloseConnection(code=1001, reason="away"))
        (close,) = w.answers()
        assert isinstance(close, CloseConnection)
        assert close.code == 1001
        await turns()
        assert w.heard[-1]["code"] == 1001
