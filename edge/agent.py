"""The agent: sources → event log → chains and uplink, and the order in which they stop.

Start: the log first (what was accepted before is there), then the uplink, the chains, the sources.
Stop (SIGTERM, SIGINT): sources and chains end → what they brought is committed → the uplink sends
and waits for acknowledgements for a short while and says goodbye → the log closes. What is not
acknowledged then is sent after the next start, and what is not processed then is processed. A
source that dies is started again (`supervisor`); any other task that dies takes the agent down.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from edgewake.edge import status as status_file
from edgewake.edge.config import AgentConfig
from edgewake.edge.downlink.downlink import Downlink
from edgewake.edge.downlink.feeds import Feeds
from edgewake.edge.downlink.inbox import INBOX, Inbox
from edgewake.edge.intake.field_book import FieldBook, fields_said, times_said
from edgewake.edge.intake.intake import Intake, LogSink, OneWaySink, Sink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import OutFrame
from edgewake.edge.log.status import LogStatus
from edgewake.edge.log.tables.epoch import boot_id
from edgewake.edge.memory import collect
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.supervisor import RESTART_MAX_S, RESTART_MIN_S, Supervisor
from edgewake.edge.uplink.sender import Uplink
from edgewake.edge.workers import Workers
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock, sleep_or
from edgewake.protocol.downlink.downlink import ANSWERS, REPLIES, REQUESTS, Answer
from edgewake.protocol.errors import LocalError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.names import THING
from edgewake.protocol.ops.device import WAITS_CHARS_MAX, DeviceState, DeviceStatus

if TYPE_CHECKING:
    from edgewake.edge.settings.settings import SettingsFile
    from edgewake.edge.settings.trial import Trial

log = logging.getLogger("edgewake.agent")

BOOK: Final = "fields:"
"""Prefix of the name under which the log keeps the fields of a stream."""
NAMED_CHARS_MAX: Final = 500
"""Characters of the fields that a line of the log names."""
CONNECTED_S: Final = 5.0
"""Seconds after which an agent usually has its connection, so that the memory for checking
certificates can be released."""


class Agent:
    """One running agent."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        clock: Clock,
        rng: random.Random,
        settings: SettingsFile | None = None,
        version: str = "",
    ) -> None:
        """Open the log.

        `settings`: where those that the cloud sets are kept; None: it may set none. Raises
        LocalError.
        """
        self.on_ready: Callable[[], None] = lambda: None
        """Called once everything runs."""
        self.wants_restart = False
        """Set after `run` when another life is to begin, with other settings."""
        self._config = config
        self._clock = clock
        self._stop = asyncio.Event()
        self._dead: BaseException | None = None
        self._version = version
        self._began_s = clock.monotonic_s()
        self._events = self._opened_log(rng)
        self._log_status = self._events.status_at_open
        self._answers = self._events.stream(ANSWERS)
        self._trial = None if settings is None else self._new_trial(settings)
        self._downlink = Downlink(
            config.downlink, Inbox(self._events, clock, boot=boot_id()), self._trial
        )
        self._feeds = Feeds()
        self._uplink = Uplink(
            config,
            self._events,
            clock=clock,
            rng=rng,
            status=self._device_status,
            fields=lambda: fields_said(self._books),
            inbox=self._downlink.inbox,
            feeds=self._feeds,
            on_types=self._decided,
        )
        self._sources: dict[str, Supervisor] = {}
        self._books: dict[str, FieldBook] = {}
        self._workers = Workers(config, self._events, clock, rng)
        self._rng = rng

    def _opened_log(self, rng: random.Random) -> EventLog:
        """Raises LocalError where its disk does not work."""
        config = self._config
        try:
            events = EventLog(
                config.data_dir,
                config.log,
                config.uplink,
                clock=self._clock,
                rng=rng,
                boot_id=boot_id(),
                lanes=_lanes(config),
                local=config.local_streams,
                on_frames=self._on_frames,
                on_failure=self._on_failure,
            )
        except (sqlite3.Error, OSError) as error:
            raise LocalError(
                f"event log in {config.data_dir}: {error}: expected a directory of this agent's "
                "own on a disk that works"
            ) from error
        if events.epoch_began:
            log.info(
                "epoch %d began: the log was %s",
                events.epoch,
                events.epoch_began,
                extra={"event": "log.epoch", "epoch": events.epoch},
            )
        return events

    def _new_trial(self, settings: SettingsFile) -> Trial:
        from edgewake.edge.settings.trial import Trial

        return Trial(
            settings,
            self._clock,
            health_s=self._config.downlink.health_s,
            is_healthy=lambda: self._uplink.acked > 0,
            restart=self._restart,
            say=self._answer,
        )

    def _answer(self, answer: Answer) -> None:
        self._answers.append((max(0, self._clock.now_ms()), dict(answer.fields())))

    def _restart(self) -> None:
        self.wants_restart = True
        self._stop.set()

    async def run(self) -> None:
        """Run until a signal stops it. Raises what made a task fail."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop.set)
        try:
            # Before anything is received: the log keeps messages only for a consumer that it knows.
            await self._downlink.inbox.open()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_named("uplink", self._uplink.run()), name="uplink")
                workers = [
                    tasks.create_task(_named(name, run()), name=name)
                    for name, run in (await self._workers.open()).items()
                ]
                sources = [
                    self._start_source(tasks, number, source)
                    for number, source in enumerate(self._config.source, start=1)
                ]
                down = tasks.create_task(_named("downlink", self._downlink.run()), name="downlink")
                watch = (
                    []
                    if self._trial is None
                    else [tasks.create_task(_named("trial", self._trial.watch()), name="trial")]
                )
                news = tasks.create_task(_named("status", self._write_status()), name="status")
                # What the start left, and what the first connection leaves a moment later, is a
                # megabyte each, which Python would free some day.
                collect()
                loop.call_later(CONNECTED_S, collect)
                log.info("ready", extra={"event": "part.ready", "device": self._config.device})
                self.on_ready()
                await self._stop.wait()
                log.info("stopping", extra={"event": "part.stopping"})
                # Sources first, and the uplink only when they have ended: what they still put into
                # the log goes out with the rest.
                for task in (*sources, *workers, *watch, down, news):
                    task.cancel()
                await asyncio.wait([*sources, *workers, *watch, down, news])
                self._uplink.drain()
        finally:
            # However it ends, the log's writer stores what is queued. It waits for the disk, so it
            # is closed in a thread.
            await asyncio.to_thread(self._events.close)
            self._say(running=False)
        if self._dead is not None:
            raise LocalError("the event log's writer died") from self._dead
        log.info("stopped", extra={"event": "part.stopped"})

    def _start_source(
        self, tasks: asyncio.TaskGroup, number: int, config: SourceConfig
    ) -> asyncio.Task[None]:
        name = f"{number} {config.type} {config.stream}"
        intake = self._intake(name, config)
        backoff = Backoff(self._rng, first_s=RESTART_MIN_S, max_s=RESTART_MAX_S)
        context = SourceContext(
            self._config.device,
            self._clock,
            self._events.position,
            self._feeds,
            frozenset(one.stream for one in self._config.source),
        )
        source = Supervisor(
            name, lambda: config.source(context), intake, self._clock, backoff, policy=config.policy
        )
        self._sources[name] = source
        return tasks.create_task(_named(f"source {name}", source.run()), name=f"source {name}")

    def _intake(self, name: str, config: SourceConfig) -> Intake:
        keys: dict[str, Any] = {
            "time": config.time.rule(),
            "book": self._book(config.stream),
            "book_name": BOOK + config.stream,
            "also": _check_of(config),
        }
        if not config.has_streams:
            return Intake(name, self._sink(config), Policy.BLOCK, self._clock, **keys)
        from edgewake.edge.intake.many_streams import ManyStreams

        return ManyStreams(
            name,
            self._sink(config),
            Policy.BLOCK,
            self._clock,
            **keys,
            book_of=partial(self._book, also=config),
            book_prefix=BOOK,
            taken=self._config.made_streams | {ANSWERS, REPLIES, REQUESTS, INBOX},
        )

    def _sink(self, config: SourceConfig) -> Sink:
        stream = self._events.stream(config.stream, bytes_max=config.queue_bytes_max)
        if config.mode is not Mode.ACK:
            return self._one_way(config.stream)
        if config.things == "field" and not config.has_streams:
            return LogSink(stream)
        from edgewake.edge.things.sink import ThingSink

        return ThingSink(
            self._events,
            config.stream,
            device=self._config.device,
            things_max=config.things_max,
            has_devices=config.has_devices,
        )

    def _book(self, stream: str, *, also: SourceConfig | None = None) -> FieldBook:
        """What is known of a stream's fields, one for all its sources.

        `also`: a source of several streams, which declares fields for all of them.
        """
        if stream not in self._books:
            sources = [one for one in self._config.source if one.stream == stream or one is also]
            declared = {name: kind for source in sources for name, kind in source.fields.items()}
            renamed = {path: name for source in sources for path, name in source.rename.items()}
            kept = self._events.position(BOOK + stream)
            self._books[stream] = FieldBook(kept, declared, renamed)
        return self._books[stream]

    def _decided(self, stream: str, types: Mapping[str, FieldType]) -> None:
        """An operator has decided the types of fields that had odd values."""
        book = self._books.get(stream)
        changed = [] if book is None else book.decide(types)
        if changed:
            named = ", ".join(f"{name} is a {types[name]}" for name in sorted(changed))
            log.info(
                "stream %s: %s, as it was decided in the cloud", stream, named[:NAMED_CHARS_MAX],
                extra={"event": "intake.decided", "stream": stream},
            )  # fmt: skip

    def _one_way(self, stream: str) -> OneWaySink:
        return OneWaySink(
            partial(self._uplink.send_one_way, stream), partial(self._uplink.one_way.lose, stream)
        )

    def _on_frames(self, frames: Sequence[OutFrame]) -> None:
        self._uplink.hand_over(frames)

    def _on_failure(self, error: BaseException) -> None:
        self._dead = error
        self._stop.set()

    # how it is

    async def _write_status(self) -> None:
        """Publish the status periodically, and when the connection opens or is lost."""
        turned = self._uplink.turned
        while True:
            turned.clear()
            self._log_status = await self._events.ask_status()
            self._say(running=True)
            await sleep_or(self._clock, self._config.uplink.status_interval_s, turned)

    def _say(self, *, running: bool) -> None:
        try:
            status_file.write(self._config.data_dir, self._status() | {"running": running})
        except OSError as error:
            log.warning(
                "the status file cannot be written: %s", error, extra={"event": "status.failed"}
            )

    def _status(self) -> dict[str, Any]:
        return {
            "written_at": self._clock.now_ms(),
            "interval_s": self._config.uplink.status_interval_s,
            "pid": os.getpid(),
            "device": self._config.device,
            "version": self._version,
            "uptime_s": round(self._clock.monotonic_s() - self._began_s, 1),
            "connection": self._uplink.session.state.value,
            "log_state": self._events.state.value,
            "uplink": dict(self._uplink.counts()),
            "waits": self._uplink.session.waits(),
            "latest": status_file.shown(self._events.latest()),
            "sources": {name: source.counts() for name, source in self._sources.items()},
            "settings_version": None if self._trial is None else self._trial.version,
            "downlink": self._downlink.counts(),
            **self._workers.counts(),
        }

    def _device_status(self) -> DeviceStatus:
        """The status for the cloud, as of the last check of the log."""
        known: LogStatus = self._log_status
        now_ms = self._clock.now_ms()
        return DeviceStatus(
            device=self._config.device,
            state=DeviceState.ONLINE,
            sent_at=now_ms,
            epoch=known.epoch,
            backlog_readings=known.waiting_readings,
            backlog_bytes=known.stored_bytes,
            oldest_unacked_s=None
            if known.oldest_at is None
            else max(0.0, (now_ms - known.oldest_at) / 1000),
            lost_readings=known.lost_readings,
            version=self._version,
            settings_version=None if self._trial is None else self._trial.version,
            waits=self._first_wait(),
            times=times_said(self._books),
        )

    def _first_wait(self) -> str | None:
        """A stream that is asked to wait, and why; None: none is."""
        waits = sorted(self._uplink.session.waits().items())
        return f"{waits[0][0]}: {waits[0][1]}"[:WAITS_CHARS_MAX] if waits else None


def _lanes(config: AgentConfig) -> dict[str, Lane]:
    """Inbox and answers are sent before the readings."""
    return config.lanes | {INBOX: Lane.URGENT, ANSWERS: Lane.URGENT, REPLIES: Lane.URGENT}


def _check_of(config: SourceConfig) -> Callable[[Mapping[str, Any]], None] | None:
    """What else a reading of this source has to be; None: nothing."""
    if config.stream != REQUESTS:
        return None
    from edgewake.protocol.downlink.request import (
        check_request,  # a device pays for it when it asks
    )

    if config.things == "field":
        return check_request
    return lambda fields: check_request(
        {name: value for name, value in fields.items() if name != THING}
    )


async def _named(name: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a task so that its error names it; its task group then cancels the others."""
    try:
        await work
    except Exception:
        log.exception("%s died", name, extra={"event": "part.task_died", "task": name})
        raise
