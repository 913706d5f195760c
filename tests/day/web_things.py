"""Programs that post to an agent: JSON with httpx, line protocol with InfluxDB's own client. Both
say again what was not answered, under the same key.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import httpx
from influxdb_client import InfluxDBClient, Point
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from urllib3.exceptions import HTTPError

from tests.day.oracle import Oracle, Put
from tests.day.things import Thing

AGAIN_S = 0.5


class _Posting:
    """Each device sends one request after the other."""

    family = ""

    def __init__(self, names: Sequence[str], port: int, oracle: Oracle) -> None:
        self.things = [Thing(self.family, name, oracle) for name in names]
        self._url = f"http://127.0.0.1:{port}"
        self._queues: dict[str, deque[Put]] = {name: deque() for name in names}
        self._came = {name: asyncio.Event() for name in names}
        self._tasks: list[asyncio.Task[None]] = []
        self.repeats = 0

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run(thing.name)) for thing in self.things]

    async def say(self) -> None:
        for thing in self.things:
            self._queues[thing.name].append(thing.say())
            self._came[thing.name].set()

    async def restart(self) -> None:
        """In the middle of a request; what was not answered is on its disk."""
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    async def _run(self, name: str) -> None:
        queue = self._queues[name]
        while True:
            while queue:
                if await self._is_taken(name, queue[0]):
                    queue.popleft()
                else:
                    self.repeats += 1
                    await asyncio.sleep(AGAIN_S)
            self._came[name].clear()
            await self._came[name].wait()

    async def _is_taken(self, name: str, put: Put) -> bool:
        raise NotImplementedError


class Json(_Posting):
    """POST of a JSON object."""

    family = "json"

    async def start(self) -> None:
        self._client = httpx.AsyncClient(timeout=20, limits=httpx.Limits(max_connections=8))
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self._client.aclose()

    async def _is_taken(self, name: str, put: Put) -> bool:
        body = {"thing": name, "t": put.t_ms, "n": put.n, "value": put.value}
        try:
            answer = await self._client.post(
                self._url, json=body, headers={"Idempotency-Key": f"{name}-{put.n}"}
            )
        except httpx.HTTPError:
            return False
        return answer.status_code == 200


class Lines(_Posting):
    """Line protocol to /api/v2/write."""

    family = "lines"
    measurement = "day"

    async def _is_taken(self, name: str, put: Put) -> bool:
        return await asyncio.to_thread(self._write, name, put)

    def _write(self, name: str, put: Put) -> bool:
        with InfluxDBClient(self._url, "token", org="o", timeout=20_000, retries=False) as client:
            client.api_client.set_default_header("Idempotency-Key", f"{name}-{put.n}")
            point = (
                Point(self.measurement)
                .tag("host", name)
                .field("n", put.n)
                .field("value", put.value)
            )
            try:
                client.write_api(write_options=SYNCHRONOUS).write(
                    "bucket", record=point.time(put.t_ms, "ms")
                )
            except (ApiException, HTTPError, OSError):
                return False
        return True
