"""The cloud's end of the downlink for tests: publishes to a device with QoS 1, through a real
broker.
"""

from __future__ import annotations

import asyncio
from typing import Any

import mqtt5
import orjson

from edgewake.protocol import topics
from edgewake.protocol.downlink.downlink import ANSWERS
from tests.edge.peer import Peer


def publish(
    peer: Peer, device: str, kind: str, body: object, *, expires_s: int | None = 60
) -> None:
    """Send a message down; `body` as JSON, or as bytes as they are."""
    peer.packets = getattr(peer, "packets", 100) + 1  # type: ignore[attr-defined]
    payload = body if isinstance(body, bytes) else orjson.dumps(body)
    life: dict[str, Any] = {} if expires_s is None else {"message_expiry_interval": expires_s}
    packet_id: int = peer.packets  # type: ignore[attr-defined]
    peer._write(
        mqtt5.PublishPacket(
            topics.down(device, kind),
            payload,
            qos=mqtt5.QoS.AT_LEAST_ONCE,
            packet_id=packet_id,
            **life,
        )
    )


def answers(peer: Peer, device: str) -> list[dict[str, object]]:
    """What the device answered so far; asserts that nothing of its inbox left it."""
    assert {taken.stream for taken in peer.taken if taken.device == device} <= {ANSWERS, "speed"}
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in peer.kept.readings(device, ANSWERS)
    ]


async def answered(peer: Peer, device: str, count: int) -> list[dict[str, object]]:
    """Wait for so many answers."""
    await peer.until(lambda: len(answers(peer, device)) >= count)
    await asyncio.sleep(0)
    return answers(peer, device)
