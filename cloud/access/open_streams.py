"""All open event streams of a server: admission, writing, heartbeats, the end of those that stalled, and the drain at the stop.

Chunks are written straight to the connection, the same framed bytes for everybody, whenever a session has some and the connection takes
them: no task has to run for a chunk. A client that does not read is not written to.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

from edgewake.cloud.access import sse
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Connection, http_chunk
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.session import Session
from edgewake.cloud.access.session_state import State
from edgewake.cloud.access.slow_reader import Progress, is_stalled, observe
from edgewake.cloud.log.hub import Full, Hub
from edgewake.cloud.log.turns import IsTimeUp
from edgewake.protocol.clock import Clock

WATCH_S: Final = 1.0
"""How often heartbeats and stalled clients are looked for; heartbeats are late by so much at most."""
RETRY_AFTER_S: Final = 2.0
"""Shortest wait asked of a program that is refused; the longest is three times as long, so that they do not all come back at once."""


class OpenStream:
    """A place for one stream on one connection, from the request on; its session comes when the stream is opened. `close` it."""

    def __init__(self, streams: OpenStreams, connection: Connection, *, heartbeat_s: float, now: float) -> None:
        self.connection = connection
        self.session: Session | None = None
        self.heartbeat_s = heartbeat_s
        self.progress = Progress(0, now)
        self.written = 0
        self.written_at = now
        self.is_stalled = False
        self.is_closed = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is lost."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when all is written and the answer should end, or nobody reads it."""
        self._streams = streams
        self._has_turn = False
        connection.on_lost = self._on_lost
        connection.on_writable = self.write
        if connection.is_lost():
            self._on_lost()

    def start(self, session: Session, *, retry_ms: int) -> None:
        """Write a session until it ends."""
        self.session = session
        session.wake = self.write
        session.start(retry_ms=retry_ms)
        self.write()

    def write(self) -> None:
        """Write what there is. Who is behind gets one piece a turn, so that nobody's past holds up the others."""
        if self.session is None or self.ended.done() or self.connection.is_paused or self._has_turn:
            return
        while not self.connection.is_paused:
            was_live = self.session.state is State.LIVE
            piece = self.session.next()
            if piece is None:
                break
            self._write(piece)
            if not was_live and self.session.state is not State.ENDING:
                self._has_turn = True
                self._streams.hub.turns.add(self._turn, live=False)
                return
        if self.session.state in (State.ENDING, State.GONE) and not self.connection.is_paused:
            self._end()

    def watch(self, now: float, *, stall_s: float) -> None:
        """Send a heartbeat when it is due; cut off a reader that takes nothing."""
        if self.session is not None and now - self.written_at >= self.heartbeat_s:
            self.session.beat()
        self.progress = observe(self.progress, written=self.written, waiting=self.connection.waiting(), now=now)
        if is_stalled(self.progress, now=now, stall_s=stall_s):
            self.is_stalled = True
            self.connection.abort()

    def end(self) -> None:
        """End at the next chunk's border; one that is being opened is given up."""
        if self.session is not None:
            self.session.end()

    def close(self) -> None:
        """Leave."""
        if not self.is_closed:
            self.is_closed = True
            self.connection.on_lost = self.connection.on_writable = None
            if self.session is not None:
                self.session.close()
            self._streams.remove(self)

    def _turn(self, _: IsTimeUp) -> bool:
        self._has_turn = False
        if not self.is_closed:
            self.write()
        return False

    def _write(self, piece: bytes) -> None:
        self.connection.write(piece)
        self.written += len(piece)
        self.written_at = self._streams.clock.monotonic_s()
        self._streams.metrics.sent_bytes.inc(len(piece))
        self._streams.metrics.writes.inc()

    def _end(self) -> None:
        assert self.session is not None
        if not self.ended.done():
            if not self.session.has_failed:
                self._write(http_chunk(sse.retry(self._streams.retry_ms())))
            self.ended.set_result(None)

    def _on_lost(self) -> None:
        for future in (self.lost, self.ended):
            if not future.done():
                future.set_result(None)


class OpenStreams:
    """The streams of one server."""

    def __init__(self, config: AccessConfig, metrics: Metrics, hub: Hub, *, clock: Clock, rng: random.Random) -> None:
        self.config = config
        self.metrics = metrics
        self.hub = hub
        self.clock = clock
        self.draining = False
        self.behind = 0
        """Streams that catch up."""
        self._rng = rng
        self._streams: set[OpenStream] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, connection: Connection, *, heartbeat_s: float | None) -> OpenStream:
        """A place for one more, which counts from now on, while it is being opened too. Raises Full.

        `heartbeat_s` is what its client asks for; None: the server's own.
        """
        self.admit()
        if len(self._streams) >= self.config.clients_max:
            raise Full(f"this server already serves {len(self._streams)} clients")
        stream = OpenStream(self, connection, heartbeat_s=heartbeat_s or self.config.heartbeat_s, now=self.clock.monotonic_s())
        self._streams.add(stream)
        self._empty.clear()
        return stream

    def admit(self, *, replays: bool = False) -> None:
        """Is there work left over for one more? Raises Full."""
        if self.draining:
            raise Full("this server is about to stop")
        if replays and self.hub.cohorts_reading >= self.config.replays_max:
            raise Full(f"older records are read at {self.config.replays_max} different places already")

    def remove(self, stream: OpenStream) -> None:
        """One is gone."""
        self._streams.discard(stream)
        if not self._streams:
            self._empty.set()

    def on_change(self, before: State, after: State) -> None:
        """Count who is behind."""
        self.behind += (after is State.BEHIND) - (before is State.BEHIND)

    def retry_ms(self) -> int:
        """A client's wait after a lost connection, different for each, so that they do not all come back at once."""
        return int(self.config.retry_ms * self._rng.uniform(0.5, 1.5))

    def retry_after_s(self) -> int:
        """The same for a program that is refused, in whole seconds."""
        return round(RETRY_AFTER_S * self._rng.uniform(1, 3))

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.clock.sleep(WATCH_S)
            now = self.clock.monotonic_s()
            for stream in list(self._streams):
                stream.watch(now, stall_s=self.config.stall_s)

    async def drain(self, *, within_s: float) -> int:
        """Ask all to end at their next chunk's border and cut off who did not `within_s`; how many those were."""
        self.draining = True
        for stream in list(self._streams):
            stream.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        left = list(self._streams)
        for stream in left:
            stream.connection.abort()
        return len(left)
