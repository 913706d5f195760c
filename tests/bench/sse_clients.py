"""A thousand readers in one process of its own: they count events and sample how old these are.

`python -m tests.bench.sse_clients PORT PATH CLIENTS SECONDS` connects, waits for a line on standard input, measures and prints JSON:
{"deliveries_per_s":…,"p50_ms":…,"p99_ms":…}. The age is taken from the field `sent` of an event, the writer's clock in seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

SAMPLE = 97
"""One event in so many is looked at for its age."""


class Count:
    """What all readers saw."""

    def __init__(self) -> None:
        self.events = 0
        self.ages_s: list[float] = []


class Reader(asyncio.Protocol):
    """One connection."""

    def __init__(self, path: str, count: Count) -> None:
        self._path = path
        self._count = count

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(f"GET {self._path} HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        events = data.count(b'"sent":')
        before = self._count.events
        self._count.events += events
        if before // SAMPLE != self._count.events // SAMPLE:
            at = data.rfind(b'"sent":') + 7
            end = data.find(b"}", at)
            if end > 0:
                self._count.ages_s.append(time.time() - float(data[at:end].split(b",")[0]))


async def run(port: int, path: str, clients: int, seconds: float) -> dict[str, float]:
    """Connect, wait for the word, measure."""
    loop = asyncio.get_running_loop()
    count = Count()
    readers = [(await loop.create_connection(lambda: Reader(path, count), "127.0.0.1", port))[0] for _ in range(clients)]
    print("connected", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    count.events, count.ages_s, began = 0, [], time.perf_counter()
    await asyncio.sleep(seconds)
    took, events, ages = time.perf_counter() - began, count.events, sorted(count.ages_s)
    for transport in readers:
        transport.abort()
    pick = {f"p{p}_ms": 1000 * ages[len(ages) * p // 100] if ages else -1.0 for p in (50, 99)}
    return {"deliveries_per_s": events / took, **pick}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))), flush=True)
