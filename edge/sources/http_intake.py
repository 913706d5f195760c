"""Takes readings by HTTP from programs that send: `POST /` with one JSON object, a list of them, or lines.

Two ways to send. Request and acknowledge, the usual one: the answer 200 comes when the readings are durable, and says how many were taken
and how many refused. One-way, with `Prefer: respond-async` (RFC 7240): 202 at once. When the queue is full a request waits, and is answered
503 in the end; the sender tries again. A request with an `Idempotency-Key` is taken once, also when it is sent again after a crash: the
last keys are kept in the log with the readings.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import h11
import orjson

from edgewake.edge.intake import Intake
from edgewake.edge.intake_policy import Policy
from edgewake.edge.log.codec import Reading
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.sources.http_request import Refusal, Wanted, wanted
from edgewake.edge.sources.items import DOCUMENT_BYTES_MAX, checked, found
from edgewake.edge.sources.recent_keys import RecentKeys
from edgewake.edge.sources.web import read_token
from edgewake.protocol.errors import Rejected
from edgewake.protocol.plain import key

log = logging.getLogger("edgewake.source")

HEAD_BYTES_MAX: Final = 16 * 1024
"""Bytes of a request's head."""
BUFFER_BYTES: Final = 64 * 1024
"""Bytes that are read ahead of a connection."""
REQUEST_S: Final = 15.0
"""Seconds that a request may take to come; a connection without one is closed after as long."""
TAKE_S: Final = 10.0
"""Seconds that a request waits for room and for its commit before it is answered 503."""
NO_ROOM: Final = "the device has no room now, or is slow: send it again"


class HttpIntakeConfig(SourceConfig):
    """Readings that programs send by HTTP."""

    type: Literal["http_intake"]
    host: str = "127.0.0.1"
    """Address to listen on. Any other than this machine's own needs `token_file`."""
    port: int = key(ge=1, le=65_535)
    """TCP port."""
    token_file: Path | None = None
    """File whose first line every sender has to show as a bearer token, mode 0600."""
    connections_max: int = key(default=16, ge=1, le=256)
    """Connections at once, 150 KiB each and what they send. One more is closed at once."""
    body_bytes_max: int = key(default=DOCUMENT_BYTES_MAX, ge=1024, le=16 << 20)
    """Bytes of a request's body; a longer one is answered 413."""

    def source(self, context: SourceContext) -> HttpIntake:
        return HttpIntake(self, context)

    def owns(self) -> str:
        return f"the port {self.port}"

    def __post_init__(self) -> None:
        try:
            loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError as error:
            raise ValueError("host: expected an address") from error
        if not loopback and self.token_file is None:
            raise ValueError("host: who listens beyond this machine needs a token_file")


class HttpIntake:
    """The source."""

    policy = Policy.BLOCK

    def __init__(self, config: HttpIntakeConfig, context: SourceContext) -> None:
        self._config = config
        self._name = f"http_intake:{config.host}:{config.port}"
        self._keys = RecentKeys.decode(context.position(self._name))
        self._busy: dict[str, asyncio.Event] = {}
        """Keys of requests that are being taken."""
        self._putting = asyncio.Lock()
        """Of requests with a key: each waits for room alone, so that no key is kept before its own readings are passed on."""
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self, intake: Intake) -> None:
        token = None if self._config.token_file is None else read_token(self._config.token_file)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            if len(self._connections) >= self._config.connections_max:
                writer.transport.abort()
                return
            self._connections.add(task)
            try:
                await Connection(self, reader, writer, token).serve(intake)
            except (OSError, TimeoutError, h11.ProtocolError):
                pass  # the sender is gone, or was never one
            finally:
                self._connections.discard(task)
                writer.transport.abort()

        server = await asyncio.start_server(
            serve, self._config.host, self._config.port, limit=BUFFER_BYTES, family=socket.AF_UNSPEC, reuse_address=True
        )
        try:
            await asyncio.Event().wait()  # `serve_forever` would wait, cancelled, for the connections that it has (from Python 3.12 on)
        finally:
            server.close()
            for task in tuple(self._connections):
                task.cancel()

    @property
    def body_bytes_max(self) -> int:
        """Bytes of a body."""
        return self._config.body_bytes_max

    async def take(self, intake: Intake, asked: Wanted, body: bytes) -> tuple[int, dict[str, object]]:
        """Readings of a request: the status and what is said with it. Of those with one key one at a time."""
        if asked.key is None:
            return await self._take(intake, asked, body)
        while (busy := self._busy.get(asked.key)) is not None:
            await busy.wait()
        if asked.key in self._keys:
            await intake.durable()
            return 200, {"repeated": True}
        done = self._busy[asked.key] = asyncio.Event()
        try:
            return await self._take(intake, asked, body)
        finally:
            del self._busy[asked.key]
            done.set()

    async def _take(self, intake: Intake, asked: Wanted, body: bytes) -> tuple[int, dict[str, object]]:
        try:
            items = found(body)
        except Rejected as error:
            intake.refuse(error.reason, error.detail)
            return 400, {"error": error.detail}
        readings = await checked(intake, items)
        if not readings and items:
            return 422, {"taken": 0, "refused": len(items)}
        if not await self._put(intake, asked, readings):
            return 503, {"error": NO_ROOM}
        if not asked.one_way:
            await intake.durable()
        return 202 if asked.one_way else 200, {"taken": len(readings), "refused": len(items) - len(readings)}

    async def _put(self, intake: Intake, asked: Wanted, readings: Sequence[Reading]) -> bool:
        """Pass on, with the key, in one transaction; False where they were dropped."""
        if asked.key is None:
            return await intake.put(readings)
        async with self._putting:
            self._keys.add(asked.key)
            is_taken = False
            try:
                is_taken = await intake.put(readings, position=(self._name, self._keys.encode()))
            finally:
                if not is_taken:
                    self._keys.forget(asked.key)
        return is_taken


class Connection:
    """One sender."""

    def __init__(self, source: HttpIntake, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str | None) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._token = token
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def serve(self, intake: Intake) -> None:
        """Requests one after the other. Raises OSError, TimeoutError, h11.ProtocolError where there is no talking with the sender."""
        while True:
            async with asyncio.timeout(REQUEST_S):
                request = await self._next()
                if not isinstance(request, h11.Request):
                    return
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
                asked = wanted(request.method.decode(), request.target.decode("latin-1"), headers, self._token)
                body = await self._body() if isinstance(asked, Wanted) else asked
            if isinstance(asked, Wanted) and isinstance(body, bytes):
                await self._answer(*await self._taken(intake, asked, body))
                if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE:
                    self._protocol.start_next_cycle()
                    continue
            elif isinstance(body, Refusal):
                await self._answer(body.status, {"error": body.why})
            return

    async def _taken(self, intake: Intake, asked: Wanted, body: bytes) -> tuple[int, dict[str, object]]:
        try:
            async with asyncio.timeout(TAKE_S):
                return await self._source.take(intake, asked, body)
        except TimeoutError:
            return 503, {"error": NO_ROOM}

    async def _body(self) -> bytes | Refusal:
        if self._protocol.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            self._writer.write(self._protocol.send(go_on) or b"")
        parts = bytearray()
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                parts += event.data
                if len(parts) > self._source.body_bytes_max:
                    return Refusal(413, f"a body of more than {self._source.body_bytes_max} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(parts)
            else:
                return Refusal(400, "ended early")

    async def _next(self) -> h11.Event:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(await self._reader.read(BUFFER_BYTES))
        assert not isinstance(event, type)
        return event

    async def _answer(self, status: int, said: dict[str, object]) -> None:
        body = orjson.dumps(said)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        headers += [("Retry-After", "5")] if status == 503 else []
        headers += [("WWW-Authenticate", "Bearer")] if status == 401 else []
        if status >= 400 and status not in (422, 503):
            headers.append(("Connection", "close"))
        encoded = [(name.encode(), value.encode()) for name, value in headers]
        for event in (h11.Response(status_code=status, headers=encoded), h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._protocol.send(event) or b"")
        async with asyncio.timeout(REQUEST_S):
            await self._writer.drain()
