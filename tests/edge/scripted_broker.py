"""The broker's end of a connection, which says and hears exactly what a test wants."""

from __future__ import annotations

import asyncio
from functools import partial

import mqtt5

from edgewake.protocol.mqtt import PacketReader
from tests.edge.sources.cage import scripted

CONNECT = mqtt5.ConnectPacket


class Broker:
    """The broker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._packets = reader, writer, PacketReader()
        self.heard: list[object] = []

    def send(self, *packets: object) -> None:
        """Packets, or bytes as they are; one write."""
        self._writer.write(
            b"".join(each if isinstance(each, bytes) else each.write() for each in packets)
        )  # type: ignore[attr-defined]

    async def hears(self, kind: type, count: int = 1) -> list[object]:
        """Until so many of a kind came."""
        while sum(isinstance(each, kind) for each in self.heard) < count:
            data = await self._reader.read(65_536)
            if not data:
                raise ConnectionResetError
            self.heard += self._packets.feed(data)
        return [each for each in self.heard if isinstance(each, kind)]

    async def subscribed(self, *more: object) -> None:
        """Let the client in and subscribe it; `more` comes in one piece with the CONNACK."""
        await self.hears(CONNECT)
        self.send(mqtt5.ConnAckPacket(), *more)
        await self.hears(mqtt5.SubscribePacket)
        self.send(mqtt5.SubAckPacket(1, [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE]))


by = partial(scripted, Broker)
