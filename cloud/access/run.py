"""One access server from start to stop: `run` can be read as its story.

Stop, in this order: no new streams, every open one ends at an event's border with a `retry` of its
own, those that would not are cut off after DRAIN_S, then the HTTP server, then the readers of
Kafka. All within 5 s.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from fastapi import FastAPI

from edgewake.cloud import process_metrics
from edgewake.cloud.access import app as application
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Protocol, tune
from edgewake.cloud.access.latest.latest_stores import LatestStores
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStreams
from edgewake.cloud.access.reports.client_reports import ClientReports
from edgewake.cloud.access.reports.lease_reports import LeaseReports
from edgewake.cloud.access.sockets.protocol import SocketProtocol
from edgewake.cloud.client_share import Clients
from edgewake.cloud.log.cursor_keys import KeyFile, state_key_file
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import MIB
from edgewake.cloud.login.reader import People, people_of
from edgewake.cloud.part_words import PartWords
from edgewake.cloud.rights.rights import Rights, rights_of
from edgewake.cloud.traces.events import EventTraces
from edgewake.cloud.traces.tracer import Tracer, close, open_tracer
from edgewake.cloud.web import http_part, tls
from edgewake.cloud.web.connections import Connections
from edgewake.cloud.web.file_limit import raise_file_limit
from edgewake.cloud.web.host import HostCheck
from edgewake.protocol import config
from edgewake.protocol import log as protocol_log
from edgewake.protocol.clock import Clock, SystemClock

log = logging.getLogger("edgewake.access")

DRAIN_S: Final = 2.0
HTTP_GRACE_S: Final = 1
SWITCH_S: Final = 0.001
"""After so long a thread that computes lets a waiting one run; with Python's 5 ms each new record
waits longer while others catch up."""
COLLECT_AFTER: Final = 20_000
"""New objects after which the collector looks for cycles, some megabytes of them. A request makes
hundreds that live until it is answered; with Python's 700, a fifth of a long poll was that."""
OTHER_CONNECTIONS_MAX: Final = 1000
"""Connections beside open streams: the page, health, questions."""


def main(
    config_file: Path | None, *, host: str | None, port: int | None, verbose: bool
) -> NoReturn:
    """Run until SIGTERM or SIGINT.

    Exits with 0, 1 (a task died) or 2 (an unusable configuration).
    """
    protocol_log.set_up(verbose=verbose)
    http_part.run_part(lambda: run(_settings(config_file, host=host, port=port)))


def _settings(config_file: Path | None, *, host: str | None, port: int | None) -> AccessConfig:
    settings = AccessConfig() if config_file is None else config.load(AccessConfig, config_file)
    return settings.model_copy(
        update={
            name: value for name, value in (("host", host), ("port", port)) if value is not None
        }
    )


async def run(settings: AccessConfig) -> None:
    """Serve until a signal stops it. Raises ConfigError."""
    stop, is_listening = asyncio.Event(), asyncio.Event()
    http_part.stop_on_signals(stop)
    encrypted = tls.context(settings.also_cert_file, settings.also_key_file)
    listeners = http_part.bind_all((settings.host, *settings.also_hosts), settings.port)
    # Before anything is accepted: a connection inherits this from its listener.
    for listener in listeners:
        tune(listener, stall_s=settings.stall_s)
    raise_file_limit()
    sys.setswitchinterval(SWITCH_S)
    parts = _made(settings)
    app = _app(settings, parts)
    async with asyncio.TaskGroup() as tasks:
        work = parts.lives() | {"ready": _report_ready(parts.hub, is_listening, listeners[0])}
        background = [
            tasks.create_task(http_part.named(name, coroutine), name=name)
            for name, coroutine in work.items()
        ]
        await http_part.serve(
            HostCheck(app, settings.public_names),
            listeners,
            encrypted=encrypted,
            stop=stop,
            on_ready=is_listening.set,
            before_close=lambda: _drain(parts.streams),
            protocol=Protocol,
            sockets=SocketProtocol,
            grace_s=HTTP_GRACE_S,
            connections=_connections(settings),
        )
        # Only now: what streams write while they drain comes from the hub, and their leases are
        # reported as they end.
        for task in background:
            task.cancel()
    close(parts.tracer)
    log.info("stopped", extra={"event": "part.stopped"})


@dataclass(frozen=True)
class _Parts:
    """What an access server is made of."""

    clock: Clock
    metrics: Metrics
    tracer: Tracer | None
    keys: KeyFile
    hub: Hub
    rights: Rights
    people: People | None
    streams: OpenStreams
    latest: LatestStores
    reports: ClientReports
    leases: LeaseReports
    words: PartWords

    def lives(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What runs until the server stops, by the name of its task."""
        return {
            "hub": self.hub.run(),
            "streams": self.streams.run(),
            "latest": self.latest.run(),
            "leases": self.leases.run(),
            "clients": self.reports.run(),
            "rights": self.rights.run(),
            "words": self.words.run(),
            **({} if self.people is None else {"login": self.people.desk.run()}),
            "cursor-keys": self.keys.run(self.clock),
        }


def _made(settings: AccessConfig) -> _Parts:
    """Makes all parts, and connects those that hear of each other. Nothing runs yet."""
    clock, metrics = SystemClock(), Metrics()
    process_metrics.register(
        metrics.registry,
        "access",
        certificates=settings.kafka.security.certificates,
        clock=clock,
    )
    tracer = open_tracer(settings.traces, part="access", name=settings.name)
    if tracer is not None:
        metrics.registry.register(tracer)
    keys = KeyFile(settings.cursor_key_file or state_key_file())
    hub = Hub(
        settings.hub,
        settings.kafka,
        name=settings.name,
        codec=keys.codec,
        clock=clock,
        on_tick=metrics.tick.observe,
        has_named=True,
        traces=None if tracer is None else EventTraces(tracer, clock),
    )
    rights = rights_of(settings, clock)
    streams = OpenStreams(settings, metrics, hub, rights=rights, clock=clock, rng=random.Random())
    reports = ClientReports(settings.kafka, settings.name, streams, clock)
    hub.catalogue.on_ending = reports.hear
    return _Parts(
        clock=clock,
        metrics=metrics,
        tracer=tracer,
        keys=keys,
        hub=hub,
        rights=rights,
        people=people_of(settings.login, rights, clock),
        streams=streams,
        latest=LatestStores(
            hub,
            clock,
            address_share=settings.address_share,
            answer_bytes_max=settings.answer_bytes_max,
            stall_s=settings.stall_s,
            bytes_max=settings.latest_mib * MIB,
            records_max=settings.latest_records,
        ),
        reports=reports,
        leases=LeaseReports(settings.kafka, settings.name, clock),
        words=PartWords(
            settings.kafka,
            "access",
            settings.name,
            clock,
            why_not_ready=lambda: hub.catalogue.why_unreachable,
        ),
    )


def _app(settings: AccessConfig, parts: _Parts) -> FastAPI:
    return application.build(
        settings,
        hub=parts.hub,
        streams=parts.streams,
        latest=parts.latest,
        leases=parts.leases,
        metrics=parts.metrics,
        rights=parts.rights,
        people=parts.people,
        clock=parts.clock,
    )


def _connections(settings: AccessConfig) -> Connections:
    clients = Clients(settings.trusted_proxies)
    return Connections(
        settings.clients_max + OTHER_CONNECTIONS_MAX, share=settings.address_share, clients=clients
    )


async def _drain(streams: OpenStreams) -> None:
    cut = await streams.drain(within_s=DRAIN_S)
    if cut:
        log.warning(
            "%d clients would not end and were cut off",
            cut,
            extra={"event": "access.cut", "clients": cut},
        )


async def _report_ready(hub: Hub, is_listening: asyncio.Event, listener: socket.socket) -> None:
    """Log it once HTTP answers and Kafka did."""
    await hub.catalogue.looked.wait()
    await is_listening.wait()
    gc.collect()
    gc.freeze()  # what the start made lives for ever: the collector need not walk it
    gc.set_threshold(COLLECT_AFTER)
    host, port = listener.getsockname()[:2]
    log.info(
        "serving on http://%s:%d",
        host,
        port,
        extra={"event": "part.ready", "host": host, "port": port},
    )
