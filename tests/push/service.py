"""Running access servers and push proxies, and the readings they serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Producer

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.services import PATIENCE_S, Process, free_ports, part, wait_until

RECEIVED_AT = 1_790_000_000_000


@dataclass
class Readings:
    """Writes readings 1, 2, 3 … of one stream, as the sequencer does."""

    config: KafkaConfig
    stream: str
    producer: Producer
    written: int = 0

    def add(self, count: int = 1, *, per_frame: int = 1) -> None:
        """So many more, on the partition of their device."""
        for _ in range(count // per_frame):
            first = self.written + 1
            t = [RECEIVED_AT + first + i for i in range(per_frame)]
            frame = Frame(
                epoch=1,
                frame=first,
                seq=first,
                t=t,
                fields={"n": [first + i for i in range(per_frame)]},
            )
            device = f"dev-{first % 3}"
            value = records.encode(
                device=device,
                stream=self.stream,
                mode=Mode.ACK,
                sent_at=None,
                received_at=RECEIVED_AT,
                frame_bytes=encode(frame),
            )
            self.producer.produce(topics.stream_topic(self.stream), key=device, value=value)
            self.written += per_frame
        assert self.producer.flush(10) == 0


def readings(config: KafkaConfig, stream: str) -> Readings:
    """A new stream."""
    producer = clients.producer(config, "test-push")
    topic_admin.ensure_topics(config, [topics.STREAMS, topics.stream_topic(stream)])
    declared = Stream(name=stream, fields={"n": FieldInfo(type=FieldType.NUMBER)})
    producer.produce(topics.STREAMS, key=stream, value=declared.model_dump_json().encode())
    return Readings(config, stream, producer)


@contextmanager
def serving(
    kind: str,
    bootstrap: str,
    directory: Path,
    *,
    ready_within_s: float = PATIENCE_S,
    **more: object,
) -> Iterator[Service]:
    """`edgewake access` or `edgewake push`, ready."""
    (port,) = free_ports(1)
    name = more.pop("name", f"{kind}-1")
    keys = directory / "cursor.keys"
    if not keys.exists():
        keys.write_text(f"1 {'ab' * 32}\n")
    lease_keys = directory / "lease.keys"
    lease_keys.write_text("cd" * 32 + "\n")
    lines = [f'name = "{name}"', f"port = {port}", f'cursor_key_file = "{keys}"']
    lines += [f'lease_key_file = "{lease_keys}"'] if kind == "push" else []
    lines += [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    config = directory / f"{name}-{port}.toml"
    config.write_text("\n".join(lines) + f'\n[kafka]\nbootstrap = "{bootstrap}"\n')
    service = Service(
        f"http://127.0.0.1:{port}", part(kind, config, directory / f"{name}-{port}.log")
    )
    with service.process:
        service.until_ready(timeout_s=ready_within_s)
        yield service


@dataclass
class Service:
    """Where it is."""

    url: str
    process: Process

    def until_ready(self, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until /readyz says so."""
        wait_until(self._is_ready, f"{self.url} is ready", timeout_s=timeout_s)

    def _is_ready(self) -> bool:
        assert self.process.is_running(), self.process.output()[-3000:]
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def restart(self) -> None:
        """Start it again after a kill."""
        self.process.start()
        self.until_ready()


@dataclass
class Reader:
    """A client of the access server: reads SSE, keeps the cursor of the last event."""

    url: str
    stream: str
    cursor: str | None = None
    seen: list[int] = None  # type: ignore[assignment]
    gaps: list[dict[str, Any]] = None  # type: ignore[assignment]
    lease: str | None = None
    """ID.TOKEN of its lease, which it names when it reads."""

    def __post_init__(self) -> None:
        self.seen, self.gaps = [], []

    async def read(self, *, until: int, start: str = "latest") -> None:
        """Read, from the cursor on, until `n` = `until` of every reading was seen or 20 s are
        over.
        """
        async with asyncio.timeout(PATIENCE_S), self._blocks(start) as blocks:
            async for block in blocks:
                self._take(block)
                if len(self.seen) >= until:
                    return

    async def stand(self) -> None:
        """Connect, take the first cursor, and leave."""
        async with asyncio.timeout(PATIENCE_S), self._blocks("latest") as blocks:
            async for block in blocks:
                self._take(block)
                if self.cursor is not None:
                    return

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Stay connected."""
        async with self._blocks("latest"):
            yield

    @asynccontextmanager
    async def _blocks(self, start: str) -> AsyncIterator[AsyncIterator[dict[str, str]]]:
        headers = {"Last-Event-ID": self.cursor} if self.cursor else {}
        headers |= {"Edgewake-Lease": self.lease} if self.lease else {}
        address = f"{self.url}/v1/streams/{self.stream}/events"
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            await self._until_known(client)
            async with client.stream(
                "GET", address, params={"from": start}, headers=headers
            ) as response:
                assert response.status_code == 200, await response.aread()
                yield _blocks_of(response)

    async def _until_known(self, client: httpx.AsyncClient) -> None:
        """A server hears of a new stream soon, not at once."""
        async with asyncio.timeout(PATIENCE_S):
            while self.stream not in (await client.get(f"{self.url}/v1/streams")).text:
                await asyncio.sleep(0.05)

    def _take(self, block: dict[str, str]) -> None:
        if "data" in block and "event" not in block:
            self.seen.append(json.loads(block["data"])["n"])
        if block.get("event") == "gap":
            self.gaps.append(json.loads(block["data"]))
        self.cursor = block.get("id", self.cursor)


async def _blocks_of(response: httpx.Response) -> AsyncIterator[dict[str, str]]:
    block: dict[str, str] = {}
    async for line in response.aiter_lines():
        if not line and block:
            yield block
            block = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            block[name] = value


async def back(push: Service) -> None:
    """Start it again; what is called by it is served meanwhile."""
    push.process.start()
    await asyncio.to_thread(push.until_ready)


async def asked(
    push: Service, method: str, path: str, body: object = None, *, expected: int = 200
) -> Any:
    """The answer to an owner; a proxy that is taking over says to come again."""
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as client:
        answer = await client.request(method, path, json=body)
        while answer.status_code == 503:
            await asyncio.sleep(0.1)
            answer = await client.request(method, path, json=body)
    assert answer.status_code == expected, answer.text
    return answer.json() if answer.content else None
