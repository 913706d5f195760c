"""Who waits for changes of a copy looks at each change once, however many come meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from edgewake.cloud.access.bounded.bodies import Taken
from edgewake.cloud.access.bounded.rows import Choice
from edgewake.cloud.access.latest import latest_stores
from edgewake.cloud.access.latest.latest_changes import Change, Shown, told
from edgewake.cloud.access.latest.latest_stores import LatestStores
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.protocol.clock import SystemClock
from tests.feeds import DEADLINE_S, Feed, eventually
from tests.log.test_hub import hub_on

pytestmark = pytest.mark.services

CHANGES = 40


def words(taken: Taken) -> dict[str, Any]:
    return dict(orjson.loads(b"".join(taken.body.pieces)))


async def test_it_looks_at_each_change_once(
    kafka_config: KafkaConfig, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each event it looked at all again that it had looked at before."""
    looked: list[str] = []

    def counted(change: Change, shown: Shown) -> bytes | None:
        looked.append(change.key)
        return told(change, shown)

    monkeypatch.setattr(latest_stores, "told", counted)
    feed.send("car-first", fields={"n": [1]})
    async with hub_on(kafka_config) as hub:
        stores = LatestStores(hub, SystemClock())
        running = asyncio.create_task(stores.run())
        await eventually(lambda: stores._tasks is not None, "it runs")
        try:
            negative = Choice(where=compile_where("n < 0"))
            asked = (feed.name, "c", ANYBODY, negative)
            first = words(await stores.synchronised(*asked, cursor=None, wait_s=0))
            assert first["rows"] == []
            waiting = asyncio.create_task(
                stores.synchronised(*asked, cursor=first["cursor"], wait_s=DEADLINE_S)
            )
            store = stores._stores[feed.name]
            for number in range(CHANGES):
                await asyncio.to_thread(feed.send, f"car-{number}", fields={"n": [1]})
                await eventually(lambda n=number: len(store.latest) == n + 2, "it has the row")
            assert not waiting.done()
            await asyncio.to_thread(feed.send, "car-last", fields={"n": [-1]})
            found = words(await waiting)
            assert [(one["op"], one["key"]) for one in found["changes"]] == [("insert", "car-last")]
            assert len(looked) <= CHANGES + 3, "each once; the last one twice: it is told"
            again = await stores.synchronised(*asked, cursor=found["cursor"], wait_s=0)
            assert words(again)["changes"] == []
        finally:
            running.cancel()
            await asyncio.wait({running})
