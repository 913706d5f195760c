"""A plain MQTT 5 client: QoS 1, a response topic and correlation data, nothing of the agent in it.

It connects, sends what its outbox holds, takes acknowledgements, and connects again with jittered back-off when the broker goes away.
One connection may speak for several devices (a file with many); a fleet gives each device its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgewake.protocol import topics
from edgewake.protocol.ack import Ack, Later, decode_answer
from edgewake.protocol.cancellation import raise_if_cancelled
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RemoteError
from edgewake.simulators.outbox import Message, Outbox

KEEPALIVE_S: Final = 15
BACKOFF_S_MIN: Final = 0.2
BACKOFF_S_MAX: Final = 5.0
LATER_S_MIN: Final = 0.1
"""Seconds that a message waits at least after `later`."""
ACKS_QUEUED_MAX: Final = 4096
"""Acknowledgements that wait to be looked at. More are dropped by the client; the readings are sent again then."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the MQTT broker is."""

    host: str = "127.0.0.1"
    port: int = 1883


@dataclass(slots=True)
class Counts:
    """What happened to readings."""

    sent: int = 0
    acked: int = 0
    rejected: int = 0
    postponed: int = 0
    """Answers `later`."""
    last_rejection: str = ""


class PlainDevice:
    """A client id, its connection and its outbox.

    `on_change(connected)` is called when the connection comes, goes, or fails for the first time.
    """

    def __init__(
        self, client_id: str, broker: Broker, outbox: Outbox, *, clock: Clock, rng: random.Random, on_change: Callable[[bool], None]
    ) -> None:
        self._client_id = client_id
        self._broker = broker
        self._clock = clock
        self._rng = rng
        self._on_change = on_change
        self._due = asyncio.Event()
        self._subscribed: set[str] = set()
        self._connected: bool | None = None
        self.outbox = outbox
        self.counts = Counts()
        self.settled = asyncio.Event()
        """Set at each acknowledgement; a waiter clears it."""

    def offer(self, device: str, stream: str, payload: bytes) -> None:
        """Take one reading for `device`."""
        self.outbox.offer(device, topics.up(device, stream), payload)
        self._due.set()

    async def run(self) -> None:
        """Connect, send, and connect again, until cancelled."""
        backoff_s = BACKOFF_S_MIN
        while True:
            try:
                async with self._client() as client:
                    raise_if_cancelled()
                    backoff_s = BACKOFF_S_MIN
                    self._change(True)
                    await self._serve(client)
            except* aiomqtt.MqttError:
                self._change(False)
            raise_if_cancelled()
            await self._clock.sleep(self._rng.uniform(BACKOFF_S_MIN / 2, backoff_s))
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    def _change(self, connected: bool) -> None:
        if connected is self._connected:
            return
        if self._connected:
            self.outbox.disconnected()
        self._connected = connected
        self._on_change(connected)

    def _client(self) -> aiomqtt.Client:
        client = aiomqtt.Client(
            self._broker.host,
            self._broker.port,
            identifier=self._client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            keepalive=KEEPALIVE_S,
            timeout=5.0,
            max_queued_incoming_messages=ACKS_QUEUED_MAX,
            max_inflight_messages=self.outbox.window,
        )
        # It warns of more than ten publishes that wait for their PUBACK; here a whole window may.
        client.pending_calls_threshold = self.outbox.window
        return client

    async def _serve(self, client: aiomqtt.Client) -> None:
        self._subscribed.clear()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take_acks(client), name=f"{self._client_id} acks")
            tasks.create_task(self._send(client, tasks), name=f"{self._client_id} send")

    async def _send(self, client: aiomqtt.Client, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._due.clear()
            while (message := self.outbox.take(self._clock.monotonic_s())) is not None:
                await self._subscribe(client, message.lane)
                raise_if_cancelled()
                self.counts.sent += 1
                tasks.create_task(self._publish(client, message), name=f"{self._client_id} publish")
            due_s = self.outbox.next_due_s()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due_s is None else max(due_s - self._clock.monotonic_s(), 0.0)):
                    await self._due.wait()

    async def _subscribe(self, client: aiomqtt.Client, device: str) -> None:
        if device not in self._subscribed:
            await client.subscribe(topics.ack(device), qos=1)
            self._subscribed.add(device)

    async def _publish(self, client: aiomqtt.Client, message: Message) -> None:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic = topics.ack(message.lane)
        properties.CorrelationData = message.key.to_bytes(8)
        properties.UserProperty = ("sent_at", str(self._clock.now_ms()))
        # A PUBACK proves nothing: only the acknowledgement settles the message, so what publish() says of it is not needed.
        await client.publish(message.topic, message.payload, qos=1, properties=properties)

    async def _take_acks(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            correlation = getattr(message.properties, "CorrelationData", b"")
            try:
                answer = decode_answer(bytes(message.payload))
            except RemoteError:
                continue
            key = int.from_bytes(correlation)
            if isinstance(answer, Later):
                self.counts.postponed += 1
                self.outbox.postpone(key, self._clock.monotonic_s() + max(LATER_S_MIN, answer.retry_after_ms / 1000))
                self._due.set()
            else:
                self._settle(key, answer)

    def _settle(self, key: int, ack: Ack) -> None:
        if self.outbox.settle(key) is None:
            return
        if ack.rejected is None:
            self.counts.acked += 1
        else:
            self.counts.rejected += 1
            self.counts.last_rejection = f"{ack.rejected}: {ack.detail}"
        self.settled.set()
        self._due.set()
