"""The case table of the Autobahn suite for servers, as bytes on a socket of the real server.

The suite itself runs on Python 2 alone. Cases have its numbers and its expectations, with what is
this server's own: it has no echo but says that it heard a message (no subscription has its id), it
takes text alone (binary is 1003), messages of 1 MB at most (9.*: 1009), and no extension (12.* and
13.*: a compressed frame is one with a reserved bit).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import orjson
import pytest

from tests.access.sockets.raw import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Raw,
    frame,
    raw,
)
from tests.access.world import Server
from tests.feeds import DEADLINE_S

Said: TypeAlias = tuple[str, object]
KB: Final = 1024
AT_ONCE: Final = 10
"""Cases: after a violation the server waits two seconds for the other side to close."""
BINARY_PING: Final = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"


@dataclass(frozen=True)
class Case:
    """What is sent, how many bytes at a time (0: all), what is to be said to it, and what is sent
    when all but the last of that was heard: a close is answered before messages are.
    """

    sent: bytes
    expected: tuple[Said, ...]
    chops: int = 0
    then: bytes = b""


def ask(name: str = "zz", size: int = 0) -> bytes:
    """A message that is heard; `size`: with blanks up to so many bytes."""
    text = orjson.dumps({"type": "credit", "id": name, "credits": 1})
    return text + b" " * (size - len(text))


def fragments(opcode: int, data: bytes, size: int, between: bytes = b"") -> bytes:
    """A message in pieces of `size` bytes, with frames `between` them."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
    last = len(pieces) - 1
    return between.join(
        frame(CONTINUATION if i else opcode, piece, fin=i == last) for i, piece in enumerate(pieces)
    )


def closing(code: int | None = None, reason: bytes = b"") -> bytes:
    return frame(CLOSE, b"" if code is None else code.to_bytes(2, "big") + reason)


def heard(name: str = "zz") -> Said:
    return "heard", name


def pong(payload: bytes) -> Said:
    return "pong", payload


def closed(code: int) -> Said:
    return "close", code


END: Final = closing(1000)
BYE: Final = closed(1000)
WRONG: Final = closed(1002)
PING_X, PONG_X = frame(PING, b"x"), pong(b"x")


def good(sent: bytes, *expected: Said, chops: int = 0) -> Case:
    """One that ends by the client's close."""
    return Case(sent, (*expected, BYE), chops, then=END)


def _messages() -> dict[str, Case]:
    sizes = (125, 126, 127, 128, 65535, 65536)
    return {
        "1.1.1": good(frame(TEXT, b""), ("problem", "json")),
        **{f"1.1.{i}": good(frame(TEXT, ask(size=n)), heard()) for i, n in enumerate(sizes, 2)},
        "1.1.8": good(frame(TEXT, ask(size=65536)), heard(), chops=997),
        **{
            f"1.2.{i}": Case(frame(BINARY, b"\xfe" * n), (closed(1003),))
            for i, n in enumerate((0, *sizes), 1)
        },
        "1.2.8": Case(frame(BINARY, b"\xfe" * 65536), (closed(1003),), 997),
    }


def _pings() -> dict[str, Case]:
    ten = [b"payload-%d" % n for n in range(10)]
    return {
        "2.1": good(frame(PING), pong(b"")),
        "2.2": good(frame(PING, b"Hello, world!"), pong(b"Hello, world!")),
        "2.3": good(frame(PING, BINARY_PING), pong(BINARY_PING)),
        "2.4": good(frame(PING, b"\xfe" * 125), pong(b"\xfe" * 125)),
        "2.5": Case(frame(PING, b"\xfe" * 126), (WRONG,)),
        "2.6": good(frame(PING, b"\xfe" * 125), pong(b"\xfe" * 125), chops=1),
        "2.7": good(frame(PONG)),
        "2.8": good(frame(PONG, b"unsolicited")),
        "2.9": good(frame(PONG, b"unsolicited") + frame(PING, b"ping"), pong(b"ping")),
        "2.10": good(b"".join(frame(PING, one) for one in ten), *map(pong, ten)),
        "2.11": good(b"".join(frame(PING, one) for one in ten), *map(pong, ten), chops=1),
    }


def _reserved() -> dict[str, Case]:
    def marked(bits: int) -> bytes:
        return frame(TEXT, ask("rsv"), reserved=bits)

    first = frame(TEXT, ask())
    return {
        "3.1": Case(marked(1), (WRONG,)),
        "3.2": Case(first, (heard(), WRONG), then=marked(2) + PING_X),
        "3.3": Case(first, (heard(), WRONG), 997, then=marked(3) + PING_X),
        "3.4": Case(first, (heard(), WRONG), 1, then=marked(4) + PING_X),
        "3.5": Case(frame(BINARY, b"\xff" * 8, reserved=5), (WRONG,)),
        "3.6": Case(frame(PING, b"x", reserved=6), (WRONG,)),
        "3.7": Case(frame(CLOSE, reserved=7), (WRONG,)),
    }


def _opcodes() -> dict[str, Case]:
    first, cases = frame(TEXT, ask()), {}
    for group, opcodes in (("4.1", range(3, 8)), ("4.2", range(11, 16))):
        for number, opcode in enumerate(opcodes, 1):
            payload = b"reserved" if number > 1 else b""
            before, expected = (first, (heard(), WRONG)) if number > 2 else (b"", (WRONG,))
            wrong = frame(opcode, payload) + PING_X
            chops = 1 if number > 3 else 0
            cases[f"{group}.{number}"] = Case(before, expected, chops, then=wrong)
    return cases


def _fragmentation() -> dict[str, Case]:
    two = fragments(TEXT, ask(), 20)
    with_ping = fragments(TEXT, ask(), 20, PING_X)
    orphan = frame(CONTINUATION, b"nobody's", fin=True)
    open_orphan = frame(CONTINUATION, b"nobody's", fin=False)
    pings = len(ask()) // 20
    return {
        "5.1": Case(frame(PING, b"1", fin=False) + frame(CONTINUATION, b"2"), (WRONG,)),
        "5.2": Case(frame(PONG, b"1", fin=False) + frame(CONTINUATION, b"2"), (WRONG,)),
        "5.3": good(two, heard()),
        "5.4": good(two, heard(), chops=997),
        "5.5": good(two, heard(), chops=1),
        "5.6": good(with_ping, *[PONG_X] * pings, heard()),
        "5.7": good(with_ping, *[PONG_X] * pings, heard(), chops=997),
        "5.8": good(with_ping, *[PONG_X] * pings, heard(), chops=1),
        "5.9": Case(orphan + frame(TEXT, ask()), (WRONG,)),
        "5.10": Case(orphan + frame(TEXT, ask()), (WRONG,), 997),
        "5.11": Case(orphan + frame(TEXT, ask()), (WRONG,), 1),
        "5.12": Case(open_orphan + frame(TEXT, ask()), (WRONG,)),
        "5.13": Case(open_orphan + frame(TEXT, ask()), (WRONG,), 997),
        "5.14": Case(open_orphan + frame(TEXT, ask()), (WRONG,), 1),
        "5.15": Case(two, (heard(), WRONG), then=open_orphan + frame(TEXT, ask("b"))),
        "5.16": Case((open_orphan + two) * 2, (WRONG,)),
        "5.17": Case((orphan + two) * 2, (WRONG,)),
        "5.18": Case(frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), (WRONG,)),
        "5.19": good(
            fragments(TEXT, ask(), 12, PING_X), *[PONG_X] * ((len(ask()) - 1) // 12), heard()
        ),
        "5.20": good(
            fragments(TEXT, ask(), 12, PING_X),
            *[PONG_X] * ((len(ask()) - 1) // 12),
            heard(),
            chops=1,
        ),
    }


VALID: Final = (
    *("κόσμε", "Hello-µ@ßöäüàá-UTF-8!!", "\u0080", "\u07ff", "\u0800", "\uffff", "\U00010000"),
    *("\U0010ffff", "\ud7ff", "\ue000", "\ufffd", "\ufffe", "\U0001fffe", "\U0010fffe"),
)
"""6.2, 6.5, 6.7, 6.9, 6.11, 6.22, 6.23: boundaries, and what is no character but right."""
INVALID: Final = {
    "6.3": b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    "6.6 one byte of two": b"\xce",
    "6.6 two of three": b"\xe1\xbd",
    "6.6 three of four": b"\xf0\x90\x80",
    "6.8 five bytes": b"\xf8\x88\x80\x80\x80",
    "6.8 six bytes": b"\xfc\x84\x80\x80\x80\x80",
    "6.10 past the last": b"\xf4\x90\x80\x80",
    "6.10 five bytes, last": b"\xfb\xbf\xbf\xbf\xbf",
    "6.10 six bytes, last": b"\xfd\xbf\xbf\xbf\xbf\xbf",
    "6.12 continuation": b"\x80",
    "6.12 last continuation": b"\xbf",
    **{f"6.12 {n} continuations": b"\x80\xbf" * n for n in (1, 2, 3)},
    "6.12 all continuations": bytes(range(0x80, 0xC0)),
    "6.13 starts of two": b" ".join(bytes((n,)) for n in range(0xC0, 0xE0)),
    "6.13 starts of three": b" ".join(bytes((n,)) for n in range(0xE0, 0xF0)),
    "6.13 starts of four": b" ".join(bytes((n,)) for n in range(0xF0, 0xF8)),
    "6.14 incomplete two": b"\xdf",
    "6.14 incomplete three": b"\xef\xbf",
    "6.14 incomplete four": b"\xf7\xbf\xbf",
    "6.15 all incomplete": b"\xc0\xe0\x80\xf0\x80\x80\xdf\xef\xbf\xf7\xbf\xbf",
    "6.16 fe": b"\xfe",
    "6.16 ff": b"\xff",
    "6.16 both": b"\xfe\xfe\xff\xff",
    "6.17 long slash of two": b"\xc0\xaf",
    "6.17 of three": b"\xe0\x80\xaf",
    "6.17 of four": b"\xf0\x80\x80\xaf",
    "6.18 longest of two": b"\xc1\xbf",
    "6.18 of three": b"\xe0\x9f\xbf",
    "6.18 of four": b"\xf0\x8f\xbf\xbf",
    "6.19 long nul of two": b"\xc0\x80",
    "6.19 of three": b"\xe0\x80\x80",
    **{f"6.20 surrogate {n:x}": b"\xed" + bytes((0xA0 + n // 64 % 32, 0x80 + n % 64))
       for n in (0x000, 0x37F, 0x380, 0x3FF, 0x400, 0x780, 0x7FF)},
    "6.21 a pair": b"\xed\xa0\x80\xed\xb0\x80",
}  # fmt: skip


def _utf8() -> dict[str, Case]:
    bad = (closed(1007),)
    cut = INVALID["6.3"].index(b"\xed")
    whole = ask("κόσμε")
    fast = frame(TEXT, INVALID["6.3"][:cut], fin=False)
    return {
        "6.1.1": good(frame(TEXT), ("problem", "json")),
        "6.1.2": good(
            frame(TEXT, fin=False) + frame(CONTINUATION, fin=False) + frame(CONTINUATION),
            ("problem", "json"),
        ),
        "6.1.3": good(
            frame(TEXT, fin=False) + frame(CONTINUATION, ask(), fin=False) + frame(CONTINUATION),
            heard(),
        ),
        "6.2.2": good(fragments(TEXT, whole, 20), heard("κόσμε")),
        "6.2.3": good(fragments(TEXT, whole, 1), heard("κόσμε")),
        "6.2.4": good(frame(TEXT, whole), heard("κόσμε"), chops=1),
        **{f"6.2+ {one!r}": good(frame(TEXT, ask(one)), heard(one)) for one in VALID},
        **{name: Case(frame(TEXT, data), bad) for name, data in INVALID.items()},
        "6.3.2": Case(fragments(TEXT, INVALID["6.3"], 1), bad),
        # Noticed before the message is whole:
        "6.4.1": Case(fast + frame(CONTINUATION, b"\xf4\x90\x80\x80", fin=False), bad),
        "6.4.2": Case(fast + frame(CONTINUATION, b"\xf4\x90", fin=False), bad),
        "6.4.3": Case(frame(TEXT, INVALID["6.10 past the last"], fin=False), bad),
    }


def _closes() -> dict[str, Case]:
    fine = (*range(1000, 1004), *range(1007, 1012), 3000, 3999, 4000, 4999)
    never = (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999)
    return {
        "7.1.1": good(frame(TEXT, ask()), heard()),
        "7.1.2": Case(END + END, (BYE,)),
        "7.1.3": Case(END + PING_X, (BYE,)),
        "7.1.4": Case(END + frame(TEXT, ask()), (BYE,)),
        "7.1.5": Case(frame(TEXT, b"{", fin=False) + END + frame(CONTINUATION, b"}"), (BYE,)),
        "7.1.6": good(frame(TEXT, ask(size=256 * KB)) + frame(TEXT, ask("b")), heard(), heard("b")),
        "7.3.1": Case(closing(), (closed(1005),)),
        "7.3.2": Case(frame(CLOSE, b"\x03"), (WRONG,)),
        "7.3.3": Case(closing(1000), (BYE,)),
        "7.3.4": Case(closing(1000, b"Hello World!"), (BYE,)),
        "7.3.5": Case(closing(1000, b"x" * 123), (BYE,)),
        "7.3.6": Case(closing(1000, b"x" * 124), (WRONG,)),
        "7.5.1": Case(closing(1000, INVALID["6.3"]), (closed(1007),)),
        **{f"7.7 {code}": Case(closing(code), (closed(code),)) for code in fine},
        **{f"7.9 {code}": Case(closing(code), (WRONG,)) for code in never},
        "7.13.1": Case(closing(5000), (WRONG,)),
        "7.13.2": Case(closing(65535), (WRONG,)),
    }


def _limits() -> dict[str, Case]:
    large = ask(size=64 * KB)
    return {
        "9.1.1": good(frame(TEXT, large), heard()),
        "9.1.2": good(frame(TEXT, ask(size=256 * KB)), heard()),
        "9.1.3": good(frame(TEXT, ask(size=1024 * KB)), heard()),
        "9.1.3 by one": Case(frame(TEXT, ask(size=1024 * KB + 1)), (closed(1009),)),
        "9.1.4": Case(frame(TEXT, b" " * 4096 * KB), (closed(1009),)),
        "9.2.4": Case(fragments(TEXT, b" " * 4096 * KB, 64 * KB), (closed(1009),)),
        **{
            f"9.3 {size}": good(fragments(TEXT, large, size), heard())
            for size in (64, 256, KB, 4 * KB, 16 * KB, 64 * KB)
        },
        **{
            f"9.5 {size}": good(frame(TEXT, large), heard(), chops=size)
            for size in (64, 256, 2 * KB)
        },
        "9.7": good(frame(TEXT, ask()) * 15, *[heard()] * 15),
    }


CASES: Final[dict[str, Case]] = {
    **_messages(),
    **_pings(),
    **_reserved(),
    **_opcodes(),
    **_fragmentation(),
    **_utf8(),
    **_closes(),
    **_limits(),
    "12.1, 13.1": Case(frame(TEXT, ask(), reserved=4), (WRONG,)),
}


async def _said(socket: Raw) -> AsyncIterator[Said]:
    """What the peer says, until it ends the connection; heartbeats are nobody's answer."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            opcode, payload = await socket.next()
            if opcode == PONG:
                yield "pong", payload
            elif opcode == CLOSE:
                yield "close", int.from_bytes(payload[:2], "big") if payload else 1005
                return
            else:
                told = orjson.loads(payload)
                if told.get("code") == "unknown_id":
                    yield "heard", told["id"]
                elif told["type"] != "heartbeat":
                    yield told["type"], told.get("code")


async def answer(port: int, case: Case) -> tuple[Said, ...]:
    """What is said to a case. The connection is ended by both sides."""
    offered = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
    async with raw(port, **offered) as socket, asyncio.TaskGroup() as sending:
        assert "sec-websocket-extensions" not in socket.headers
        is_time = asyncio.Event()
        sending.create_task(_send(socket, case, is_time))
        found: list[Said] = []
        if len(case.expected) == 1:
            is_time.set()
        async for one in _said(socket):
            found.append(one)
            if len(found) == len(case.expected) - 1:
                is_time.set()
        is_time.set()
        with contextlib.suppress(ConnectionError):
            await socket.send(closing(1000))
        assert await socket.is_over()
    return tuple(found)


async def _send(socket: Raw, case: Case, is_time: asyncio.Event) -> None:
    """All of it, as far as the other side takes it: it closes after what was wrong."""
    with contextlib.suppress(ConnectionError):
        await socket.send(case.sent, chops=case.chops)
        await is_time.wait()
        await socket.send(case.then, chops=case.chops)


GROUPS: Final = sorted({name.split(".")[0] for name in CASES}, key=int)


def of_group(group: str) -> dict[str, Case]:
    return {name: case for name, case in CASES.items() if name.split(".")[0] == group}


async def failed(port: int, cases: dict[str, Case]) -> dict[str, tuple[Sequence[Said], object]]:
    """Of each case that is answered otherwise what was said, and what was expected."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def said_to(case: Case) -> tuple[Said, ...]:
        async with turns:
            return await answer(port, case)

    found = await asyncio.gather(*(said_to(case) for case in cases.values()))
    return {
        name: (said, cases[name].expected)
        for name, said in zip(cases, found, strict=True)
        if said != cases[name].expected
    }


def first_of_each_class() -> dict[str, Case]:
    """The first case of each class of the suite: 1.1, 1.2, 2, 3, …, 6.1, 6.2, …"""
    classes: dict[str, str] = {}
    for name in CASES:
        parts = name.split(".")
        classes.setdefault(".".join(parts[:2] if len(parts) > 2 else parts[:1]), name)
    return {name: CASES[name] for name in classes.values()}


@pytest.mark.services
async def test_the_first_case_of_each_class_is_answered_as_it_should(access_a: Server) -> None:
    """The short form; all cases are `long`."""
    cases = first_of_each_class()
    assert {name.split(".")[0] for name in cases} == set(GROUPS)
    assert await failed(access_a.port, cases) == {}


@pytest.mark.long
@pytest.mark.services
@pytest.mark.parametrize("group", GROUPS)
async def test_the_server_answers_each_case_as_it_should(access_a: Server, group: str) -> None:
    assert await failed(access_a.port, of_group(group)) == {}


@asynccontextmanager
async def peer(answers: Callable[[bytes], bytes]) -> AsyncIterator[int]:
    """The port of a peer that says to all that came what a function gives, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n")
        writer.write(answers(await reader.read(2**20)))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1")
    async with listening, asyncio.timeout(DEADLINE_S):
        yield listening.sockets[0].getsockname()[1]


async def test_a_peer_that_is_wrong_is_noticed() -> None:
    """The control: who hears what it should refuse, answers a ping with another payload, or hangs
    up without a word, fails in each group.
    """
    echo = b'{"type":"problem","code":"unknown_id","id":"zz"}'
    obliging = frame(TEXT, echo, masked=False) + frame(CLOSE, b"\x03\xe8", masked=False)
    wrong_pong = frame(PONG, b"other", masked=False) + frame(CLOSE, b"\x03\xe8", masked=False)
    async with peer(lambda _: obliging) as hears_all, peer(lambda _: b"") as silent:
        for group in GROUPS:
            cases = of_group(group)
            assert await failed(silent, cases) == {
                name: ((), case.expected) for name, case in cases.items()
            }
        for group in ("3", "4", "6", "12"):
            refused = {
                name: case for name, case in of_group(group).items() if case.expected[-1] != BYE
            }
            assert (await failed(hears_all, refused)).keys() == refused.keys()
    async with peer(lambda _: wrong_pong) as wrong:
        assert (await failed(wrong, {"2.2": CASES["2.2"]})).keys() == {"2.2"}
