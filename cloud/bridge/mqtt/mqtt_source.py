"""The bridge's own session on the MQTT broker.

It subscribes, passes every publish on, and acknowledges only what Kafka has.

The broker keeps the session under a stable client id, so unacknowledged messages come again after a
reconnection, with their old packet ids. A lost connection is restored with jittered back-off,
without end. Raises nothing but what the handler raises: that is a bug and takes the process down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import mqtt5

from edgewake.cloud.bridge.config import MqttConfig
from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger
from edgewake.cloud.bridge.mqtt.mqtt_connection import (
    KEEPALIVE_S,
    SESSION_EXPIRY_S,
    Connection,
    OnPublish,
)
from edgewake.cloud.bridge.mqtt.subscriptions import Subscriptions
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.broker import password_of, tls_of
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.mqtt import PacketIds, Unreadable

log = logging.getLogger("edgewake.bridge.mqtt")

STABLE_S: Final = 10.0
"""Seconds that a connection must last before the next failure counts as the first one again: two
processes of one name that take the session from each other then wait longer each time."""


SUBSCRIBE_IDS: Final = 2
"""The first packet ids belong to SUBSCRIBE and UNSUBSCRIBE."""


class MqttSource:
    """Keeps one subscribed connection alive.

    `write` sends bytes on it; `set_reading` stops and starts reading.
    """

    def __init__(
        self,
        config: MqttConfig,
        *,
        client_id: str,
        subscriptions: Subscriptions,
        will: mqtt5.Will,
        receive_max: int,
        on_publish: Callable[[AckLedger, mqtt5.PublishPacket | Unreadable], None],
        is_left_unread: Callable[[str], bool],
        our_turn: Callable[[], Awaitable[None]],
        backoff: Backoff,
        clock: Clock,
    ) -> None:
        """`our_turn` ends when nobody else empties our session.

        `is_left_unread`: see `Connection`.
        """
        self._config = config
        self._our_turn = our_turn
        self._client_id = client_id
        self._subscriptions = subscriptions
        self._receive_max = receive_max
        self._will = will
        self.ledger = AckLedger()
        self._on_publish: OnPublish = partial(on_publish, self.ledger)
        self._is_left_unread = is_left_unread
        self._backoff = backoff
        self._clock = clock
        self._tls = tls_of(config)
        self._password = password_of(config)
        self._connection: Connection | None = None
        self._paused = False
        self._ids = PacketIds(0)
        self.subscribed = asyncio.Event()
        self.connections = 0
        self.sessions = 0
        """Connections for which the broker had no session of before."""
        self.lost_by = "not connected yet"
        """What ended the last connection, or the last attempt."""

    async def run(self) -> None:
        """Connect, stay, connect again; ends only by cancellation or by an error of the handler."""
        while True:
            started_s = self._clock.monotonic_s()
            try:
                await self._live()
            except (OSError, TimeoutError, RemoteError) as error:
                self._log_lost(error)
            finally:
                self._drop()
            if self._clock.monotonic_s() - started_s > STABLE_S:
                self._backoff.reset()
            await self._clock.sleep(self._backoff.next_s())

    async def _live(self) -> None:
        connection = Connection(
            self._connect_packet(),
            on_connected=self._on_connected,
            on_publish=self._on_publish,
            on_puback=self._on_puback,
            is_left_unread=self._is_left_unread,
            clock=self._clock,
        )
        try:
            await self._serve(connection)
        except BaseException:
            connection.give_up(RemoteError("ended"))
            raise

    def _on_connected(self, connack: mqtt5.ConnAckPacket) -> None:
        self.ledger.connected(session_present=connack.session_present)
        self.sessions += not connack.session_present
        self._ids = PacketIds(connack.receive_max)
        for _ in range(SUBSCRIBE_IDS):
            self._ids.allocate()

    async def _serve(self, connection: Connection) -> None:
        connack = await connection.open(self._config, self._tls, self._our_turn)
        self._connection = connection
        keepalive_s = connack.server_keep_alive or KEEPALIVE_S
        if connack.session_present:
            connection.unsubscribe(self._subscriptions.given_up)
        numbered = self._subscriptions.numbered if connack.subscription_id_available else {}
        plain = [] if numbered else self._subscriptions.numbered
        connection.subscribe(
            self._subscriptions.wanted, (*self._subscriptions.mapped, *plain), numbered
        )
        # From here on we may stop reading ourselves: the SUBACK then comes late, behind what the
        # broker sends again, and that is not a failure of the connection. A broker that is silent
        # while we do read is noticed by the pings.
        self._pause_or_resume()
        connection.subscribed.add_done_callback(self._on_subscribed)
        await asyncio.gather(connection.lost, self._keep_alive(connection, keepalive_s))

    def _on_subscribed(self, done: asyncio.Future[None]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        self.connections += 1
        self.subscribed.set()
        log.info(
            "connected to the MQTT broker",
            extra={"event": "mqtt.connected", "host": self._config.host, "port": self._config.port},
        )

    async def _keep_alive(self, connection: Connection, keepalive_s: float) -> None:
        """Ping, and give up a silent connection.

        One that we do not read ourselves is silent for our own reason.
        """
        while not connection.lost.done():
            await self._clock.sleep(keepalive_s / 4)
            silent_s = self._clock.monotonic_s() - connection.heard_s
            if self._paused:
                connection.heard_s = self._clock.monotonic_s()
            elif silent_s > keepalive_s * 1.5:
                connection.give_up(RemoteError(f"silent for {silent_s:.0f} s"))
                return
            connection.ping()

    def _connect_packet(self) -> bytes:
        return mqtt5.ConnectPacket(
            self._client_id,
            username=self._config.username,
            password=self._password,
            clean_start=False,
            will=self._will,
            keep_alive=KEEPALIVE_S,
            session_expiry_interval=SESSION_EXPIRY_S,
            receive_max=self._receive_max,
        ).write()

    def _on_puback(self, packet_id: int) -> None:
        self._ids.release(packet_id)

    def publish(self, topic: str, payload: bytes, *, expires_s: int) -> bool:
        """Send with QoS 1.

        Returns False, and sends nothing, without a connection or where the broker takes no more
        now. What it did not confirm when the connection ends is not sent again from here.
        """
        if not self.subscribed.is_set() or not self._ids.free:
            return False
        packet_id = self._ids.allocate()
        qos = mqtt5.QoS.AT_LEAST_ONCE
        self.write(
            mqtt5.PublishPacket(
                topic, payload, qos=qos, packet_id=packet_id, message_expiry_interval=expires_s
            ).write()
        )
        return True

    def resubscribe(self, subscriptions: Subscriptions) -> None:
        """Subscribe to these from now on; reconnects, and keeps the messages that are in flight."""
        self._subscriptions = subscriptions
        self.subscribed.clear()
        if self._connection is not None:
            self._connection.give_up(RemoteError("other topics are wanted: reconnecting"))

    def write(self, data: bytes) -> None:
        """Send on the current connection; without one the bytes are dropped.

        They would mean nothing on another one.
        """
        if self._connection is not None:
            self._connection.write(data)

    def set_reading(self, wanted: bool) -> None:
        """Stop reading, so that the broker's own buffers fill and then its queue; or resume."""
        self._paused = not wanted
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        if self._connection is not None:
            self._connection.set_reading(not self._paused)

    def disconnect(self) -> None:
        """Leave in order; the broker keeps the session and what is not acknowledged."""
        self.write(mqtt5.DisconnectPacket().write())
        self._drop()

    def _drop(self) -> None:
        self.subscribed.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _log_lost(self, error: Exception) -> None:
        text = self.lost_by = str(error) or type(error).__name__
        log.warning(
            "no MQTT broker: %s",
            text,
            extra={"event": "mqtt.lost", "host": self._config.host, "port": self._config.port},
        )
