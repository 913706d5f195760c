"""Shows a broker's messages live as a map file sees them.

Neither this program nor the broker keeps any.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import mqtt5
import orjson

from edgewake.edge.sources.address import connected
from edgewake.edge.sources.mqtt.mqtt_subscribe import Link, MqttSubscribeConfig
from edgewake.protocol.broker import BrokerConfig, tls_of
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.maps import preview
from edgewake.protocol.maps.discovering import Survey
from edgewake.protocol.maps.rule import Maps


async def watch(
    maps: Maps,
    broker: BrokerConfig,
    *,
    count: int | None,
    as_json: bool,
    say: Callable[[str], object],
) -> None:
    """Until `count` messages came, or the broker is lost. Raises Unavailable, ConfigError."""
    config = MqttSubscribeConfig(
        type="mqtt_subscribe", stream="watch", topic="#", broker=broker, session_s=0
    )
    clock, left = SystemClock(), count
    async with connected(broker.host, broker.port, tls=tls_of(broker)) as (reader, writer):
        link = Link(reader, writer)
        await link.open(f"edgewake-map-{os.urandom(6).hex()}", config, maps.filters)
        if not as_json:
            say(f"watching {', '.join(maps.filters)} at {broker.host}:{broker.port}; end: Ctrl-C")
        while left is None or left > 0:
            for packet in await link.publishes():
                if not isinstance(packet, mqtt5.PublishPacket):
                    continue
                if packet.packet_id is not None:
                    link.send(mqtt5.PubAckPacket(packet.packet_id))
                say(_shown(maps, packet, clock.now_ms(), as_json))
                left = None if left is None else left - 1
                if left == 0:
                    break
            await link.drained()


def _shown(maps: Maps, packet: mqtt5.PublishPacket, now_ms: int, as_json: bool) -> str:
    seen = preview.preview(maps, packet.topic, bytes(packet.payload), now_ms=now_ms)
    if as_json:
        return orjson.dumps(preview.as_object(packet.topic, seen)).decode()
    return "\n".join(preview.lines(maps, packet.topic, seen, now_ms))


async def survey(broker: BrokerConfig, *, seconds: float) -> Survey:
    """The messages that come within `seconds`, with those that the broker retains.

    Raises Unavailable, ConfigError.
    """
    config = MqttSubscribeConfig(
        type="mqtt_subscribe", stream="watch", topic="#", broker=broker, session_s=0, retained="all"
    )
    found = Survey()
    async with connected(broker.host, broker.port, tls=tls_of(broker)) as (reader, writer):
        link = Link(reader, writer)
        await link.open(f"edgewake-discover-{os.urandom(6).hex()}", config, ["#"])
        try:
            async with asyncio.timeout(seconds):
                while True:
                    for packet in await link.publishes():
                        if not isinstance(packet, mqtt5.PublishPacket):
                            continue
                        if packet.packet_id is not None:
                            link.send(mqtt5.PubAckPacket(packet.packet_id))
                        found.add(packet.topic, bytes(packet.payload))
                    await link.drained()
        except TimeoutError:
            return found
