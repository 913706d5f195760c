"""One MQTT 5 connection of the agent under asyncio: connect, subscribe, publish, notice that the line is dead.

A thin shell over `edgewake.protocol.mqtt`. It sends what its owner asks and calls back with what came; it decides nothing about frames.
`lost` is set when the connection is gone, for whatever reason. Half-open lines: every half keepalive the broker is pinged, after one and a
half of silence the line is cut (MQTT 5, section 3.1.2.10).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar

import mqtt5

from edgewake.edge.config import MqttConfig
from edgewake.protocol.errors import ConfigError, RemoteError, Unavailable
from edgewake.protocol.mqtt import Packet, PacketIds, PacketReader, Unreadable

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 10.0
"""For TCP, TLS, CONNACK and SUBACK together."""
SEND_BUFFER_BYTES: Final = 128 * 1024
"""Bytes in the kernel on their way out. More would hide a slow line, and a ping would wait behind them."""
OWN_RECEIVE_MAX: Final = 1000
"""Acknowledgements that the broker may send without being answered; they come with QoS 0 or 1."""


class MqttLink(asyncio.Protocol):
    """A connection. Make it with `connect`."""

    def __init__(self, *, on_message: Callable[[mqtt5.PublishPacket], None], on_puback: Callable[[int, int], None]) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._on_message = on_message
        self._on_puback = on_puback
        self._reader = PacketReader()
        self._transport: asyncio.Transport | None = None
        self._ids = PacketIds(1)
        self._connack: asyncio.Future[mqtt5.ConnAckPacket] = loop.create_future()
        self._suback: asyncio.Future[mqtt5.SubAckPacket] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()
        """Done when the connection is gone; says why."""
        self.writable = asyncio.Event()
        self._heard_s = loop.time()
        self._keepalive_s = 0
        self._pulse: asyncio.TimerHandle | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=64 * 1024)
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        try:
            for packet in self._reader.feed(data):
                self._on_packet(packet)
        except RemoteError as error:
            self.cut(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"connection lost: {error or 'closed by the broker'}")

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    # packets

    def _on_packet(self, packet: Packet | Unreadable) -> None:
        match packet:
            case mqtt5.PublishPacket():
                self._on_message(packet)
                if packet.qos == mqtt5.QoS.AT_LEAST_ONCE and packet.packet_id is not None:
                    self._write(mqtt5.PubAckPacket(packet.packet_id))
            case mqtt5.PubAckPacket():
                self._ids.release(packet.packet_id)
                self._on_puback(packet.packet_id, int(packet.reason_code))
            case mqtt5.ConnAckPacket() if not self._connack.done():
                self._connack.set_result(packet)
            case mqtt5.SubAckPacket() if not self._suback.done():
                self._suback.set_result(packet)
            case mqtt5.DisconnectPacket():
                self.cut(f"the broker disconnected: {packet.reason_code.name.lower()}")

    def _write(self, packet: Packet) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(packet.write())

    @property
    def room(self) -> int:
        """How many publishes with QoS 1 the broker accepts now (receive maximum)."""
        return self._ids.free if self.is_writable else 0

    @property
    def is_writable(self) -> bool:
        """Does the socket take more? Publishes with QoS 0 need no more than that."""
        return self.writable.is_set() and not self.lost.done()

    def publish(self, topic: str, payload: bytes, **properties: object) -> int:
        """Send with QoS 1; the packet id. Ask `room` first."""
        packet_id = self._ids.allocate()
        self._write(mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=packet_id, **properties))  # type: ignore[arg-type]
        return packet_id

    def publish_once(self, topic: str, payload: bytes, **properties: object) -> None:
        """Send with QoS 0."""
        self._write(mqtt5.PublishPacket(topic, payload, **properties))  # type: ignore[arg-type]

    # life

    async def open(self, client_id: str, config: MqttConfig, *, keepalive_s: int, will: mqtt5.Will, topic: str) -> None:
        """Say CONNECT and SUBSCRIBE and wait for both answers. Raises Unavailable."""
        password = config.password_file.read_text("utf-8").split("\n")[0].encode() if config.password_file else None
        packet = mqtt5.ConnectPacket(
            client_id,
            username=config.username,
            password=password,
            clean_start=True,
            keep_alive=keepalive_s,
            will=will,
            receive_max=OWN_RECEIVE_MAX,
        )
        self._write(packet)
        connack = await self._answer(self._connack)
        if connack.reason_code != mqtt5.ConnAckReasonCode.SUCCESS:
            raise Unavailable(f"the broker refused: {connack.reason_code.name.lower()} {connack.reason_str or ''}".rstrip())
        self._ids = PacketIds(connack.receive_max)
        self._write(mqtt5.SubscribePacket(self._ids.allocate(), [mqtt5.TopicFilter(topic, max_qos=mqtt5.QoS.AT_LEAST_ONCE)]))
        suback = await self._answer(self._suback)
        self._ids.release(suback.packet_id)
        if int(suback.reason_codes[0]) >= 0x80:
            raise Unavailable(f"the broker refused the subscription to {topic}: {suback.reason_codes[0].name.lower()}")
        self._keepalive_s = connack.server_keep_alive or keepalive_s
        self._pulse = self._loop.call_later(self._keepalive_s / 2, self._beat)

    async def _answer(self, answer: asyncio.Future[T]) -> T:
        either: set[asyncio.Future[Any]] = {answer, self.lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Unavailable(self.lost.result())
        return answer.result()

    def _beat(self) -> None:
        """Every half keepalive: ping the broker, cut a dead line."""
        silent_s = self._loop.time() - self._heard_s
        if silent_s > 1.5 * self._keepalive_s:
            self.cut(f"nothing heard for {silent_s:.0f} s")
            return
        self._write(mqtt5.PingReqPacket())
        self._pulse = self._loop.call_later(self._keepalive_s / 2, self._beat)

    def cut(self, why: str) -> None:
        """End the connection at once."""
        self._end(why)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Say goodbye, so that the last will is not published, and let the bytes out."""
        self._write(mqtt5.DisconnectPacket())
        if self._transport is not None:
            self._transport.close()
        self._end("closed")

    def _end(self, why: str) -> None:
        if self._pulse is not None:
            self._pulse.cancel()
        self.writable.set()
        if not self.lost.done():
            self.lost.set_result(why)


def tls_of(config: MqttConfig) -> ssl.SSLContext | None:
    """The TLS context; None for a plain connection. Raises ConfigError where a file cannot be used."""
    if config.ca_file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.cert_file is not None:
            context.load_cert_chain(config.cert_file, config.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"mqtt: certificate files: {error}") from error
    return context


async def connect(config: MqttConfig, tls: ssl.SSLContext | None, link: Callable[[], MqttLink]) -> MqttLink:
    """Open TCP and TLS. Raises Unavailable."""
    try:
        transport, protocol = await asyncio.get_running_loop().create_connection(link, config.host, config.port, ssl=tls)
    except OSError as error:
        raise Unavailable(f"MQTT broker {config.host}:{config.port}: {error}") from error
    raw: socket.socket = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return protocol
