"""What the access tests share: servers as processes, and a reader without comfort."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.simulators.clients import SseReader
from tests.feeds import DEADLINE_S
from tests.services import Process, free_ports, part


@dataclass
class Server:
    """An access server as a process."""

    port: int
    process: Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Server:
        self.process.start()
        self.process.wait_for('"part.ready"')
        return self

    def restart_after_kill(self) -> None:
        """Start again what was killed."""
        self.process.log.unlink(missing_ok=True)
        self.start()

    def rss_mib(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * 4096 / 2**20


@contextmanager
def server(
    directory: Path,
    config: KafkaConfig,
    key_file: Path | None,
    *,
    port: int | None = None,
    module: str | None = None,
    hub: Mapping[str, float] | None = None,
    **settings: Any,
) -> Iterator[Server]:
    """A running access server; `settings` are keys of its configuration.

    `module`: what to run in the place of `edgewake access`; it gets `hub`, bounds without a key.
    """
    port = port or free_ports(1)[0]
    name = f"access-{port}"
    path = directory / f"{name}.toml"
    keys: dict[str, Any] = {} if key_file is None else {"cursor_key_file": str(key_file)}
    if settings.keys() & {"trusted_proxies", "public_names"}:
        keys["rights"] = {"anonymous": "everything"}
    path.write_text(_toml({"name": name, "port": port, **keys, **settings}, config.bootstrap))
    log = directory / f"{name}.log"
    arguments = [] if hub is None else [json.dumps(hub)]
    if hub is not None and module is None:
        module = "tests.access.tuned_server"
    process = (
        part("access", path, log)
        if module is None
        else Process([sys.executable, "-m", module, str(path), *arguments], log)
    )
    running = Server(port, process)
    try:
        yield running.start()
    finally:
        running.process.stop()


def _toml(settings: Mapping[str, Any], bootstrap: str) -> str:
    tables = {name: value for name, value in settings.items() if isinstance(value, dict)}
    lines = [f"{name} = {_value(value)}" for name, value in settings.items() if name not in tables]
    for table, keys in {**tables, "kafka": {"bootstrap": bootstrap}}.items():
        lines += [f"[{table}]", *(f"{name} = {_value(value)}" for name, value in keys.items())]
    return "\n".join(lines)


def _value(value: Any) -> str:
    return orjson.dumps(value).decode()


def key_file(directory: Path) -> Path:
    """A file with one signing key."""
    path = directory / "cursor.key"
    path.write_text(f"1 {secrets.token_hex(32)}\n")
    return path


@dataclass(frozen=True)
class Event:
    """A dispatched event."""

    type: str
    data: str
    id: str


class Parser:
    """The simulators' reader of event streams, which was written apart from ours: a fault that both
    sides of ours share is seen.
    """

    def __init__(self, last_event_id: str = "") -> None:
        self.retry_ms: int | None = None
        self._reader = SseReader(last_event_id)

    @property
    def last_event_id(self) -> str:
        return self._reader.last_id

    def feed(self, piece: bytes) -> list[Event]:
        """The events that a chunk completes."""
        for ms in re.findall(rb"(?m)^retry: (\d+)$", piece):
            self.retry_ms = int(ms)
        return [Event(event.name, event.data, event.id) for event in self._reader.feed(piece)]


@dataclass
class Stream:
    """An open event stream, read byte by byte from a socket: no library between the test and the
    wire.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int
    headers: dict[str, str]
    parser: Parser
    raw: bytearray = field(default_factory=bytearray)
    ended: bool = False

    async def events(self) -> AsyncIterator[Event]:
        """Events until the server ends the stream."""
        while (piece := await self.chunk()) is not None:
            self.raw += piece
            for event in self.parser.feed(piece):
                yield event
        self.ended = True

    async def take(
        self, count: int, *, kinds: frozenset[str] = frozenset({"message"})
    ) -> list[Event]:
        """The next `count` events of some kinds, within the deadline."""
        found: list[Event] = []
        async with asyncio.timeout(DEADLINE_S):
            async for event in self.events():
                if event.type in kinds:
                    found.append(event)
                if len(found) >= count:
                    break
        return found

    async def until_cursor(self) -> str:
        """The first id."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.parser.last_event_id:
                piece = await self.chunk()
                assert piece is not None
                self.raw += piece
                self.parser.feed(piece)
        return self.parser.last_event_id

    async def chunk(self) -> bytes | None:
        """One chunk of the chunked body; None at the proper end or at a torn one."""
        try:
            size = int(await self.reader.readline() or b"0", 16)
            piece = await self.reader.readexactly(size + 2)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return piece[:-2] if size else None


@asynccontextmanager
async def open_stream(
    base: str, *streams: str, cursor: str = "", limit: int = 2**16, **query: Any
) -> AsyncIterator[Stream]:
    """GET /v1/events. `cursor` goes into Last-Event-ID; `from_` is the parameter from."""
    words = [("stream", name) for name in streams] + [
        (name.rstrip("_"), str(value)) for name, value in query.items()
    ]
    host, _, port = base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=limit)
    head = (
        f"GET /v1/events?{urlencode(words)} HTTP/1.1\r\nHost: {host}\r\nAccept: "
        "text/event-stream\r\n"
    )
    writer.write((head + (f"Last-Event-ID: {cursor}\r\n" if cursor else "") + "\r\n").encode())
    try:
        async with asyncio.timeout(DEADLINE_S):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        yield Stream(reader, writer, int(lines[0].split()[1]), headers, Parser(cursor))
    finally:
        writer.close()


def numbers(events: list[Event]) -> list[tuple[str, int]]:
    """(device, n) of data events."""
    return [
        (fields["device"], int(fields["n"]))
        for fields in (orjson.loads(event.data) for event in events)
    ]
