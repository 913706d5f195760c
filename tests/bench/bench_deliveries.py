"""Webhook deliveries to ten receivers, in order per key, and what a dead one costs the others.

One push proxy delivers one stream to ten endpoints of one process, in batches of a hundred events
as by default. Each receiver must have every event once, and each device's in order (else the
benchmark fails). Then the same with an eleventh endpoint that accepts connections and never
answers: the ten are to get what they got without it, so each run says what part of that it was.
Goals that are missed are said and fail nothing. Kafka, proxy and receivers share the machine.
`python -m tests.bench.bench_deliveries [--runs 1] [--json FILE] [--events 20000]`
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import httpx

from edgewake.cloud.kafka.config import KafkaConfig
from tests.bench.figures import Found, run
from tests.push.receiver import Receiver, receiving
from tests.push.service import Readings, Service, readings, serving
from tests.services import run_kafka

LIMITS: Final = (
    "Each batch costs one transaction of Kafka, one connection and one signature; calls of one "
    "endpoint come one after the other, so an endpoint takes a batch each round."
)
RECEIVERS: Final = 10
DELIVERIES_PER_S: Final = 2000
UNCHANGED: Final = 0.9
"""Two runs of the same differ by a tenth."""
PER_FRAME: Final = 10
WITHIN_S: Final = 300.0


def measure(folder: Path, runs: int, *, events: int = 20_000) -> Found:
    """See above."""
    found: Found = defaultdict(list)
    with (
        run_kafka(folder / "kafka") as kafka,
        serving("push", kafka.bootstrap, folder, allow_hosts=["127.0.0.1"]) as push,
    ):
        config = KafkaConfig(bootstrap=kafka.bootstrap)
        for _ in range(runs):
            rates: list[float] = []
            for is_one_dead in (False, True):
                stream = readings(config, f"bench_{uuid.uuid4().hex[:12]}")
                stream.add(events, per_frame=PER_FRAME)
                rate = asyncio.run(_rate(push, stream, events, is_one_dead=is_one_dead))
                name = "events/s to ten receivers" + (", and one dead" if is_one_dead else "")
                found[name, "/s", DELIVERIES_PER_S].append(rate)
                rates.append(rate)
            alone, beside = rates
            name = "beside a dead one, of what ten receivers got without"
            found[name, "× without", UNCHANGED].append(beside / alone)
    return found


async def _rate(push: Service, stream: Readings, events: int, *, is_one_dead: bool) -> float:
    names: list[str] = []
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(WITHIN_S))
        client = httpx.AsyncClient(base_url=push.url, timeout=30)
        await stack.enter_async_context(client)
        receivers = [
            await stack.enter_async_context(receiving()) for _ in range(RECEIVERS + is_one_dead)
        ]
        if is_one_dead:
            receivers[-1].answer = lambda _: None
        began = time.perf_counter()
        for receiver in reversed(receivers):
            names.append(await _made(client, stream, receiver))
        while any(_count(one) < events for one in receivers[:RECEIVERS]):
            await asyncio.sleep(0.05)
        took_s = time.perf_counter() - began
        for receiver in receivers[:RECEIVERS]:
            _check(receiver, events)
        for name in names:
            await client.delete(f"/v1/deliveries/{name}")
    return events * RECEIVERS / took_s


async def _made(client: httpx.AsyncClient, stream: Readings, receiver: Receiver) -> str:
    name = f"b{uuid.uuid4().hex[:12]}"
    body = {"streams": [stream.stream], "from": "earliest", "url": receiver.url}
    while True:  # a new stream is heard of soon
        answer = await client.put(f"/v1/deliveries/{name}", json=body)
        if answer.status_code != 422:
            answer.raise_for_status()
            return name
        await asyncio.sleep(0.1)


def _count(receiver: Receiver) -> int:
    return sum(call.body.count(b'"seq":') for call in receiver.calls)


def _check(receiver: Receiver, events: int) -> None:
    of: dict[str, list[int]] = defaultdict(list)
    for call in receiver.calls:
        for event in json.loads(call.body)["events"]:
            of[event["device"]].append(event["n"])
    assert sum(map(len, of.values())) == events, "an event came twice, or did not come"
    assert all(found == sorted(found) for found in of.values()), "not in order"


if __name__ == "__main__":
    run(measure, __doc__, sizes={"events": 20_000}, each_alone=True)
