"""Bridges and sequencers as processes on a real broker and a real Kafka, and devices that talk to
them.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import mqtt5
from confluent_kafka import Message
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.ack import Ack, Later, decode_answer, decode_joined
from edgewake.protocol.frames.frame import FRAME_TYPE, Frame, encode
from edgewake.protocol.mqtt import PacketReader
from tests.bridge.topic_reader import TopicReader
from tests.services import PATIENCE_S, Kafka, Mosquitto, Process, free_ports, part, wait_until

READY = '"event":"part.ready"'
T0 = 1_790_000_000_000


@dataclass
class World:
    """A broker, a Kafka, and the parts that a test starts on them."""

    broker: Mosquitto
    node: Kafka
    folder: Path
    parts: list[Process] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    copies: int = 1
    """Of each topic."""

    @property
    def config(self) -> KafkaConfig:
        """How to reach Kafka."""
        return KafkaConfig(bootstrap=self.node.bootstrap)

    def bridge(
        self,
        name: str,
        *,
        site: str = "here",
        installation: str = "edgewake",
        mqtt: str = "",
        **keys: object,
    ) -> Process:
        """A bridge that serves.

        Bridges of one site adopt each other's sessions. `mqtt`: more lines of that table.
        """
        more = f'installation = "{installation}"\n'
        return self._part(
            "bridge",
            name,
            f'[mqtt]\nport = {self.broker.port}\nsite = "{site}"\n{mqtt}\n',
            keys,
            more,
        )

    def sequencer(self, name: str = "sequencer-1", **keys: object) -> Process:
        """A sequencer that serves."""
        return self._part("sequencer", name, "", keys)

    def _part(
        self, command: str, name: str, more: str, keys: Mapping[str, object], kafka: str = ""
    ) -> Process:
        (self.ports[name],) = free_ports(1)
        lines = [
            f'name = "{name}"',
            f"metrics_port = {self.ports[name]}",
            *(f"{key} = {value}" for key, value in keys.items()),
        ]
        file = self.folder / f"{name}.toml"
        file.write_text(
            "\n".join(lines) + f'\n{more}[kafka]\nbootstrap = "{self.node.bootstrap}"\n'
            f"replication = {self.copies}\n{kafka}"
        )
        process = part(command, file, self.folder / f"{len(self.parts)}-{name}.log")
        self.parts.append(process)
        start(process)
        return process

    def metric(self, name: str, line: str) -> float:
        """A figure of a part, e.g. `edgewake_bridge_messages_total{outcome="acked"}`."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.ports[name]}/metrics", timeout=PATIENCE_S
        ) as answer:
            for text in answer.read().decode().splitlines():
                if text.startswith(line + " "):
                    return float(text.rpartition(" ")[2])
        return 0.0

    def stop(self) -> None:
        """Stop all parts; each must end cleanly."""
        for process in self.parts:
            if process.is_running():
                code = process.stop()
                assert code == 0, f"exit {code}: {process.output()[-2000:]}"


def start(process: Process) -> None:
    """Start a part (again) and wait until it serves."""
    before = process.output().count(READY)
    process.start()
    wait_until(
        lambda: process.output().count(READY) > before or not process.is_running(),
        "the part serves",
    )
    assert process.is_running(), process.output()[-3000:]


@asynccontextmanager
async def world(
    broker: Mosquitto, node: Kafka, folder: Path, *, copies: int = 1
) -> AsyncIterator[World]:
    """A World whose parts are stopped and whose devices hang up at the end."""
    made = World(broker, node, folder, copies=copies)
    try:
        yield made
    finally:
        for device in made.devices:
            await device.close()
        made.stop()


def frame(number: int, *, readings: int = 2) -> bytes:
    """An agent's frame `number`."""
    seq = (number - 1) * readings + 1
    return encode(
        Frame(
            1,
            number,
            seq,
            [T0 + seq + i for i in range(readings)],
            {"speed": [float(seq + i) for i in range(readings)]},
        )
    )


class Device(asyncio.Protocol):
    """An MQTT device that sends numbered frames, sends them again until they are acknowledged end
    to end, and connects again.

    `acks` holds what was answered, by frame number, and `postponed` the answers `later`, after
    which a frame waits to be sent again.
    """

    def __init__(
        self, world: World, name: str, stream: str, *, window: int = 100, resend_s: float = 1.0
    ) -> None:
        self.world, self.name, self.stream = world, name, stream
        world.devices.append(self)
        self.acks: dict[int, Ack] = {}
        self.postponed: dict[int, Later] = {}
        self.waiting: dict[int, float] = {}
        self.confirmed: set[int] = set()
        """Packet ids that the broker confirmed by PUBACK."""
        self.joined: dict[bytes, Ack | Later] = {}
        """Answers that came several in a message, by correlation data; and in how many messages."""
        self.joined_messages = 0
        self._window, self._resend_s = window, resend_s
        self._transport: asyncio.Transport | None = None
        self._subscribed = False
        self._packet_id = 0

    async def send(self, count: int, *, until: Callable[[], object] | None = None) -> None:
        """Send frames 1 to `count` until each is acknowledged, or until the condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.acks) < count and not (until and until()):
                await self._turn(count)
                await asyncio.sleep(0.005)

    async def _turn(self, count: int) -> None:
        if self._transport is None or self._transport.is_closing():
            self._subscribed = False
            try:
                await asyncio.get_running_loop().create_connection(
                    lambda: self, "127.0.0.1", self.world.broker.port
                )
            except OSError:
                return
        if not self._subscribed:
            return
        now = time.monotonic()
        due = [number for number, at in self.waiting.items() if now - at > self._resend_s]
        sent = len(self.acks) + len(self.waiting)
        due += range(sent + 1, min(count, sent + self._window - len(self.waiting)) + 1)
        for number in due:
            self.waiting[number] = now
            self._packet_id = self._packet_id % 60_000 + 1
            self.publish(
                frame(number),
                content_type=FRAME_TYPE,
                correlation=b"%d" % number,
                packet_id=self._packet_id,
            )

    def publish(
        self,
        payload: bytes,
        *,
        content_type: str | None = None,
        correlation: bytes = b"",
        packet_id: int = 1,
        **more: object,
    ) -> None:
        """One QoS 1 publish."""
        assert self._transport is not None
        packet = mqtt5.PublishPacket(
            str(more.pop("topic", topics.up(self.name, self.stream))),
            payload,
            qos=mqtt5.QoS.AT_LEAST_ONCE if packet_id else mqtt5.QoS.AT_MOST_ONCE,
            packet_id=packet_id or None,
            content_type=content_type,
            response_topic=cast(str | None, more.pop("response_topic", topics.ack(self.name))),
            correlation_data=correlation,
            user_properties=cast("list[tuple[str, str]]", more.pop("user_properties", [])),
        )
        self._transport.write(packet.write())

    async def connected(self) -> None:
        """Connect and subscribe, once."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._subscribed:
                await self._turn(0)
                await asyncio.sleep(0.005)

    async def answered(self, number: int) -> Ack:
        """Wait for the answer with correlation data `number`."""
        async with asyncio.timeout(PATIENCE_S):
            while number not in self.acks:
                await asyncio.sleep(0.005)
        return self.acks[number]

    async def confirms(self, packet_id: int) -> None:
        """Wait until the broker has a publish."""
        async with asyncio.timeout(PATIENCE_S):
            while packet_id not in self.confirmed:
                await asyncio.sleep(0.005)

    async def told_later(self, number: int) -> Later:
        """Wait for the answer `later` with correlation data `number`."""
        async with asyncio.timeout(PATIENCE_S):
            while number not in self.postponed:
                await asyncio.sleep(0.005)
        return self.postponed[number]

    async def close(self) -> None:
        """Hang up."""
        while self._transport is not None:
            self._transport.abort()
            await asyncio.sleep(0.001)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._reader = PacketReader()
        self._transport.write(self.hello())

    def hello(self) -> bytes:
        """Its CONNECT packet."""
        return mqtt5.ConnectPacket(self.name, clean_start=True).write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._subscribed = False
        self._transport = None

    def data_received(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            match packet:
                case mqtt5.ConnAckPacket():
                    own = (topics.ack(self.name), topics.acks(self.name))
                    assert self._transport is not None
                    filters = [
                        mqtt5.TopicFilter(pattern, max_qos=mqtt5.QoS.AT_MOST_ONCE)
                        for pattern in own
                    ]
                    self._transport.write(mqtt5.SubscribePacket(60_001, filters).write())
                case mqtt5.SubAckPacket():
                    self._subscribed = True
                    self.waiting = dict.fromkeys(self.waiting, float("-inf"))
                case mqtt5.PubAckPacket():
                    self.confirmed.add(packet.packet_id)
                case mqtt5.PublishPacket() if packet.topic == topics.acks(self.name):
                    self.joined |= decode_joined(packet.payload)
                    self.joined_messages += 1
                case mqtt5.PublishPacket():
                    number = int(packet.correlation_data or b"0")
                    answer = decode_answer(packet.payload)
                    if isinstance(answer, Later):
                        self.postponed[number] = answer
                    else:
                        self.acks[number] = answer
                        self.waiting.pop(number, None)


def read(
    config: KafkaConfig, topic: str, *, committed: bool = True, device: str | None = None
) -> list[Message]:
    """All records of a topic as it is now, partition by partition."""
    with TopicReader(config, topic, committed=committed, device=device) as reader:
        return reader.read()


async def read_some(config: KafkaConfig, topic: str, device: str, count: int = 1) -> list[Message]:
    """All records of a device on a topic once there are so many: of two topics that are written
    together one may show it later.
    """
    return await asyncio.to_thread(_read_some, config, topic, device, count)


def _read_some(config: KafkaConfig, topic: str, device: str, count: int) -> list[Message]:
    with TopicReader(config, topic, device=device) as reader:
        found: list[Message] = []

        def are_there() -> bool:
            found[:] = reader.read()
            return len(found) >= count

        wait_until(are_there, f"{count} records of {device} on {topic}")
        return found


def numbers(messages: Sequence[Message]) -> list[int]:
    """The frame numbers of records, in their order."""
    return [record.decode(one.value()).frame.frame or 0 for one in messages]


async def sequenced(world: World, stream: str, device: str, count: int) -> list[int]:
    """Frame numbers of a device on `ew.s.<stream>` once `count` are there."""
    return numbers(await read_some(world.config, topics.stream_topic(stream), device, count))


@contextmanager
def up_setting(config: KafkaConfig, name: str, value: int) -> Iterator[None]:
    """A setting of `ew.up`, for a while."""
    client = clients.admin(config)
    topic_admin.ensure_topics(config, [topics.UP])
    usual = metadata.topic_configs(client, topics.UP)[name]

    def alter(value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topics.UP, incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        wait_until(
            lambda: metadata.topic_configs(client, topics.UP)[name] == value,
            "the setting is in force",
        )

    alter(str(value))
    try:
        yield
    finally:
        alter(usual)
