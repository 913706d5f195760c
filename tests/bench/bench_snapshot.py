"""A snapshot of 100,000 rows and the first change behind it, and what a hundred clients cost that
ask for one at once.

Method. Kafka, the server, the clients (one process, which keeps nothing of what it reads) and the
writer share the machine; loopback, no TLS, no proxy. A stream has one reading of each of DEVICES
devices. "asked for the first time": from the request until the last byte of `/v1/sync/{stream}`,
while the server has nothing of the stream yet. "and live": the same of a server that has it, and
then from the cursor of the snapshot until the first change, which is written when the snapshot was
read. CLIENTS at once: until all have a whole snapshot, with the row of each device (else the
benchmark fails), and by how much the server's memory grew at most meanwhile, looked at every 10 ms.

`python -m tests.bench.bench_snapshot [--runs 3] [--json FILE] [--devices 100000] [--clients 100]`
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import httpx

from edgewake.cloud.kafka import clients as kafka_clients
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.frame import Frame
from edgewake.protocol.frames.record import Mode
from tests.bench.figures import Found, rss_mib, run
from tests.bench.sse_world import access
from tests.services import run_kafka

LIMITS: Final = """
The rows are joined once for all who ask at the same time; what is left is what the system's sockets
take, and the readers, who take half of the two processors.
"""
DEVICES: Final = 100_000
CLIENTS: Final = 100
PARTITIONS: Final = 2
STREAM: Final = "bench_snapshot"
SECONDS_MAX, MIB_MAX = 2.0, 100.0
WITHIN_S: Final = 300.0
SETTINGS: Final = "address_share = 1\n"
PATH: Final = f"/v1/sync/{STREAM}"


def measure(folder: Path, runs: int, *, devices: int = DEVICES, clients: int = CLIENTS) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    is_full = devices >= DEVICES and clients >= CLIENTS
    with run_kafka(folder / "kafka") as node:
        config = KafkaConfig(bootstrap=node.bootstrap, partitions=PARTITIONS)
        topic_admin.ensure_topics(config, [topics.stream_topic(STREAM)])
        write(config, devices, 1)
        for number in range(runs):
            with access(folder / f"run-{number}", node.bootstrap, settings=SETTINGS) as (
                process,
                port,
            ):
                assert process.pid is not None
                url = f"http://127.0.0.1:{port}"
                name = f"a snapshot of {devices:,} rows"
                first_s = asyncio.run(_first(url, devices))
                found[f"{name}, asked for the first time", "s", None].append(first_s)
                live_s = asyncio.run(_then_live(config, url, devices, number + 2))
                most = SECONDS_MAX if is_full else None
                found[f"{name}, and live", "s", most].append(live_s)
                took_s, grown = asyncio.run(_at_once(process.pid, url, devices, clients))
                name = f"{clients} clients at once ask for {devices:,} rows"
                found[f"{name}: until all have them", "s", None].append(took_s)
                found[f"{name}: memory", "MiB", MIB_MAX if is_full else None].append(grown)
    return found


def write(config: KafkaConfig, devices: int, number: int) -> None:
    """A reading of each of so many devices, the `number`th of theirs."""
    producer = kafka_clients.producer(config, "bench-snapshot")
    now = time.time_ns() // 1_000_000
    fields = {"n": [number], "speed_kmh": [51.2]}
    body = frame.encode(Frame(1, number, number, [now], fields))  # type: ignore[arg-type]
    for device in range(devices):
        value = record.encode(
            device=f"car-{device}",
            stream=STREAM,
            mode=Mode.ACK,
            sent_at=now,
            received_at=now,
            frame_bytes=body,
        )
        producer.produce(topics.stream_topic(STREAM), value, partition=device % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


async def _first(url: str, devices: int) -> float:
    async with asyncio.timeout(WITHIN_S), httpx.AsyncClient(base_url=url, timeout=60) as http:
        began = time.perf_counter()
        while True:
            answer = await http.get(PATH)
            if answer.status_code == 200:
                break
            await asyncio.sleep(0.1)
        took = time.perf_counter() - began
    rows, body = answer.content.count(b'"row":'), answer.json()
    assert (rows, body["complete"]) == (devices, True), f"{rows} of {devices}, {body['missing']}"
    return took


async def _then_live(config: KafkaConfig, url: str, devices: int, number: int) -> float:
    async with asyncio.timeout(WITHIN_S), httpx.AsyncClient(base_url=url, timeout=60) as http:
        began = time.perf_counter()
        snapshot = await http.get(PATH)
        cursor = _cursor(snapshot.content)
        write(config, 1, number)
        answer = await http.get(PATH, params={"after": cursor, "wait": 30})
        took = time.perf_counter() - began
    assert snapshot.content.count(b'"row":') == devices
    assert [one["key"] for one in answer.json()["changes"]] == ["car-0"]
    return took


def _cursor(body: bytes) -> str:
    """Without reading the rows, which a client does as it likes."""
    at = body.index(b'"cursor":"') + 10
    return body[at : body.index(b'"', at)].decode()


async def _at_once(pid: int, url: str, devices: int, clients: int) -> tuple[float, float]:
    """Seconds until all have their rows, and MiB that the server grew by at most."""
    before = most = rss_mib(pid)
    host, port = url.removeprefix("http://").split(":")
    began = time.perf_counter()
    reading = asyncio.gather(*(_rows(host, int(port)) for _ in range(clients)))
    while not reading.done():
        most = max(most, rss_mib(pid))
        await asyncio.wait({reading}, timeout=0.01)
    counts = await reading
    assert set(counts) == {devices}, f"rows of a client: {sorted(set(counts))}"
    return time.perf_counter() - began, most - before


async def _rows(host: str, port: int) -> int:
    """The rows of one answer; nothing of it is kept."""
    reader, writer = await asyncio.open_connection(host, port)
    words = f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    writer.write(words.encode())
    rows, end = 0, b""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    while piece := await reader.read(1 << 16):
        text = end + piece
        rows += text.count(b'"row":')
        end = text[-5:]
    writer.close()
    return rows


if __name__ == "__main__":
    run(measure, __doc__, sizes={"devices": DEVICES, "clients": CLIENTS}, each_alone=True)
