"""The bridges' host application of Sparkplug B, which one of them at a time runs.

It has a connection of its own to the broker.

The first by name of the bridges that live is the host (`watch`). All connect under one client id,
so the broker itself ends the connection of one that was taken for dead and is not: there are never
two. Sparkplug has no session: messages that nobody heard are sent again by nodes whose primary host
this is, from what they kept, and by all others with their next births, for which they are asked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import mqtt5

from edgewake.cloud.bridge.admission.catalogue import too_much
from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.cloud.bridge.admission.records import device_in, is_status
from edgewake.cloud.bridge.bridge import Bridge
from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.cloud.bridge.mqtt.ack_ledger import Awaited
from edgewake.cloud.bridge.mqtt.mqtt_connection import (
    CONNECT_TIMEOUT_S,
    KEEPALIVE_S,
    Connection,
    ConnectRefused,
)
from edgewake.cloud.bridge.sparkplug.host_parts import parts_of
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.broker import password_of, tls_of
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Rejected, RejectReason, RemoteError
from edgewake.protocol.maps.names import device_name
from edgewake.protocol.mqtt import Unreadable
from edgewake.protocol.sparkplug.host import (
    NAMESPACE,
    STATE,
    Event,
    Host,
    Odd,
    Reading,
    Rebirth,
    ThingPresence,
    address_of,
    is_death,
    is_node_life,
    state,
)
from edgewake.protocol.sparkplug.payload import rebirth

log = logging.getLogger("edgewake.bridge.sparkplug")

LOOK_S: Final = 0.25
"""Seconds between two looks at who is the host, and at what waits for a message before it."""
STABLE_S: Final = 10.0
"""Seconds that a connection must last before the next failure counts as the first one again."""
BIRTH_PACKET: Final = 3
"""Packet id of what it says of itself; 1 and 2 are those of SUBSCRIBE and UNSUBSCRIBE."""


class HostSession:
    """The host session of one bridge."""

    def __init__(
        self, config: BridgeConfig, bridge: Bridge, clock: Clock, backoff: Backoff
    ) -> None:
        self._config, self._own = config.mqtt, config.sparkplug
        self._client_id = f"bridge:{config.kafka.installation}:sparkplug:{self._own.host_id}"
        self._receive_max = config.inflight_messages_max
        self._bridge = bridge
        self._clock = clock
        self._backoff = backoff
        self._tls = tls_of(config.mqtt)
        self._state = f"{NAMESPACE}/{STATE}/{self._own.host_id}"
        self._host = Host(self._own.reorder_s)
        self._connection: Connection | None = None
        self._unacked: deque[tuple[int, Awaited]] = deque()
        """Messages of this connection with QoS 1, in their order, at most `receive_max`."""
        self._began_ms = 0

    async def run(self) -> None:
        """Be the host whenever it is our turn, for ever."""
        while True:
            while not self._bridge.watch.is_first:
                await self._clock.sleep(LOOK_S)
            started_s = self._clock.monotonic_s()
            try:
                await self._serve()
            except (OSError, TimeoutError, RemoteError) as error:
                log.warning(
                    "not the host of Sparkplug: %s",
                    str(error) or type(error).__name__,
                    extra={"event": "sparkplug.lost"},
                )
            if self._clock.monotonic_s() - started_s > STABLE_S:
                self._backoff.reset()
            await self._clock.sleep(self._backoff.next_s())

    async def _serve(self) -> None:
        """Until it is another one's turn, or the connection is lost."""
        self._host = Host(self._own.reorder_s)
        self._unacked.clear()
        self._began_ms = self._clock.now_ms()
        connection = Connection(
            self._hello(),
            on_connected=lambda _: None,
            on_publish=self._on_publish,
            clock=self._clock,
        )
        try:
            connack = await self._open(connection)
            self._connection = connection
            connection.subscribe([self._state, f"{NAMESPACE}/{self._own.group or '+'}/#"])
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await connection.subscribed
            self._say(True)
            log.info(
                "is the host %s of Sparkplug",
                self._own.host_id,
                extra={"event": "sparkplug.host", "host_id": self._own.host_id},
            )
            await self._look(connection, connack.server_keep_alive or KEEPALIVE_S)
        finally:
            self._say(False)
            connection.write(mqtt5.DisconnectPacket().write())
            connection.close()
            self._connection = None

    async def _open(self, connection: Connection) -> mqtt5.ConnAckPacket:
        try:
            return await connection.open(self._config, self._tls)
        except ConnectRefused as error:
            if error.reason is not mqtt5.ConnAckReasonCode.RETAIN_NOT_SUPPORTED:
                raise
            raise RemoteError(
                f"{error}: nodes look for a retained {self._state}; expected retain_available true "
                "in mosquitto.conf (SPARKPLUG=yes of deploy/mosquitto/install.sh)"
            ) from error

    def _hello(self) -> bytes:
        will = mqtt5.Will(
            self._state,
            payload=state(False, self._began_ms),
            qos=mqtt5.QoS.AT_LEAST_ONCE,
            retain=True,
        )
        return mqtt5.ConnectPacket(
            self._client_id,
            username=self._config.username,
            password=password_of(self._config),
            clean_start=True,
            will=will,
            keep_alive=KEEPALIVE_S,
            session_expiry_interval=0,
            receive_max=self._receive_max,
        ).write()

    async def _look(self, connection: Connection, keepalive_s: float) -> None:
        pinged_s = self._clock.monotonic_s()
        is_reading = True
        while self._bridge.watch.is_first:
            if connection.lost.done():
                connection.lost.result()
            now_s = self._clock.monotonic_s()
            is_reading = not self._bridge.is_full
            connection.set_reading(is_reading)
            if not is_reading:
                connection.heard_s = now_s
            if now_s - connection.heard_s > keepalive_s * 1.5:
                raise RemoteError(f"silent for {now_s - connection.heard_s:.0f} s")
            if now_s - pinged_s > keepalive_s / 4:
                pinged_s = now_s
                connection.ping()
            self._act(self._host.due(now_s), "", b"", None)
            await self._clock.sleep(LOOK_S)

    def _say(self, is_online: bool) -> None:
        """That the host is there, or leaves."""
        if self._connection is None:
            return
        at_ms = self._began_ms if is_online else self._clock.now_ms()
        self._connection.write(
            mqtt5.PublishPacket(
                self._state,
                state(is_online, at_ms),
                qos=mqtt5.QoS.AT_LEAST_ONCE,
                packet_id=BIRTH_PACKET,
                retain=True,
            ).write()
        )

    def _on_publish(self, packet: mqtt5.PublishPacket | Unreadable) -> None:
        if isinstance(packet, Unreadable):
            part = Part(packet, Rejected(RejectReason.OVERSIZE, packet.why))
            self._give([part], packet.packet_id, self._node_of(packet.topic))
            return
        events: list[Event] = []
        topic, payload = packet.topic, bytes(packet.payload)
        node = ""
        if topic == self._state:
            if is_death(payload):  # of a connection before this one
                self._say(True)
        elif topic.startswith(f"{NAMESPACE}/{STATE}/"):
            pass  # of another host
        elif packet.retain:
            events.append(Odd("retained messages passed over: births and data are never kept"))
        else:
            node = self._node_of(topic)
            account = self._bridge.account(node)
            now_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
            wait_s = account.wait_s(now_s)
            is_life = wait_s > 0 and is_node_life(topic)
            if wait_s > 0 and not (is_life and account.may_say_life(len(payload), now_s)):
                part = Part(packet, too_much(node, wait_s).refusal)
                self._give([part], packet.packet_id, node)
                return
            began_s = time.thread_time()
            events = self._host.message(topic, payload, now_ms, now_s)
            self._act(events, topic, payload, packet.packet_id, node)
            is_lost = any(isinstance(one, Odd) and one.is_lost for one in events)
            if is_life and not is_lost:
                return  # it is paid for
            pay = account.pay_refused if is_lost else account.pay
            pay(len(payload), time.thread_time() - began_s)
            return
        self._act(events, topic, payload, packet.packet_id, node)

    def _node_of(self, topic: str) -> str:
        """The edge node that pays for a message, by its name as a device; empty: none has sent it.

        It pays before anybody looks inside.
        """
        address = address_of(topic)
        if address is None:
            return ""
        return device_name(f"{address.group}/{address.node}", self._own.prefix)

    def _act(
        self,
        events: Sequence[Event],
        topic: str,
        payload: bytes,
        packet_id: int | None,
        payer: str | None = None,
    ) -> None:
        counts = self._bridge.metrics.sparkplug
        for one in events:
            match one:
                case Rebirth() if self._connection is not None:
                    now_ms = self._clock.now_ms()
                    asking = mqtt5.PublishPacket(one.topic, rebirth(now_ms))
                    self._connection.write(asking.write())
                    counts["rebirth"] += 1
                case Reading():
                    counts["reading"] += 1
                case ThingPresence():
                    counts["presence"] += 1
                case Odd():
                    counts["lost" if one.is_lost else "odd"] += 1
                    log.debug("%s: %s", topic, one.what, extra={"event": "sparkplug.odd"})
        parts = parts_of(events, topic, payload, stream=self._own.stream, prefix=self._own.prefix)
        self._give(parts, packet_id, payer)

    def _give(self, parts: Sequence[Part], packet_id: int | None, payer: str | None) -> None:
        """Pass parts to the bridge; the broker is answered when Kafka has all of them."""
        if not parts and packet_id is None:
            return
        checked = list(map(self._within_share, parts))
        whole = self._bridge.take(checked, payer, self._acknowledge, is_named=True)
        if packet_id is not None:
            self._unacked.append((packet_id, whole))
            self._acknowledge()

    def _within_share(self, part: Part) -> Part:
        """What is over a device's share is a dead letter: nobody can be asked to wait.

        That it is there or gone is said all the same; it has a bound of its own.
        """
        if is_status(part.packet.topic):
            return part
        device = device_in(part.packet.topic)
        wait_s = self._bridge.wait_s(device) if device else 0.0
        return part._replace(refusal=too_much(device, wait_s).refusal) if wait_s > 0 else part

    def _acknowledge(self) -> None:
        while self._unacked and self._unacked[0][1].is_settled:
            packet_id, _ = self._unacked.popleft()
            if self._connection is not None:
                self._connection.write(mqtt5.PubAckPacket(packet_id).write())
