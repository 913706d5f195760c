"""A stream that goes on with one that arrived: nothing is lost by it, whatever becomes of it.

The hub and Kafka are real; the connection is a list of what was written to it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Connection
from edgewake.cloud.access.event_routes import _OneClient
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStream, OpenStreams
from edgewake.cloud.access.stream_response import EventStream, Opened
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log import subscription
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.request import request
from edgewake.cloud.log.subscription import SubscriptionTooLarge
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.cloud.rights.rights import End, Rights
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import Unavailable
from tests.feeds import Feed, eventually, unique
from tests.log.test_hub import hub_on

pytestmark = pytest.mark.services


class Wire:
    """A connection that takes everything, and keeps it."""

    is_paused = False
    on_lost: Callable[[], None] | None = None
    on_writable: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.said = b""
        self.has_ended = False

    def write(self, framed: bytes) -> None:
        self.said += framed

    def waiting(self) -> int:
        return 0

    def is_lost(self) -> bool:
        return False

    def abort(self) -> None:
        raise AssertionError("it reads everything")

    # As the answer.

    def outlives_handler(self) -> None: ...

    def end(self) -> None:
        self.has_ended = True


class Opener(_OneClient):
    """Opens what is asked for, but what is awaited only when told to, or not at all."""

    error: Exception | None = None

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.is_asked, self.may_go_on = asyncio.Event(), asyncio.Event()

    def arrived(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return names

    async def open(
        self, names: tuple[str, ...], *, cursor: str | None, has_waited: bool = False
    ) -> Opened | None:
        if has_waited:
            self.is_asked.set()
            await self.may_go_on.wait()
            if self.error is not None:
                raise self.error
        return await super().open(names, cursor=cursor, has_waited=has_waited)


class World:
    """One stream with a reading on its wire, which waits for another stream."""

    def __init__(self, hub: Hub, streams: OpenStreams, absent: str) -> None:
        self.hub, self.streams, self.absent, self.wire = hub, streams, absent, Wire()
        self.stream: OpenStream = streams.add(
            cast("Connection", self.wire), client="c", reader=ANYBODY, heartbeat_s=300
        )

    async def begin(self, feed: Feed) -> Opener:
        clock = SystemClock()
        asked = request([feed.name, self.absent], now_ms=clock.now_ms(), absent="wait")
        self.streams.claim(self.stream, subscription.sight(asked.subscription, ANYBODY))
        opener = Opener(self.hub, self.streams, self.stream, asked, ANYBODY, clock)
        opened = await opener.open((feed.name,), cursor=None)
        answer = EventStream(
            self.stream,
            opened,
            absent=(self.absent,),
            opener=opener,
            hub=self.hub,
            streams=self.streams,
            metrics=self.streams.metrics,
        )
        answer._begin(cast("Any", self.wire))
        return opener

    async def until_said(self, words: bytes) -> None:
        await eventually(lambda: words in self.wire.said, f"{words!r} is said", timeout_s=10)


@asynccontextmanager
async def world(config: KafkaConfig) -> AsyncIterator[World]:
    clock = SystemClock()
    async with hub_on(config) as hub:
        rights = Rights(ANYBODY_CONFIG, clock)
        streams = OpenStreams(
            AccessConfig(), Metrics(), hub, rights=rights, clock=clock, rng=random.Random(1)
        )
        yield World(hub, streams, unique("unborn"))
        assert await streams.drain(within_s=5) == 0
        assert not hub.views


async def test_what_came_while_another_stream_could_not_be_opened_is_written_at_once(
    kafka_config: KafkaConfig, feed: Feed
) -> None:
    """It came with the next event, or with the next heartbeat."""
    async with world(kafka_config) as here:
        opener = await here.begin(feed)
        opener.error = Unavailable("Kafka is away")
        await opener.is_asked.wait()
        feed.send("meanwhile")
        hub, entry = here.hub, here.hub.streams.by_name[feed.name]
        await eventually(
            lambda: any(tail.end for tail in entry.tails) and hub._tick is None,
            "it came, and was passed on",
        )
        assert b"meanwhile" not in here.wire.said
        opener.may_go_on.set()
        await here.until_said(b"meanwhile")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SubscriptionTooLarge("partitions", "2 streams with 2000 partitions"), b"2000 partitions"),
        (TypeError("a mistake of ours"), b"our fault"),
    ],
)
async def test_what_can_never_be_opened_ends_the_stream_with_a_word(
    kafka_config: KafkaConfig, feed: Feed, error: Exception, words: bytes
) -> None:
    """The task that waits died without a word, and the client waited for ever."""
    async with world(kafka_config) as here:
        opener = await here.begin(feed)
        opener.error = error
        opener.may_go_on.set()
        await here.until_said(b"event: problem")
        await eventually(lambda: here.wire.has_ended, "the answer has ended", timeout_s=10)
        assert words in here.wire.said
        assert b"retry: 30000" in here.wire.said


@pytest.mark.parametrize("is_opened", [True, False])
@pytest.mark.parametrize("how", ["operator", "right", "drain"])
async def test_an_end_that_is_asked_for_while_a_stream_is_being_opened_is_kept(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed], how: str, *, is_opened: bool
) -> None:
    async with world(kafka_config) as here:
        opener = await here.begin(new_feed())
        opener.error = None if is_opened else Unavailable("Kafka is away")
        if is_opened:
            new_feed(name=here.absent)
        await opener.is_asked.wait()
        match how:
            case "operator":
                here.stream.expel("too greedy")
            case "right":
                here.stream.end_of_right(End.REVOKED)
            case _:
                here.stream.end()
        assert not here.stream.ended.done(), "nothing can be said now"
        opener.may_go_on.set()
        await eventually(lambda: here.wire.has_ended, "the answer has ended", timeout_s=10)
        said = {"operator": b"too greedy", "right": b"revoked", "drain": b"retry: "}[how]
        assert here.wire.said.count(said) >= 1
        assert here.stream.is_closed
