"""Pages over a slow line: they become smaller until one comes through, and larger again."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.access.bounded.read import READ_S
from edgewake.cloud.access.open_streams import OPEN_S
from edgewake.edge.client import Credentials, FollowError, Lost, Subscription, TokenFile, pages
from edgewake.edge.client.credentials import RENEW_S
from edgewake.edge.client.follow import BACKOFF_MAX_S
from edgewake.edge.client.pages import LIMIT, Pages
from edgewake.protocol.clock import FakeClock, SystemClock
from tests.services import PATIENCE_S

EVENT = b'{"n":%d,"filling":"' + b"x" * 1000 + b'"}\n'
PAGE_S = 0.4
"""In place of a minute."""


class HurriedClock(SystemClock):
    """One that waits for nothing."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


@dataclass
class Line:
    """A server of `events`, and the line that it is behind."""

    events: int
    each_s: float
    """For one event."""
    quick_from: int
    """Event from which on the line takes no time."""
    port: int = 0
    limits: list[int] = field(default_factory=list)
    began: list[int] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            limit = int(head.split("limit=")[1].split()[0].split("&")[0])
            at = int(head.lower().split("last-event-id: ")[1].split()[0])
            self.limits.append(limit)
            self.began.append(at)
            end = min(self.events, at + limit)
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            for number in range(at, end):
                writer.write(EVENT % number)
                await writer.drain()
                if number < self.quick_from:
                    await asyncio.sleep(self.each_s)
            is_live = b"true" if end == self.events else b"false"
            writer.write(b'{"$event":"end","cursor":"%d","live":%s}' % (end, is_live))
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(line: Line) -> AsyncIterator[str]:
    async with await asyncio.start_server(line.answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_slow_line_brings_smaller_pages_and_a_quick_one_larger_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asked for the same page again and again, and threw away what came."""
    monkeypatch.setattr(pages, "PAGE_S", PAGE_S)
    line, lost = Line(events=3000, each_s=PAGE_S / 10, quick_from=30), list[Lost]()
    found: list[bytes] = []
    wanted = Subscription(streams=("s",))
    async with serving(line) as url, asyncio.timeout(PATIENCE_S):
        reading = Pages([url], wanted, on_notice=lost.append, clock=HurriedClock())
        async with aclosing(reading.read("0")) as read:
            async for page in read:
                found += page.lines
    assert found == [(EVENT % number)[:-1] for number in range(3000)], "each once, in order"
    assert line.limits[:6] == [LIMIT, LIMIT // 2, LIMIT // 4, LIMIT // 8, LIMIT // 16, LIMIT // 32]
    assert set(line.began[:6]) == {0}, "the line carries ten events in this time"
    assert line.limits[-1] == LIMIT
    assert lost[0].why == f"no whole page of {LIMIT} events in time"


async def test_it_ends_at_pages_of_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_S", PAGE_S / 4)
    monkeypatch.setattr(pages, "LIMIT", 4)
    line, lost = Line(events=1, each_s=PAGE_S, quick_from=1), asyncio.Event()

    def notice(_: Lost) -> None:
        if line.limits.count(1) >= 2:
            lost.set()

    async with serving(line) as url:
        reading = Pages([url], Subscription(streams=("s",)), on_notice=notice, clock=HurriedClock())
        task = asyncio.ensure_future(anext(reading.read("0")))
        async with asyncio.timeout(PATIENCE_S):
            await lost.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    # A request may be given up before the server has read it.
    assert line.limits == sorted(line.limits, reverse=True)
    assert set(line.limits) <= {4, 2, 1}


def page(*events: bytes, cursor: str = "1", packed: bool = False) -> bytes:
    end = b'{"$event":"end","cursor":"%s","live":true}' % cursor.encode()
    body = b"".join(one + b"\n" for one in (*events, end))
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
    if packed:
        return head + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(body)
    return head + b"\r\n" + body


@dataclass
class Answering:
    """A server that gives each connection its next answer, and keeps the heads of requests."""

    answers: list[bytes]
    after_s: float = 0.0
    """How long it works before it answers at all."""
    heads: list[str] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            await asyncio.sleep(self.after_s)
            writer.write(self.answers.pop(0))
            await writer.drain()
        writer.close()


async def read(at: Answering, **options: Any) -> tuple[list[bytes], list[str]]:
    """All that is read to the live end, and why pages were lost."""
    lost: list[Lost] = []
    found: list[bytes] = []
    options = {"clock": HurriedClock(), "on_notice": lost.append} | options
    async with (
        asyncio.timeout(PATIENCE_S),
        await asyncio.start_server(at.answer, "127.0.0.1", 0) as server,
    ):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        reading = Pages([url], Subscription(streams=("s",)), **options).read("0")
        async with aclosing(reading) as pages_read:
            async for one in pages_read:
                found += one.lines
    return found, [one.why for one in lost]


async def test_a_page_that_a_proxy_has_packed_is_said_to_be_that() -> None:
    """It was said to be no JSON, of which nobody thinks of a proxy."""
    found, (why,) = await read(Answering([page(b"{}", packed=True), page(b"{}")]))
    assert found == [b"{}"]
    assert "packed as gzip" in why


REFUSED = b'HTTP/1.1 401 x\r\nConnection: close\r\n\r\n{"detail":"it is expired"}'


async def test_a_token_that_was_let_in_may_be_renewed_late(tmp_path: Path) -> None:
    """Who slept for a day comes back with a token that has expired a moment ago."""
    file = tmp_path / "token"
    file.write_text("old")
    clock, rest, lost = FakeClock(), page(b"{}").replace(b"true", b"false"), list[Lost]()

    def renew(notice: Lost) -> None:
        lost.append(notice)
        if len(lost) == 2:
            file.write_text("new")

    at = Answering([rest, REFUSED, REFUSED, page(b"[]")])
    options = {"credentials": Credentials(token=TokenFile(file)), "clock": clock}
    found, _ = await read(at, on_notice=renew, **options)
    assert (found, [one.why for one in lost]) == ([b"{}", b"[]"], ["it is expired"] * 2)
    shown = [re.findall(r"bearer (\S+)", head.lower()) for head in at.heads]
    assert shown == [["old"], ["old"], ["old"], ["new"]]


async def test_a_token_that_is_never_renewed_is_the_end_of_the_reading(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", FakeClock()
    file.write_text("old")
    rest = page(b"{}").replace(b"true", b"false")
    for answers, waits_s in (([REFUSED], 0), ([rest, *[REFUSED] * 99], RENEW_S)):
        before_s = clock.monotonic_s()
        options = {"credentials": Credentials(token=TokenFile(file)), "clock": clock}
        with pytest.raises(FollowError, match="it is expired"):
            await read(Answering(answers), **options)
        waited_s = clock.monotonic_s() - before_s
        assert waits_s <= waited_s <= waits_s + BACKOFF_MAX_S


async def test_a_server_that_reads_for_long_before_it_answers_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads ten seconds for a condition that little meets; each page was given up after five."""
    monkeypatch.setattr(pages, "CONNECT_S", 0.2)
    found, lost = await read(Answering([page(b"{}")], after_s=0.6))
    assert (found, lost) == ([b"{}"], [])


def test_a_server_may_be_silent_for_longer_than_it_reads() -> None:
    assert pages.SILENCE_S > READ_S + OPEN_S
