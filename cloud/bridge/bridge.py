"""The bridge: MQTT in, Kafka out, and an answer to the device when Kafka has its frame. Stateless; any number run side by side.

    publish ─ admit ─┬─ ew.up ────┐
                     ├─ ew.dead ──┼─ Kafka's confirmation ─ PUBACK to the broker + Ack to the device
                     └─ ew.devices┘

Kafka away: nothing is confirmed, so nothing is acknowledged; at the in-flight bound the broker stops, and what is in flight is
sent when Kafka is back. Nothing is ever dropped here: what is refused is a dead letter. An error that Kafka's client cannot recover
from ends the process: nothing was acknowledged, so the next one gets it all again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import mqtt5
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from edgewake.cloud import metrics
from edgewake.cloud.bridge.ack_ledger import AckLedger, Owed, Waiting
from edgewake.cloud.bridge.admit import admit, admit_status, may_answer
from edgewake.cloud.bridge.catalogue import Catalogue
from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.cloud.bridge.metrics import BridgeMetrics
from edgewake.cloud.bridge.mqtt_source import MqttSource
from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.retry import Backoff
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.dead_letter import DeadLetter
from edgewake.protocol.errors import LocalError, Rejected, RejectReason, Unavailable
from edgewake.protocol.mqtt import PACKET_BYTES_MAX, Unreadable
from edgewake.protocol.names import is_device
from edgewake.protocol.record import PLACEMENT_HEADER

log = logging.getLogger("edgewake.bridge")

SHARED: Final = ("$share/bridge/" + topics.UP_FILTER, "$share/bridge/" + topics.STATUS_FILTER)
PUMP_S: Final = 0.001
"""Seconds between looks at Kafka's confirmations while some are awaited: what this adds to a latency."""
IDLE_S: Final = 0.1
"""The same while nothing is in flight."""
FOLLOW_S: Final = 0.5
"""Seconds between looks at the stream catalogue."""
DRAIN_S: Final = 3.0
"""Seconds that a stopping bridge waits for confirmations; the rest comes again from the broker."""
TRUNCATED_BYTES: Final = 64 * 1024
"""Bytes kept of a dead letter that Kafka finds too large."""

_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE})


class Outgoing(NamedTuple):
    """A record on its way to Kafka, with what is owed for it."""

    topic: str
    key: str
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp: int
    waiting: Waiting


class Bridge:
    """Takes publishes, gives records to Kafka, and answers when Kafka has confirmed them. Runs in one event loop."""

    def __init__(self, config: BridgeConfig, *, producer: Producer, catalogue: Catalogue, clock: Clock, rng: random.Random) -> None:
        self._config = config
        self._producer = producer
        self._catalogue = catalogue
        self._clock = clock
        self.metrics = BridgeMetrics()
        # Twice the broker's own bound: only QoS 0, which it does not count, and bytes ever stop the reading.
        self._ledger = AckLedger(messages_max=2 * config.inflight_messages_max, bytes_max=config.inflight_bytes_max)
        self._unsent: deque[Outgoing] = deque()
        self._owed: list[Owed] = []
        self._failure: LocalError | None = None
        self._confirmed_s = 0.0
        """Monotonic clock at the last look at Kafka's confirmations."""
        self._work = asyncio.Event()
        self.source = MqttSource(
            config.mqtt,
            client_id=config.name,
            filters=SHARED,
            receive_max=config.inflight_messages_max,
            on_publish=self._on_publish,
            on_connected=self._ledger.connected,
            backoff=Backoff(rng),
            clock=clock,
        )

    # In: from the broker to Kafka's client

    def _on_publish(self, packet: mqtt5.PublishPacket | Unreadable) -> None:
        received_at = self._clock.now_ms()
        try:
            outgoing = self._outgoing(packet, received_at)
        except Rejected as refusal:
            outgoing = self._dead_letter(packet, refusal, received_at)
        self._ledger.open(outgoing.waiting)
        self._send(outgoing)
        if self._ledger.is_full and not self.source.is_paused:
            self.metrics.waits["full"] += 1
            self.source.pause()
        self._work.set()

    def _outgoing(self, packet: mqtt5.PublishPacket | Unreadable, received_at: int) -> Outgoing:
        if isinstance(packet, Unreadable):
            reason = RejectReason.OVERSIZE if packet.size > PACKET_BYTES_MAX else RejectReason.ENCODING
            raise Rejected(reason, f"publish of {packet.size} bytes: {packet.why}; {len(packet.head)} of them are kept")
        if packet.topic.count("/") == _STATUS_SLASHES:
            status = admit_status(packet, received_at=received_at)
            value = status.model_dump_json().encode()
            return Outgoing(topics.DEVICES, f"{status.device}|status", value, [], received_at, self._waiting(packet, len(value)))
        admitted = admit(packet, self._catalogue, received_at=received_at)
        return Outgoing(
            topics.UP,
            admitted.device,
            admitted.value,
            [(PLACEMENT_HEADER, admitted.placement)],
            received_at,
            self._waiting(packet, len(admitted.value)),
        )

    def _waiting(self, packet: mqtt5.PublishPacket | Unreadable, size: int) -> Waiting:
        return Waiting(
            self._ledger.connection, packet.packet_id, packet.response_topic, packet.correlation_data, size, self._clock.monotonic_s()
        )

    def _dead_letter(self, packet: mqtt5.PublishPacket | Unreadable, refusal: Rejected, received_at: int) -> Outgoing:
        device = _device_of(packet.topic)
        if isinstance(packet, Unreadable):
            value, content_type = packet.head, ""
        else:
            value, content_type = packet.payload, packet.content_type or ""
        letter = DeadLetter(
            reason=refusal.reason,
            detail=refusal.detail,
            topic=packet.topic,
            part=self._config.name,
            received_at=received_at,
            content_type=content_type,
        )
        waiting = self._waiting(packet, len(value))._replace(rejected=refusal.reason, detail=refusal.detail)
        if not _is_answerable(packet, device):
            waiting = waiting._replace(response_topic=None, correlation_data=None)
        self.metrics.rejected[refusal.reason] += 1
        log.debug("refused: %s", refusal, extra={"event": "bridge.refused", "device": device, "reason": str(refusal.reason)})
        return Outgoing(topics.DEAD, device, value, letter.headers(), received_at, waiting)

    def _send(self, outgoing: Outgoing) -> None:
        """Give a record to Kafka's client; where its queue is full the record waits, and so does the broker."""
        if self._unsent or not self._produced(outgoing):
            self._unsent.append(outgoing)
            if not self.source.is_paused:
                self.metrics.waits["queue"] += 1
                self.source.pause()

    def _produced(self, outgoing: Outgoing) -> bool:
        try:
            self._producer.produce(
                outgoing.topic,
                outgoing.value,
                outgoing.key,
                on_delivery=partial(self._on_delivery, outgoing),
                timestamp=outgoing.timestamp,
                headers=outgoing.headers,
            )
        except BufferError:
            return False
        except KafkaException as error:
            self._on_refusal(outgoing, error.args[0])
        return True

    # Out: from Kafka's confirmations to the broker

    def _on_delivery(self, outgoing: Outgoing, error: KafkaError | None, message: Message) -> None:
        """Kafka's answer for one record; called inside `poll`."""
        if error is not None:
            self._on_refusal(outgoing, error)
            return
        waiting = outgoing.waiting
        self.metrics.latency.add(self._confirmed_s - waiting.since_s)
        self.metrics.outcomes[_OUTCOMES[outgoing.topic]] += 1
        owed = self._ledger.settle(waiting, partition=message.partition(), offset=message.offset())
        if owed is not None:
            self._owed.append(owed)

    def _on_refusal(self, outgoing: Outgoing, error: KafkaError) -> None:
        """Too large is the message's fault and becomes a dead letter; all else that was not retried is ours and ends the process."""
        if error.code() not in _TOO_LARGE or (outgoing.topic == topics.DEAD and len(outgoing.value) <= TRUNCATED_BYTES):
            self._failure = self._failure or LocalError(f"Kafka refuses a record for {outgoing.topic}: {error.str()}")
            return
        self._send(self._too_large(outgoing, error))

    def _too_large(self, outgoing: Outgoing, error: KafkaError) -> Outgoing:
        detail = f"{len(outgoing.value)} bytes: {error.str()}"
        headers = outgoing.headers
        if outgoing.topic != topics.DEAD:
            self.metrics.rejected[RejectReason.OVERSIZE] += 1
            letter = DeadLetter(
                reason=RejectReason.OVERSIZE,
                detail=detail,
                topic=f"{outgoing.topic} {outgoing.key}",
                part=self._config.name,
                received_at=outgoing.timestamp,
            )
            headers = letter.headers()
        waiting = outgoing.waiting._replace(rejected=outgoing.waiting.rejected or RejectReason.OVERSIZE, detail=detail)
        return outgoing._replace(topic=topics.DEAD, value=outgoing.value[:TRUNCATED_BYTES], headers=headers, waiting=waiting)

    def _answer(self) -> None:
        """Send what is owed, in one write."""
        owed, self._owed = self._owed, []
        packets = [_answer_packet(one) for one in owed]
        packets += [mqtt5.PubAckPacket(packet_id).write() for packet_id in self._ledger.pubacks()]
        if packets:
            self.source.write(b"".join(packets))

    async def pump(self) -> None:
        """Look for confirmations, answer, and let the broker go on when there is room. Raises LocalError when Kafka refuses for good."""
        while True:
            self.step()
            if self._ledger.messages:
                await asyncio.sleep(PUMP_S)
            else:
                self._work.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_S):
                        await self._work.wait()

    def step(self) -> None:
        """One turn of the pump."""
        self._confirmed_s = self._clock.monotonic_s()
        self._producer.poll(0)
        if self._failure is not None:
            raise self._failure
        while self._unsent and self._produced(self._unsent[0]):
            self._unsent.popleft()
        self._answer()
        if self.source.is_paused and self._ledger.has_room and not self._unsent:
            self.source.resume()
        for stream in self._catalogue.unpublished():
            self._producer.produce(topics.STREAMS, stream.model_dump_json().encode(), stream.name)
        self.metrics.inflight_messages, self.metrics.inflight_bytes = self._ledger.messages, self._ledger.bytes
        self.metrics.connections = self.source.connections

    async def drain(self) -> None:
        """Read no more; wait a bounded time for what Kafka still owes; answer; say goodbye."""
        self.source.pause()
        deadline_s = self._clock.monotonic_s() + DRAIN_S
        while self._ledger.messages and self._clock.monotonic_s() < deadline_s:
            self.step()
            self.source.pause()
            await asyncio.sleep(PUMP_S)
        self.step()
        self.source.disconnect()


_STATUS_SLASHES: Final = topics.STATUS_FILTER.count("/")
_OUTCOMES: Final = {topics.UP: "acked", topics.DEAD: "dead", topics.DEVICES: "status"}


def _answer_packet(owed: Owed) -> bytes:
    return mqtt5.PublishPacket(owed.response_topic, owed.ack.encode(), correlation_data=owed.correlation_data).write()


def _device_of(topic: str) -> str:
    """The device of a topic, as far as it has one."""
    parts = topic.split("/")
    return parts[2] if len(parts) > 2 and is_device(parts[2]) else ""


def _is_answerable(packet: mqtt5.PublishPacket | Unreadable, device: str) -> bool:
    return bool(device) and packet.response_topic is not None and may_answer(packet.response_topic, device)


async def run(config: BridgeConfig, *, clock: Clock, rng: random.Random, stop: asyncio.Event) -> None:
    """Serve until `stop`. Order at the end: stop reading, wait for Kafka, answer, disconnect. Raises LocalError."""
    producer = clients.producer(config.kafka, config.name, **PRODUCER)
    catalogue = Catalogue()
    table = await _unless_stopped(_open_catalogue(config, catalogue, clock, Backoff(rng)), stop)
    if table is None:
        return
    bridge = Bridge(config, producer=producer, catalogue=catalogue, clock=clock, rng=rng)
    metrics.serve(config.metrics_port, bridge.metrics.gather)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(bridge.source.run(), name="mqtt"),
                tasks.create_task(bridge.pump(), name="pump"),
                tasks.create_task(_follow(table, clock), name="catalogue"),
                tasks.create_task(_say_ready(bridge.source, config.name), name="ready"),
            ]
            await stop.wait()
            running[1].cancel()
            await bridge.drain()
            for task in running:
                task.cancel()
    finally:
        table.close()


PRODUCER: Final[dict[str, Any]] = {
    "linger.ms": 5,  # 3 ms more for a lone message, and half the requests under load
    "message.timeout.ms": 0,  # for ever: the broker's in-flight bound is what ends the waiting
    "queue.buffering.max.messages": 200_000,  # above the in-flight bound, so that it is not the queue that fills
    "queue.buffering.max.kbytes": 256 * 1024,
    "topic.metadata.refresh.interval.ms": 30_000,
    "reconnect.backoff.max.ms": 2_000,
    "delivery.report.only.error": False,
}


async def _open_catalogue(config: BridgeConfig, catalogue: Catalogue, clock: Clock, backoff: Backoff) -> TableReader:
    """Make our topics and read the catalogue, however long Kafka is away."""
    said = False
    while True:
        try:
            return await asyncio.to_thread(_read_catalogue, config, catalogue)
        except Unavailable as error:
            if not said:
                log.warning("waiting for Kafka: %s", error, extra={"event": "kafka.away"})
            said = True
        await clock.sleep(backoff.next_s())


def _read_catalogue(config: BridgeConfig, catalogue: Catalogue) -> TableReader:
    topic_admin.ensure_topics(config.kafka, [topics.UP, topics.DEAD, topics.DEVICES, topics.STREAMS])
    table = TableReader(config.kafka, f"{config.name}-catalogue", topics.STREAMS, on_change=catalogue.follow)
    try:
        table.read_all()
    except Unavailable:
        table.close()
        raise
    return table


T = TypeVar("T")


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """The work's result; None where `stop` came first."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if task.done():
        return task.result()
    task.cancel()
    return None


async def _follow(table: TableReader, clock: Clock) -> None:
    while True:
        table.poll(0)
        await clock.sleep(FOLLOW_S)


async def _say_ready(source: MqttSource, name: str) -> None:
    await source.subscribed.wait()
    log.info("%s serves", name, extra={"event": "part.ready"})
