"""Clients of the event streams, independent of the system's own code.

They are a raw socket, a small HTTP and SSE reader, and a cursor.

`SseReader` follows the WHATWG rules that matter here: an event ends at an empty line, what is
unfinished at the end of the stream is dropped, `id` moves the cursor even without data, comments
are nothing. `Follower` reads one subscription for ever, from whichever of several servers answers,
and resumes with the last cursor that it was given. It can be slow, and it can sleep. Imports
nothing of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote

RETRY_S: Final = 0.2
"""Between two attempts to connect. Short, and the same for all: a storm of reconnects is part of
the test."""
HEAD_BYTES_MAX: Final = 64 * 1024
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
SILENCE_S: Final = 60.0
"""Without a byte for so long the connection counts as dead; heartbeats come far more often."""

Server: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Event:
    """A dispatched event. `id` is the last id seen, its own or an earlier one."""

    id: str
    name: str
    data: str


class SseReader:
    """Bytes in, events out (HTML standard, section 9.2.6)."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self._buffer = b""
        self._name = ""
        self._data: list[str] = []
        self._pending_id = last_id

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events that `data` completes."""
        self._buffer += data
        *lines, self._buffer = self._buffer.replace(b"\r\n", b"\n").split(b"\n")
        assert len(self._buffer) <= LINE_BYTES_MAX, f"a line of more than {LINE_BYTES_MAX} bytes"
        for line in lines:
            event = self._line(line.decode("utf-8"))
            if event is not None:
                yield event

    def _line(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._pending_id = value
        return None

    def _dispatch(self) -> Event | None:
        self.last_id = self._pending_id
        event = (
            Event(self.last_id, self._name or "message", "\n".join(self._data))
            if self._data
            else None
        )
        self._name, self._data = "", []
        return event


class Refused(Exception):
    """The server answered with another status than 200."""


async def stream(
    server: Server, path: str, *, last_id: str = "", receive_bytes: int | None = None
) -> AsyncGenerator[bytes]:
    """The body of GET `path`, as it comes.

    Raises Refused, OSError, EOFError (asyncio.IncompleteReadError), TimeoutError.

    `receive_bytes` limits what this side takes ahead of its reader: a slow client's small window.
    """
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*server, limit=receive_bytes or 256 * 1024)
    try:
        headers = [
            f"GET {path} HTTP/1.1",
            f"Host: {server[0]}:{server[1]}",
            "Accept: text/event-stream",
            "Connection: close",
        ]
        if last_id:
            headers.append(f"Last-Event-ID: {last_id}")
        writer.write(("\r\n".join(headers) + "\r\n\r\n").encode("ascii"))
        async with asyncio.timeout(15):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = head.split(" ", 2)[1]
        if status != "200":
            async with asyncio.timeout(5):
                body = await reader.read(500)
            raise Refused(f"{status} for {path}: {body.decode('utf-8', 'replace')}")
        chunked = "transfer-encoding: chunked" in head
        while True:
            async with asyncio.timeout(SILENCE_S):
                data = await (_chunk(reader) if chunked else reader.read(65_536))
            if not data:
                return
            yield data
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
    data = await reader.readexactly(size)
    await reader.readexactly(2)
    return data


class Follower:
    """One client. `on_event(client name, event)` gets what it is shown.

    `servers`: the first is tried first; each failure goes to the next one. `start` is where the
    first connection begins: `earliest`, `latest` or a time; later ones resume with the cursor.
    `pause_s` makes it slow: it waits so long after each piece that it reads, until somebody sets it
    to 0.
    """

    def __init__(
        self,
        name: str,
        servers: Sequence[Server],
        streams: Sequence[str],
        on_event: Callable[[str, Event], None],
        *,
        start: str = "earliest",
        pause_s: float = 0.0,
    ) -> None:
        self.name = name
        self.cursor = ""
        self.connects = 0
        self.connected = asyncio.Event()
        self.sleeps = 0
        self.refusals: list[str] = []
        self._servers = list(servers)
        self._query = "&".join(f"stream={quote(stream)}" for stream in streams)
        self._start = start
        self._on_event = on_event
        self.pause_s = pause_s
        self._task: asyncio.Task[None] | None = None

    def wake(self, *, on_next_server: bool = False) -> None:
        """Begin to read, or go on from the cursor; perhaps on another server than before."""
        assert self._task is None, f"{self.name} is awake"
        if on_next_server:
            self._servers.append(self._servers.pop(0))
        self._task = asyncio.create_task(self._follow(), name=f"client {self.name}")

    async def sleep(self) -> None:
        """Disconnect. The cursor stays; nothing is read until `wake`."""
        task, self._task = self._task, None
        assert task is not None, f"{self.name} sleeps already"
        self.sleeps += 1
        self.connected.clear()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    @property
    def server(self) -> Server:
        """The one that it reads from, or will try next."""
        return self._servers[0]

    @property
    def awake(self) -> bool:
        """Does it read? Raises what ended it, if it ended by itself."""
        if self._task is not None and self._task.done():
            self._task.result()
        return self._task is not None

    async def _follow(self) -> None:
        while True:
            try:
                await self._read_once()
            except Refused as refusal:
                self.refusals.append(str(refusal))
            except (OSError, EOFError, TimeoutError):
                pass
            self.connected.clear()
            self._servers.append(self._servers.pop(0))
            await asyncio.sleep(RETRY_S)

    async def _read_once(self) -> None:
        path = f"/v1/events?{self._query}" + ("" if self.cursor else f"&from={self._start}")
        reader = SseReader(self.cursor)
        receive_bytes = 4096 if self.pause_s else None
        async with contextlib.aclosing(
            stream(self._servers[0], path, last_id=self.cursor, receive_bytes=receive_bytes)
        ) as body:
            async for data in body:
                if not self.connected.is_set():
                    self.connects += 1
                    self.connected.set()
                for event in reader.feed(data):
                    self._on_event(self.name, event)
                    self.cursor = reader.last_id
                self.cursor = reader.last_id
                if self.pause_s:
                    await asyncio.sleep(self.pause_s)
