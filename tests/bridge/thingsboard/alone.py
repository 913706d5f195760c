"""A bridge by itself, without a broker, whose Kafka is away."""

from __future__ import annotations

import random

from confluent_kafka import Producer

from edgewake.cloud.bridge.admission.catalogue import Catalogue
from edgewake.cloud.bridge.admission.mapped import Mapper
from edgewake.cloud.bridge.admission.register import Register
from edgewake.cloud.bridge.bridge import Bridge
from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.cloud.bridge.mqtt.subscriptions import subscriptions
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.protocol.clock import FakeClock


def away(room: int) -> Producer:
    """Kafka's client with room for so many records, and nobody who takes them."""
    return Producer(
        {"bootstrap.servers": "127.0.0.1:9", "queue.buffering.max.messages": room, "log_level": 0}
    )


def bridge(clock: FakeClock, producer: Producer, mapper: Mapper | None = None) -> Bridge:
    """A bridge that gives its records to this client, and maps other topics by `mapper`."""
    config = BridgeConfig()
    return Bridge(
        config,
        subscriptions=subscriptions(config.kafka.installation, ()),
        producer=producer,
        alone=lambda: producer,
        catalogue=Catalogue(clock.monotonic_s),
        register=Register(
            site="plant", own=config.name, instance="1", monotonic_s=clock.monotonic_s
        ),
        outbox=Outbox(),
        clock=clock,
        rng=random.Random(1),
        mapper=mapper,
    )
