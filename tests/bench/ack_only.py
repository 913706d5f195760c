"""The least that any bridge does, without Kafka: acknowledge each publish to the broker and answer
its device at once.

What the broker costs beside it is the broker's own wall: no bridge behind it can be faster. `python
-m tests.bench.ack_only PORT`
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from typing import cast

import mqtt5
import uvloop

from edgewake.protocol import topics
from edgewake.protocol.frames.ack import Ack, AckToken, joined
from edgewake.protocol.mqtt import PacketReader

READY = "ready"
ACK = Ack(AckToken(0, 1))


class AckOnly(asyncio.Protocol):
    """A member of the bridges' shared subscription."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._reader = PacketReader()
        self._transport.write(
            mqtt5.ConnectPacket("ack-only", clean_start=True, receive_max=4000).write()
        )

    def data_received(self, data: bytes) -> None:
        out: list[bytes] = []
        by_topic: defaultdict[str, list[tuple[bytes, Ack]]] = defaultdict(list)
        for packet in self._reader.feed(data):
            match packet:
                case mqtt5.PublishPacket():
                    answer, correlation = (
                        packet.response_topic or "",
                        packet.correlation_data or b"",
                    )
                    if packet.packet_id is not None:
                        out.append(mqtt5.PubAckPacket(packet.packet_id).write())
                    if answer.endswith(topics.JOINED_SUFFIX):
                        by_topic[answer].append((correlation, ACK))
                    else:
                        out.append(
                            mqtt5.PublishPacket(
                                answer, ACK.encode(), correlation_data=correlation
                            ).write()
                        )
                case mqtt5.ConnAckPacket():
                    pattern = mqtt5.TopicFilter(
                        "$share/bridge/" + topics.UP_FILTER, max_qos=mqtt5.QoS.AT_LEAST_ONCE
                    )
                    self._transport.write(mqtt5.SubscribePacket(1, [pattern]).write())
                case mqtt5.SubAckPacket():
                    print(READY, flush=True)
        out += [
            mqtt5.PublishPacket(topic, payload).write()
            for topic, due in by_topic.items()
            for payload in joined(due)
        ]
        if out:
            self._transport.write(b"".join(out))


async def main(port: int) -> None:
    """Until killed."""
    await asyncio.get_running_loop().create_connection(AckOnly, "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
