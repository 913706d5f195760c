"""The bridge's connection to the MQTT broker: it subscribes, hands every publish on, and acknowledges only what it is told to.

The session is kept by the broker under a stable client id, so what was not acknowledged comes again after a reconnection, with its old
packet id. A lost connection is made anew with jittered back-off, for ever. Raises nothing but what the handler raises: that is a bug
and takes the process down.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

import mqtt5

from edgewake.cloud.bridge.config import MqttConfig
from edgewake.cloud.retry import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError, RemoteError
from edgewake.protocol.mqtt import Packet, PacketReader, Unreadable

log = logging.getLogger("edgewake.bridge.mqtt")

CONNECT_TIMEOUT_S: Final = 10.0
"""Seconds for TCP, TLS, CONNACK and SUBACK together; then the attempt is given up."""
_SUBSCRIBE_ID: Final = 1

_PUBLISHES: Final = (mqtt5.PublishPacket, Unreadable)

OnPublish: TypeAlias = Callable[[mqtt5.PublishPacket | Unreadable], None]


class MqttSource:
    """Keeps one subscribed connection alive. `write` sends bytes on it; `pause` and `resume` stop and start reading."""

    def __init__(
        self,
        config: MqttConfig,
        *,
        client_id: str,
        filters: Sequence[str],
        receive_max: int,
        on_publish: OnPublish,
        on_connected: Callable[[], None],
        backoff: Backoff,
        clock: Clock,
    ) -> None:
        self._config = config
        self._client_id = client_id
        self._filters = filters
        self._receive_max = receive_max
        self._on_publish = on_publish
        self._on_connected = on_connected
        self._backoff = backoff
        self._clock = clock
        self._tls = _tls(config)
        self._password = _password(config)
        self._connection: _Connection | None = None
        self._paused = False
        self.subscribed = asyncio.Event()
        self.connections = 0

    async def run(self) -> None:
        """Connect, stay, connect again; ends only by cancellation or by an error of the handler."""
        while True:
            try:
                await self._live()
            except (OSError, TimeoutError, RemoteError) as error:
                self._say_lost(error)
            finally:
                self._drop()
            await self._clock.sleep(self._backoff.next_s())

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            connection = _Connection(self._connect_packet(), self._on_publish, self._clock)
            _, _ = await loop.create_connection(lambda: connection, self._config.host, self._config.port, ssl=self._tls)
            self._connection = connection
            keepalive_s = await connection.connected or self._config.keepalive_s
            self._on_connected()
            self._pause_or_resume()
            connection.write(self._subscribe_packet())
            await connection.subscribed
        self.connections += 1
        self.subscribed.set()
        self._backoff.reset()
        log.info("connected to the MQTT broker", extra={"event": "mqtt.connected", "host": self._config.host, "port": self._config.port})
        await asyncio.gather(connection.lost, self._keep_alive(connection, keepalive_s))

    async def _keep_alive(self, connection: _Connection, keepalive_s: float) -> None:
        """Ping, and give up a silent connection. One that we do not read ourselves is silent for our own reason."""
        while not connection.lost.done():
            await self._clock.sleep(keepalive_s / 4)
            silent_s = self._clock.monotonic_s() - connection.heard_s
            if self._paused:
                connection.heard_s = self._clock.monotonic_s()
            elif silent_s > keepalive_s * 1.5:
                connection.give_up(RemoteError(f"silent for {silent_s:.0f} s"))
                return
            connection.write(mqtt5.PingReqPacket().write())

    def _connect_packet(self) -> bytes:
        return mqtt5.ConnectPacket(
            self._client_id,
            username=self._config.username,
            password=self._password,
            clean_start=False,
            keep_alive=self._config.keepalive_s,
            session_expiry_interval=self._config.session_expiry_s,
            receive_max=self._receive_max,
        ).write()

    def _subscribe_packet(self) -> bytes:
        filters = [mqtt5.TopicFilter(pattern, max_qos=mqtt5.QoS.AT_LEAST_ONCE) for pattern in self._filters]
        return mqtt5.SubscribePacket(_SUBSCRIBE_ID, filters).write()

    def write(self, data: bytes) -> None:
        """Send on the connection that there is; without one the bytes mean nothing to anybody and are left out."""
        if self._connection is not None:
            self._connection.write(data)

    def pause(self) -> None:
        """Read no more; the broker's own buffers fill, then its queue."""
        self._paused = True
        self._pause_or_resume()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        self._pause_or_resume()

    @property
    def is_paused(self) -> bool:
        """Is reading stopped?"""
        return self._paused

    def _pause_or_resume(self) -> None:
        if self._connection is not None:
            self._connection.set_reading(not self._paused)

    def disconnect(self) -> None:
        """Say goodbye; the broker keeps the session and what is not acknowledged."""
        self.write(mqtt5.DisconnectPacket().write())
        self._drop()

    def _drop(self) -> None:
        self.subscribed.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _say_lost(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        log.warning("no MQTT broker: %s", text, extra={"event": "mqtt.lost", "host": self._config.host, "port": self._config.port})


class _Connection(asyncio.Protocol):
    """One TCP connection: bytes to packets, packets to futures and to the handler."""

    def __init__(self, hello: bytes, on_publish: OnPublish, clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[int | None] = loop.create_future()
        self.subscribed: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.heard_s = clock.monotonic_s()
        self._hello = hello
        self._on_publish = on_publish
        self._clock = clock
        self._reader = PacketReader(keep_unreadable=True)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._hello)

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

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case mqtt5.ConnAckPacket():
                if packet.reason_code != 0:
                    raise RemoteError(f"the broker refuses us: {packet.reason_code!s} {packet.reason_str or ''}")
                self.connected.set_result(packet.server_keep_alive)
            case mqtt5.SubAckPacket():
                if refused := [str(code) for code in packet.reason_codes if int(code) >= 0x80]:
                    raise RemoteError(f"the broker refuses our subscriptions: {refused}")
                self.subscribed.set_result(None)
            case mqtt5.DisconnectPacket():
                raise RemoteError(f"the broker disconnects: {packet.reason_code!s} {packet.reason_str or ''}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.give_up(exc if isinstance(exc, OSError) else RemoteError("the broker closed the connection"))

    def give_up(self, error: Exception) -> None:
        """End all who wait on this connection, with the reason."""
        for future in (self.connected, self.subscribed, self.lost):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whether somebody awaits it or not, it has been said
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def set_reading(self, wanted: bool) -> None:
        if self._transport is None or self._transport.is_closing() or wanted == self._transport.is_reading():
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _tls(config: MqttConfig) -> ssl.SSLContext | None:
    if config.ca_file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.cert_file is not None:
            context.load_cert_chain(config.cert_file, config.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"mqtt: ca_file, cert_file or key_file: {error}") from error
    return context


def _password(config: MqttConfig) -> bytes | None:
    if config.password_file is None:
        return None
    try:
        return config.password_file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"mqtt.password_file = {config.password_file}: {error.strerror}") from error
