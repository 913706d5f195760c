"""What readers of a query with `-- emit: final` see of a window: a lease, a filter, the latest rows
and SQL. Spark, Kafka, an access server and a push proxy are real; beside it is the same query that
tells each change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.queries.query import Registered
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    catch_up,
    declare,
    register,
    registered,
    sql,
)
from tests.analysis.test_final_docs import ask
from tests.push.receiver import Receiver, receiving
from tests.push.service import Reader, Service, serving
from tests.services import PATIENCE_S

MINUTE = 60_000
EACH_CHANGE, ONCE = "each change", "once"
FILTERS = (None, "final")


def queries(feed: Feed) -> Mapping[str, Registered]:
    """Readings of each minute; final a minute later."""
    texts = []
    for header in ("", "-- emit: final\n"):
        text = sql(
            feed.name, "count(*) AS n", "window(event_time, '1 minute')", lateness="1 minute"
        )
        texts.append(text.replace("-- lateness", f"{header}-- lateness", 1))
    found = registered(*texts, streams=[feed.stream])
    for text, one in zip(texts, found, strict=True):
        # Results are on a topic that is named after this time, too.
        register(feed, text, name=one.query.name, at_ms=one.registered_at)
    return dict(zip((EACH_CHANGE, ONCE), found, strict=True))


async def computed(lane: Lane, feed: Feed, *minutes: int) -> None:
    """Two readings in each of these minutes, computed."""
    for minute in minutes:
        for at in (0, 30_000):
            feed.send([T0 + minute * MINUTE + at], partition=0, speed=[1.0])
    await asyncio.to_thread(catch_up, lane, feed)


async def leased(push: Service, reader: Reader, receiver: Receiver, where: str | None) -> None:
    """Ask to be woken by whatever the reader has not seen."""
    subscription = {"streams": [reader.stream]} | ({} if where is None else {"where": where})
    body = {
        "subscription": subscription,
        "cursor": reader.cursor,
        "endpoint": {"url": receiver.url},
        "wake": {"min_interval_s": 0},
    }
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        answer = await client.post(f"{push.url}/v1/leases", json=body)
    assert answer.status_code == 201, answer.text


@pytest.mark.long
async def test_a_lease_a_filter_the_latest_and_sql_show_a_window_when_it_is_final_and_no_earlier(
    analysis: Analysis, feed: Feed, tmp_path: Path
) -> None:
    declare(feed)
    of = queries(feed)
    bootstrap = feed.config.bootstrap

    async with AsyncExitStack() as stack:
        lane = stack.enter_context(analysis.running(list(of.values()), feed))
        access = stack.enter_context(serving("access", bootstrap, tmp_path))
        push = stack.enter_context(serving("push", bootstrap, tmp_path, allow_hosts=["127.0.0.1"]))
        readers = {kind: Reader(access.url, one.query.name) for kind, one in of.items()}
        hooks: dict[tuple[str, str | None], Receiver] = {}
        for kind, reader in readers.items():
            await reader.stand()
            for where in FILTERS:
                hook = hooks[kind, where] = await stack.enter_async_context(receiving())
                await leased(push, reader, hook, where)

        async def rows(kind: str, path: str, **more: str) -> list[dict[str, Any]]:
            async with httpx.AsyncClient(
                base_url=access.url, timeout=PATIENCE_S, headers={"accept": "application/json"}
            ) as client:
                path = path.format(of[kind].query.name)
                answer = await client.get(path, params=more)
                while answer.status_code == 503:  # it hears of the query's groups soon
                    await asyncio.sleep(0.05)
                    answer = await client.get(path, params=more)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            # Watermarks stand among the events.
            return [one for one in found.get("rows", found.get("events")) if "$event" not in one]

        await computed(lane, feed, 0, 1)
        await hooks[EACH_CHANGE, None].got(1)
        assert not any(hooks[ONCE, where].calls for where in FILTERS), "the windows are open"
        assert await rows(ONCE, "/v1/latest/{}") == []

        await computed(lane, feed, 2)  # event time is now a minute past the end of minute 0
        for where in FILTERS:
            await hooks[ONCE, where].got(1)
        assert hooks[EACH_CHANGE, "final"].calls == [], (
            "a row of each change is not told again when its window becomes final"
        )
        await readers[ONCE].read(until=1)
        assert readers[ONCE].seen[0] == 2

        everything = await rows(ONCE, "/v1/streams/{}/events", **{"from": "earliest"})
        assert [(row["window_start"], row["n"], row["final"]) for row in everything] == [
            (T0, 2, True)
        ]
        for kind, expected in ((ONCE, everything), (EACH_CHANGE, [])):
            path, words = "/v1/streams/{}/events", {"from": "earliest", "where": "final"}
            assert await rows(kind, path, **words) == expected
        (latest,) = await rows(ONCE, "/v1/latest/{}")
        assert (latest["window_start"], latest["final"]) == (T0, True)
        found = await asyncio.to_thread(
            ask, feed, tmp_path / "lake", of[ONCE], f"SELECT n, final FROM {of[ONCE].query.name}"
        )
        assert found == [[2, True]]
