"""A tiny cloud for the agent's tests: takes every up message, keeps it, and acknowledges it as a
bridge would, when it is told to.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import mqtt5

from edgewake.protocol import topics
from edgewake.protocol.frames.ack import Ack, AckToken, Later, joined
from edgewake.protocol.mqtt import PacketReader
from tests.edge.foreign_frame import ForeignFrame, ForeignMessage, inflate, opened, parse
from tests.services import PATIENCE_S


@dataclass
class Taken:
    """One message as it came."""

    device: str
    stream: str
    packet: mqtt5.PublishPacket

    @property
    def frame(self) -> ForeignFrame:
        """The frame in it."""
        found = self.message
        return parse(inflate(found.body, found.content_type))

    @property
    def message(self) -> ForeignMessage:
        """What it says, and what goes without saying."""
        return opened(self.packet)


@dataclass
class Kept:
    """What a sequencer would have made of the messages: each frame once, in order, per (device,
    epoch, stream).
    """

    frames: dict[tuple[str, int, str], dict[int, ForeignFrame]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def add(self, taken: Taken) -> None:
        """Keep a frame the first time it comes; a later one of its number must be the same."""
        found = taken.frame
        of = self.frames[taken.device, found.epoch, taken.stream]
        assert of.setdefault(found.frame, found) == found, (
            f"frame {found.frame} came with two contents"
        )

    def readings(self, device: str, stream: str) -> list[dict[str, object]]:
        """The readings that a sequencer would have passed on: up to the first frame that is not
        here yet. Asserts that their numbers have no holes.
        """
        rows: list[dict[str, object]] = []
        ours = (item for item in self.frames.items() if item[0][::2] == (device, stream))
        for _, of in sorted(ours):
            seq = 1
            for number in itertools.takewhile(of.__contains__, itertools.count(1)):
                each = of[number]
                assert each.seq == seq, f"frame {number}: seq {each.seq}, expected {seq}"
                seq += each.gap.count if each.gap else len(each.t)
                rows += [
                    {name: column[i] for name, column in each.fields.items()}
                    for i in range(len(each.t))
                ]
        return rows

    def gaps(self, device: str, stream: str) -> list[tuple[str, int]]:
        """(reason, count) of the gap frames in order."""
        of = [
            item
            for key, item in sorted(self.frames.items())
            if key[0] == device and key[2] == stream
        ]
        return [
            (each.gap.reason, each.gap.count)
            for numbered in of
            for _, each in sorted(numbered.items())
            if each.gap
        ]


class Peer(asyncio.Protocol):
    """The peer. `answer` decides what is answered to a message: an Ack, Later, or None for
    silence.
    """

    def __init__(
        self,
        port: int,
        *,
        answer: Callable[[Taken], Ack | Later | None] | None = None,
        subscribe: bool = True,
        connection: socket.socket | None = None,
    ) -> None:
        """`connection`: made already, where the port is not one of this machine's."""
        self.port = port
        self.taken: list[Taken] = []
        self.statuses: list[bytes] = []
        self.kept = Kept()
        self.news = asyncio.Event()
        self._answer = answer or self.acknowledge
        self._subscribe = subscribe
        self._connection = connection
        self._reader = PacketReader()
        self._transport: asyncio.Transport | None = None
        self._ready = asyncio.Event()
        self._offset = 0
        self.closed = asyncio.Event()

    def acknowledge(self, _taken: Taken) -> Ack:
        """Kept at the next offset."""
        self._offset += 1
        return Ack(AckToken(0, self._offset))

    async def __aenter__(self) -> Peer:
        where = (
            {"host": "127.0.0.1", "port": self.port}
            if self._connection is None
            else {"sock": self._connection}
        )
        await asyncio.get_running_loop().create_connection(lambda: self, **where)  # type: ignore[arg-type]
        await asyncio.wait_for(self._ready.wait(), 10)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._transport is not None
        self._transport.close()
        await asyncio.wait_for(self.closed.wait(), 10)

    async def until(
        self, condition: Callable[[], object], *, timeout_s: float = PATIENCE_S
    ) -> None:
        """Wait for a condition over what came."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.news.clear()
                await self.news.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._write(mqtt5.ConnectPacket(f"peer-{id(self)}", clean_start=True))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()

    def data_received(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            match packet:
                case mqtt5.ConnAckPacket():
                    filters = (
                        [topics.UP_FILTER, topics.STATUS_FILTER]
                        if self._subscribe
                        else [topics.STATUS_FILTER]
                    )
                    self._write(
                        mqtt5.SubscribePacket(
                            1,
                            [
                                mqtt5.TopicFilter(name, max_qos=mqtt5.QoS.AT_LEAST_ONCE)
                                for name in filters
                            ],
                        )
                    )
                case mqtt5.SubAckPacket():
                    self._ready.set()
                case mqtt5.PublishPacket():
                    self._on_message(packet)
        self.news.set()

    def _on_message(self, packet: mqtt5.PublishPacket) -> None:
        if packet.packet_id is not None:
            self._write(mqtt5.PubAckPacket(packet.packet_id))
        if packet.topic.endswith("/status"):
            self.statuses.append(packet.payload)
            return
        up = topics.parse_up(packet.topic)
        taken = Taken(up.device, up.stream, packet)
        self.taken.append(taken)
        ack = self._answer(taken)
        if ack is None:
            return
        if isinstance(ack, Ack) and ack.rejected is None and packet.content_type:
            self.kept.add(taken)
        message = taken.message
        if message.response_topic is None:
            return
        if message.response_topic == topics.acks(up.device):
            for payload in joined([(message.correlation_data or b"", ack)]):
                self._write(mqtt5.PublishPacket(message.response_topic, payload))
        else:
            self._write(
                mqtt5.PublishPacket(
                    message.response_topic, ack.encode(), correlation_data=message.correlation_data
                )
            )

    def _write(
        self,
        packet: mqtt5.ConnectPacket
        | mqtt5.SubscribePacket
        | mqtt5.PubAckPacket
        | mqtt5.PublishPacket,
    ) -> None:
        assert self._transport is not None
        self._transport.write(packet.write())
