"""Every event once, in order per device, whatever happens between: random disconnects, two servers,
several streams and partitions.

The oracle knows what was sent and judges what a client got. Controls show that it would notice: a
client that forgets part of its cursor must fail the same test.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from edgewake.cloud.log.cursor_keys import parse_keys
from edgewake.protocol.cursor import Cursor, CursorCodec
from tests.access.world import Event, Server, open_stream
from tests.feeds import DEADLINE_S, Feed

DEVICES = [f"dev-{i}" for i in range(5)]
READINGS = 40


async def write(feeds: Sequence[Feed], rng: random.Random) -> None:
    """Every device of every feed sends READINGS readings, in frames of 1 to 6, among aborted
    transactions; the feeds beside each other.
    """
    await asyncio.gather(*(_write_one(feed, random.Random(rng.random())) for feed in feeds))


async def _write_one(feed: Feed, rng: random.Random) -> None:
    left = dict.fromkeys(DEVICES, READINGS)
    while left:
        device = rng.choice(list(left))
        n = min(left[device], rng.randint(1, 6))
        await asyncio.to_thread(feed.send, device, n)
        left[device] -= n
        if not left[device]:
            del left[device]
        if rng.random() < 0.1:
            await asyncio.to_thread(feed.abort, 2)


async def read(
    servers: Sequence[Server],
    names: Sequence[str],
    wanted: int,
    rng: random.Random,
    *,
    spoil: Callable[[Event, str], str] = lambda event, _: event.id,
    **query: str,
) -> list[Event]:
    """A client that loses its connection after a random number of events and goes on at the other
    server.
    """
    found: list[Event] = []
    cursor, turn = "", 0
    async with asyncio.timeout(4 * DEADLINE_S):
        while len(found) < wanted:
            turn += 1
            start = {} if cursor else {"from_": "earliest"}
            async with open_stream(
                servers[turn % len(servers)].url, *names, cursor=cursor, **start, **query
            ) as stream:
                stay = rng.randint(1, 60)
                async for event in stream.events():
                    assert event.type in ("message", "checkpoint"), event
                    cursor = spoil(event, cursor)
                    if event.type == "checkpoint":
                        continue
                    found.append(event)
                    stay -= 1
                    if stay == 0 or len(found) >= wanted:
                        break
    return found


def verdict(events: Sequence[Event]) -> dict[str, int]:
    """Lost, repeated and disordered readings per (stream, device)."""
    got: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in events:
        fields = orjson.loads(event.data)
        got[fields["stream"], fields["device"]].append(int(fields["n"]))
    repeated = sum(len(ns) - len(set(ns)) for ns in got.values())
    lost = sum(len(set(range(1, READINGS + 1)) - set(ns)) for ns in got.values())
    return {
        "lost": lost,
        "repeated": repeated,
        "disordered": sum(ns != sorted(ns) for ns in got.values()),
    }


EXACT = {"lost": 0, "repeated": 0, "disordered": 0}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_clients_that_come_and_go_get_every_event_once(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed], seed: int
) -> None:
    """Six clients read while it is written: three whole streams, three through a filter that hides
    nothing in the end.
    """
    rng = random.Random(seed)
    feeds = [new_feed(partitions=partitions) for partitions in (1, 2, 3)]
    names = [feed.name for feed in feeds]
    wanted = len(feeds) * len(DEVICES) * READINGS
    writing = asyncio.create_task(write(feeds, rng))
    clients = [
        read([access_a, access_b], names, wanted, random.Random(seed * 100 + i)) for i in range(4)
    ]
    filtered = [
        read(
            [access_b, access_a],
            names,
            wanted // 2,
            random.Random(seed * 200 + i),
            where=f"n % 2 = {i}",
        )
        for i in range(2)
    ]
    results = await asyncio.gather(*clients, *filtered)
    await writing
    assert [verdict(events) for events in results[:4]] == [EXACT] * 4
    assert verdict([*results[4], *results[5]])["lost"] == 0
    assert [verdict(events)["repeated"] for events in results[4:]] == [0, 0]


@pytest.mark.long
async def test_the_oracle_notices_a_cursor_that_is_not_advanced_for_one_partition(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed], cursor_key: Path
) -> None:
    """Control: as if a server forgot to move partition 1."""
    rng = random.Random(3)
    feed = new_feed(partitions=2)
    await write([feed], rng)
    codec = CursorCodec(parse_keys(cursor_key.read_text()))

    def forgetful(event: Event, _: str) -> str:
        cursor = codec.decode(event.id)
        assert isinstance(cursor, Cursor)
        (stream,) = cursor.streams
        return codec.encode(
            replace(cursor, streams=(replace(stream, partitions=(stream.partitions[0], (0, 0))),))
        )

    events = await read(
        [access_a, access_b], [feed.name], len(DEVICES) * READINGS, rng, spoil=forgetful
    )
    assert verdict(events)["repeated"] > 0


@pytest.mark.long
async def test_the_oracle_notices_a_cursor_that_is_too_far(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed]
) -> None:
    """Control: of two clients that lose the same connection, one goes on with its cursor, the other
    one from the live end.
    """
    rng = random.Random(4)
    feed = new_feed(partitions=2)
    await write([feed], rng)
    total = len(DEVICES) * READINGS
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        before = await stream.take(20)
    async with (
        open_stream(access_b.url, feed.name, cursor=before[-1].id) as exact,
        open_stream(access_b.url, feed.name) as too_far,
    ):
        await too_far.until_cursor()
        after = await exact.take(total - 20)
        await write([feed], rng)
        from_the_end = await too_far.take(total)
    assert verdict([*before, *after]) == EXACT
    assert verdict([*before, *from_the_end])["lost"] == total - 20
