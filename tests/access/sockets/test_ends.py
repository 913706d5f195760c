"""What a socket says when its reader's right ends, whatever its subscriptions are doing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStreams
from edgewake.cloud.access.sockets.kept import KeptCursors
from edgewake.cloud.access.sockets.socket import Socket
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.cloud.rights.rights import End, Rights
from edgewake.protocol.clock import SystemClock
from tests.feeds import DEADLINE_S, Feed
from tests.log.test_hub import hub_on

pytestmark = pytest.mark.services


class Wire:
    """A connection that takes everything, and keeps it."""

    is_paused = False
    on_writable: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.on_events: Callable[[], None] = lambda: None

    def write(self, frame: bytes) -> None:
        said = orjson.loads(frame[frame.index(b"{") :])
        self.said.append(said)
        if said["type"] == "events":
            self.on_events()

    def waiting(self) -> int:
        return 0

    def abort(self) -> None:
        raise AssertionError("it reads everything")


async def test_who_is_behind_is_told_too_and_given_no_more_events(
    kafka_config: KafkaConfig, feed: Feed
) -> None:
    """It had to wait for its turn to be told, and the socket was closed before."""
    feed.send(n=100, frames=60)
    clock, loop = SystemClock(), asyncio.get_running_loop()
    async with hub_on(kafka_config, tail_back_records=0) as hub:
        rights = Rights(ANYBODY_CONFIG, clock)
        streams = OpenStreams(
            AccessConfig(), Metrics(), hub, rights=rights, clock=clock, rng=random.Random(1)
        )
        wire = Wire()
        socket = Socket(
            wire,  # type: ignore[arg-type]
            hub=hub,
            streams=streams,
            reader=ANYBODY,
            client="c",
            heartbeat_s=15,
            kept=KeptCursors(kafka_config, "ends", clock),
            clock=clock,
        )
        before: list[int] = []

        def end() -> None:
            if socket._has_turn and not before:  # somebody is behind, and waits for its turn
                before.append(len(wire.said))
                socket.end_of_right(End.EXPIRED)
                before.append(len(wire.said))

        def end_soon() -> None:
            loop.call_soon(end)

        wire.on_events = end_soon
        try:
            for name in "ab":
                words = {"type": "subscribe", "id": name, "streams": [feed.name]}
                await socket.hear(orjson.dumps(words | {"from": "earliest"}).decode())
            async with asyncio.timeout(DEADLINE_S):
                closing = await socket.closing
        finally:
            socket.close()
    first, last = before
    ends = wire.said[first:last]
    assert {(one["type"], one["id"], one["reason"]) for one in ends} == {
        ("end", name, "expired") for name in "ab"
    }
    assert all(one["cursor"].startswith("v2.") for one in ends if one["id"] == "a")
    assert (len(ends), closing.code) == (2, 1008)
