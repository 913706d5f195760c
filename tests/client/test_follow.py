"""A follower goes on where it stopped, at whichever server is there."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.edge.client.follow import Connected, Follower, FollowError, Lost, Received
from edgewake.protocol.lease import Subscription
from tests.access.world import Server, server
from tests.feeds import DEADLINE_S, Feed
from tests.services import free_ports


def follower(servers: list[str], feed: Feed, **more: object) -> Follower:
    subscription = Subscription(streams=(feed.name,))
    return Follower(servers, subscription, rng=random.Random(1), **more)  # type: ignore[arg-type]


async def take(following: Follower, count: int) -> list[Received]:
    """The next `count` data events."""
    found: list[Received] = []
    async with asyncio.timeout(2 * DEADLINE_S), contextlib.aclosing(following.events()) as events:
        async for received in events:
            if received.kind == "":
                found.append(received)
            if len(found) == count:
                following.cursor = received.cursor
                break
    return found


def numbers(received: list[Received]) -> list[int]:
    return [int(one.fields["n"]) for one in received]


async def test_a_follower_stops_and_goes_on_with_the_very_next_event(access_a: Server, access_b: Server, feed: Feed) -> None:
    feed.send(n=6)
    following = follower([access_a.url, access_b.url], feed, start="earliest")
    assert numbers(await take(following, 4)) == [1, 2, 3, 4]
    again = follower([access_b.url], feed, cursor=following.cursor)
    assert numbers(await take(again, 2)) == [5, 6]


async def test_a_follower_goes_to_the_next_server_when_one_is_killed(
    access_b: Server, access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, feed: Feed
) -> None:
    notices: list[Connected | Lost] = []
    feed.send(n=3)
    with server(access_directory, kafka_config, cursor_key) as doomed:
        following = follower([doomed.url, access_b.url], feed, start="earliest", on_notice=notices.append)
        async with asyncio.timeout(2 * DEADLINE_S), contextlib.aclosing(following.events()) as events:
            found = []
            async for received in events:
                found.append(received)
                if len(found) == 3:
                    doomed.process.kill()
                    await asyncio.to_thread(feed.send, n=3)
                if len(found) == 6:
                    break
    assert numbers(found) == [1, 2, 3, 4, 5, 6]
    assert [type(notice) for notice in notices] == [Connected, Lost, Connected]
    assert notices[-1] == Connected(access_b.url, "resumed")


async def test_a_follower_passes_over_servers_that_are_not_there(access_a: Server, feed: Feed) -> None:
    feed.send(n=1)
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert numbers(await take(follower([nobody, nobody, access_a.url], feed, start="earliest"), 1)) == [1]


@pytest.mark.parametrize(("change", "why"), [({"cursor": "garbage"}, "cursor"), ({"start": "yesterday"}, "from=")])
async def test_what_is_refused_for_good_is_an_error_with_the_server_s_sentence(
    access_a: Server, feed: Feed, change: dict[str, str], why: str
) -> None:
    with pytest.raises(FollowError, match=why):
        await take(follower([access_a.url], feed, **change), 1)


async def test_the_place_moves_with_events_that_were_filtered_out(access_a: Server, new_feed: Callable[..., Feed]) -> None:
    feed = new_feed()
    following = Follower([access_a.url], Subscription(streams=(feed.name,), where="n > 100"))
    events = following.events()
    waiting = asyncio.ensure_future(anext(events))
    async with asyncio.timeout(DEADLINE_S):
        while not following.cursor:
            await asyncio.sleep(0.02)
        before = following.cursor
        await asyncio.to_thread(feed.send, n=5)
        while following.cursor == before:
            await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await events.aclose()
