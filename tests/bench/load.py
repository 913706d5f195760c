"""Devices for the bridge's benchmark: each keeps a window of messages in flight and waits for the
end-to-end acknowledgement of each.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import mqtt5

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog, LogBusyError, OutFrame
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames.ack import decode_joined
from edgewake.protocol.frames.frame import Frame, Scalar, compress, encode
from edgewake.protocol.mqtt import PacketReader

READINGS = 100
READINGS_MAX = 10_000_000
"""Readings from which an agent's frames are made at most."""
T0 = 1_790_000_000_000


@dataclass(frozen=True, slots=True)
class Message:
    """What a device sends."""

    payload: bytes
    content_type: str | None
    readings: int = 1


def frame_messages(count: int) -> list[Message]:
    """Frames 1 to `count` of 100 readings with four fields, as an agent sends them."""
    return [Message(*compress(encode(_frame(number))), READINGS) for number in range(1, count + 1)]


def agent_messages(folder: Path, count: int) -> list[Message]:
    """Frames as an agent forms them whose source brings readings faster than it can keep them: made
    by its event log, with its defaults.
    """
    frames: list[OutFrame] = []
    with EventLog(
        folder,
        LogConfig(),
        UplinkConfig(),
        clock=SystemClock(),
        rng=random.Random(1),
        on_frames=frames.extend,
    ) as events:
        log = events.stream("bench")
        events.start_sending()
        made: list[Message] = []
        for i in range(READINGS_MAX):
            if len(made) >= count:
                return made[:count]
            reading = T0 + i * 1000, {name: column[0] for name, column in _columns(i, 1).items()}
            try:
                log.append(reading)
            except LogBusyError:
                log.wait_for_room(timeout_s=10)
                log.append(reading)
            while frames:
                out = frames.pop(0)
                made.append(Message(out.payload, out.content_type, out.count))
                events.free(out.key)
    raise AssertionError(f"{len(made)} frames of {READINGS_MAX} readings: expected {count}")


def _frame(number: int) -> Frame:
    seq = (number - 1) * READINGS + 1
    return Frame(
        1, number, seq, [T0 + (seq + i) * 1000 for i in range(READINGS)], _columns(seq, READINGS)
    )


def _columns(seq: int, count: int) -> dict[str, list[Scalar]]:
    return {
        name: [round(50 + ((seq + i) * step) % 997 / 10, 2) for i in range(count)]
        for name, step in (("speed", 7), ("lat", 13), ("lon", 29), ("battery", 3))
    }


def reading_messages(count: int) -> list[Message]:
    """Plain readings of about 90 bytes, numbered."""
    return [
        Message(
            b'{"t":%d,"seq":%d,"speed":51.23,"lat":53.123456,"lon":-6.123456,"battery":77}'
            % (T0 + i, i),
            None,
        )
        for i in range(1, count + 1)
    ]


@dataclass
class Load:
    """One run: so many devices, each with the same messages and a window."""

    port: int
    stream: str
    run: str
    devices: int
    window: int
    messages: Sequence[Message]
    qos: int = 1
    """1: with PUBACK, and each answer in a message of its own; 0: without, and answers joined, as
    agents send with uplink.qos = 0."""
    wants_answers: bool = True
    """False: the broker's PUBACK is all that a device waits for; for those who answer nobody."""
    latencies_s: list[float] = field(default_factory=list)
    acknowledged: int = 0

    async def go(self) -> float:
        """Seconds from the first publish to the last acknowledgement."""
        loop = asyncio.get_running_loop()
        devices = [_Device(f"{self.run}-{i}", self) for i in range(self.devices)]
        for device in devices:
            await loop.create_connection(lambda device=device: device, "127.0.0.1", self.port)  # type: ignore[misc]
        async with asyncio.timeout(60):
            await asyncio.gather(*(device.ready for device in devices))
        start = time.perf_counter()
        for device in devices:
            device.pump()
        async with asyncio.timeout(300):
            await asyncio.gather(*(device.finished for device in devices))
        took = time.perf_counter() - start
        for device in devices:
            device.transport.close()
        return took


class _Device(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, name: str, load: Load) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.load = load
        self.ready: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()
        self.sent = 0
        self.in_flight: dict[bytes, float] = {}
        self.reader = PacketReader()
        self.answer_topic = topics.ack(name) if load.qos else topics.acks(name)
        topic = topics.up(name, load.stream)
        # Made before the clock runs: real devices do this on processors of their own.
        self.packets = [
            mqtt5.PublishPacket(
                topic,
                message.payload,
                qos=mqtt5.QoS(load.qos),
                packet_id=number + 1 if load.qos else None,
                content_type=message.content_type,
                response_topic=self.answer_topic if load.wants_answers else None,
                correlation_data=b"%d" % number,
            ).write()
            for number, message in enumerate(load.messages, 1)
        ]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(mqtt5.ConnectPacket(self.name, clean_start=True).write())

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        for packet in self.reader.feed(data):
            match packet:
                case mqtt5.PublishPacket():
                    assert b"rejected" not in packet.payload, packet.payload
                    answered = (
                        [packet.correlation_data or b""]
                        if self.load.qos
                        else [data for data, _ in decode_joined(packet.payload)]
                    )
                    self.load.acknowledged += len(answered)
                    self.load.latencies_s += [now - self.in_flight.pop(data) for data in answered]
                case mqtt5.PubAckPacket() if not self.load.wants_answers:
                    self.in_flight.pop(b"%d" % (packet.packet_id - 1))
                    self.load.acknowledged += 1
                case mqtt5.ConnAckPacket():
                    pattern = mqtt5.TopicFilter(self.answer_topic, max_qos=mqtt5.QoS.AT_MOST_ONCE)
                    self.transport.write(mqtt5.SubscribePacket(1, [pattern]).write())
                case mqtt5.SubAckPacket():
                    self.ready.set_result(None)
        if self.sent == len(self.packets) and not self.in_flight and not self.finished.done():
            self.finished.set_result(None)
        elif self.ready.done():
            self.pump()

    def pump(self) -> None:
        out = []
        now = time.perf_counter()
        while self.sent < len(self.packets) and len(self.in_flight) < self.load.window:
            out.append(self.packets[self.sent])
            self.sent += 1
            self.in_flight[b"%d" % self.sent] = now
        if out and not self.finished.done():
            self.transport.write(b"".join(out))
