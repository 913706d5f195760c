"""Empties the MQTT session of a bridge that is gone, so that no confirmed message stays in it.

It connects under the dead bridge's client id with `clean_start=False`: the broker ends the old
connection if there still is one, and sends what it has queued. The shared subscriptions are given
up first, so that no more messages are dealt to this session. When all is in Kafka and acknowledged,
and the broker has nothing more to send, the session is ended for good. Should the owner come back
meanwhile, nothing more is taken, what was taken is acknowledged, and the owner gets the rest (see
`handover`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Final

import mqtt5

from edgewake.cloud.bridge.config import MqttConfig
from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger
from edgewake.cloud.bridge.mqtt.all_sent import AllSent
from edgewake.cloud.bridge.mqtt.mqtt_connection import KEEPALIVE_S, SESSION_EXPIRY_S, Connection
from edgewake.protocol.broker import password_of, tls_of
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.mqtt import Unreadable

log = logging.getLogger("edgewake.bridge.adoption")

ALIVE_S: Final = KEEPALIVE_S / 4
"""Seconds between two pings that keep the connection, while there is nothing else to ask."""


class Ended(Enum):
    """How an adoption ended."""

    NOTHING = auto()
    """The broker had no such session."""
    EMPTIED = auto()
    HANDED_BACK = auto()
    """Its owner wanted it, and gets what is left."""


class Adoption:
    """One session of a dead bridge, until it is empty."""

    def __init__(
        self,
        config: MqttConfig,
        *,
        client_id: str,
        filters: Sequence[str],
        receive_max: int,
        on_publish: Callable[[AckLedger, mqtt5.PublishPacket | Unreadable], None],
        is_wanted_back: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """`is_wanted_back`: has the owner come back?"""
        self._config = config
        self._is_owner_back = is_wanted_back
        self._client_id = client_id
        self._filters = filters
        self._receive_max = receive_max
        self._clock = clock
        self.ledger = AckLedger()
        self.received = 0
        """Messages that were in the session."""
        self._on_message = partial(on_publish, self.ledger)
        self._connection: Connection | None = None
        self._paused = False
        self.is_handing_back = False
        """Is nothing more taken?"""

    async def run(self) -> Ended:
        """Empty the session and end it, unless its owner wants it back.

        Raises OSError, TimeoutError or RemoteError where it could not.
        """
        connection = Connection(
            self._connect_packet(),
            on_connected=self._on_connected,
            on_publish=self._on_publish,
            clock=self._clock,
        )
        try:
            connack = await connection.open(self._config, tls_of(self._config))
            self._connection = connection
            self.set_reading(not self._paused)
            ended = Ended.NOTHING
            if connack.session_present:
                connection.unsubscribe(self._filters)
                await self._emptied(connection)
                ended = Ended.HANDED_BACK if self.is_handing_back else Ended.EMPTIED
            expiry_s = SESSION_EXPIRY_S if ended is Ended.HANDED_BACK else 0
            connection.write(mqtt5.DisconnectPacket(session_expiry_interval=expiry_s).write())
            connection.close()
        except BaseException:
            connection.give_up(RemoteError("adoption ended"))
            raise
        finally:
            self._connection = None
        return ended

    def _hand_back(self) -> None:
        """Take nothing more: what comes now stays in the session, unacknowledged."""
        self.is_handing_back = True
        self.set_reading(True)

    def _on_connected(self, connack: mqtt5.ConnAckPacket) -> None:
        self.ledger.connected(session_present=connack.session_present)

    def _on_publish(self, packet: mqtt5.PublishPacket | Unreadable) -> None:
        if self.is_handing_back and packet.packet_id is not None:
            return
        self.received += 1
        self._on_message(packet)

    async def _emptied(self, connection: Connection) -> None:
        """Wait until all was acknowledged, and the broker has nothing more.

        A broker fills the window as soon as it is acknowledged, so what is queued would come before
        the answer to a ping.
        """
        all_sent = AllSent(connection, self._clock)
        pinged_s = self._clock.monotonic_s()
        while True:
            if not self.is_handing_back and self._is_owner_back():
                self._hand_back()
            is_idle = connection.unsubscribed.done() and not len(self.ledger)
            if all_sent.is_answered(self.received, may_ask=is_idle):
                return
            if self._clock.monotonic_s() - pinged_s > ALIVE_S:
                connection.ping()
                pinged_s = self._clock.monotonic_s()
            await all_sent.look_later(is_paused=self._paused or len(self.ledger) > 0)

    def _connect_packet(self) -> bytes:
        return mqtt5.ConnectPacket(
            self._client_id,
            username=self._config.username,
            password=password_of(self._config),
            clean_start=False,
            keep_alive=KEEPALIVE_S,
            session_expiry_interval=SESSION_EXPIRY_S,
            receive_max=self._receive_max,
        ).write()

    def write(self, data: bytes) -> None:
        """Send on the connection, if there is one."""
        if self._connection is not None:
            self._connection.write(data)

    def set_reading(self, wanted: bool) -> None:
        """Stop reading, or start again; what is handed back is not taken, so it may come."""
        self._paused = not wanted and not self.is_handing_back
        if self._connection is not None:
            self._connection.set_reading(not self._paused)
