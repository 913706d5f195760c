"""What one principal holds it has by itself: not with others behind its address, and not once more
from another address. And as many have a right of their own as the configuration says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.test_shares import Client
from tests.feeds import Feed
from tests.rights.keyed import keyed_server
from tests.services import PATIENCE_S

pytestmark = pytest.mark.services

ONE = {"Authorization": "Bearer key-of-one-00001"}
TWO = {"Authorization": "Bearer key-of-two-00002"}
KEYS = "one everything key-of-one-00001\ntwo everything key-of-two-00002\n"
HERE, THERE = "127.0.0.2", "127.0.0.3"
OWNERS = 550


async def test_two_behind_one_address_have_a_share_each_and_one_of_two_addresses_has_one(
    kafka_config: KafkaConfig, tmp_path: Path, feed: Feed
) -> None:
    """Of two tokens behind one address one took all that both may have."""
    with keyed_server(tmp_path, kafka_config, {}, KEYS, views_max=40) as target:
        async with AsyncExitStack() as stack:
            here, there = (Client(stack, target.port, address) for address in (HERE, THERE))
            paths = [f"/v1/streams/{feed.name}/events?where=n%20%3E%20{n}" for n in range(20)]
            assert [await here.get(path, **ONE) for path in paths[:9]] == [200] * 8 + [503]
            assert await there.get(paths[9], **ONE) == 503, "from elsewhere it is the same one"
            assert [await here.get(path, **TWO) for path in paths[10:19]] == [200] * 8 + [503]


@pytest.mark.long
async def test_copies_that_are_kept_count_for_who_asked_first(
    kafka_config: KafkaConfig, tmp_path: Path, new_feed: Callable[..., Feed]
) -> None:
    """Sixteen a server, a fourth of them for one: an office of two tokens got four."""
    feeds = [new_feed(partitions=1) for _ in range(6)]
    for one in feeds:
        one.send(n=1)
    with keyed_server(tmp_path, kafka_config, {}, KEYS) as target:
        async with httpx.AsyncClient(base_url=target.url, timeout=PATIENCE_S) as client:

            async def status(feed: Feed, who: dict[str, str]) -> int:
                return (await client.get(f"/v1/latest/{feed.name}", headers=who)).status_code

            assert [await status(one, ONE) for one in feeds[:5]] == [200] * 4 + [503]
            assert [await status(one, TWO) for one in feeds[4:]] == [200] * 2


@pytest.mark.long
async def test_a_server_as_it_is_has_room_for_two_thousand_with_a_right_of_their_own(
    kafka_config: KafkaConfig, tmp_path: Path, feed: Feed
) -> None:
    """The 406th was refused, though 5000 clients are allowed."""
    feed.send("car-3", n=1)
    owner = [{"streams": [feed.name], "devices": ["$device"]}]
    keys = "".join(f"o-{n} owner owners-key-{n:06} car-{n}\n" for n in range(OWNERS))
    with keyed_server(tmp_path, kafka_config, {"owner": owner}, keys) as target:
        async with AsyncExitStack() as stack:
            client = Client(stack, target.port, HERE)
            path = f"/v1/streams/{feed.name}/events"
            found = await asyncio.gather(
                *(
                    client.get(path, Authorization=f"Bearer owners-key-{n:06}")
                    for n in range(OWNERS)
                )
            )
    assert found == [200] * OWNERS
