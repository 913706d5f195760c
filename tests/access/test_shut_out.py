"""An access server of a Kafka that its own controller shut out for seconds: it serves again, and
says so.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, key_file, numbers, open_stream, server
from tests.feeds import Feed, unique
from tests.gate import Gate
from tests.kafka.test_shut_out import shut_out
from tests.services import run_kafka_that_can_be_shut_out, wait_until

TIMES = 5
"""A client that lists topics was left without a broker by a third of the times."""
BACK_S = 45.0


async def keep_asking(running: Server) -> None:
    """For streams that are not there: each question makes the server list Kafka's topics."""
    async with httpx.AsyncClient(base_url=running.url, timeout=10) as client:
        while True:
            await client.get(f"/v1/streams/{unique('absent')}/events")


def shut_out_often(gate: Gate, config: KafkaConfig) -> None:
    """So often that a client that is made once dies of it."""
    for _ in range(TIMES):
        shut_out(gate, config)


async def test_a_server_serves_and_finds_new_streams_after_kafka_was_shut_out(
    tmp_path: Path,
) -> None:
    with run_kafka_that_can_be_shut_out(tmp_path) as (kafka, gate):
        config = KafkaConfig(bootstrap=kafka.bootstrap)
        old = Feed(config)
        await asyncio.to_thread(old.send)
        with server(tmp_path, config, key_file(tmp_path)) as running:
            async with open_stream(running.url, old.name, from_="earliest") as stream:
                assert len(await stream.take(1)) == 1
            asking = asyncio.create_task(keep_asking(running))
            await asyncio.to_thread(shut_out_often, gate, config)
            let_in_s = time.monotonic()
            asking.cancel()
            new = await asyncio.to_thread(Feed, config)
            await asyncio.to_thread(new.send)
            for feed in (old, new):
                await asyncio.to_thread(
                    wait_until,
                    lambda feed=feed: _is_served(running, feed),
                    f"{feed.name} is served",
                )
                async with open_stream(running.url, feed.name, from_="earliest") as stream:
                    assert len(numbers(await stream.take(1))) == 1
            await asyncio.to_thread(
                wait_until,
                lambda: httpx.get(f"{running.url}/readyz").status_code == 200,
                "it is ready",
            )
            assert time.monotonic() - let_in_s < BACK_S
            assert "kafka.client_made_anew" in running.process.output(), (
                "the fault did not happen: no client got stuck"
            )
        for feed in (old, new):
            feed.close()


def _is_served(running: Server, feed: Feed) -> bool:
    with httpx.stream(
        "GET", f"{running.url}/v1/streams/{feed.name}/events?from=earliest", timeout=20
    ) as answer:
        return answer.status_code == 200
