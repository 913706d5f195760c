"""The oracle's own reader of event streams, against a server of a few lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edgewake.simulators.clients import Event, Follower, Server, SseReader
from tests.services import PATIENCE_S

STREAM = (
    b": hello\n\nid: 1\ndata: {}\n\nid: 2\n\nevent: gap\nid: 3\ndata: a\ndata: b\n\nretry: "
    b"10\n\ndata: cut off\n"
)


def read(*pieces: bytes) -> tuple[list[Event], str]:
    reader = SseReader()
    return [event for piece in pieces for event in reader.feed(piece)], reader.last_id


def test_events_end_at_an_empty_line_and_an_unfinished_one_is_dropped():
    events, last_id = read(STREAM)
    assert events == [Event("1", "message", "{}"), Event("3", "gap", "a\nb")]
    assert last_id == "3"


def test_an_id_alone_moves_the_cursor_and_shows_nothing():
    assert read(b"id: 7\n\n") == ([], "7")
    assert read(b"id: 7\ndata: x\n") == ([], "")


@given(st.lists(st.integers(0, len(STREAM)), max_size=8).map(sorted))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts: list[int]):
    bounds = [0, *cuts, len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in pairwise(bounds))) == read(STREAM)


def test_carriage_returns_may_end_lines():
    assert read(STREAM.replace(b"\n", b"\r\n")) == read(STREAM)


@asynccontextmanager
async def server(answer: Callable[[str], bytes]) -> AsyncIterator[Server]:
    """Answers each request head with bytes and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.write(answer(head))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()


def body(*events: bytes, chunked: bool = False) -> bytes:
    if not chunked:
        return b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(events)
    return (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%b\r\n" % (len(e), e) for e in events)
        + b"0\r\n\r\n"
    )


async def test_a_client_resumes_on_another_server_with_its_cursor():
    heads: list[str] = []
    shown: list[str] = []
    done = asyncio.Event()

    def on_event(_client: str, event: Event) -> None:
        shown.append(event.data)
        if event.data == "2":
            done.set()

    def first(head: str) -> bytes:
        heads.append(head)
        return body(b"id: c1\ndata: 1\n\n", b"data: cut", chunked=True)

    def second(head: str) -> bytes:
        heads.append(head)
        return body(b"id: c2\ndata: 2\n\n")

    async with server(first) as one, server(second) as two:
        client = Follower("x", [one, two], ["raw"], on_event)
        client.wake()
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
        await client.sleep()
    assert shown == ["1", "2"]
    assert "GET /v1/events?stream=raw&from=earliest " in heads[0]
    assert "Last-Event-ID" not in heads[0]
    assert "Last-Event-ID: c1\r\n" in heads[1]


async def test_a_sleeping_client_keeps_its_cursor_and_wakes_elsewhere():
    heads: list[str] = []
    shown = asyncio.Event()

    def answer(head: str) -> bytes:
        heads.append(head)
        return body(b"id: c1\n\n", b"id: c1\ndata: x\n\n")

    async with server(answer) as one, server(answer) as two:
        client = Follower("x", [one, two], ["raw"], lambda *_: shown.set())
        for _ in range(2):
            shown.clear()
            client.wake(on_next_server=True)
            async with asyncio.timeout(PATIENCE_S):
                await shown.wait()
            await client.sleep()
    assert (client.cursor, client.sleeps) == ("c1", 2)
    assert f"Host: 127.0.0.1:{two[1]}" in heads[0]
    assert f"Host: 127.0.0.1:{one[1]}" in heads[1]
    assert "Last-Event-ID: c1" in heads[1]


async def test_a_refusal_is_kept_and_tried_again_elsewhere():
    shown = asyncio.Event()
    async with (
        server(lambda _: b"HTTP/1.1 503 No\r\n\r\nlater") as one,
        server(lambda _: body(b"data: x\n\n")) as two,
    ):
        client = Follower("x", [one, two], ["raw"], lambda *_: shown.set())
        client.wake()
        async with asyncio.timeout(PATIENCE_S):
            await shown.wait()
        await client.sleep()
    assert client.refusals == ["503 for /v1/events?stream=raw&from=earliest: later"]
