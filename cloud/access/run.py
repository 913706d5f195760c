"""One access server from start to stop: `run` can be read as its story.

Stop, in this order: no new streams, every open one ends at an event's border with a `retry` of its own, those that would not are cut off
after DRAIN_S, then the HTTP server, then the readers of Kafka. All within 5 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import resource
import signal
import socket
from collections.abc import Coroutine, Iterator
from typing import Any, Final

import uvicorn
import uvloop
from starlette.types import ASGIApp

from edgewake.cloud.access import app as application
from edgewake.cloud.access.clients import Clients
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Protocol, tune
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.log.cursor_keys import cursor_codec
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.web import bind
from edgewake.cloud.web_host import HostCheck
from edgewake.protocol.clock import SystemClock

log = logging.getLogger("edgewake.access")

DRAIN_S: Final = 2.0
HTTP_GRACE_S: Final = 1
BACKLOG: Final = 2048
FILES_MAX: Final = 65_536
"""File descriptors asked for; the hard limit may allow fewer."""


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: the part has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(config: AccessConfig) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # it says what we say
    listener = bind(config.host, config.port)
    tune(listener, send_buffer_bytes=config.send_buffer_bytes, stall_s=config.stall_s)
    _raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(config, listener))


async def serve(config: AccessConfig, listener: socket.socket) -> None:
    """Serve on a bound listener until told to stop."""
    clock, metrics = SystemClock(), Metrics()
    if config.cursor_key_file is None:
        log.warning("no cursor_key_file: cursors are good for this process only", extra={"event": "access.key_made_up"})
    hub = Hub(
        config.hub, config.kafka, name=config.name, codec=cursor_codec(config.cursor_key_file), clock=clock, on_tick=metrics.tick.observe
    )
    clients = Clients(config, metrics, clock=clock, rng=random.Random())
    app = application.build(config, hub=hub, clients=clients, metrics=metrics, clock=clock)
    server = _Server(_uvicorn(HostCheck(app, config.public_names)))
    stop = _stop_on_signals()
    async with asyncio.TaskGroup() as tasks:

        def begin(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return tasks.create_task(_named(name, work), name=name)

        reading = begin("hub", hub.run())
        watching = begin("clients", clients.run())
        serving = begin("http", server.serve(sockets=[listener]))
        readying = begin("ready", _say_ready(hub, server, listener))
        await stop.wait()
        readying.cancel()
        cut = await clients.drain(within_s=DRAIN_S)
        server.should_exit = True
        await serving
        watching.cancel()
        reading.cancel()
        if cut:
            log.warning("%d clients would not end and were cut off", cut, extra={"event": "access.cut", "clients": cut})
    log.info("stopped", extra={"event": "part.stopped"})


def _uvicorn(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=HTTP_GRACE_S,
    )


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _say_ready(hub: Hub, server: uvicorn.Server, listener: socket.socket) -> None:
    """Say so once HTTP answers and Kafka did."""
    await hub.catalogue.looked.wait()
    while not server.started:  # noqa: ASYNC110 (uvicorn has only this flag)
        await asyncio.sleep(0.01)
    gc.collect()
    gc.freeze()  # what the start made lives for ever: the collector need not walk it
    host, port = listener.getsockname()[:2]
    log.info("serving on http://%s:%d", host, port, extra={"event": "part.ready", "host": host, "port": port})


async def _named(name: str, work: Coroutine[Any, Any, None]) -> None:
    """A task that dies takes the process down, with its name in the log."""
    try:
        await work
    except Exception as error:
        log.critical("task %s died: %r", name, error, extra={"event": "task.died", "task": name}, exc_info=error)
        raise


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
