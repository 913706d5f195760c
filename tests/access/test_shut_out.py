"""An access server of a Kafka that its own controller shut out for seconds: it serves again, and
says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, key_file, numbers, open_stream, server
from tests.feeds import Feed, unique
from tests.gate import Gate
from tests.kafka.test_shut_out import shut_out
from tests.services import run_kafka_that_can_be_shut_out, wait_until

pytestmark = pytest.mark.services


TIMES_MAX = 20
"""A server's client is left without a broker by about half of the times."""
MADE_ANEW = "kafka.client_made_anew"
BACK_S = 45.0


async def keep_asking(running: Server, name: str) -> None:
    """For a stream that is not there, which makes the server list Kafka's topics, and for where one
    stands at a time, which makes it ask for offsets.
    """
    async with httpx.AsyncClient(base_url=running.url, timeout=10) as client:
        while True:
            with suppress(httpx.TimeoutException):
                await client.get(f"/v1/streams/{unique('absent')}/events")
                await client.get(f"/v1/streams/{name}/events", params={"from": "-1h", "limit": "1"})


def shut_out_until_stuck(gate: Gate, config: KafkaConfig, output: Callable[[], str]) -> None:
    """So often that a client got stuck and the server says that it made another one."""
    for _ in range(TIMES_MAX):
        shut_out(gate, config)
        if MADE_ANEW in output():
            return


@pytest.mark.long
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
            asking = asyncio.create_task(keep_asking(running, old.name))
            await asyncio.to_thread(shut_out_until_stuck, gate, config, running.process.output)
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
            assert MADE_ANEW in running.process.output(), (
                "the fault did not happen: no client got stuck"
            )
        for feed in (old, new):
            feed.close()


def _is_served(running: Server, feed: Feed) -> bool:
    with httpx.stream(
        "GET", f"{running.url}/v1/streams/{feed.name}/events?from=earliest", timeout=20
    ) as answer:
        return answer.status_code == 200
