"""The memory that is stated is kept: many subscriptions, everybody caught up, do not keep what
nobody needs any more.
"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from edgewake.cloud.access.config import CLIENT_BYTES, AccessConfig
from edgewake.cloud.client_share import RESERVE
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.hub_bounds import MIB, HubBounds, least_bytes
from tests.access.test_faults import metric
from tests.access.world import open_stream, server
from tests.feeds import Feed, eventually

VIEWS = 100
HUB = {
    "tail_bytes": MIB,
    "tails_bytes": 4 * MIB,
    "decoded_bytes": MIB,
    "replay_bytes": MIB,
    "chunks_bytes": MIB,
}


@pytest.mark.long
async def test_a_hundred_subscriptions_keep_within_what_is_stated_and_free_what_nobody_needs(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    new_feed: Callable[..., Feed],
) -> None:
    """Half a megabyte for each, 50 MiB, were kept before, however small the bounds."""
    feed = new_feed(partitions=1)
    bound = HubBounds(**HUB, blocks_max=0).memory_bytes_max(views=VIEWS) + VIEWS * CLIENT_BYTES
    with server(access_directory, kafka_config, cursor_key, hub=HUB) as small:
        before = small.rss_mib()
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(
                    open_stream(small.url, feed.name, where=f"n > {-i}")
                )
                for i in range(VIEWS)
            ]
            for _ in range(3):
                await asyncio.to_thread(feed.send, n=100, frames=10)
                await asyncio.gather(*(stream.take(1000) for stream in streams))
                assert metric(small, "edgewake_access_chunk_bytes ") <= MIB
            assert metric(small, "edgewake_access_views ") == VIEWS
            assert small.rss_mib() - before <= bound / MIB
            await eventually(
                lambda: metric(small, "edgewake_access_chunk_bytes ") == 0, "nobody needs a chunk"
            )


@pytest.mark.parametrize("replays_max", [1, 500, 5000])
def test_the_bounds_that_follow_from_the_memory_use_it_and_no_more(replays_max: int) -> None:
    least = -(-least_bytes(replays_max) // MIB)
    with pytest.raises(ValueError, match=f"memory_mib = {least - 1}: expected at least {least} "):
        AccessConfig(memory_mib=least - 1, replays_max=replays_max)
    for memory_mib in (least, least + 1, 3 * least):
        config = AccessConfig(memory_mib=memory_mib, replays_max=replays_max)
        taken = config.memory_bytes_max(clients=0)
        assert memory_mib * MIB - MIB < taken <= memory_mib * MIB
        assert config.hub.tail_bytes >= MIB
        assert config.hub.views_max >= 600
        assert config.hub.blocks_max >= 64
        asked = AccessConfig(memory_mib=memory_mib, replays_max=replays_max, views_max=20)
        assert asked.hub.views_max == 20
        assert memory_mib * MIB - MIB < asked.memory_bytes_max(clients=0) <= memory_mib * MIB


def test_ten_thousand_readers_with_a_right_of_their_own_need_what_the_page_says() -> None:
    text = (Path(__file__).parents[2] / "docs/rights.md").read_text()
    (block,) = [
        found for found in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "views_max" in found
    ]
    config = AccessConfig.model_validate(tomllib.loads(block))
    assert config.hub.views_max - int(config.hub.views_max * RESERVE) == 10_000
    with pytest.raises(ValueError, match=r"views_max = 12500; give it more, or lower one of them"):
        AccessConfig(views_max=12_500)
    assert 2_400 < AccessConfig().hub.views_max < 2_700, "as the pages say"
    assert HubBounds().views_max == 2_500


def test_the_document_states_what_the_code_does() -> None:
    text = (Path(__file__).parents[2] / "docs/access.md").read_text()
    stated = re.search(
        r"with the defaults (\d+) MiB, (\d+) MiB of it for 5000 clients that do not read", text
    )
    assert f"| `views_max` | {AccessConfig().hub.views_max}, of `memory_mib` |" in text
    assert stated is not None
    assert [int(stated[1]), int(stated[2])] == [
        round(AccessConfig().memory_bytes_max() / MIB),
        round(
            (AccessConfig().memory_bytes_max() - AccessConfig().memory_bytes_max(clients=0)) / MIB
        ),
    ]
