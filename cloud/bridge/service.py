"""Runs a bridge: opens what it needs of Kafka, however long that is away, serves, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from edgewake.cloud import metrics
from edgewake.cloud.bridge.bridge import Bridge
from edgewake.cloud.bridge.catalogue import Catalogue
from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.cloud.bridge.kafka_writer import ALONE, PRODUCER
from edgewake.cloud.bridge.mqtt_source import MqttSource
from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.retry import Backoff
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.bridge")

FOLLOW_S: Final = 0.05
"""Seconds between looks at the stream catalogue."""
FOLLOW_AWAITED_S: Final = 0.002
"""The same while messages wait for it."""
BATCH_BYTES_MAX: Final = 1_000_000
"""Bytes of a batch of records; librdkafka's default."""
BATCH_HEAD_BYTES: Final = 1024
"""Bytes that Kafka counts in a batch besides what librdkafka counts; 61 for the head, and room."""
_WRITTEN: Final = (topics.UP, topics.DEAD, topics.DEVICES, topics.STREAMS)


async def run(
    config: BridgeConfig, *, clock: Clock, rng: random.Random, stop: asyncio.Event, is_alive: Callable[[], bool] = lambda: True
) -> None:
    """Serve until `stop`. Order at the end: stop reading, wait for Kafka, answer, disconnect. Raises LocalError."""
    catalogue = Catalogue(clock.monotonic_s)
    opened = await _unless_stopped(_open_kafka(config, catalogue, clock, Backoff(rng)), stop)
    if opened is None:
        return
    table, batch_bytes = opened
    bridge = Bridge(
        config,
        producer=clients.producer(config.kafka, config.name, **PRODUCER, **{"batch.size": batch_bytes}),
        alone=partial(clients.producer, config.kafka, f"{config.name}-alone", **ALONE),
        catalogue=catalogue,
        clock=clock,
        rng=rng,
    )
    metrics.serve(config.metrics_port, bridge.metrics.gather, host=config.metrics_host, is_alive=is_alive)
    try:
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(bridge.pump(), name="pump")
            others = [
                tasks.create_task(bridge.source.run(), name="mqtt"),
                tasks.create_task(_follow(table, catalogue, clock), name="catalogue"),
                tasks.create_task(_log_ready(bridge.source, config.name), name="ready"),
            ]
            await stop.wait()
            pump.cancel()
            await bridge.drain()
            for task in others:
                task.cancel()
    finally:
        table.close()


async def _open_kafka(config: BridgeConfig, catalogue: Catalogue, clock: Clock, backoff: Backoff) -> tuple[TableReader, int]:
    """Make our topics, read the catalogue, and find how large a batch may be, however long Kafka is away."""
    is_logged = False
    while True:
        try:
            return await asyncio.to_thread(_open_kafka_once, config, catalogue)
        except Unavailable as error:
            if not is_logged:
                log.warning("waiting for Kafka: %s", error, extra={"event": "kafka.away"})
            is_logged = True
        await clock.sleep(backoff.next_s())


def _open_kafka_once(config: BridgeConfig, catalogue: Catalogue) -> tuple[TableReader, int]:
    topic_admin.ensure_topics(config.kafka, _WRITTEN)
    batch_bytes = _batch_bytes(config.kafka)
    table = TableReader(config.kafka, f"{config.name}-catalogue", topics.STREAMS, on_change=catalogue.follow)
    try:
        table.read_all()
    except Unavailable:
        table.close()
        raise
    return table, batch_bytes


def _batch_bytes(config: KafkaConfig) -> int:
    """The largest batch that every topic we write takes: over its bound a topic refuses all records of the batch. Raises Unavailable."""
    client = clients.admin(config)
    try:
        bounds = [int(metadata.topic_configs(client, topic)["max.message.bytes"]) for topic in _WRITTEN]
    except KafkaException as error:
        raise Unavailable(f"Kafka: {error.args[0].str()}") from error
    return max(1, min(BATCH_BYTES_MAX, min(bounds) - BATCH_HEAD_BYTES))


T = TypeVar("T")


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """The work's result; None where `stop` came first."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if task.done():
        return task.result()
    task.cancel()
    return None


async def _follow(table: TableReader, catalogue: Catalogue, clock: Clock) -> None:
    while True:
        table.poll(0)
        await clock.sleep(FOLLOW_AWAITED_S if catalogue.is_awaited else FOLLOW_S)


async def _log_ready(source: MqttSource, name: str) -> None:
    await source.subscribed.wait()
    log.info("%s serves", name, extra={"event": "part.ready"})
