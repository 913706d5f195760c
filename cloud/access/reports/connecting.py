"""Connects a server's reports to Kafka, however long Kafka is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from confluent_kafka import Producer

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

RETRY_S: Final = 1.0
"""Seconds between attempts to reach Kafka."""


async def connected(
    config: KafkaConfig,
    name: str,
    make_topic: Callable[[], object],
    clock: Clock,
    on_away: Callable[[Unavailable], object],
) -> Producer:
    """A producer of this name, once `make_topic` has ended without Unavailable.

    `make_topic` is called in a thread; `on_away` with each Unavailable that it raised.
    """
    while True:
        try:
            await asyncio.to_thread(make_topic)
            return clients.producer(config, name)
        except Unavailable as error:
            on_away(error)
            await clock.sleep(RETRY_S)
