"""One MQTT 5 connection of the agent under asyncio: connect, subscribe, publish, detect its death.

A thin shell over `edgewake.protocol.mqtt`. It sends what its owner asks and calls back with what
came; it decides nothing about frames. `lost` is set when the connection is gone, for whatever
reason. The broker is pinged every half keepalive; `edgewake.edge.liveness` decides when the
connection is dead. The limits in the broker's CONNACK (MQTT 5, section 3.2.2.3) are obeyed.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
from collections.abc import Callable
from typing import Any, Final, TypeVar

import mqtt5

from edgewake.edge.daemon_thread import in_daemon_thread
from edgewake.edge.liveness import Liveness, Outgoing
from edgewake.protocol.broker import BrokerConfig, password_of
from edgewake.protocol.errors import RemoteError, Unavailable
from edgewake.protocol.mqtt import PACKET_BYTES_MAX, Packet, PacketIds, PacketReader, Unreadable

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 10.0
"""For TCP, TLS, CONNACK and SUBACK together."""
SEND_BUFFER_BYTES: Final = 64 * 1024
"""Bytes in the kernel on their way out, confirmed ones apart: 600 KB/s at a round trip of 100
ms."""
UNSENT_BYTES: Final = 16 * 1024
"""Bytes that may wait in the kernel, and as many before it: 4 s at 64 kbit/s. What is more urgent,
and a ping, waits behind them."""
CHECK_S: Final = 1.0
"""Time between two looks at the socket's counters, at most; for a short keepalive a quarter of
that."""
PACKET_BYTES_MIN: Final = 1024
"""Bytes that a broker must take at least: below that not even our status fits."""
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
TCP_NOTSENT_LOWAT: Final = 25
"""Linux's number; `socket` names it from Python 3.12 on."""
_TCP_INFO_CONFIRMED: Final = 120
"""Where `tcpi_bytes_acked` stands in Linux's struct tcp_info."""
OWN_RECEIVE_MAX: Final = 1000
"""Acknowledgements that the broker may send without being answered; they come with QoS 0 or 1."""


class TooLarge(RemoteError):
    """A packet that is larger than the broker takes."""


class WillRefused(Unavailable):
    """The broker refused the connection because of the last will's quality of service."""


class MqttLink(asyncio.Protocol):
    """A connection. Make it with `connect`."""

    def __init__(
        self,
        *,
        on_message: Callable[[mqtt5.PublishPacket], bool],
        on_puback: Callable[[int, int], None],
    ) -> None:
        """`on_message`: does it acknowledge the message itself, when it is kept?

        Else it is acknowledged at once.
        """
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._on_message = on_message
        self._on_puback = on_puback
        self._reader = PacketReader()
        self._transport: asyncio.Transport | None = None
        self._ids = PacketIds(1)
        self._aliases: dict[str, int] = {}
        """Topic → the number that the broker knows it by; at most as many as it takes."""
        self._aliases_max = 0
        self.may_alias = True
        """May topic aliases be used, if the broker offers them?"""
        self.alias_refused = False
        """It disconnected because of one."""
        self._connack: asyncio.Future[mqtt5.ConnAckPacket] = loop.create_future()
        self._suback: asyncio.Future[mqtt5.SubAckPacket] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()
        """Done when the connection is gone; says why."""
        self.writable = asyncio.Event()
        self.on_writable: Callable[[], None] = lambda: None
        """Called when the socket takes bytes again."""
        self.on_counters: Callable[[float, Outgoing], str | None] = lambda _now_s, _outgoing: None
        """Called about once a second with (time, counters of the socket); says why the connection
        is dead, None while it lives."""
        self.packet_bytes_max = PACKET_BYTES_MAX
        """The largest packet that the broker takes."""
        self.confirms = True
        """Does the broker take QoS 1?"""
        self.too_large = False
        """It disconnected because a packet was too large for it."""
        self.largest_sent = 0
        """Bytes of the largest publish on this connection."""
        self.liveness: Liveness | None = None
        self._ping_s = 0.0
        self._ping_due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        if self.liveness is not None:
            self.liveness.heard(self._loop.time())
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
        self.on_writable()

    # packets

    def _on_packet(self, packet: Packet | Unreadable) -> None:
        match packet:
            case mqtt5.PublishPacket():
                if not self._on_message(packet):
                    self.acknowledge(packet)
            case mqtt5.PubAckPacket():
                self._ids.release(packet.packet_id)
                self._on_puback(packet.packet_id, int(packet.reason_code))
            case mqtt5.ConnAckPacket() if not self._connack.done():
                self._connack.set_result(packet)
            case mqtt5.SubAckPacket() if not self._suback.done():
                self._suback.set_result(packet)
            case mqtt5.DisconnectPacket():
                self.too_large = int(packet.reason_code) == PACKET_TOO_LARGE
                self.alias_refused = int(packet.reason_code) == TOPIC_ALIAS_INVALID
                self.cut(f"the broker disconnected: {packet.reason_code.name.lower()}")

    def acknowledge(self, packet: mqtt5.PublishPacket, reason: int = 0) -> None:
        """Tell the broker that a message is kept, or why it is not taken.

        Nothing, where it does not wait for that.
        """
        if packet.qos == mqtt5.QoS.AT_LEAST_ONCE and packet.packet_id is not None:
            self._write(
                mqtt5.PubAckPacket(packet.packet_id, reason_code=mqtt5.PubAckReasonCode(reason))
            )

    def _write(self, packet: Packet) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(packet.write())

    @property
    def certificate(self) -> dict[str, Any]:
        """The broker's, as `ssl.SSLObject.getpeercert` gives it; empty without TLS."""
        found: dict[str, Any] | None = (
            None if self._transport is None else self._transport.get_extra_info("peercert")
        )
        return found or {}

    @property
    def room(self) -> int:
        """The number of publishes with QoS 1 that the broker accepts now (receive maximum)."""
        return self._ids.free if self.is_writable else 0

    @property
    def is_writable(self) -> bool:
        """Does the socket take more? Publishes with QoS 0 need no more than that."""
        return self.writable.is_set() and not self.lost.done()

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        confirmed: bool = True,
        aliased: bool = False,
        **properties: object,
    ) -> int | None:
        """Send with QoS 1 (ask `room` first), or unconfirmed with QoS 0; return the packet id.

        It is None for QoS 0. `aliased`: the topic comes often, so a number stands for it after the
        first time, as far as the broker takes such numbers. Raises TooLarge, and sends nothing,
        where the packet is larger than the broker takes.
        """
        packet_id = self._ids.allocate() if confirmed else None
        qos = mqtt5.QoS.AT_LEAST_ONCE if confirmed else mqtt5.QoS.AT_MOST_ONCE
        alias = self._alias(topic) if aliased else None
        said = "" if topic in self._aliases and aliased else topic
        head = {"qos": qos, "packet_id": packet_id, "topic_alias": alias, **properties}
        data = mqtt5.PublishPacket(said, payload, **head).write()  # type: ignore[arg-type]
        if len(data) > self.packet_bytes_max:
            if packet_id is not None:
                self._ids.release(packet_id)
            raise TooLarge(f"{len(data)} bytes: the broker takes at most {self.packet_bytes_max}")
        if alias is not None:
            self._aliases[topic] = alias
        self.largest_sent = max(self.largest_sent, len(data))
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        return packet_id

    def _alias(self, topic: str) -> int | None:
        """The alias of a topic on this connection.

        None where the broker takes no more (MQTT 5, section 3.3.2.3.4).
        """
        return self._aliases.get(topic) or (
            len(self._aliases) + 1 if len(self._aliases) < self._aliases_max else None
        )

    # life

    async def open(
        self,
        client_id: str,
        config: BrokerConfig,
        *,
        keepalive_s: int,
        asked_s: int,
        will: mqtt5.Will | None,
    ) -> None:
        """Send CONNECT and wait for the answer. Raises Unavailable.

        `asked_s`: the keepalive of the CONNECT; ours is `keepalive_s`.
        """
        password = password_of(config)
        packet = mqtt5.ConnectPacket(
            client_id,
            username=config.username,
            password=password,
            clean_start=True,
            keep_alive=asked_s,
            will=will,
            receive_max=OWN_RECEIVE_MAX,
        )
        self._write(packet)
        connack = await self._answer(self._connack)
        if connack.reason_code == mqtt5.ConnAckReasonCode.QUALITY_NOT_SUPPORTED:
            raise WillRefused("the broker takes no last will with QoS 1")
        if connack.reason_code != mqtt5.ConnAckReasonCode.SUCCESS:
            raise Unavailable(
                f"the broker refused: {connack.reason_code.name.lower()} "
                f"{connack.reason_str or ''}".rstrip()
            )
        if connack.max_packet_size is not None and connack.max_packet_size < PACKET_BYTES_MIN:
            raise Unavailable(
                f"the broker takes packets of {connack.max_packet_size} bytes only: expected at "
                f"least {PACKET_BYTES_MIN}"
            )
        self._ids = PacketIds(connack.receive_max)
        self.packet_bytes_max = min(
            self.packet_bytes_max, connack.max_packet_size or self.packet_bytes_max
        )
        self.confirms = int(connack.max_qos) >= 1
        self._aliases_max = connack.topic_alias_max if self.may_alias else 0
        self._ping_s = min(keepalive_s, connack.server_keep_alive or keepalive_s) / 2
        self.liveness = Liveness(2 * self._ping_s, self._loop.time())
        self._ping_due_s = self._loop.time() + self._ping_s
        self._look()

    async def subscribe(self, topic: str, *more: str) -> list[str]:
        """Say SUBSCRIBE and wait for the answer; which of `more` the broker refused.

        Raises Unavailable.
        """
        filters = [
            mqtt5.TopicFilter(one, max_qos=mqtt5.QoS.AT_LEAST_ONCE) for one in (topic, *more)
        ]
        self._write(mqtt5.SubscribePacket(self._ids.allocate(), filters))
        suback = await self._answer(self._suback)
        self._ids.release(suback.packet_id)
        if not suback.reason_codes:
            raise Unavailable(f"the broker answered the subscription to {topic} with nothing")
        if int(suback.reason_codes[0]) >= 0x80:
            raise Unavailable(
                f"the broker refused the subscription to {topic}: "
                f"{suback.reason_codes[0].name.lower()}"
            )
        return [
            one
            for one, code in zip(more, suback.reason_codes[1:], strict=False)
            if int(code) >= 0x80
        ]

    async def _answer(self, answer: asyncio.Future[T]) -> T:
        either: set[asyncio.Future[Any]] = {answer, self.lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Unavailable(self.lost.result())
        return answer.result()

    def _look(self) -> None:
        """About once a second: is the connection alive? Every half keepalive: ping the broker."""
        now_s = self._loop.time()
        why = self.on_counters(now_s, self._outgoing())
        if why is not None:
            self.cut(why)
            return
        if now_s >= self._ping_due_s:
            self._ping_due_s = now_s + self._ping_s
            self._write(mqtt5.PingReqPacket())
        self._timer = self._loop.call_later(min(CHECK_S, self._ping_s / 2), self._look)

    def _outgoing(self) -> Outgoing:
        """The socket's counters."""
        assert self._transport is not None
        raw: socket.socket = self._transport.get_extra_info("socket")
        try:
            info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_CONFIRMED + 8)
            (queued,) = struct.unpack("i", fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
        except OSError:  # closed a moment ago: `connection_lost` follows
            return Outgoing(0, 0)
        (confirmed,) = struct.unpack_from("Q", info, _TCP_INFO_CONFIRMED)
        return Outgoing(confirmed, queued + self._transport.get_write_buffer_size())

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
        if self._timer is not None:
            self._timer.cancel()
        self.writable.set()
        if not self.lost.done():
            self.lost.set_result(why)


async def connect(
    config: BrokerConfig, tls: ssl.SSLContext | None, link: Callable[[], MqttLink]
) -> MqttLink:
    """Open TCP and TLS. Raises Unavailable."""
    broker = f"MQTT broker {config.host}:{config.port}"
    try:
        found = await in_daemon_thread(
            lambda: socket.getaddrinfo(
                _plain_name(config.host), config.port, type=socket.SOCK_STREAM
            ),
            name="resolve",
        )
    except OSError as error:
        raise Unavailable(f"{broker}: {error}") from error
    problem: OSError | None = None
    for *_, address in found:
        try:
            return await _connect_to(str(address[0]), config, tls, link)
        except OSError as error:
            problem = error
    raise Unavailable(f"{broker}: {problem or 'no address'}") from problem


def _plain_name(host: str) -> str | bytes:
    """A name as `socket` and `ssl` take it.

    As bytes where it is ASCII, as nearly all are: for a text they load the tables of Unicode, to
    find out that they need none, and those stay (0.3 MB).
    """
    return host.encode() if host.isascii() else host


async def _connect_to(
    address: str, config: BrokerConfig, tls: ssl.SSLContext | None, link: Callable[[], MqttLink]
) -> MqttLink:
    name: Any = None if tls is None else _plain_name(config.host)
    transport, protocol = await asyncio.get_running_loop().create_connection(
        link, address, config.port, ssl=tls, server_hostname=name
    )
    raw: socket.socket = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    raw.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    return protocol
