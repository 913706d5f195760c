"""A subscription that is ended while it is opened or changed, and a change that is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStreams
from edgewake.cloud.access.session_state import State
from edgewake.cloud.access.sockets.channel import Channel, Room
from edgewake.cloud.access.sockets.kept import KeptCursors
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import Full
from edgewake.cloud.log.request import Request, request
from edgewake.cloud.log.subscription import Plan
from edgewake.cloud.rights.config import ANYBODY_CONFIG
from edgewake.cloud.rights.principal import ANYBODY, Principal
from edgewake.cloud.rights.rights import Rights
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases.lease import Subscription
from tests.feeds import Feed, eventually
from tests.log.test_hub import hub_on

pytestmark = pytest.mark.services


class Slow:
    """Lets the hub open what it is asked for, but only when told to."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._open = hub, hub.open
        self.is_asked, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None

    async def open(self, subscription: Subscription, reader: Principal) -> Plan:
        self.is_asked.set()
        await self.may_go_on.wait()
        if self.error is not None:
            raise self.error
        return await self._open(subscription, reader)


class World:
    """One channel on a hub."""

    def __init__(self, config: KafkaConfig, hub: Hub, asked: Request) -> None:
        clock = SystemClock()
        rights = Rights(ANYBODY_CONFIG, clock)
        self.hub = hub
        self.streams = OpenStreams(
            AccessConfig(), Metrics(), hub, rights=rights, clock=clock, rng=random.Random(1)
        )
        room = Room(
            hub,
            self.streams,
            ANYBODY,
            clock,
            wake=lambda: None,
            kept=KeptCursors(config, "channel", clock),
            is_blocked=lambda: False,
            unsent_bytes=lambda: 0,
            cut=lambda: None,
        )
        wished = self.streams.wish(None, None)
        self.channel = Channel("a", asked, {}, None, "c", room, wished=wished)
        self.wished = wished
        self.streams.enter(self.channel)

    def said(self) -> list[str]:
        found: list[str] = []
        while (frame := self.channel.next()) is not None:
            found.append(orjson.loads(frame[frame.index(b"{") :])["type"])
        return found


@asynccontextmanager
async def opened(
    config: KafkaConfig, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[World, Slow]]:
    """A channel, and what holds up what it opens."""
    async with hub_on(config) as hub:
        here = World(config, hub, asked_for(feed.name))
        slow = Slow(hub)
        monkeypatch.setattr(hub, "open", slow.open)
        try:
            yield here, slow
        finally:
            here.channel.close()
        assert len(here.streams) == 0
        assert not hub.views
        assert [entry.readers for entry in hub.streams.by_name.values()] == [0]


def asked_for(name: str, where: str | None = None) -> Request:
    return request([name], now_ms=SystemClock().now_ms(), start="earliest", where=where)


async def test_what_is_ended_while_it_is_being_changed_stays_ended(
    kafka_config: KafkaConfig, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change went on, which is impossible: the whole socket was closed with 1011."""
    async with opened(kafka_config, feed, monkeypatch) as (here, slow):
        slow.may_go_on.set()
        await here.channel.open()
        slow.may_go_on.clear()
        slow.is_asked.clear()
        changing = asyncio.create_task(
            here.channel.change(asked_for(feed.name, "n > 1"), {}, here.wished)
        )
        await slow.is_asked.wait()
        here.channel.finish("unsubscribed")
        slow.may_go_on.set()
        await changing
        assert here.channel.state is State.ENDING
        assert here.said() == ["subscribed", "end"]


async def test_what_is_ended_while_it_is_being_opened_says_nothing_after_its_end(
    kafka_config: KafkaConfig, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(kafka_config, feed, monkeypatch) as (here, slow):
        opening = asyncio.create_task(here.channel.open())
        await slow.is_asked.wait()
        here.channel.expel("too greedy")
        slow.may_go_on.set()
        await opening
        assert here.said() == ["problem", "end"]


async def test_a_change_that_is_refused_leaves_it_as_it_was_also_where_there_is_no_room_any_more(
    kafka_config: KafkaConfig, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused with another reason, and what it read was counted for nobody."""
    feed.send(n=3)
    async with opened(kafka_config, feed, monkeypatch) as (here, slow):
        slow.may_go_on.set()
        await here.channel.open()
        before = here.channel.sight
        slow.error = Unavailable("Kafka is away")
        claims: list[str] = []

        def claim(*_: Any) -> None:
            claims.append("asked")
            if len(claims) > 1:
                raise Full("others have it all")

        monkeypatch.setattr(here.streams._admission, "names", lambda *_, **__: claim())
        with pytest.raises(Unavailable, match="Kafka is away"):
            await here.channel.change(asked_for(feed.name, "n > 1"), {}, here.wished)
        assert claims == ["asked"]
        assert before is not None
        assert here.channel.sight == before
        assert here.streams._holdings[here.channel.holder].names == {feed.name}
        await eventually(lambda: "events" in here.said(), "it goes on as it was")
