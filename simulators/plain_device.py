"""A plain MQTT 5 client: QoS 1, a response topic and correlation data, nothing of the agent in it.

It connects, sends what its outbox holds, takes acknowledgements, and connects again with jittered
back-off when the broker goes away. One connection may speak for several devices (a file with many);
a fleet gives each device its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import mqtt5

from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.frames.ack import Ack, Later, decode_answer
from edgewake.simulators.outbox import Message, Outbox
from edgewake.simulators.wire import Wire

CONNECT_S: Final = 10.0
"""Seconds for a connection and the broker's answer; a thousand at once on a busy machine take
some."""
BACKOFF_S_MIN: Final = 0.2
BACKOFF_S_MAX: Final = 5.0
LATER_S_MIN: Final = 0.1
"""Seconds that a message waits at least after `later`."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the MQTT broker is."""

    host: str = "127.0.0.1"
    port: int = 1883


@dataclass(slots=True)
class Counts:
    """Counts of what happened to readings."""

    sent: int = 0
    acked: int = 0
    rejected: int = 0
    postponed: int = 0
    """Answers `later`."""
    last_rejection: str = ""


class PlainDevice:
    """A client id, its connection and its outbox.

    `on_change(connected)` is called when the connection comes, goes, or fails for the first time;
    `on_refused` with a message that the cloud does not take, and says whether its readings were
    sent in another form instead.
    """

    def __init__(
        self,
        client_id: str,
        broker: Broker,
        outbox: Outbox,
        *,
        clock: Clock,
        rng: random.Random,
        on_change: Callable[[bool], None],
        on_refused: Callable[[Message], bool] = lambda _: False,
    ) -> None:
        self._client_id = client_id
        self._broker = broker
        self._clock = clock
        self._rng = rng
        self._on_change = on_change
        self._on_refused = on_refused
        self._wire: Wire | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._subscribed: set[str] = set()
        self._connected: bool | None = None
        self.outbox = outbox
        self._first = clock.now_ms() << 20
        """What a key is counted from on the wire: answers to a process before are not for us."""
        self.counts = Counts()
        self.settled = asyncio.Event()
        """Set at each acknowledgement; a waiter clears it."""

    def offer(
        self,
        device: str,
        stream: str,
        payload: bytes,
        *,
        readings: int = 1,
        content_type: str | None = None,
    ) -> None:
        """Take one reading for `device`, or with its `content_type` a frame of several."""
        self.outbox.offer(
            device, topics.up(device, stream), payload, readings=readings, content_type=content_type
        )
        self._pump()

    async def run(self) -> None:
        """Connect, send, and connect again, until cancelled."""
        backoff_s = BACKOFF_S_MIN
        while True:
            try:
                wire = await self._connect()
                backoff_s = BACKOFF_S_MIN
                try:
                    self._wire = wire
                    self._change(True)
                    self._pump()
                    await wire.lost
                finally:
                    self._wire = None
                    self._set_timer(None)
                    wire.close()
            except (OSError, RemoteError, TimeoutError):
                self._change(False)
            await self._clock.sleep(self._rng.uniform(BACKOFF_S_MIN / 2, backoff_s))
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    async def _connect(self) -> Wire:
        self._subscribed.clear()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S):
            _, wire = await loop.create_connection(
                lambda: Wire(self._client_id, self._on_message),
                self._broker.host,
                self._broker.port,
            )
            try:
                await wire.connected
            except BaseException:
                wire.close()
                raise
        return wire

    def _change(self, connected: bool) -> None:
        if connected is self._connected:
            return
        if self._connected:
            self.outbox.disconnected()
        self._connected = connected
        self._on_change(connected)

    def _pump(self) -> None:
        """Send what is due, and come back when the next message is."""
        if self._wire is None:
            return
        while (message := self.outbox.next_message(self._clock.monotonic_s())) is not None:
            self.counts.sent += 1
            self._send(self._wire, message)
        self._set_timer(self.outbox.next_due_s())

    def _set_timer(self, due_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_s = None if due_s is None else max(due_s - self._clock.monotonic_s(), 0.0)
        self._timer = (
            None if wait_s is None else asyncio.get_running_loop().call_later(wait_s, self._pump)
        )

    def _send(self, wire: Wire, message: Message) -> None:
        answer = topics.ack(message.lane)
        if message.lane not in self._subscribed:
            self._subscribed.add(message.lane)
            wire.subscribe(answer)
        wire.publish(
            message.topic,
            message.payload,
            content_type=message.content_type,
            response_topic=answer,
            correlation_data=(self._first + message.key).to_bytes(8),
            sent_at_ms=self._clock.now_ms(),
        )

    def _on_message(self, packet: mqtt5.PublishPacket) -> None:
        try:
            answer = decode_answer(packet.payload)
        except RemoteError:
            return
        key = int.from_bytes(packet.correlation_data or b"") - self._first
        if isinstance(answer, Later):
            self.counts.postponed += 1
            self.outbox.postpone(
                key, self._clock.monotonic_s() + max(LATER_S_MIN, answer.retry_after_ms / 1000)
            )
        elif not self._settle(key, answer):
            return
        self._pump()

    def _settle(self, key: int, ack: Ack) -> bool:
        """Was it an answer to something that still waits?"""
        if (message := self.outbox.settle(key)) is None:
            return False
        if ack.rejected is None:
            self.counts.acked += message.readings
        elif not self._on_refused(message):
            self.counts.rejected += message.readings
            self.counts.last_rejection = f"{ack.rejected}: {ack.detail}"
        self.settled.set()
        return True
