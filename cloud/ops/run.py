"""The operations API's process: wiring, start and stop."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from pydantic import Field

from edgewake.cloud import web
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.app import Parts, make_app
from edgewake.cloud.ops.auth import Tickets, read_key
from edgewake.cloud.ops.browse import Browser
from edgewake.cloud.ops.live import Live
from edgewake.cloud.ops.metrics import StateCollector
from edgewake.cloud.ops.queries import Checked, Registry
from edgewake.cloud.ops.reader import Reader
from edgewake.cloud.ops.state import Change, State, TopicOffsets
from edgewake.cloud.web_host import HostCheck
from edgewake.protocol import config, log
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.stream import Stream

logger = logging.getLogger("edgewake.ops")

SWEEP_EVERY_S: Final = 2.0
"""Between looks for devices and parts that fell silent."""


class OpsConfig(config.Config):
    """What the operations API needs to know."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8702, ge=0, le=65_535)
    """Port to listen on."""
    public_names: tuple[str, ...] = ()
    """Host names under which others reach this part, e.g. "readings.example.org"; addresses and localhost are always right."""
    key_file: Path
    """File with the API key, readable by its owner only."""
    access_urls: tuple[str, ...] = ()
    """Addresses of access servers as clients reach them; where a query's results are is told with them."""
    kafka: KafkaConfig = KafkaConfig()


def main(config_file: Path, *, verbose: bool) -> None:
    """Run until SIGTERM or SIGINT; exits 0, 1 (a task died) or 2 (a configuration that cannot be used)."""
    log.set_up(verbose=verbose)
    web.run_part(lambda: run(config.load(OpsConfig, config_file)))


async def run(settings: OpsConfig) -> None:
    """Start, serve, stop. Order of the stop: live streams end, no new requests, tables left, producer flushed."""
    stop = asyncio.Event()
    web.stop_on_signals(stop)
    key = read_key(settings.key_file)
    listener = web.bind(settings.host, settings.port)
    clock = SystemClock()
    state, live = State(), Live(secrets.token_hex(4))

    def on_changes(changes: list[Change]) -> None:
        now = clock.now_ms()
        live.publish(event for change in changes for event in state.apply(change, now=now))

    def on_offsets(found: dict[str, TopicOffsets]) -> None:
        for topic, offsets in found.items():
            state.sample(topic, offsets)

    reader = Reader(settings.kafka, on_changes=on_changes, on_offsets=on_offsets, rng=random.Random())
    browser = Browser(settings.kafka, clock)
    registry = Registry(settings.kafka, state, clock, _check, settings.access_urls)
    metrics = CollectorRegistry()
    metrics.register(StateCollector(state, clock.now_ms))
    parts = Parts(state, registry, browser, live, Tickets(clock, lambda: secrets.token_urlsafe(24)), clock, metrics, reader.ready)
    try:
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(reader.run(), name="reader"),
                tasks.create_task(_sweep(state, live, clock), name="sweep"),
                tasks.create_task(_close_at(stop, live), name="live-end"),
            ]
            await web.serve(
                HostCheck(make_app(parts, key), settings.public_names), listener, stop=stop, on_ready=lambda: _say_ready(settings)
            )
            for task in background:
                task.cancel()
    finally:
        await browser.close()
        registry.close()


def _check(text: str, streams: Mapping[str, Stream]) -> Checked:
    # The SQL parser takes 30 MB, and most days nobody registers a query.
    from edgewake.cloud.analysis.query_file import check_query_file

    return check_query_file(text, streams)


async def _sweep(state: State, live: Live, clock: Clock) -> None:
    while True:
        await clock.sleep(SWEEP_EVERY_S)
        live.publish(state.sweep(now=clock.now_ms()))


async def _close_at(stop: asyncio.Event, live: Live) -> None:
    await stop.wait()
    live.close()


def _say_ready(settings: OpsConfig) -> None:
    logger.info("operations API at http://%s:%d", settings.host, settings.port, extra={"event": "part.ready"})
