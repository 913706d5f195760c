"""One WebSocket: its subscriptions, the frames written to it, and its client's messages.

Frames are written straight to the connection whenever a subscription has some and the connection
takes them: no task has to run for a chunk. The client's messages are read one at a time, at a
bounded rate, and only while it takes the answers.

    SUBSCRIPTIONS_MAX  subscriptions at a time; one more is refused
    MESSAGES           a second, and that many at once; more have to wait
    MISTAKES_MAX       messages that cannot be understood; then 1008
    IDLE_S             seconds without a subscription; then 1008
    stall_s            seconds in which nothing is taken while bytes wait; then it is cut off
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final

from edgewake.cloud.access import socket_wire as wire
from edgewake.cloud.access.connection import Connection
from edgewake.cloud.access.event_routes import problem_of
from edgewake.cloud.access.open_streams import OpenStreams
from edgewake.cloud.access.session_state import State
from edgewake.cloud.access.slow.policy import Wish
from edgewake.cloud.access.slow.stalled import Progress, is_stalled, observe
from edgewake.cloud.access.slow.watch import SlowWatch
from edgewake.cloud.access.sockets import words
from edgewake.cloud.access.sockets.channel import Channel, Room
from edgewake.cloud.access.sockets.kept import KeptCursors
from edgewake.cloud.access.sockets.words import WordsError
from edgewake.cloud.log import request as asked_for
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.log.following.turns import IsTimeUp
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.named import UnknownPublication
from edgewake.cloud.log.request import Request, RequestError
from edgewake.cloud.log.subscription import Sight
from edgewake.cloud.rights.principal import Principal, holder
from edgewake.cloud.rights.rights import End
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import CursorError, FilterError, Unavailable

SUBSCRIPTIONS_MAX: Final = 32
"""Subscriptions of one socket; each counts as a stream of its client, too."""
MESSAGES_PER_S: Final = 50
MESSAGES_AT_ONCE: Final = 100
"""Messages of a client: a page that gives credits after each event comes to some tens a second.
More have to wait."""
CHARS_A_MESSAGE: Final = 16 * 1024
"""Characters for which a message counts as one more: a list of ten thousand devices as forty."""
MISTAKES_MAX: Final = 20
"""Messages of one socket that cannot be understood: its program is in a loop."""
IDLE_S: Final = 60.0
"""Seconds without a subscription, after which a socket has no use."""

POLICY: Final = 1008
RESTART: Final = 1012
REFUSED: Final = (
    RequestError,
    FilterError,
    CursorError,
    UnknownStream,
    UnknownPublication,
    Unavailable,
)


@dataclass(frozen=True, slots=True)
class Closing:
    """How a socket is closed (RFC 6455, 7.4)."""

    code: int
    reason: str


class Socket:
    """Serves one connection: writes what its subscriptions have, answers its client.

    A member of `OpenStreams`; `close` it.
    """

    streams = 0
    """Its subscriptions are its reader's streams; it is a connection of its address."""

    def __init__(
        self,
        connection: Connection,
        *,
        hub: Hub,
        streams: OpenStreams,
        reader: Principal,
        client: str,
        heartbeat_s: float,
        kept: KeptCursors,
        clock: Clock,
    ) -> None:
        """Raises Full."""
        self.client = client
        self.reader = reader
        self.holder = holder(reader, client)
        self.sight: Sight | None = None
        self.slow: SlowWatch | None = None
        self.place: object = None
        self.closing: asyncio.Future[Closing] = asyncio.get_running_loop().create_future()
        """Done when the socket is to be closed."""
        self.is_stalled = False
        self._connection = connection
        self._streams = streams
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._channels: dict[str, Channel] = {}
        self._order: deque[Channel] = deque()
        """At most SUBSCRIPTIONS_MAX; the first is asked next."""
        self._said: deque[bytes] = deque()
        """At most an answer for each subscription and one more: nothing is heard while they
        wait."""
        self._mistakes = 0
        self._messages = float(MESSAGES_AT_ONCE)
        self._has_turn = False
        self._is_writing = False
        self._is_closed = False
        self._is_draining = False
        now = clock.monotonic_s()
        self._heard_at = self._written_at = self._idle_since = now
        self._written = 0
        self._progress = Progress(0, now)
        self._writable = asyncio.Event()
        self._room = Room(
            hub,
            streams,
            reader,
            clock,
            wake=self.write,
            kept=kept,
            is_blocked=lambda: connection.is_paused,
            unsent_bytes=connection.waiting,
            cut=self.abort,
        )
        streams.enter(self)
        self._right = streams.rights.watch(reader, self.end_of_right)
        connection.on_writable = self._on_writable

    # What its client says.

    async def hear(self, text: str) -> None:
        """Handle one message of the client."""
        await self._in_turn(len(text))
        try:
            said = words.read(text)
            match said:
                case words.Subscribe():
                    self._subscribe(said)
                case words.Credit():
                    self._channel(said.id).allow(said.credits, words.CREDITS_MAX)
                case words.Change():
                    self._change(said)
                case words.Ack():
                    self._acknowledge(said)
                case words.Unsubscribe():
                    self._unsubscribe(said.id)
        except WordsError as error:
            self._refuse(error)
        self.write()

    async def _in_turn(self, size: int) -> None:
        """Wait while the client takes no answers, or sends too much at once.

        A long message counts as several.
        """
        while self._connection.is_paused or self._said:
            self._writable.clear()
            await self._writable.wait()
        now = self._clock.monotonic_s()
        earned = (now - self._heard_at) * MESSAGES_PER_S
        self._messages = min(MESSAGES_AT_ONCE, self._messages + earned)
        self._messages -= 1 + size / CHARS_A_MESSAGE
        self._heard_at = now
        if self._messages < 0:
            await self._clock.sleep(-self._messages / MESSAGES_PER_S)

    def _refuse(self, error: WordsError) -> None:
        self._mistakes += 1
        self._said.append(
            wire.message(
                "problem",
                id=error.name,
                code=error.code,
                detail=error.detail,
                where=error.where,
                expected=error.expected,
            )
        )
        if self._mistakes >= MISTAKES_MAX:
            self._close_with(POLICY, f"{MISTAKES_MAX} messages that cannot be understood")

    def _channel(self, name: str) -> Channel:
        found = self._channels.get(name)
        if found is None:
            raise WordsError(
                "unknown_id",
                f"no subscription {name!r} is open here",
                where="id",
                expected="the id of a subscription that is open",
                name=name,
            )
        return found

    def _subscribe(self, said: words.Subscribe) -> None:
        if said.id in self._channels:
            raise WordsError(
                "id_in_use",
                f"a subscription {said.id!r} is open already",
                where="id",
                expected="another id, or change, or unsubscribe before",
                name=said.id,
            )
        if len(self._channels) >= SUBSCRIPTIONS_MAX:
            raise WordsError(
                "subscriptions",
                f"this socket has {SUBSCRIPTIONS_MAX} subscriptions already",
                where="type",
                expected="unsubscribe before, or another socket",
                name=said.id,
            )
        try:
            asked = self._request(said)
            chosen = said.model_dump(include={*words.KEPT})
            channel = Channel(
                said.id,
                asked,
                chosen,
                said.credits,
                self.client,
                self._room,
                kept_as=said.name,
                wished=self._wished(chosen),
            )
            self._streams.enter(channel)
        except REFUSED as error:
            self._refuse_request(said.id, error)
            return
        self._channels[said.id] = channel
        self._order.append(channel)
        self._start(channel, channel.open(), ends=True)

    def _request(self, said: words.Subscribe) -> Request:
        chosen = said.model_dump(include={*words.KEPT})
        return self._read(chosen, said.start, on_gap=said.on_gap, after=said.after)

    def _read(
        self,
        chosen: dict[str, Any],
        start: str | int | None,
        *,
        on_gap: str | None = None,
        after: str | None = None,
    ) -> Request:
        """Raises RequestError."""
        texts = ("sample", "conflate", "max_rate")
        told = {name: None if chosen[name] is None else str(chosen[name]) for name in texts}
        wanted = {name: value for name, value in chosen.items() if name not in words.SLOW}
        return asked_for.request(
            **wanted | told | {"streams": chosen["streams"] or ()},
            now_ms=self._clock.now_ms(),
            start=None if start is None else str(start),
            on_gap=on_gap,
            cursors=(after,),
        )

    def _wished(self, chosen: dict[str, Any]) -> Wish:
        """What is done when it reads too slowly. Raises RequestError."""
        after = chosen["slow_after"]
        return self._streams.wish(chosen["slow"], None if after is None else str(after))

    def _change(self, said: words.Change) -> None:
        channel = self._channel(said.id)
        if channel.is_busy or channel.state not in (State.BEHIND, State.LIVE):
            raise WordsError(
                "busy",
                f"subscription {said.id!r} is being opened, changed or ended",
                where="id",
                expected="a subscription that said subscribed or changed last",
                name=said.id,
            )
        try:
            chosen = channel.chosen | _given(said)
            wanted, wished = self._read(chosen, said.start), self._wished(chosen)
        except RequestError as error:
            self._refuse_request(said.id, error)
            return
        channel.is_busy = True
        self._start(channel, channel.change(wanted, chosen, wished), ends=False)

    def _acknowledge(self, said: words.Ack) -> None:
        channel = self._channel(said.id)
        if channel.kept_as is None:
            raise WordsError(
                "no_name",
                f"subscription {said.id!r} keeps no cursor",
                where="id",
                expected="a subscription that was opened with a name",
                name=said.id,
            )
        try:
            channel.acknowledge(said.cursor)
        except CursorError as error:
            self._refuse_request(said.id, error, where="cursor")

    def _unsubscribe(self, name: str) -> None:
        self._channel(name).leave()

    def _start(self, channel: Channel, work: Awaitable[None], *, ends: bool) -> None:
        async def run() -> None:
            try:
                await work
            except REFUSED as error:
                self._refuse_request(channel.name, error)
                if ends:
                    self._forget(channel)
            finally:
                channel.is_busy = False
            self.write()

        channel.work = asyncio.create_task(run(), name="socket-work")
        channel.work.add_done_callback(self._work_done)

    def _work_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self.closing.done():
            self.closing.set_exception(task.exception())  # type: ignore[arg-type]

    def _refuse_request(self, name: str, error: Exception, *, where: str | None = None) -> None:
        """A request that is understood and cannot be served."""
        found = problem_of(error, retry_after_s=self._streams.retry_after_s())
        wait = (found.headers or {}).get("Retry-After")
        self._streams.metrics.refused.labels(found.code).inc()
        self._said.append(
            wire.message(
                "problem",
                id=name,
                code=found.code,
                detail=found.detail,
                where=where or _where(error),
                expected=found.detail.partition("expected ")[2] or None,
                retry_after_s=None if wait is None else int(wait),
                **found.more,
            )
        )

    # What is written.

    def write(self) -> None:
        """Write what there is.

        Who is behind gets one piece a turn, so that nobody's past holds up the others.
        """
        if self._is_writing:
            return  # a subscription woke us while it was asked: we come to it
        self._is_writing = True
        try:
            self._write_all()
        finally:
            self._is_writing = False
        if not self._said and not self._connection.is_paused:
            self._writable.set()
        if self._is_draining and not self._channels and not self._said:
            self._close_with(RESTART, "this server stops; go on at another one, or here soon")

    def _write_all(self) -> None:
        while not (self._connection.is_paused or self._has_turn or self._is_closed):
            if self._said:
                self._put(self._said.popleft())
                continue
            found = self._next()
            if found is None:
                break
            channel, frame = found
            self._put(frame)
            if channel.has_ended:
                self._forget(channel)
            elif channel.state is State.BEHIND:
                self._has_turn = True
                self._streams.hub.turns.add(self._turn, live=False)

    def _next(self) -> tuple[Channel, bytes] | None:
        for _ in range(len(self._order)):
            channel = self._order[0]
            self._order.rotate(-1)
            frame = channel.next()
            if frame is not None:
                return channel, frame
        return None

    def _turn(self, _: IsTimeUp) -> bool:
        self._has_turn = False
        self.write()
        return False

    def _put(self, frame: bytes) -> None:
        self._connection.write(frame)
        self._written += len(frame)
        self._written_at = self._clock.monotonic_s()
        self._streams.metrics.sent_bytes.inc(len(frame))
        self._streams.metrics.writes.inc()

    def _on_writable(self) -> None:
        self.write()
        self._writable.set()

    # As a member of OpenStreams.

    def watch(self, now: float, *, stall_s: float) -> None:
        """A heartbeat when it is due, the end when it is idle, cut off when nothing is taken."""
        if self._channels:
            self._idle_since = now
        elif now - self._idle_since >= IDLE_S:
            self._close_with(POLICY, f"no subscription within {IDLE_S:.0f} seconds")
        if now - self._written_at >= self._heartbeat_s and not self._connection.is_paused:
            moved = [channel.beat() for channel in self._channels.values()]
            if not any(moved):
                self._said.append(wire.message("heartbeat", at=self._clock.now_ms()))
            self.write()
        self._progress = observe(
            self._progress, written=self._written, waiting=self._connection.waiting(), now=now
        )
        if is_stalled(self._progress, now=now, stall_s=stall_s):
            self.is_stalled = True
            self.abort()

    def end(self) -> None:
        """Drain, because the server stops; its subscriptions send their own ends."""
        self._is_draining = True
        self.write()

    def end_of_right(self, why: End) -> None:
        """Say that the reader's right has ended, and end.

        Bytes that wait for a client that does not read are dropped.
        """
        self._is_writing = True  # from here on nothing is written but the ends
        for channel in list(self._channels.values()):
            channel.finish(why.value)
        self._is_writing = False
        self._has_turn = False  # who is behind waits for no turn to be told that it is over
        self.write()
        self._close_with(POLICY, f"this key or token is {why}: come again with a new one")
        if self._connection.is_paused:
            self.abort()

    def abort(self) -> None:
        """End at once."""
        self._connection.abort()

    def seen(self) -> None:
        """Its subscriptions are the streams."""

    def expel(self, reason: str) -> None:
        """Its subscriptions are ended one by one."""

    def close(self) -> None:
        """Close all channels and release what the socket holds."""
        if self._is_closed:
            return
        self._is_closed = True
        self._connection.on_writable = None
        self._right.close()
        for channel in list(self._channels.values()):
            self._forget(channel)
        self._streams.remove(self)
        if not self.closing.done():
            self.closing.cancel()

    def _forget(self, channel: Channel) -> None:
        if self._channels.get(channel.name) is channel:
            del self._channels[channel.name]
            self._order.remove(channel)
            self._idle_since = self._clock.monotonic_s()
            self._streams.metrics.ended.labels(channel.why or "left").inc()
        channel.close()

    def _close_with(self, code: int, reason: str) -> None:
        if not self.closing.done():
            self.closing.set_result(Closing(code, reason))


def _given(said: words.Change) -> dict[str, Any]:
    """What a change sets, null included.

    Streams replace a publication, and a publication replaces streams.
    """
    found = said.model_dump(include=said.model_fields_set & {*words.KEPT})
    for name, other in (("streams", "publication"), ("publication", "streams")):
        if found.get(name) is not None and found.get(other) is None:
            found[other] = None
        elif name in found and found[name] is None:
            del found[name]
    return found


def _where(error: Exception) -> str | None:
    """Which part of a message an error is about."""
    match error:
        case UnknownStream():
            return "streams"
        case UnknownPublication():
            return "publication"
        case CursorError():
            return "after"
        case FilterError():
            return "where, select"
        case RequestError():
            return error.code
        case _:
            return None
