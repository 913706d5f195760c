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
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import h11
import orjson

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.config import SourceConfig, SourceContext, check_streams
from edgewake.edge.sources.items import DOCUMENT_BYTES_MAX, checked, found
from edgewake.edge.sources.web.http_request import Refusal, Wanted, wanted
from edgewake.edge.sources.web.recent_keys import RecentKeys
from edgewake.edge.sources.web.seats import Seats
from edgewake.edge.sources.web.web_config import read_token
from edgewake.edge.things.streams import STREAM
from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.plain import key

if TYPE_CHECKING:
    from edgewake.edge.sources.web.mapped_requests import Foreign, MappedRequests
    from edgewake.protocol.maps.http_forms import Outcome, Reply

log = logging.getLogger("edgewake.source")

HEAD_BYTES_MAX: Final = 16 * 1024
"""Bytes of a request's head."""
BUFFER_BYTES: Final = 64 * 1024
"""Bytes that are read ahead of a connection."""
REQUEST_S: Final = 15.0
"""Seconds that a request may take to come; a connection without one is closed after as long."""
TAKE_FOREIGN_S: Final = 4.0
"""Seconds for requests of other systems' clients, which wait 5 s or more and know no 202."""
LOOK_S: Final = 2.0
"""Seconds between two looks at a map file and at tokens."""
ASIDE_BYTES: Final = 4096
"""Bytes of a request from which on it is read beside the loop: a megabyte of lines takes a second
on a small device."""
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
    """Connections at once, 150 KiB each and what they send. One more takes the place of one of a
    sender that has more of them and is not being answered; else it is closed at once."""
    body_bytes_max: int = key(default=DOCUMENT_BYTES_MAX, ge=1024, le=16 << 20)
    """Bytes of a request's body, also when it is unpacked; a longer one is answered 413."""
    presets: tuple[str, ...] = ()
    """Presets whose maps read what comes (docs/devices.md; `edgewake map presets` lists them);
    `all` stands for the six of clients that send by HTTP: `influx`, `otlp`, `cloudevents`,
    `senml`, `owntracks`, `thingsboard`. What comes is in the source's stream; a
    stream that the map gives is the field `kind` (or see `streams`), a device `thing`."""
    streams: Literal["own", "all"] = "own"
    """Where a reading goes for which the maps give another stream. own: into `stream`, with the
    other name in the field `kind`; all: into that stream, as if it had a source of its own, up to
    32 of them (`ManyStreams`). Losses are of `stream`."""
    maps: Path | None = None
    """Map file, in place of `presets`; a request's path is its topic. Read again when it
    changes."""
    tokens_file: Path | None = None
    """File of tokens of devices, mode 0600, with presets or maps: lines `TOKEN NAME`. Who shows a
    token is that device. Read again when it changes."""

    def source(self, context: SourceContext) -> HttpIntake:
        return HttpIntake(self, context)

    def owns(self) -> str:
        return f"the port {self.port}"

    def __post_init__(self) -> None:
        try:
            loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError as error:
            raise ValueError("host: expected an address") from error
        if not loopback and self.token_file is None and self.tokens_file is None:
            raise ValueError("host: to listen beyond this machine set token_file")
        if self.has_streams and not self.has_maps:
            raise ValueError('streams = "all": expected `presets` or `maps` with it')
        check_streams(self)
        if self.presets and self.maps is not None:
            raise ValueError("expected `presets` or `maps`; a map file names its own presets")
        if self.tokens_file is not None and not self.has_maps:
            raise ValueError("tokens_file: expected `presets` or `maps` with it")
        if self.presets:
            from edgewake.protocol.errors import ConfigError
            from edgewake.protocol.maps.compiling import compile_presets

            try:
                compile_presets(self.map_presets)
            except ConfigError as error:
                raise ValueError(str(error)) from error

    @property
    def has_streams(self) -> bool:
        return self.streams == "all"

    @property
    def has_maps(self) -> bool:
        """Are other requests understood than our own?"""
        return bool(self.presets) or self.maps is not None

    @property
    def map_presets(self) -> tuple[str, ...]:
        """The names of the presets."""
        if self.presets != ("all",):
            return self.presets
        from edgewake.protocol.maps.http_forms import PRESETS

        return PRESETS


class HttpIntake:
    """Listens, and queues the readings of each request that it answers."""

    policy = Policy.BLOCK

    def __init__(self, config: HttpIntakeConfig, context: SourceContext) -> None:
        self._config = config
        self._name = f"http_intake:{config.host}:{config.port}"
        self._keys = RecentKeys.decode(context.position(self._name))
        self._connections: set[asyncio.Task[None]] = set()
        self.seats: Seats[asyncio.Task[None]] = Seats(config.connections_max)
        self._clock = context.clock
        self.mapped = _mapped(config) if config.has_maps else None
        """None: only our own requests are understood."""

    async def run(self, intake: Intake) -> None:
        token = None if self._config.token_file is None else read_token(self._config.token_file)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = _this()
            peer = writer.get_extra_info("peername")
            has_seat, out = self.seats.take(task, str(peer[0]) if peer else "")
            if out is not None:
                out.cancel()
            if not has_seat:
                writer.transport.abort()
                return
            self._connections.add(task)
            try:
                await Connection(self, reader, writer, token).serve(intake)
            except (OSError, TimeoutError, h11.ProtocolError):
                pass  # the sender is gone, or was never one
            finally:
                self._connections.discard(task)
                self.seats.leave(task)
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
            await self._follow_files()
        finally:
            server.close()
            for task in tuple(self._connections):
                task.cancel()

    async def _follow_files(self) -> None:
        if self.mapped is None:
            await asyncio.Event().wait()
            return
        while True:
            await self._clock.sleep(LOOK_S)
            await asyncio.to_thread(self.mapped.look)

    @property
    def body_bytes_max(self) -> int:
        """Bytes of a body."""
        return self._config.body_bytes_max

    async def take(
        self, intake: Intake, asked: Wanted, body: bytes, foreign: Foreign | None = None
    ) -> Said:
        """Readings of a request: what is true of them after TAKE_S at the latest."""
        request = Taking(asked, body, foreign)
        self.seats.works(_this())
        try:
            async with asyncio.timeout(TAKE_S if foreign is None else TAKE_FOREIGN_S):
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
            items = await self._items(intake, request)
        except Rejected as error:
            intake.refuse(error.reason, error.detail)
            request.said = 400, {"error": error.detail}
            return
        readings = await checked(intake, items, request.refuse)
        request.readings = len(readings)
        counts = {"taken": len(readings), **request.refused}
        if not readings and (items or request.has_refused):
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

    async def _items(self, intake: Intake, request: Taking) -> Sequence[Any]:
        """What may be readings. Raises Rejected."""
        if request.foreign is None or self.mapped is None:
            items = found(request.body)
            for one in items:
                if isinstance(one, dict):
                    one.pop(STREAM, None)  # only a map says it
            return items
        arguments = request.foreign, request.body, self._clock.now_ms()
        if len(request.body) > ASIDE_BYTES:
            said = await asyncio.to_thread(self.mapped.bodies, *arguments)
        else:
            said = self.mapped.bodies(*arguments)
        for one in said.refused:
            request.refuse(-1, one.why, one.readings)
        for what in said.remarks:
            intake.remark(what)
        for stream, units in said.units:
            intake.note_units(units, stream)
        return said.items

    async def _put(self, intake: Intake, request: Taking, readings: Sequence[Reading]) -> bool:
        """Pass on readings with the request's key in one transaction; False: answered already.

        All or nothing, and no key without its readings.
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

    def __init__(self, asked: Wanted, body: bytes, foreign: Foreign | None = None) -> None:
        self.asked, self.body, self.foreign = asked, body, foreign
        self.readings = 0
        """Good ones in it."""
        self.said: Said = 503, {"error": NO_ROOM}
        """What is true of it at the moment."""
        self._refused: list[tuple[int, Rejected, int]] = []

    def refuse(self, at: int, why: Rejected, count: int) -> None:
        """Note an item that is refused; `at` counts from 0."""
        self._refused.append((at, why, count))

    def count(self, intake: Intake) -> None:
        """They are lost: the sender hears that they will never be taken.

        One that hears 503 has them still.
        """
        for _, why, count in self._refused:
            intake.refuse(why.reason, why.detail, count)

    @property
    def has_refused(self) -> bool:
        """Was an item none?"""
        return bool(self._refused)

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
    """The connection of one sender."""

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
            self._source.seats.rests(_this())  # what was taken is answered
            async with asyncio.timeout(REQUEST_S):
                request = await self._next()
                if not isinstance(request, h11.Request):
                    return
                headers = {
                    name.decode("latin-1"): value.decode("latin-1")
                    for name, value in request.headers
                }
                method, target = request.method.decode(), request.target.decode("latin-1")
                mapped = self._source.mapped
                if mapped is not None:
                    foreign = mapped.wanted(method, target, headers, self._token)
                    if foreign is not None:
                        if not await self._serve_foreign(intake, foreign):
                            return
                        continue
                asked = wanted(method, target, headers, self._token)
                body = await self._body() if isinstance(asked, Wanted) else asked
            if isinstance(asked, Wanted) and isinstance(body, bytes):
                await self._answer(*await self._source.take(intake, asked, body))
                if self._goes_on():
                    continue
            elif isinstance(body, Refusal):
                await self._answer(body.status, {"error": body.why})
            return

    def _goes_on(self) -> bool:
        """Is another request to come on this connection?"""
        is_done = self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE
        if is_done:
            self._protocol.start_next_cycle()
        return is_done

    async def _serve_foreign(self, intake: Intake, asked: Foreign | Reply) -> bool:
        """A request of another system's client. False: the connection ends."""
        from edgewake.protocol.maps.http_forms import Outcome, Reply

        if isinstance(asked, Reply):
            is_short = asked.status < 300
            body = await self._body() if is_short else b""
            await self._write(asked.status, asked.body, asked.content_type, not is_short)
            return is_short and isinstance(body, bytes) and self._goes_on()
        body = await self._body()
        if isinstance(body, Refusal):
            refused = asked.reply(Outcome(body.status, detail=body.why))
            await self._write(refused.status, refused.body, refused.content_type, True)
            return False
        status, said = await self._source.take(intake, asked.asked, body, asked)
        told = asked.reply(_outcome(status, said))
        await self._write(told.status, told.body, told.content_type, False)
        return self._goes_on()

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
        ends = status >= 400 and status not in (422, 503)
        await self._write(status, orjson.dumps(said), "application/json", ends)

    async def _write(self, status: int, body: bytes, content_type: str, ends: bool) -> None:
        headers = [("Content-Type", content_type)] if body else []
        headers += [("Content-Length", str(len(body)))] if status != 204 else []
        headers += [("Retry-After", "5")] if status == 503 else []
        headers += [("WWW-Authenticate", "Bearer")] if status == 401 else []
        headers += [("Connection", "close")] if ends else []
        encoded = [(name.encode(), value.encode()) for name, value in headers]
        for event in (
            h11.Response(status_code=status, headers=encoded),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._protocol.send(event) or b"")
        async with asyncio.timeout(REQUEST_S):
            await self._writer.drain()


def _this() -> asyncio.Task[None]:
    """The task of this connection."""
    task = asyncio.current_task()
    assert task is not None
    return task


def _mapped(config: HttpIntakeConfig) -> MappedRequests:
    from edgewake.edge.sources.mqtt.mqtt_maps import SourceMaps
    from edgewake.edge.sources.web.mapped_requests import MappedRequests
    from edgewake.protocol.maps.device_tokens import DeviceTokens

    maps = SourceMaps(
        config.maps,
        config.map_presets,
        stream=config.stream,
        zone=config.time.zone,
        takes_all=True,
        has_devices=config.has_devices,
        has_streams=config.has_streams,
    )
    tokens = None if config.tokens_file is None else DeviceTokens(config.tokens_file)
    return MappedRequests(maps, tokens, config.body_bytes_max)


def _outcome(status: int, said: dict[str, Any]) -> Outcome:
    """What `take` said, for a form's own words."""
    from edgewake.protocol.maps.http_forms import Outcome

    refusals = said.get("refusals") or [{}]
    detail = said.get("error") or refusals[0].get("detail", "")
    return Outcome(status, said.get("taken", 0), said.get("refused", 0), detail)
