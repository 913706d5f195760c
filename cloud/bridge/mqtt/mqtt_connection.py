"""One TCP connection to the MQTT broker: bytes to packets, packets to futures and to a handler.

It runs under asyncio and decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, cast

import mqtt5

from edgewake.cloud.bridge.config import MqttConfig
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.mqtt import Packet, PacketReader, Unreadable
from edgewake.protocol.topics import STATUS_FILTER

log = logging.getLogger("edgewake.bridge.mqtt")

_SUBSCRIBE_ID: Final = 1
_UNSUBSCRIBE_ID: Final = 2
_REFUSED: Final = 0x80
"""Reason codes from here on say no (MQTT 5, section 3.9.3)."""
_PUBLISHES: Final = (mqtt5.PublishPacket, Unreadable)

OnPublish: TypeAlias = Callable[[mqtt5.PublishPacket | Unreadable], None]
OnConnected: TypeAlias = Callable[[mqtt5.ConnAckPacket], None]

KEEPALIVE_S: Final = 5
"""Seconds between pings, where the broker names none; a connection that is silent for one and a
half of them is given up (MQTT 5, section 3.1.2.10). A bridge stands beside its broker: what needs
longer than that is dead."""
SESSION_EXPIRY_S: Final = 7 * 86_400
"""Seconds that the broker keeps a bridge's session, and what it confirmed to devices by PUBACK,
while no bridge at all lives: longer than any repair takes. While one does, it adopts the session of
another that is gone within seconds."""
CONNECT_TIMEOUT_S: Final = 10.0
"""Seconds for TCP, TLS and CONNACK together; then the attempt is given up."""


class ConnectRefused(RemoteError):
    """The broker's answer to CONNECT is a refusal."""

    def __init__(self, packet: mqtt5.ConnAckPacket) -> None:
        super().__init__(
            f"the broker refuses us: {packet.reason_code!s} {packet.reason_str or ''}".rstrip()
        )
        self.reason = packet.reason_code


class Connection(asyncio.Protocol):
    """A connection that says `hello` (a CONNECT packet).

    `connected`, `subscribed` and `lost` are futures; `lost` only ever fails.

    `on_connected` is called before the publishes that arrive in the same read as the broker's
    CONNACK: the packet ids that they carry belong to this connection. `is_left_unread`: is a
    publish on this topic only counted, so that nobody has to read it?
    """

    def __init__(
        self,
        hello: bytes,
        *,
        on_connected: OnConnected,
        on_publish: OnPublish,
        clock: Clock,
        on_puback: Callable[[int], None] = lambda _packet_id: None,
        is_left_unread: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[mqtt5.ConnAckPacket] = loop.create_future()
        self.subscribed: asyncio.Future[None] = loop.create_future()
        self.unsubscribed: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.heard_s = clock.monotonic_s()
        self.pings = 0
        self.pongs = 0
        """Answers to pings: the broker had handled all that we sent before ping n when this reaches
        n."""
        self._hello = hello
        self._on_connected = on_connected
        self._on_publish = on_publish
        self._on_puback = on_puback
        self._clock = clock
        self._reader = PacketReader(keep_unreadable=True, is_left_unread=is_left_unread)
        self._transport: asyncio.Transport | None = None
        self._needed = 0
        self._others: Sequence[str] = ()
        self._numbered: list[tuple[str, int]] = []
        """What is still to be subscribed to, with the number of its subscription."""
        self._is_refused = False
        """Was a filter refused?"""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.lost.done():
            return
        self.heard_s = self._clock.monotonic_s()
        try:
            for packet in self._reader.feed(data):
                if isinstance(packet, _PUBLISHES):
                    self._on_publish(packet)
                else:
                    self._on_packet(packet)
        except Exception as error:  # handed to the task that owns this connection, which raises it
            self.give_up(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.give_up(
            exc if isinstance(exc, OSError) else RemoteError("the broker closed the connection")
        )

    # packets

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case mqtt5.ConnAckPacket():
                if packet.reason_code != 0:
                    raise ConnectRefused(packet)
                self._on_connected(packet)
                self.connected.set_result(packet)
            case mqtt5.SubAckPacket():
                needed = packet.reason_codes[: self._needed]
                if refused := [str(code) for code in needed if int(code) >= _REFUSED]:
                    raise RemoteError(f"the broker refuses our subscriptions: {refused}")
                self._say_refused(packet.reason_codes[self._needed :])
                self._subscribe_next()
            case mqtt5.UnsubAckPacket():
                self.unsubscribed.set_result(None)
            case mqtt5.PubAckPacket():
                self._on_puback(packet.packet_id)
            case mqtt5.PingRespPacket():
                self.pongs += 1
            case mqtt5.DisconnectPacket():
                raise RemoteError(
                    f"the broker disconnects: {packet.reason_code!s} {packet.reason_str or ''}"
                )

    def _subscribe_next(self) -> None:
        if not self._numbered:
            self.subscribed.set_result(None)
            return
        pattern, number = self._numbered.pop(0)
        self._needed, self._others = 0, (pattern,)
        wanted = [_filter(pattern)]
        self.write(
            mqtt5.SubscribePacket(
                _SUBSCRIBE_ID, wanted, subscription_id=None if self._is_refused else number
            ).write()
        )

    def _say_refused(self, codes: Sequence[mqtt5.SubAckReasonCode]) -> None:
        for pattern, code in zip(self._others, codes, strict=False):
            if int(code) >= _REFUSED:
                self._is_refused = True
                log.error(
                    "the broker refuses %s (%s): its devices are not heard; its rules must let "
                    "bridges read the topics of the maps",
                    pattern,
                    code,
                    extra={"event": "mqtt.subscription_refused", "filter": pattern},
                )

    async def open(
        self,
        config: MqttConfig,
        tls: ssl.SSLContext | None,
        our_turn: Callable[[], Awaitable[None]] | None = None,
    ) -> mqtt5.ConnAckPacket:
        """Connect, and wait for the broker's CONNACK. Raises OSError, TimeoutError, RemoteError.

        `our_turn` ends when the session may be taken, and is asked as late as possible.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().create_connection(
                lambda: self, config.host, config.port, ssl=tls
            )
        if our_turn is not None:
            await our_turn()
        self.write(self._hello)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await self.connected

    def subscribe(
        self,
        filters: Sequence[str],
        others: Sequence[str] = (),
        numbered: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Ask for these; `subscribed` is done when the broker agreed.

        `others`: which it may refuse, and that is said. `numbered`: more of them, each with the
        number of its subscription, and one after the other; after a refusal those that follow have
        none, since their numbers say that it was granted.
        """
        self._needed, self._others = len(filters), others
        self._numbered = list(numbered.items())
        wanted = [_filter(pattern) for pattern in (*filters, *others)]
        self.write(mqtt5.SubscribePacket(_SUBSCRIBE_ID, wanted).write())

    def subscribe_kept(self, filters: Sequence[str]) -> None:
        """Ask for what the broker retains under these, any of which it may refuse.

        What is not retained comes without the flag `retain`.
        """
        self._needed, self._others = 0, filters
        wanted = [
            mqtt5.TopicFilter(
                pattern,
                max_qos=mqtt5.QoS.AT_LEAST_ONCE,
                retain_as_published=False,
                retain_handling=mqtt5.RetainHandling.SEND_ALWAYS,
            )
            for pattern in filters
        ]
        self.write(mqtt5.SubscribePacket(_SUBSCRIBE_ID, wanted).write())

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Ask for these no longer; `unsubscribed` is done when the broker deals nothing more."""
        self.write(mqtt5.UnsubscribePacket(_UNSUBSCRIBE_ID, list(filters)).write())

    def ping(self) -> None:
        """Ask for a sign of life; `pongs` counts the answers."""
        self.pings += 1
        self.write(mqtt5.PingReqPacket().write())

    # life

    def give_up(self, error: Exception) -> None:
        """End all who wait on this connection, with the reason."""
        for future in (self.connected, self.subscribed, self.unsubscribed, self.lost):
            if not future.done():
                future.set_exception(error)
                # read here, so that asyncio does not log it where nobody awaits this future
                future.exception()
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        """Send bytes; on a connection that is closing they are left out."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def set_reading(self, wanted: bool) -> None:
        """Stop reading the socket, or start again."""
        if (
            self._transport is None
            or self._transport.is_closing()
            or wanted == self._transport.is_reading()
        ):
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        """Let the bytes out and hang up."""
        if self._transport is not None:
            self._transport.close()


def _filter(pattern: str) -> mqtt5.TopicFilter:
    """A filter, without what the broker retains where a retained message would be a new reading.

    By MQTT 5 (section 4.8.2) a shared subscription gets none anyway; Mosquitto 2.0.11 sends them to
    each bridge with each connection.
    """
    is_word = not pattern.startswith("$share/") or pattern.endswith(STATUS_FILTER)
    return mqtt5.TopicFilter(
        pattern,
        max_qos=mqtt5.QoS.AT_LEAST_ONCE,
        retain_handling=mqtt5.RetainHandling.SEND_ALWAYS
        if is_word
        else mqtt5.RetainHandling.SEND_NEVER,
    )
