"""One MQTT 5 connection of a plain device: bytes in and out, nothing decided.

No task of its own, so a thousand cost little.

`connected` resolves with the broker's CONNACK, `lost` ends with RemoteError or OSError when the
connection is gone. Publishes are QoS 1; a PUBACK only frees its packet id, because it proves
nothing. What comes in is handed to `on_message`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

import mqtt5

from edgewake.protocol.errors import RemoteError
from edgewake.protocol.mqtt import PACKET_IDS_MAX, PacketReader, Unreadable

KEEPALIVE_S: Final = 15
"""Seconds between two pings; a broker that is silent for one and a half of them is given up (MQTT
5, section 3.1.2.10)."""


class Wire(asyncio.Protocol):
    """A connection; made by `loop.create_connection`."""

    def __init__(self, client_id: str, on_message: Callable[[mqtt5.PublishPacket], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._client_id = client_id
        self._on_message = on_message
        self._reader = PacketReader()
        self._used: set[int] = set()
        self._last_id = 0
        self._heard_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._write(
            mqtt5.ConnectPacket(self._client_id, clean_start=True, keep_alive=KEEPALIVE_S).write()
        )
        self._timer = self._loop.call_later(KEEPALIVE_S, self._ping)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        try:
            for packet in self._reader.feed(data):
                self._on_packet(packet)
        except RemoteError as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(
            exc if isinstance(exc, OSError) else RemoteError("the broker closed the connection")
        )

    # packets

    def subscribe(self, topic: str) -> None:
        """Ask for a topic.

        The broker handles packets in order, so what is published next is answered already.
        """
        self._write(
            mqtt5.SubscribePacket(
                self._new_id(), [mqtt5.TopicFilter(topic, max_qos=mqtt5.QoS.AT_MOST_ONCE)]
            ).write()
        )

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        content_type: str | None,
        response_topic: str,
        correlation_data: bytes,
        sent_at_ms: int,
    ) -> None:
        """Send one message."""
        packet = mqtt5.PublishPacket(
            topic,
            payload,
            qos=mqtt5.QoS.AT_LEAST_ONCE,
            packet_id=self._new_id(),
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
            user_properties=[("sent_at", str(sent_at_ms))],
        )
        self._write(packet.write())

    def close(self) -> None:
        """Leave, with a word of farewell where the broker still listens."""
        if self._transport is not None and not self._transport.is_closing():
            self._write(mqtt5.DisconnectPacket().write())
        self._end(RemoteError("closed"))

    def _on_packet(self, packet: mqtt5.Packet | Unreadable) -> None:
        match packet:
            case mqtt5.PublishPacket():
                self._on_message(packet)
            case mqtt5.PubAckPacket():
                self._used.discard(packet.packet_id)
            case mqtt5.ConnAckPacket():
                if packet.reason_code != 0:
                    raise RemoteError(f"the broker refuses us: {packet.reason_code!s}")
                self.connected.set_result(None)
            case mqtt5.SubAckPacket():
                self._used.discard(packet.packet_id)
                if refused := [str(code) for code in packet.reason_codes if int(code) >= 0x80]:
                    raise RemoteError(f"the broker refuses a subscription: {refused[0]}")
            case mqtt5.DisconnectPacket():
                raise RemoteError(f"the broker ends the connection: {packet.reason_code!s}")
            case _:
                return

    def _new_id(self) -> int:
        """The next packet id that is not in use; the outbox's window keeps them few."""
        while True:
            self._last_id = self._last_id % PACKET_IDS_MAX + 1
            if self._last_id not in self._used:
                self._used.add(self._last_id)
                return self._last_id

    def _ping(self) -> None:
        if self._loop.time() - self._heard_s > 1.5 * KEEPALIVE_S:
            self._end(RemoteError("the broker is silent"))
            return
        self._write(mqtt5.PingReqPacket().write())
        self._timer = self._loop.call_later(KEEPALIVE_S / 2, self._ping)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _end(self, error: Exception) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()
        for future in (self.connected, self.lost):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever does not wait for it any more need not hear of it
