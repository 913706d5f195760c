"""Following server-sent events: the last id is kept with its readings, so nothing is missed or
taken twice.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edgewake.edge.sources.web.sse_pull import SsePullConfig, sendable, wait_ms
from tests.edge.sources.cage import answered, caged, head_of, served

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"


def config(port: int, **more: object) -> SsePullConfig:
    return SsePullConfig(type="sse_pull", stream="s", url=f"http://127.0.0.1:{port}/events", **more)  # type: ignore[arg-type]


class Book:
    """A server that keeps every event and goes on behind the id that it is told; it breaks each
    connection after `piece` events.
    """

    def __init__(self, last: int, piece: int = 10) -> None:
        self.last, self.piece = last, piece
        self.asked: list[str] = []

    async def handler(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        self.asked.append(head.get("last-event-id", ""))
        after = int(self.asked[-1] or 0)
        if after >= self.last:
            writer.write(answered(status="204 No Content"))
            return
        writer.write(HEAD + b"retry: 1\n\n")
        for n in range(after + 1, min(after + self.piece, self.last) + 1):
            writer.write(b'id: %d\ndata: {"n": %d}\n\n' % (n, n))
        writer.write(b'id: 999\ndata: {"n": ')  # half an event: the stream ends in the middle
        await writer.drain()


async def test_it_goes_on_behind_the_last_event_after_every_break_until_there_is_no_more(
    tmp_path: Path,
) -> None:
    book = Book(last=35)
    async with served(book.handler) as port, caged(tmp_path, config(port)) as one:
        await one.until(lambda: len(one.column("n")) >= 35, "all events")
        await one.until(lambda: one.supervisor.state == "ended", "the end")
        assert one.column("n") == list(range(1, 36))
    assert book.asked == ["", "10", "20", "30", "35"]


async def test_after_a_restart_it_goes_on_behind_what_the_log_has(tmp_path: Path) -> None:
    """Control: without a position in the log it begins at the beginning."""
    book = Book(last=1000, piece=7)
    got: list[object] = []
    async with served(book.handler) as port:
        for _ in range(4):
            async with caged(tmp_path, config(port), answering=False) as one:
                await one.until(lambda: one.intake.taken >= 10, "some events")
        async with caged(
            tmp_path,
            SsePullConfig(type="sse_pull", stream="other", url="http://127.0.0.1:1/"),
            answering=False,
        ) as one:
            await one.until(lambda: len(one.column("n")) >= 40, "what the log holds")
            got = one.column("n")
        restarts = len(book.asked)
        assert book.asked.count("") == 1
        async with caged(tmp_path / "another", config(port)) as one:
            await one.until(lambda: len(book.asked) > restarts, "a question")
        assert book.asked[restarts] == ""
    assert len(got) >= 40
    assert got == list(range(1, len(got) + 1))


async def test_events_of_other_types_are_passed_over_and_bad_ones_refused(tmp_path: Path) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(
            HEAD
            + b'event: gap\ndata: {"n": 0}\n\ndata: {"n": 1}\n\ndata: nonsense\n\ndata: [{"n": '
            b'2}, {"n": 3}]\n\n: still here\n\n'
        )
        await reader.read()

    async with served(handler) as port, caged(tmp_path, config(port, events=("message",))) as one:
        await one.until(lambda: one.column("n") == [1, 2, 3], "1, 2, 3")
        assert one.intake.refused == {"json": 1}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (HEAD + b"data: " + b"x" * (3 << 20), "an event of more than"),
        (HEAD, "nothing came"),
        (answered(b"{}"), "application/json"),
        (answered(status="401 No"), "HTTP 401"),
    ],
    ids=["endless", "silent", "json", "refused"],
)
async def test_a_server_that_is_silent_or_endless_is_left(
    tmp_path: Path, answer: bytes, says: str
) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(answer)
        await writer.drain()
        await reader.read()

    async with served(handler) as port, caged(tmp_path, config(port, silence_s=1.0)) as one:
        await one.failed(says)


async def test_an_id_that_cannot_be_sent_back_is_not_kept(tmp_path: Path) -> None:
    asked: list[str] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        asked.append(head.get("last-event-id", ""))
        writer.write(HEAD + b'retry: 1\n\nid: good\ndata: {"n": 1}\n\n')
        await writer.drain()
        if len(asked) == 1:
            writer.write(b'id: a\x01b\ndata: {"n": 2}\n\n')
        await writer.drain()

    async with served(handler) as port, caged(tmp_path, config(port)) as one:
        await one.until(lambda: len(asked) >= 3, "connections")
        assert set(asked[1:]) == {"good"}
        assert one.supervisor.failures == 0


@pytest.mark.parametrize(("asked", "wait"), [(None, 1000), (0, 100), (5000, 5000), (10**9, 60_000)])
def test_a_server_asks_for_a_wait_within_bounds(asked: int | None, wait: int) -> None:
    assert wait_ms(asked) == wait


@pytest.mark.parametrize(
    ("last_id", "can"),
    [
        ("", True),
        ("5", True),
        ("é", True),
        (" 5", False),
        ("a\tb", False),
        ("x" * 1024, True),
        ("x" * 1025, False),
    ],
)
def test_ids_that_a_header_carries(last_id: str, can: bool) -> None:
    assert sendable(last_id) is can
