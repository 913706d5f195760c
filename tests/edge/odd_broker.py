"""A broker that does what a real one rarely does: confirms nothing, takes QoS 0 only, disconnects,
answers any reason code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import mqtt5

from edgewake.protocol.frames.ack import Ack, AckToken, joined
from edgewake.protocol.mqtt import PacketReader
from tests.edge.foreign_frame import opened
from tests.services import PATIENCE_S

Answer: TypeAlias = mqtt5.PubAckReasonCode | mqtt5.DisconnectReasonCode | None
"""To a publish: a PUBACK, a DISCONNECT, or (None) nothing."""


@dataclass
class OddBroker:
    """Broker and cloud in one: what it confirms with success, the cloud acknowledges, if
    `acknowledges`.
    """

    answer: Callable[[mqtt5.PublishPacket], Answer] = lambda _: mqtt5.PubAckReasonCode.SUCCESS
    connack: dict[str, Any] = field(default_factory=dict)
    refuses_will_qos: bool = False
    acknowledges: bool = True
    empty_subacks: int = 0
    """So many connections are answered to their subscription with nothing."""
    port: int = 0
    connects: list[mqtt5.ConnectPacket] = field(default_factory=list)
    publishes: list[mqtt5.PublishPacket] = field(default_factory=list)
    pubacks: list[tuple[int, int]] = field(default_factory=list)
    """(packet id, reason) of what it sent with QoS 1."""
    pings: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    transports: set[asyncio.Transport] = field(default_factory=set)

    async def until(
        self, condition: Callable[[], object], *, timeout_s: float = PATIENCE_S
    ) -> None:
        """Wait for a condition over what came."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.news.clear()
                await self.news.wait()

    def send(self, topic: str, payload: bytes, packet_id: int, *, expires_s: int = 60) -> None:
        """Publish to whoever is connected, with QoS 1."""
        packet = mqtt5.PublishPacket(
            topic, payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=packet_id,
            message_expiry_interval=expires_s
        )  # fmt: skip
        for transport in self.transports:
            transport.write(packet.write())

    def ups(self, stream: str) -> list[mqtt5.PublishPacket]:
        """Publishes of a stream."""
        return [packet for packet in self.publishes if packet.topic.endswith(f"/up/{stream}")]


class _Connection(asyncio.Protocol):
    def __init__(self, broker: OddBroker) -> None:
        self._broker = broker
        self._reader = PacketReader()
        self._offset = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._broker.transports.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._broker.transports.discard(self._transport)
        self._broker.news.set()

    def data_received(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            if not self._transport.is_closing():
                self._on_packet(packet)
        self._broker.news.set()

    def _on_packet(self, packet: object) -> None:
        broker = self._broker
        match packet:
            case mqtt5.ConnectPacket():
                broker.connects.append(packet)
                if broker.refuses_will_qos and packet.will is not None and int(packet.will.qos) > 0:
                    self._write(
                        mqtt5.ConnAckPacket(
                            reason_code=mqtt5.ConnAckReasonCode.QUALITY_NOT_SUPPORTED
                        )
                    )
                    self._transport.close()
                else:
                    self._write(mqtt5.ConnAckPacket(**broker.connack))
            case mqtt5.SubscribePacket():
                granted = (
                    []
                    if len(broker.connects) <= broker.empty_subacks
                    else [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE]
                )
                self._write(mqtt5.SubAckPacket(packet.packet_id, granted))
            case mqtt5.PingReqPacket():
                broker.pings += 1
                self._write(mqtt5.PingRespPacket())
            case mqtt5.PubAckPacket():
                broker.pubacks.append((packet.packet_id, int(packet.reason_code)))
            case mqtt5.PublishPacket():
                broker.publishes.append(packet)
                self._on_publish(packet)

    def _on_publish(self, packet: mqtt5.PublishPacket) -> None:
        says = self._broker.answer(packet)
        if says is None:
            return
        if isinstance(says, mqtt5.DisconnectReasonCode):
            self._write(mqtt5.DisconnectPacket(reason_code=says))
            self._transport.close()
            return
        if packet.packet_id is not None:
            self._write(mqtt5.PubAckPacket(packet.packet_id, reason_code=says))
        message = opened(packet)
        if (
            says == mqtt5.PubAckReasonCode.SUCCESS
            and self._broker.acknowledges
            and message.response_topic is not None
        ):
            self._offset += 1
            for payload in joined(
                [(message.correlation_data or b"", Ack(AckToken(0, self._offset)))]
            ):
                self._write(mqtt5.PublishPacket(message.response_topic, payload))

    def _write(self, packet: Any) -> None:
        self._transport.write(packet.write())


@asynccontextmanager
async def odd_broker(**how: Any) -> AsyncIterator[OddBroker]:
    """A running one, on a free port."""
    broker = OddBroker(**how)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(broker), "127.0.0.1", 0
    )
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for transport in tuple(broker.transports):
            transport.abort()
        await broker.until(lambda: not broker.transports)
