"""Reads retained presence and announcements, which a shared subscription never receives.

The bridges' subscription is shared, and gets no retained message (MQTT 5, section 4.8.2): a plug's
`Offline` from before the bridge's start, or what a device announced to Home Assistant, was never
heard. So each bridge opens a connection with an ordinary subscription to the topics of those maps
that say presence or announce fields, and closes it again: at its start, after a change of the maps,
and after the broker has lost its session with what was in it.

Messages that are published meanwhile reach that connection, too, and are ignored there: the shared
subscription delivers them. Of a retained message only the presence and the announcement are taken;
it makes no reading. So it may be taken any number of times, by any number of bridges.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import mqtt5

from edgewake.cloud.bridge.admission.mapped import Mapper, Part
from edgewake.cloud.bridge.config import MqttConfig
from edgewake.cloud.bridge.metrics import BridgeMetrics
from edgewake.cloud.bridge.mqtt.all_sent import AllSent
from edgewake.cloud.bridge.mqtt.mqtt_connection import KEEPALIVE_S, Connection
from edgewake.cloud.bridge.mqtt.mqtt_source import MqttSource
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.broker import password_of, tls_of
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.mqtt import Unreadable

log = logging.getLogger("edgewake.bridge.mqtt")

KEPT_MESSAGES_MAX: Final = 20_000
"""Retained messages that are looked at in one go: two for each of ten thousand devices, as many as
maps may name at once. Beyond the bound the rest is left, which is logged."""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of them; an announcement has a few thousand. At the bound as above."""
QUIET_S: Final = 1.0
"""Seconds without a retained message after which there are no more, where the broker answers a ping
meanwhile. Mosquitto sends them all before it answers; others send them on the side."""
DUE_S: Final = 1.0
"""Seconds between two looks at whether it is due."""


class KeptWords:
    """Takes in what is retained whenever it is due."""

    def __init__(
        self,
        config: MqttConfig,
        *,
        client_id: str,
        source: MqttSource,
        mapper: Mapper,
        take: Callable[[Sequence[Part]], object],
        is_full: Callable[[], bool],
        metrics: BridgeMetrics,
        receive_max: int,
        backoff: Backoff,
        clock: Clock,
        messages_max: int = KEPT_MESSAGES_MAX,
        bytes_max: int = KEPT_BYTES_MAX,
    ) -> None:
        """`source`: the bridge's session, which is to hear what is said from then on.

        `is_full`: may nothing more be taken now?
        """
        self._config = config
        self._client_id = client_id
        self._source = source
        self._mapper = mapper
        self._take = take
        self._is_full = is_full
        self._metrics = metrics
        self._receive_max = receive_max
        self._backoff = backoff
        self._clock = clock
        self._messages_left, self._bytes_left = messages_max, bytes_max
        self._bounds = messages_max, bytes_max
        self._heard_s = 0.0
        self._connection: Connection | None = None

    async def run(self) -> None:
        """Ends only by cancellation."""
        taken: tuple[str, int] | None = None
        while True:
            # First the shared subscription: what is said after the look is heard there.
            await self._source.subscribed.wait()
            due = (self._mapper.maps.version, self._source.sessions)
            if due != taken:
                filters = self._mapper.kept
                try:
                    if filters:
                        await self.take_all(filters)
                    taken = due
                    self._backoff.reset()
                except (OSError, TimeoutError, RemoteError) as error:
                    log.warning(
                        "what the broker keeps of presence was not heard: %s",
                        error,
                        extra={"event": "mqtt.kept_unheard"},
                    )
                    await self._clock.sleep(self._backoff.next_s())
            await self._clock.sleep(DUE_S)

    async def take_all(self, filters: Sequence[str]) -> None:
        """Take in what is retained under these. Raises OSError, TimeoutError or RemoteError."""
        self._messages_left, self._bytes_left = self._bounds
        self._heard_s = self._clock.monotonic_s()
        connection = Connection(
            self._connect_packet(),
            on_connected=lambda _: None,
            on_publish=self._on_publish,
            clock=self._clock,
        )
        self._connection = connection
        try:
            await connection.open(self._config, tls_of(self._config))
            connection.subscribe_kept(filters)
            await self._all_heard(connection)
            connection.write(mqtt5.DisconnectPacket().write())
            connection.close()
        except BaseException:
            connection.give_up(RemoteError("ended"))
            raise

    def _on_publish(self, packet: mqtt5.PublishPacket | Unreadable) -> None:
        connection = self._connection
        if connection is None:
            return
        if packet.packet_id is not None:
            connection.write(mqtt5.PubAckPacket(packet.packet_id).write())
        if isinstance(packet, Unreadable) or not packet.retain or self._is_over:
            return
        self._heard_s = self._clock.monotonic_s()
        self._messages_left -= 1
        self._bytes_left -= len(packet.topic) + len(packet.payload)
        self._metrics.mapped["kept"] += 1
        words = self._mapper.words(packet, self._clock.now_ms())
        if words:
            self._take(words)
        if self._is_full():
            connection.set_reading(False)

    @property
    def _is_over(self) -> bool:
        return self._messages_left <= 0 or self._bytes_left <= 0

    async def _all_heard(self, connection: Connection) -> None:
        """Wait until the broker has sent all, or a bound is reached."""
        all_sent = AllSent(connection, self._clock)
        while not self._is_over:
            quiet_s = self._clock.monotonic_s() - self._heard_s
            if (
                all_sent.is_answered(self._messages_left, may_ask=connection.subscribed.done())
                and quiet_s >= QUIET_S
            ):
                return
            is_full = self._is_full()
            connection.set_reading(not is_full)
            await all_sent.look_later(is_paused=is_full)
        log.warning(
            "the broker keeps more of presence and announcements than is looked at (%d messages, "
            "%d bytes): of the rest is heard what is sent from now on",
            *self._bounds,
            extra={"event": "mqtt.kept_cut"},
        )

    def _connect_packet(self) -> bytes:
        return mqtt5.ConnectPacket(
            self._client_id,
            username=self._config.username,
            password=password_of(self._config),
            clean_start=True,
            keep_alive=KEEPALIVE_S,
            receive_max=self._receive_max,
        ).write()
