"""RFC 6455 to the letter: the cases of the Autobahn suite that a server without an echo can be
asked, as bytes on a socket.

A message that is heard is answered with a problem, because no subscription has its id: that is the
echo.
"""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.access.sockets.raw import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Raw, frame, raw
from tests.access.world import Server

pytestmark = pytest.mark.services

ASKED = b'{"type":"credit","id":"%b","credits":1}'
HEARD = ASKED % b"zz"


def padded(size: int) -> bytes:
    """A message of so many bytes."""
    return HEARD + b" " * (size - len(HEARD))


async def heard(socket: Raw, name: str = "zz") -> None:
    """The server heard a message about `name`."""
    answer = orjson.loads(await socket.until(TEXT))
    assert (answer["code"], answer["id"]) == ("unknown_id", name)


@pytest.mark.parametrize("size", [len(HEARD), 125, 126, 127, 128, 65535, 65536, 1024 * 1024])
@pytest.mark.parametrize("chops", [0, 997])
async def test_messages_of_every_length(access_a: Server, size: int, chops: int) -> None:
    async with raw(access_a.port) as socket:
        await socket.send(frame(TEXT, padded(size)), chops=chops)
        await heard(socket)


async def test_a_message_byte_by_byte_and_in_fragments(access_a: Server) -> None:
    async with raw(access_a.port) as socket:
        await socket.send(frame(TEXT, HEARD), chops=1)
        await heard(socket)
        pieces = [HEARD[at : at + 1] for at in range(len(HEARD))]
        whole = frame(TEXT, pieces[0], fin=False)
        whole += b"".join(frame(CONTINUATION, one, fin=False) for one in pieces[1:-1])
        await socket.send(whole + frame(CONTINUATION, pieces[-1]))
        await heard(socket)
        empty = frame(TEXT, b"", fin=False) + frame(CONTINUATION, HEARD, fin=False)
        await socket.send(empty + frame(CONTINUATION, b""))
        await heard(socket)


@pytest.mark.parametrize("payload", [b"", b"Hello", bytes(range(125)), b"\x00\xff\xfe"])
async def test_pings_are_answered_with_their_payload(access_a: Server, payload: bytes) -> None:
    async with raw(access_a.port) as socket:
        await socket.send(frame(PING, payload))
        assert await socket.until(PONG) == payload


async def test_pings_stand_between_fragments_and_pongs_are_passed(access_a: Server) -> None:
    async with raw(access_a.port) as socket:
        await socket.send(frame(PONG, b"nobody asked"))
        await socket.send(frame(TEXT, HEARD[:5], fin=False) + frame(PING, b"now"))
        assert await socket.until(PONG) == b"now", "before the message is whole"
        await socket.send(frame(CONTINUATION, HEARD[5:]))
        await heard(socket)
        await socket.send(b"".join(frame(PING, b"%d" % n) for n in range(10)))
        assert [await socket.until(PONG) for _ in range(10)] == [b"%d" % n for n in range(10)]


async def test_text_of_every_plane_is_heard(access_a: Server) -> None:
    name = "κόσμε-\u0800-\ud7ff-\ue000-\uffff-\U00010000-\U0010ffff"
    asked = ASKED % name.encode()
    async with raw(access_a.port) as socket:
        await socket.send(frame(TEXT, asked))
        await heard(socket, name)
        at = asked.index("ό".encode()) + 1  # inside a character
        await socket.send(frame(TEXT, asked[:at], fin=False) + frame(CONTINUATION, asked[at:]))
        await heard(socket, name)


BROKEN: dict[str, tuple[bytes, int]] = {
    **{f"reserved bits {n}": (frame(TEXT, HEARD, reserved=n), 1002) for n in range(1, 8)},
    **{
        f"opcode {n}": (frame(n, b"x"), 1002)
        for n in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    },
    "no mask": (frame(TEXT, HEARD, masked=False), 1002),
    "ping of 126 bytes": (frame(PING, b"x" * 126), 1002),
    "ping in fragments": (frame(PING, b"x", fin=False), 1002),
    "pong in fragments": (frame(PONG, b"x", fin=False), 1002),
    "close of 126 bytes": (frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
    "close of one byte": (frame(CLOSE, b"\x03"), 1002),
    "continuation of nothing": (frame(CONTINUATION, HEARD), 1002),
    "continuation of nothing, unfinished": (frame(CONTINUATION, HEARD, fin=False), 1002),
    "a message inside another": (frame(TEXT, b"{", fin=False) + frame(TEXT, HEARD), 1002),
    "length with its highest bit": (b"\x81\xff" + b"\xff" * 8 + b"mask", 1002),
    "binary": (frame(BINARY, b"\x00"), 1003),
    "binary in fragments": (frame(BINARY, b"a", fin=False) + frame(CONTINUATION, b"b"), 1003),
    "broken text": (frame(TEXT, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80"), 1007),
    "overlong text": (frame(TEXT, b"\xc0\xaf"), 1007),
    "text past the last plane": (frame(TEXT, b"\xf4\x90\x80\x80"), 1007),
    "text that ends in a character": (frame(TEXT, b"\xce"), 1007),
    "broken text, before its end": (frame(TEXT, b"\xf4\x90\x80\x80", fin=False), 1007),
    "broken text over fragments": (
        frame(TEXT, b"\xf4", fin=False) + frame(CONTINUATION, b"\x90", fin=False),
        1007,
    ),
    "broken reason": (frame(CLOSE, b"\x03\xe8\xc0\xaf"), 1007),
    "2 MB": (frame(TEXT, b" " * 2_000_000), 1009),
    "2 MB in fragments": (
        frame(TEXT, b" " * 1000, fin=False)
        + frame(CONTINUATION, b" " * 1000, fin=False) * 2000,
        1009,
    ),
    "one byte too many": (frame(TEXT, padded(1024 * 1024 + 1)), 1009),
}  # fmt: skip


async def code_of(port: int, data: bytes) -> int | None:
    """The code with which the server closes after these bytes; and it ends the connection."""
    async with raw(port) as socket:
        await socket.send(data)
        code = await socket.close_code()
        await socket.send(frame(CLOSE, (code or 0).to_bytes(2, "big")))
        assert await socket.is_over()
        return code


async def test_what_is_wrong_ends_with_its_code(access_a: Server) -> None:
    found = await asyncio.gather(*(code_of(access_a.port, data) for data, _ in BROKEN.values()))
    expected = {case: code for case, (_, code) in BROKEN.items()}
    assert dict(zip(BROKEN, found, strict=True)) == expected


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
)
async def test_a_close_is_answered_with_its_code(access_a: Server, code: int) -> None:
    async with raw(access_a.port) as socket:
        await socket.send(frame(CLOSE, code.to_bytes(2, "big") + "goodbye – ok".encode()))
        assert await socket.close_code() == code
        assert await socket.is_over()


async def test_a_close_without_a_code_is_answered(access_a: Server) -> None:
    async with raw(access_a.port) as socket:
        await socket.send(frame(CLOSE) + frame(TEXT, HEARD) + frame(PING))
        assert await socket.close_code() in (0, 1000)
        assert await socket.is_over(), "what comes after a close is not heard"


async def test_codes_that_nobody_may_send_are_refused(access_a: Server) -> None:
    codes = (0, 999, 1004, 1005, 1006, 1015, 1100, 2000, 2999, 5000, 65535)
    closes = [frame(CLOSE, code.to_bytes(2, "big")) for code in codes]
    found = await asyncio.gather(*(code_of(access_a.port, data) for data in closes))
    assert dict(zip(codes, found, strict=True)) == dict.fromkeys(codes, 1002)


async def test_no_extension_is_agreed_and_our_subprotocol_is(access_a: Server) -> None:
    async with raw(
        access_a.port,
        Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits",
        Sec_WebSocket_Protocol="other, edgewake.v1",
    ) as socket:
        assert socket.status == 101
        assert socket.headers["sec-websocket-accept"] == "s3pplmbitxaq9kygzzhzrbk+xoo="
        assert "sec-websocket-extensions" not in socket.headers
        assert socket.headers["sec-websocket-protocol"] == "edgewake.v1"
    async with raw(access_a.port, Sec_WebSocket_Protocol="other") as socket:
        assert (socket.status, socket.headers.get("sec-websocket-protocol")) == (101, None)


@pytest.mark.parametrize(
    ("words", "path", "statuses"),
    [
        ({"Sec-WebSocket-Version": "12"}, "/v1/ws", {426}),
        ({"Sec-WebSocket-Version": None}, "/v1/ws", {400, 426}),
        ({"Sec-WebSocket-Key": None}, "/v1/ws", {400}),
        ({"Sec-WebSocket-Key": "short"}, "/v1/ws", {400}),
        ({"Connection": "keep-alive"}, "/v1/ws", {400}),
        ({"Upgrade": None}, "/v1/ws", {426}),
        ({"Upgrade": "h2c"}, "/v1/ws", {426}),
        ({}, "/v1/streams", {400}),
        ({}, "/v1/ws?stream=x", {400}),
        ({}, "/v1/ws?heartbeat=1", {400}),
        ({"Host": "evil.example"}, "/v1/ws", {421}),
        ({"Origin": "http://evil.example"}, "/v1/ws", {403}),
        ({"Origin": "null"}, "/v1/ws", {403}),
        ({"Origin": "http://[::1"}, "/v1/ws", {403}),
        ({"Cookie": "x" * 40_000}, "/v1/ws", {431}),
    ],
)
async def test_handshakes_that_are_refused(
    access_a: Server, words: dict[str, str | None], path: str, statuses: set[int]
) -> None:
    async with raw(access_a.port, path, limit=2**16, **words) as socket:
        assert socket.status in statuses


async def test_a_page_of_the_server_itself_is_let_in(access_a: Server) -> None:
    async with raw(access_a.port, Origin=access_a.url) as socket:
        assert socket.status == 101
