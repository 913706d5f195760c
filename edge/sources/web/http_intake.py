"""Takes readings by HTTP from programs that send them.

A program sends `POST /` with one JSON object, a list of objects, or lines. What is answered within
TAKE_S is true and stays true:

    200  the readings are durable; it says how many were taken, and which were refused and why
    202  they are taken and not durable yet: with `Prefer: respond-async` (RFC 7240), in mode
         one_way, or while the disk is slow
    422  none was a reading
    503  none was taken, and none of them will be: send them again

A request with an `Idempotency-Key` is taken once, also when it is sent again after a crash: the
last keys are kept in the log with the readings. Who heard 202, or nothing at all, may send it again
and hears 200 when all is durable.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import h11
import orjson

from edgewake.edge.intake import Intake
from edgewake.edge.intake_policy import Policy
from edgewake.edge.log.codec import Reading
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.sources.items import DOCUMENT_BYTES_MAX, checked, found
from edgewake.edge.sources.web.http_request import Refusal, Wanted, wanted
from edgewake.edge.sources.web.recent_keys import RecentKeys
from edgewake.edge.sources.web.web_config import read_token
from edgewake.protocol.errors import Rejected
from edgewake.protocol.plain import key
from edgewake.protocol.record import Mode

log = logging.getLogger("edgewake.source")

HEAD_BYTES_MAX: Final = 16 * 1024
"""Bytes of a request's head."""
BUFFER_BYTES: Final = 64 * 1024
"""Bytes that are read ahead of a connection."""
REQUEST_S: Final = 15.0
"""Seconds that a request may take to come; a connection without one is closed after as long."""
TAKE_S: Final = 1.5
"""Seconds that a request waits for room and for its commit: a sender's own patience is seldom less
than two."""
NO_ROOM: Final = "the device has no room now; nothing of this was taken: send it again"
OTHER_BODY: Final = (
    "this Idempotency-Key came with another body before: expected a new key for what is new"
)
REFUSALS_MAX: Final = 20
"""Refused items that an answer names; all are counted."""


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
            serve,
            self._config.host,
            self._config.port,
            limit=BUFFER_BYTES,
            family=socket.AF_UNSPEC,
            reuse_address=True,
        )
        try:
            # `serve_forever` would wait, cancelled, for the connections that it has (from Python
            # 3.12 on)
            await asyncio.Event().wait()
        finally:
            server.close()
            for task in tuple(self._connections):
                task.cancel()

    @property
    def body_bytes_max(self) -> int:
        """Bytes of a body."""
        return self._config.body_bytes_max

    async def take(self, intake: Intake, asked: Wanted, body: bytes) -> Said:
        """Readings of a request: what is true of them after TAKE_S at the latest."""
        request = Taking(asked, body)
        try:
            async with asyncio.timeout(TAKE_S):
                await self._take(intake, request)
        except TimeoutError:
            if request.said[0] == 503:
                intake.turned_away += request.readings
        return request.said

    async def _take(self, intake: Intake, request: Taking) -> None:
        key = request.asked.key
        if key is not None and key in self._keys:
            if not self._keys.came_with(key, request.body):
                request.said = 422, {"error": OTHER_BODY}
                return
            request.said = 202, {"repeated": True, "durable": False}
            await intake.durable()
            request.said = 200, {"repeated": True}
            return
        try:
            items = found(request.body)
        except Rejected as error:
            intake.refuse(error.reason, error.detail)
            request.said = 400, {"error": error.detail}
            return
        readings = await checked(intake, items, request.refuse)
        request.readings = len(readings)
        counts = {"taken": len(readings), **request.refused}
        if items and not readings:
            request.count(intake)
            request.said = 422, counts
            return
        if not await self._put(intake, request, readings):
            return
        request.count(intake)
        is_one_way = request.asked.one_way or self._config.mode is Mode.ONE_WAY
        request.said = 202, counts | ({} if is_one_way else {"durable": False})
        if not is_one_way:
            await intake.durable()
            request.said = 200, counts

    async def _put(self, intake: Intake, request: Taking, readings: Sequence[Reading]) -> bool:
        """Pass on, with the key, in one transaction: all or nothing, and no key without its
        readings. False: said already.
        """
        key = request.asked.key
        while True:
            keys, position = self._keys, None
            if key is not None:
                if key in keys:  # the same request again, while this one waited
                    await self._take(intake, request)
                    return False
                keys = keys.copy()
                keys.add(key, request.body)
                position = (self._name, keys.encode())
            if intake.offer(readings, position=position):
                self._keys = keys
                return True
            if intake.policy is Policy.DROP_NEWEST:
                intake.turned_away += len(readings)
                return False
            await intake.room()


Said: TypeAlias = tuple[int, dict[str, object]]
"""A status, and what is said with it."""


class Taking:
    """A request that is being taken."""

    def __init__(self, asked: Wanted, body: bytes) -> None:
        self.asked, self.body = asked, body
        self.readings = 0
        """Good ones in it."""
        self.said: Said = 503, {"error": NO_ROOM}
        """What is true of it at the moment."""
        self._refused: list[tuple[int, Rejected, int]] = []

    def refuse(self, at: int, why: Rejected, count: int) -> None:
        """Note an item that is none; `at` counts from 0."""
        self._refused.append((at, why, count))

    def count(self, intake: Intake) -> None:
        """They are lost: the sender hears that they will never be taken.

        One that hears 503 has them still.
        """
        for _, why, count in self._refused:
            intake.refuse(why.reason, why.detail, count)

    @property
    def refused(self) -> dict[str, object]:
        """How many, and the first of them, for the answer."""
        named = [
            {"item": at, "status": 422, "reason": why.reason.value, "detail": why.detail}
            for at, why, _ in self._refused[:REFUSALS_MAX]
        ]
        return {"refused": sum(count for _, _, count in self._refused)} | (
            {"refusals": named} if named else {}
        )


class Connection:
    """One sender."""

    def __init__(
        self,
        source: HttpIntake,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        token: str | None,
    ) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._token = token
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def serve(self, intake: Intake) -> None:
        """Requests one after the other.

        Raises OSError, TimeoutError, h11.ProtocolError where there is no talking with the sender.
        """
        while True:
            async with asyncio.timeout(REQUEST_S):
                request = await self._next()
                if not isinstance(request, h11.Request):
                    return
                headers = {
                    name.decode("latin-1"): value.decode("latin-1")
                    for name, value in request.headers
                }
                asked = wanted(
                    request.method.decode(), request.target.decode("latin-1"), headers, self._token
                )
                body = await self._body() if isinstance(asked, Wanted) else asked
            if isinstance(asked, Wanted) and isinstance(body, bytes):
                await self._answer(*await self._source.take(intake, asked, body))
                if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE:
                    self._protocol.start_next_cycle()
                    continue
            elif isinstance(body, Refusal):
                await self._answer(body.status, {"error": body.why})
            return

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
        for event in (
            h11.Response(status_code=status, headers=encoded),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._protocol.send(event) or b"")
        async with asyncio.timeout(REQUEST_S):
            await self._writer.drain()
