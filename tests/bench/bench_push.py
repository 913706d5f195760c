"""What 100,000 sleeping clients on one stream cost one push proxy at 80 readings a second, and when
they are woken.

The leases are written to Kafka and taken over by a proxy that starts: that is the first figure.
Nine of ten want a device of their own, every tenth of these five readings of it, the others one of
a hundred thresholds that nothing passes. Each reading is of another device, so some 80 clients are
woken a second. A process of its own is called and counts: each client must be woken exactly as its
policy says and no other (else the benchmark fails). Age: from the reading's write to the arrival of
the call. Kafka, proxy, writer and receiver share the machine.

Then the worst: one reading that every tenth lease waited for, all at one host. When is the last
called, what does a call cost, and what do requests and the leases of another host feel meanwhile?
Beside it what the same receiver takes from a bare client that signs, stores and decides nothing.
"Within a second" is a promise to leases that become due one by one, the ordinary case; those that
become due together are called at the rate that is measured here, hosts in turn.

The control is what reading lease by lease costs at the least: each lease's own filter run on each
reading, for a sample of them. EDGEWAKE_BENCH_LEASES sets another number of leases. `python -m
tests.bench.bench_push [--runs 1] [--json FILE]`
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from confluent_kafka import Producer

from edgewake.cloud.calls.sealing import Endpoint, Sealer
from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.push.waking.call_slots import CALLS_PER_HOST_MAX
from edgewake.protocol import topics
from edgewake.protocol.cursor import (
    Cursor,
    CursorCodec,
    CursorKeys,
    StreamPosition,
    generation_hash,
    stream_hash,
)
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.leases import lease_record
from edgewake.protocol.leases.lease import Urgency, WakePolicy
from edgewake.protocol.leases.lease_read import hash_token
from edgewake.protocol.leases.lease_record import Lease
from tests.bench.figures import Found, cpu_s, percentile, rss_mib, run
from tests.push.service import serving
from tests.services import run_kafka

LIMITS: Final = """
An age holds up to 50 ms until the next look at the stream, one Kafka transaction that stores the
wake-up, and the call. At 80 a second nearly each wake-up has a transaction of its own; where very
many are due, hundreds share one, and the rate is that of two processors on which Kafka, proxy and
receiver run together. What is due at once at one host does not meet the second, and cannot: the
bare client would need ten seconds for 100,000 requests here. Memory is that of 100,000 leases, 4.5
KB each.
"""
LEASES = int(os.environ.get("EDGEWAKE_BENCH_LEASES", "100000"))
RATE = 80
SECONDS = min(60.0, 0.7 * LEASES / RATE)
"""Of readings; each wakes another client, so there must be enough of them."""
STREAM = "bench_push"
BATCHED = 5
"""Readings of its device that every tenth client waits for."""
THRESHOLDS = 100
SAMPLE = 2000
OTHERS = 40
"""Leases at another host, each of which is woken once during the storm."""
BARE_CALLS = 2000
CPU_MAX, RSS_MIB_MAX, AGE_MS_MAX = 0.5, 500, 1000
CURSOR_KEY, LEASE_KEY = bytes.fromhex("ab" * 32), bytes.fromhex("cd" * 32)


@dataclass(frozen=True)
class Client:
    """One sleeping client: `device` is its own, None for one that waits for what never comes."""

    lease_id: str
    where: str
    device: str | None
    min_events: int = 1
    host: str = "127.0.0.1"


def clients_of(count: int) -> list[Client]:
    """All of them."""
    found = []
    for n in range(count):
        lease_id = f"{n:024x}"
        if n % 10 == 9:
            found.append(Client(lease_id, f"n > {10**9 + n // 10 % THRESHOLDS}", None))
        else:
            found.append(
                Client(lease_id, f"device = 'd{n}'", f"d{n}", BATCHED if n % 10 == 8 else 1)
            )
    return found + [
        Client(f"{count + n:024x}", f"device = 'other-{n}'", None, host="localhost")
        for n in range(OTHERS)
    ]


def measure(folder: Path, runs: int) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    found["control: filters of all leases, one by one, at 80 readings/s", "cores", None].append(
        _control()
    )
    for i in range(runs):
        with run_kafka(folder / f"kafka-{i}") as node, _receiver() as (receiver, port):
            config = KafkaConfig(bootstrap=node.bootstrap)
            sleeping = clients_of(LEASES)
            _write_leases(config, sleeping, port)
            (folder / f"run-{i}").mkdir()
            settings = {"allow_hosts": ["127.0.0.1", "localhost"], "leases_max": LEASES + OTHERS}
            began = time.monotonic()
            with serving(
                "push", node.bootstrap, folder / f"run-{i}", ready_within_s=300, **settings
            ) as push:
                found["takeover of all leases, start of the process included", "s", None].append(
                    time.monotonic() - began
                )
                _measure_waking(config, push.process.pid, push.url, sleeping, receiver, found)
                _measure_storm(config, push.process.pid, push.url, sleeping, receiver, found)
            found["the same requests from a bare client", "wakes/s", None].append(
                asyncio.run(_bare_rate(port))
            )
    return found


def _measure_waking(
    config: KafkaConfig,
    pid: int,
    url: str,
    sleeping: list[Client],
    receiver: subprocess.Popen[str],
    found: Found,
) -> None:
    used, began = cpu_s(pid), time.monotonic()
    while _behind(url) > 0:
        time.sleep(0.2)
    found["leases brought to the live end, after that", "s", None].append(time.monotonic() - began)
    found["processor time of the start and that", "s", None].append(cpu_s(pid))
    found["memory", "MiB", RSS_MIB_MAX].append(rss_mib(pid))
    used, began = cpu_s(pid), time.monotonic()
    time.sleep(5)
    found["processor time without readings", "cores", None].append(
        (cpu_s(pid) - used) / (time.monotonic() - began)
    )
    used, began, slowest = cpu_s(pid), time.monotonic(), 0.0
    expected: set[str] = set()
    with httpx.Client(timeout=30) as client:
        for _ in _second_by_second(config, sleeping, expected):
            slowest = max(slowest, _healthz_s(client, url))
    found["processor time at 80 readings/s", "cores", CPU_MAX].append(
        (cpu_s(pid) - used) / (time.monotonic() - began)
    )
    came = _wait_for(receiver, expected)
    assert set(came) == expected, (
        f"woken: {len(came)}, expected: {len(expected)}, wrongly: {len(set(came) - expected)}"
    )
    again = sum(len(calls) - 1 for calls in came.values())
    ages = [arrived - written for calls in came.values() for arrived, written in calls[:1]]
    found["clients woken", "wakes/s", None].append(len(expected) / SECONDS)
    found["clients woken more than once", "", None].append(again)
    found["age of a wake-up, p50", "ms", None].append(percentile(ages, 50))
    found["age of a wake-up, p99", "ms", AGE_MS_MAX].append(percentile(ages, 99))
    found["slowest /healthz meanwhile", "ms", None].append(slowest * 1000)
    found["memory at the end", "MiB", RSS_MIB_MAX].append(rss_mib(pid))


def _measure_storm(
    config: KafkaConfig,
    pid: int,
    url: str,
    sleeping: list[Client],
    receiver: subprocess.Popen[str],
    found: Found,
) -> None:
    before = len(_report(receiver))
    due = {client.lease_id for client in sleeping if client.where.startswith("n >")}
    others = [client for client in sleeping if client.host == "localhost"]
    producer = clients.producer(config, "bench-storm")
    used, slowest = cpu_s(pid), 0.0
    _write(producer, "storm", 2 * 10**9)
    with httpx.Client(timeout=30) as http:
        for n, client in enumerate(others):
            _write(producer, client.where.split("'")[1], n)
            producer.flush(5)
            slowest = max(slowest, _healthz_s(http, url))
            time.sleep(0.1)
    expected = due | {client.lease_id for client in others}
    came = _wait_for(receiver, expected, already=before)
    took = (
        max(came[lease_id][0][0] for lease_id in due)
        - min(came[lease_id][0][0] for lease_id in due)
    ) / 1000
    used = cpu_s(pid) - used
    assert expected <= set(came), f"not woken: {len(expected - set(came))}"
    assert all(len(came[lease_id]) == 1 for lease_id in expected), "woken more than once"
    ages = [arrived - written for client in others for arrived, written in came[client.lease_id]]
    found[
        f"{len(due):,} leases of one host due at once: rate of the calls", "wakes/s", None
    ].append(len(due) / took)
    found[f"{len(due):,} leases of one host due at once: until the last call", "s", None].append(
        took
    )
    found["due at once: processor time of a wake-up", "µs", None].append(used / len(expected) * 1e6)
    found["due at once: slowest /healthz meanwhile", "ms", None].append(slowest * 1000)
    found["due at once: age of another host's wake-ups meanwhile, p50", "ms", None].append(
        percentile(ages, 50)
    )
    found["due at once: age of another host's wake-ups meanwhile, p99", "ms", AGE_MS_MAX].append(
        percentile(ages, 99)
    )


async def _bare_rate(port: int) -> float:
    """Requests a second of the size of a wake-up, 16 at a time, each on a connection of its own."""
    body = json.dumps({"lease": "bare", "events": [], "text": "x" * 500}).encode()
    request = (
        b"POST /hook HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )

    async def call(times: int) -> None:
        for _ in range(times):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert b"204" in await reader.readline()
            writer.close()

    began = time.monotonic()
    await asyncio.gather(
        *(call(BARE_CALLS // CALLS_PER_HOST_MAX) for _ in range(CALLS_PER_HOST_MAX))
    )
    return BARE_CALLS / (time.monotonic() - began)


def _healthz_s(client: httpx.Client, url: str) -> float:
    asked = time.monotonic()
    client.get(f"{url}/healthz").raise_for_status()
    return time.monotonic() - asked


def _behind(url: str) -> float:
    """Leases that the proxy has not brought to the live end yet."""
    for line in httpx.get(f"{url}/metrics", timeout=30).text.splitlines():
        if line.startswith("edgewake_push_leases_behind "):
            return float(line.split()[1])
    return 1.0


def _second_by_second(
    config: KafkaConfig, sleeping: list[Client], expected: set[str]
) -> Iterator[None]:
    """Write RATE readings a second, evenly; `expected` gets the leases that have had enough."""
    producer = clients.producer(config, "bench-push")
    wanted = iter([client for client in sleeping if client.device is not None])
    began, written = time.monotonic(), 0
    while time.monotonic() - began < SECONDS:
        for _ in range(RATE):
            client = next(wanted)
            for _ in range(client.min_events):
                _write(producer, str(client.device), written)
                written += 1
            expected.add(client.lease_id)
            if written >= RATE * (time.monotonic() - began + 1):
                break
        producer.flush(5)
        yield
        while written > RATE * (time.monotonic() - began):
            time.sleep(0.005)


def _write(producer: Producer, device: str, n: int) -> None:
    now = time.time_ns() // 1_000_000
    frame = Frame(epoch=1, frame=n + 1, seq=n + 1, t=[now], fields={"n": [n]})
    value = records.encode(
        device=device,
        stream=STREAM,
        mode=Mode.ACK,
        sent_at=None,
        received_at=now,
        frame_bytes=encode(frame),
    )
    producer.produce(topics.stream_topic(STREAM), key=device, value=value)
    producer.poll(0)


def _wait_for(
    receiver: subprocess.Popen[str], expected: set[str], *, already: int = 0
) -> dict[str, list[tuple[int, int]]]:
    """What came, once everybody was woken that is to be; three minutes at most, and a moment for
    those that should not be.
    """
    until = time.monotonic() + 180
    while len(came := _report(receiver)) < len(expected) + already and time.monotonic() < until:
        time.sleep(0.5)
    time.sleep(2)
    del came
    return _report(receiver)


def _report(receiver: subprocess.Popen[str]) -> dict[str, list[tuple[int, int]]]:
    assert receiver.stdin is not None
    assert receiver.stdout is not None
    receiver.stdin.write("\n")
    receiver.stdin.flush()
    found: dict[str, list[tuple[int, int]]] = json.loads(receiver.stdout.readline())
    return found


@contextlib.contextmanager
def _receiver() -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "tests.bench.push_receiver"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.stdin.close()


def _write_leases(config: KafkaConfig, sleeping: list[Client], port: int) -> None:
    """Put the leases where a proxy finds them, all at the end of the stream."""
    topic = topics.stream_topic(STREAM)
    topic_admin.ensure_topics(config, [topics.STREAMS, topic])
    topic_admin.ensure_partitions(config, [topics.LEASES], lease_record.PARTITIONS)
    producer = clients.producer(config, "bench-push")
    declared = Stream(name=STREAM, fields={"n": FieldInfo(type=FieldType.NUMBER)})
    producer.produce(topics.STREAMS, key=STREAM, value=declared.model_dump_json().encode())
    admin = clients.admin(config)
    generation = generation_hash(metadata.topic_id(admin, topic))
    positions = tuple((0, 0) for _ in range(metadata.partition_count(admin, topic)))
    codec = CursorCodec(CursorKeys({1: CURSOR_KEY}, 1))
    cursor = codec.encode(Cursor((StreamPosition(stream_hash(STREAM), generation, positions),)))
    sealer, now = Sealer([LEASE_KEY], os.urandom), time.time_ns() // 1_000_000
    for client in sleeping:
        lease = Lease(
            id=client.lease_id,
            token_hash=hash_token(client.lease_id),
            request_hash="",
            streams=(STREAM,),
            where=client.where,
            cursor=cursor,
            endpoint_host=client.host,
            sealed=sealer.seal(
                client.lease_id,
                Endpoint(
                    f"http://{client.host}:{port}/hook", "whsec_" + "A" * 32, client.lease_id * 2
                ),
            ),
            # Nobody is woken again within the hour.
            wake=WakePolicy(min_events=client.min_events, urgency=Urgency.LOW),
            ttl_s=604_800,
            created_at=now,
            expires_at=now + 604_800_000,
        )
        producer.produce(
            topics.LEASES, key=lease.id, value=lease_record.encode(lease), partition=lease.partition
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def _control() -> float:
    """Cores that running each lease's filter on each reading would take."""
    sample = [compile_where(client.where).passes for client in clients_of(SAMPLE)]
    reading = {"device": "d7", "n": 7, "received_at": 0}
    rounds = 20
    began = time.process_time()
    for _ in range(rounds):
        for predicate in sample:
            predicate(reading)
    return (time.process_time() - began) / rounds / SAMPLE * LEASES * RATE


if __name__ == "__main__":
    run(measure, __doc__)
