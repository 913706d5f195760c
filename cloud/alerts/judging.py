"""The judge as a task: its thread, and the attempts that it begins, on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from edgewake.cloud.alerts.judge import Judge, Table, Tried
from edgewake.cloud.alerts.sender import Sender
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.clock import Clock
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.ops.alert import Note
from edgewake.protocol.ops.query import Progress, Registration

log = logging.getLogger("edgewake.alerts")


class Tables(Protocol):
    """The tables of the server that rules look at."""

    @property
    def alerts(self) -> Table:
        """The rules, destinations and words that people have written."""

    @property
    def queries(self) -> dict[str, Registration]:
        """Registered queries."""

    @property
    def streams(self) -> dict[str, Stream]:
        """The streams of the catalogue."""

    @property
    def progress(self) -> dict[str, Progress]:
        """What is said of each query."""


class Judging:
    """Runs a judge in its thread, and starts its attempts to send notes."""

    def __init__(
        self,
        config: KafkaConfig,
        tables: Tables,
        sender: Sender,
        clock: Clock,
        new_id: Callable[[], str],
        loaded: asyncio.Event,
    ) -> None:
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        self._attempts: set[asyncio.Task[None]] = set()
        self.judge = Judge(
            config=config,
            table=tables.alerts,
            topic_of=lambda name: _topic_of(tables, name),
            clock=clock,
            new_id=new_id,
            send=self._begin,
            is_loaded=loaded.is_set,
            streams=tables.streams,
            progress=tables.progress,
        )

    async def run(self) -> None:
        """Run until cancelled.

        Attempts under way are cancelled then, and repeated by the next judge.
        """
        executor = ThreadPoolExecutor(1, "ops-alerts")
        thread = self._loop.run_in_executor(executor, self.judge.run)
        try:
            await asyncio.shield(thread)
        finally:
            self.judge.stop()
            for attempt in self._attempts:
                attempt.cancel()
            await asyncio.gather(thread, *self._attempts, return_exceptions=True)
            executor.shutdown()

    def _begin(self, note: Note) -> None:
        """Begin to send a note; runs in the judge's thread."""
        self._loop.call_soon_threadsafe(self._start, note)

    def _start(self, note: Note) -> None:
        attempt = self._loop.create_task(self._attempt(note), name=f"note {note.id}")
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)

    async def _attempt(self, note: Note) -> None:
        try:
            tried = await self._sender.send(note)
        except OSError as error:  # no process could be started
            tried = Tried(note.id, f"not tried: {error}")
        except Exception as error:
            # What is not reported would be under way for ever, and in the way of all others.
            log.exception("note %s", note.id, extra={"event": "alerts.note_died"})
            tried = Tried(note.id, f"not tried: {error!r}")
        self.judge.news.put(tried)


def _topic_of(tables: Tables, name: str) -> str | None:
    found = tables.queries.get(name)
    return None if found is None else found.topic
