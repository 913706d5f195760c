"""A source in its cage with a real log behind it, and servers that say exactly what a test
wants.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from edgewake.edge.downlink.feeds import Feeds
from edgewake.edge.intake.field_book import FieldBook
from edgewake.edge.intake.intake import Intake, LogSink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.keeping.work import no_failpoint
from edgewake.edge.sources.config import SourceConfig, SourceContext, kind
from edgewake.edge.supervisor import Supervisor
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import SystemClock
from tests.edge.helpers import Sent, frame_of
from tests.services import PATIENCE_S

E = TypeVar("E")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def configured(type_: str, **keys: Any) -> Any:
    """The configuration of a source of a kind, whose readings go to the stream `s`."""
    return kind(type_).checked({"type": type_, "stream": "s", **keys})


class Caged:
    """A running source."""

    def __init__(
        self, events: EventLog, intake: Intake, sent: Sent, supervisor: Supervisor, answering: bool
    ) -> None:
        self._answering = answering
        self.events, self.intake, self.sent, self.supervisor = events, intake, sent, supervisor

    def column(self, name: str) -> list[object]:
        """The values of a field in all readings, in order; None where a reading has none."""
        found: list[object] = []
        for out in self.sent:
            frame = frame_of(out)
            found += frame.fields.get(name, [None] * len(frame.t))
        return found

    def times(self) -> list[int]:
        """Event times of all readings."""
        return [t for out in self.sent for t in frame_of(out).t]

    def units(self) -> dict[str, str]:
        """What the source knows of its fields' units."""
        return {name: words["unit"] for name, words in self.said().items() if "unit" in words}

    def said(self) -> dict[str, dict[str, str]]:
        """What the cloud is told of the source's fields."""
        return self.intake._book.said()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition, acknowledging what is sent meanwhile."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                assert self.supervisor.state != "ended" or condition(), f"ended without {what}"
                if self._answering:
                    self.sent.acknowledge(self.events)
                await asyncio.sleep(0.01)

    async def failed(self, text: str) -> None:
        """Wait until it failed with this reason."""
        await self.until(
            lambda: text in (self.supervisor.error or ""),
            f"a failure that says {text!r}, not {self.supervisor.error!r}",
        )


@asynccontextmanager
async def caged(
    directory: Path,
    config: SourceConfig,
    *,
    failpoint: Callable[[str], None] = no_failpoint,
    device: str = "d1",
    answering: bool = True,
    feeds: Feeds | None = None,
) -> AsyncIterator[Caged]:
    """Run a source; at the end it is cancelled and the log closed.

    Not `answering`: the log keeps everything.
    """
    sent = Sent()
    events = EventLog(
        directory, LogConfig(linger_ms=0, reserve_bytes=0), UplinkConfig(), clock=SystemClock(),
        rng=random.Random(1),
        on_frames=sent.take, failpoint=failpoint,
    )  # fmt: skip
    events.start_sending()
    clock = SystemClock()
    intake = Intake(
        "caged",
        LogSink(events.stream(config.stream, bytes_max=config.queue_bytes_max)),
        Policy.BLOCK,
        clock,
        time=config.time.rule(),
        book=FieldBook(None, config.fields, config.rename),
    )
    context = SourceContext(device, clock, events.position, feeds)
    supervisor = Supervisor(
        "caged",
        lambda: config.source(context),
        intake,
        clock,
        Backoff(random.Random(1), first_s=0.01, max_s=0.05),
        policy=config.policy,
    )
    task = asyncio.create_task(supervisor.run())
    try:
        yield Caged(events, intake, sent, supervisor, answering)
    finally:
        task.cancel()
        await asyncio.wait({task})
        await asyncio.to_thread(events.close)


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[int]:
    """A server that treats every connection by `handler`, which may fail; its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(OSError):
                await handler(reader, writer)
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def head_of(reader: asyncio.StreamReader) -> dict[str, str]:
    """A request's head: its first line as "", names in lower case."""
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text.strip().split("\r\n")
    return {"": first} | {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }


def answered(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    """An answer with its length."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answering(
    *answers: bytes, heads: list[dict[str, str]] | None = None, then: bytes | None = None
) -> Handler:
    """Each connection gets the next answer and is closed; behind the last one it gets `then`, or
    the last one again.
    """
    left, behind = list(answers), answers[-1] if then is None else then

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        if heads is not None:
            heads.append(head)
        writer.write(left.pop(0) if left else behind)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    return handler


def scripted(
    end: Callable[[asyncio.StreamReader, asyncio.StreamWriter], E],
    script: Callable[[E], Awaitable[None]],
    ends: list[E] | None = None,
) -> Handler:
    """Each connection is made an `end`, put into `ends`, and does what the script says; then it
    waits for the client to leave.
    """

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one = end(reader, writer)
        if ends is not None:
            ends.append(one)
        await script(one)
        await reader.read()

    return handler


class Written:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.said = b""

    def write(self, data: bytes) -> None:
        self.said += data

    async def drain(self) -> None:
        pass
