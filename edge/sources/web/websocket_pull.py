"""Follows a WebSocket: each message is a JSON object, a list of them, or lines.

Where messages have a field that counts or names them (`resume_field`), its last value is kept in
the log with the readings, in one transaction, and goes into the address or into the first message
(`{resume}`) of the next connection, so that the server can go on behind it. The protocol is
`wsproto` (RFC 6455), without compression: no small message becomes a large one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

import orjson
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.address import BUFFER_BYTES, connected
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.items import DOCUMENT_BYTES_MAX, checked
from edgewake.edge.sources.mapping import items_of
from edgewake.edge.sources.web.http_client import (
    ANSWER_S,
    RETRY_AFTER_MAX_S,
    USER_AGENT,
    host_of,
    port_of,
    target_of,
)
from edgewake.edge.sources.web.web_config import WebSocketAddress
from edgewake.protocol.backoff import retry_after_s
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Rejected, RejectReason, RemoteError, Unavailable
from edgewake.protocol.json_text import parse
from edgewake.protocol.plain import key

RESUME_BYTES_MAX: Final = 1024
"""Bytes of a value that is kept to resume from; a larger one is not kept."""
RESUME: Final = "{resume}"


class WebSocketPullConfig(WebSocketAddress):
    """A WebSocket that is followed."""

    type: Literal["websocket_pull"]
    hello: str = key(default="", max_length=8192)
    """Text that is sent first, such as a subscription. `{resume}` in it, or in `url`, becomes the
    last value of `resume_field`, written as inside a JSON string and as in an address."""
    resume_field: str | None = None
    """Field of a reading from whose last value the server goes on; none: the server begins where it
    likes."""
    items: str = key(default="", max_length=200)
    """Where the readings are in a message: names joined by dots, e.g. `params.trades`; messages
    without it are passed over. Empty: the message itself."""
    silence_s: float = key(default=60.0, gt=0, le=3600)
    """Seconds without a byte after which the connection is taken for dead. It is pinged after a
    third of it."""
    message_bytes_max: int = key(default=DOCUMENT_BYTES_MAX, ge=1024, le=16 << 20)
    """Bytes of a message; a longer one ends the connection."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.items and self.has_maps:
            raise ValueError("items: expected without maps, where `each` of a map says it")

    def source(self, context: SourceContext) -> WebSocketPull:
        return WebSocketPull(self, context)


class WebSocketPull:
    """Follows the connection, and queues the readings of each message."""

    policy = Policy.BLOCK

    def __init__(self, config: WebSocketPullConfig, context: SourceContext) -> None:
        """Raises ConfigError."""
        self._config = config
        self._clock = context.clock
        self._tls = config.tls()
        self._maps = config.message_maps(context)
        self._resume = context.position(config.position_name()) or ""

    async def run(self, intake: Intake) -> None:
        request = self._config.request()
        url = urlsplit(self._config.url.replace(RESUME, quote(self._resume, safe="")))
        request = replace(request, url=url)
        async with connected(url.hostname or "", port_of(url), tls=self._tls) as (reader, writer):
            headers = [
                (name.encode(), value.encode())
                for name, value in (("User-Agent", USER_AGENT), *request.secret)
            ]
            protocol = WSConnection(ConnectionType.CLIENT)
            writer.write(
                protocol.send(
                    Request(host=host_of(url), target=target_of(url), extra_headers=headers)
                )
            )
            link = Link(protocol, reader, writer, self._config, self._clock)
            await link.accepted()
            if self._config.hello:
                link.send(TextMessage(hello_of(self._config.hello, self._resume)))
            while True:
                await self._take(intake, await link.message())

    async def _take(self, intake: Intake, message: bytes) -> None:
        try:
            items = items_of(intake, message, self._config.items, self._maps)
        except Rejected as error:
            if self._config.items and error.reason is RejectReason.SHAPE:
                intake.remark(f"messages without {self._config.items} passed over")
            else:
                intake.refuse(error.reason, error.detail)
            return
        resume = (
            self._resume
            if self._config.resume_field is None
            else last_value(items, self._config.resume_field, self._resume)
        )
        changed = resume != self._resume
        await intake.put(
            await checked(intake, items),
            position=(self._config.position_name(), resume) if changed else None,
        )
        self._resume = resume


def hello_of(hello: str, resume: str) -> str:
    """The message that is sent first.

    The value stands in it as in a JSON string: what a server wrote into its messages says nothing
    else. Pure.
    """
    return hello.replace(RESUME, orjson.dumps(resume).decode()[1:-1])


def last_value(items: Sequence[Any], field: str, before: str) -> str:
    """The last value of a field, as text; `before` where there is none that can be kept. Pure."""
    for item in reversed(items):
        body = _object(item)
        value = body.get(field)
        if (
            isinstance(value, str | int)
            and not isinstance(value, bool)
            and len(str(value).encode()) <= RESUME_BYTES_MAX
        ):
            return str(value)
    return before


def _object(item: Any) -> dict[str, Any]:
    if isinstance(item, bytes):
        try:
            item = parse(item)
        except orjson.JSONDecodeError:
            return {}
    return item if isinstance(item, dict) else {}


class Link:
    """A connection: messages out of bytes, bounded, and pings while nothing comes."""

    def __init__(
        self,
        protocol: WSConnection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        config: WebSocketPullConfig,
        clock: Clock,
    ) -> None:
        self._protocol = protocol
        self._clock = clock
        self._reader = reader
        self._writer = writer
        self._config = config
        self._events: list[Event] = []
        self._parts = bytearray()

    def send(self, event: Event) -> None:
        """Send."""
        self._writer.write(self._protocol.send(event))

    async def accepted(self) -> None:
        """Wait until the server has accepted. Raises Unavailable, RemoteError."""
        try:
            async with asyncio.timeout(ANSWER_S):
                event = await self._next()
        except TimeoutError as error:
            raise Unavailable(f"{self._config.url}: no answer within {ANSWER_S:.0f} s") from error
        if isinstance(event, RejectConnection):
            said = {bytes(name).lower(): bytes(value) for name, value in event.headers}.get(
                b"retry-after", b""
            ).decode("latin-1")
            wait_s = retry_after_s(said, self._clock.now_ms(), max_s=RETRY_AFTER_MAX_S)
            raise Unavailable(f"{self._config.url}: HTTP {event.status_code}", retry_after_s=wait_s)
        if not isinstance(event, AcceptConnection):
            raise RemoteError(f"{self._config.url}: no WebSocket")

    async def message(self) -> bytes:
        """The next message.

        Raises Unavailable when the connection is over or silent, RemoteError for broken frames.
        """
        while True:
            event = await self._next()
            if isinstance(event, Message):
                if self._collect(event):
                    whole = bytes(self._parts)
                    self._parts.clear()
                    return whole
            elif isinstance(event, Ping):
                self.send(event.response())
                await self._drain()
            elif isinstance(event, CloseConnection):
                # The server's, or what wsproto found wrong with what it sent.
                why = f" ({event.reason!r})" if event.reason else ""
                raise Unavailable(f"{self._config.url}: over, code {event.code}{why}")

    def _collect(self, event: Message[Any]) -> bool:
        if isinstance(event, TextMessage):
            self._parts += event.data.encode()
        elif isinstance(event, BytesMessage):
            self._parts += event.data
        if len(self._parts) > self._config.message_bytes_max:
            raise RemoteError(
                f"{self._config.url}: a message of more than {self._config.message_bytes_max} bytes"
            )
        return event.message_finished

    async def _drain(self) -> None:
        """A server that takes nothing is gone."""
        try:
            async with asyncio.timeout(self._config.silence_s):
                await self._writer.drain()
        except TimeoutError as error:
            raise Unavailable(f"{self._config.url}: takes nothing") from error

    async def _next(self) -> Event:
        try:
            while not self._events:
                self._protocol.receive_data(await self._read())
                self._events += self._protocol.events()
        except ProtocolError as error:
            raise RemoteError(f"{self._config.url}: no WebSocket: {error}") from error
        return self._events.pop(0)

    async def _read(self) -> bytes:
        """Bytes; a ping after a third of the silence. Raises Unavailable."""
        for _ in range(3):
            try:
                async with asyncio.timeout(self._config.silence_s / 3):
                    data = await self._reader.read(BUFFER_BYTES)
            except TimeoutError:
                if self._is_open:
                    self.send(Ping(b"edgewake"))
                continue
            if not data:
                raise Unavailable(f"{self._config.url}: closed by the server")
            return data
        raise Unavailable(f"{self._config.url}: nothing heard for {self._config.silence_s:.0f} s")

    @property
    def _is_open(self) -> bool:
        return self._protocol.state.name == "OPEN"
