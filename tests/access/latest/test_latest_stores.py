"""A store that fails ends alone: the others go on, and the next question makes it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from edgewake.cloud.access.bounded.rows import Choice
from edgewake.cloud.access.latest.latest import Latest
from edgewake.cloud.access.latest.latest_stores import LatestStores, _Store
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log import subscription
from edgewake.cloud.log.subscription import SubscriptionTooLarge
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import Unavailable
from tests.access.latest.test_waiters import words
from tests.feeds import DEADLINE_S, Feed, eventually
from tests.log.test_hub import hub_on

pytestmark = pytest.mark.services


@asynccontextmanager
async def stores_on(config: KafkaConfig) -> AsyncIterator[LatestStores]:
    """Stores that must still run at the end."""
    async with hub_on(config) as hub:
        stores = LatestStores(hub, SystemClock())
        running = asyncio.create_task(stores.run())
        await eventually(lambda: stores._tasks is not None, "it runs")
        try:
            async with asyncio.timeout(DEADLINE_S):
                yield stores
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait({running})


async def test_a_stream_of_too_many_partitions_is_refused_and_ends_nothing_else(
    kafka_config: KafkaConfig, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request for it ended the server."""
    feed.send("car-1")
    async with stores_on(kafka_config) as stores:
        with monkeypatch.context() as patch:
            patch.setattr(subscription, "PARTITIONS_MAX", 0)
            with pytest.raises(SubscriptionTooLarge):
                await stores.answer(feed.name, "c", ANYBODY)
        found = words(await stores.answer(feed.name, "c", ANYBODY))
        assert [row["device"] for row in found["rows"]] == ["car-1"]


async def test_a_store_that_fails_on_a_record_ends_alone(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it raised ended the server."""

    def fail(*_: object, **__: object) -> None:
        raise TypeError("a record of another kind")

    bad, good = new_feed(), new_feed()
    bad.send("car-1")
    good.send("car-2")
    async with stores_on(kafka_config) as stores:
        with monkeypatch.context() as patch:
            patch.setattr(Latest, "take", fail)
            with pytest.raises(Unavailable):
                await stores.answer(bad.name, "c", ANYBODY)
        found = words(await stores.answer(good.name, "c", ANYBODY))
        assert [row["device"] for row in found["rows"]] == ["car-2"]


async def test_a_store_whose_older_records_cannot_be_read_is_made_again(
    kafka_config: KafkaConfig, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question for a copy waited for them in vain, and kept the store."""

    async def fail(*_: object) -> None:
        raise Unavailable("Kafka is away")

    feed.send("car-1")
    asked = (feed.name, "c", ANYBODY, Choice())
    async with stores_on(kafka_config) as stores:
        with monkeypatch.context() as patch:
            patch.setattr(_Store, "_take_older", fail)
            with pytest.raises(Unavailable, match="cannot be read at the moment"):
                await stores.synchronised(*asked, cursor=None, wait_s=0)
        await eventually(lambda: feed.name not in stores._stores, "it has ended")
        found = words(await stores.synchronised(*asked, cursor=None, wait_s=0))
        assert [row["key"] for row in found["rows"]] == ["car-1"]
