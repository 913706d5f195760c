"""What 100,000 sleeping clients on one stream cost one push proxy at 80 readings a second, and when they are woken.

The leases are written to Kafka and taken over by a proxy that starts: that is the first figure. Nine of ten want a device of their own,
every tenth of these five readings of it, the others one of a hundred thresholds that nothing passes. Each reading is of another device, so
some 80 clients are woken a second. A process of its own is called and counts: each client must be woken exactly as its policy says and no
other (else the benchmark fails). Age: from the reading's write to the arrival of the call. Kafka, proxy, writer and receiver share the
machine. The control is what reading lease by lease costs at the least: each lease's own filter run on each reading, for a sample of them.
`python -m tests.bench.bench_push [--runs 1] [--json FILE]`; EDGEWAKE_BENCH_LEASES sets another number of leases.
"""

from __future__ import annotations

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

import httpx
from confluent_kafka import Producer

from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.filter import compile_where
from edgewake.cloud.push.sealing import Endpoint, Sealer
from edgewake.protocol import lease_record, topics
from edgewake.protocol import record as records
from edgewake.protocol.cursor import Cursor, CursorCodec, CursorKeys, StreamPosition, generation_hash, stream_hash
from edgewake.protocol.frame import Frame, encode
from edgewake.protocol.lease import Urgency, WakePolicy
from edgewake.protocol.lease_read import hash_token
from edgewake.protocol.lease_record import Lease
from edgewake.protocol.record import Mode
from edgewake.protocol.stream import FieldInfo, FieldType, Stream
from tests.bench.figures import Found, cpu_s, percentile, rss_mib, run
from tests.push.service import serving
from tests.services import run_kafka

LEASES = int(os.environ.get("EDGEWAKE_BENCH_LEASES", "100000"))
RATE = 80
SECONDS = min(60.0, 0.7 * LEASES / RATE)
"""Of readings; each wakes another client, so there must be enough of them."""
STREAM = "bench_push"
BATCHED = 5
"""Readings of its device that every tenth client waits for."""
THRESHOLDS = 100
SAMPLE = 2000
CPU_MAX, RSS_MIB_MAX, AGE_MS_MAX = 0.5, 500, 1000
CURSOR_KEY, LEASE_KEY = bytes.fromhex("ab" * 32), bytes.fromhex("cd" * 32)


@dataclass(frozen=True)
class Client:
    """One sleeping client: `device` is its own, None for one that waits for what never comes."""

    lease_id: str
    where: str
    device: str | None
    min_events: int = 1


def clients_of(count: int) -> list[Client]:
    """All of them."""
    found = []
    for n in range(count):
        lease_id = f"{n:024x}"
        if n % 10 == 9:
            found.append(Client(lease_id, f"n > {10**9 + n // 10 % THRESHOLDS}", None))
        else:
            found.append(Client(lease_id, f"device = 'd{n}'", f"d{n}", BATCHED if n % 10 == 8 else 1))
    return found


def measure(folder: Path, runs: int) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    found["control: filters of all leases, one by one, at 80 readings/s", "cores", None].append(_control())
    for i in range(runs):
        with run_kafka(folder / f"kafka-{i}") as node, _receiver() as (receiver, port):
            config = KafkaConfig(bootstrap=node.bootstrap)
            sleeping = clients_of(LEASES)
            _write_leases(config, sleeping, f"http://127.0.0.1:{port}/hook")
            (folder / f"run-{i}").mkdir()
            settings = {"allow_hosts": ["127.0.0.1"], "leases_max": LEASES}
            began = time.monotonic()
            with serving("push", node.bootstrap, folder / f"run-{i}", ready_within_s=300, **settings) as push:
                found["takeover of all leases, start of the process included", "s", None].append(time.monotonic() - began)
                _measure_waking(config, push.process.pid, push.url, sleeping, receiver, found)
    return found


def _measure_waking(config: KafkaConfig, pid: int, url: str, sleeping: list[Client], receiver: subprocess.Popen[str], found: Found) -> None:
    used, began = cpu_s(pid), time.monotonic()
    while _behind(url) > 0:
        time.sleep(0.2)
    found["leases brought to the live end, after that", "s", None].append(time.monotonic() - began)
    found["processor time of the start and that", "s", None].append(cpu_s(pid))
    found["memory", "MiB", RSS_MIB_MAX].append(rss_mib(pid))
    used, began = cpu_s(pid), time.monotonic()
    time.sleep(5)
    found["processor time without readings", "cores", None].append((cpu_s(pid) - used) / (time.monotonic() - began))
    used, began, slowest = cpu_s(pid), time.monotonic(), 0.0
    expected: set[str] = set()
    for _ in _second_by_second(config, sleeping, expected):
        asked = time.monotonic()
        httpx.get(f"{url}/healthz", timeout=30).raise_for_status()
        slowest = max(slowest, time.monotonic() - asked)
    found["processor time at 80 readings/s", "cores", CPU_MAX].append((cpu_s(pid) - used) / (time.monotonic() - began))
    came = _wait_for(receiver, expected)
    assert set(came) == expected, f"woken: {len(came)}, expected: {len(expected)}, wrongly: {len(set(came) - expected)}"
    again = sum(len(calls) - 1 for calls in came.values())
    ages = [arrived - written for calls in came.values() for arrived, written in calls[:1]]
    found["clients woken", "wakes/s", None].append(len(expected) / SECONDS)
    found["clients woken more than once", "", None].append(again)
    found["age of a wake-up, p50", "ms", None].append(percentile(ages, 50))
    found["age of a wake-up, p99", "ms", AGE_MS_MAX].append(percentile(ages, 99))
    found["slowest /healthz meanwhile", "ms", None].append(slowest * 1000)
    found["memory at the end", "MiB", RSS_MIB_MAX].append(rss_mib(pid))


def _behind(url: str) -> float:
    """Leases that the proxy has not brought to the live end yet."""
    for line in httpx.get(f"{url}/metrics", timeout=30).text.splitlines():
        if line.startswith("edgewake_push_leases_behind "):
            return float(line.split()[1])
    return 1.0


def _second_by_second(config: KafkaConfig, sleeping: list[Client], expected: set[str]) -> Iterator[None]:
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
    value = records.encode(device=device, stream=STREAM, mode=Mode.ACK, sent_at=None, received_at=now, frame_bytes=encode(frame))
    producer.produce(topics.stream_topic(STREAM), key=device, value=value)
    producer.poll(0)


def _wait_for(receiver: subprocess.Popen[str], expected: set[str]) -> dict[str, list[tuple[int, int]]]:
    """What came, once everybody was woken that is to be; 30 s at most, and a moment for those that should not be."""
    until = time.monotonic() + 30
    while len(came := _report(receiver)) < len(expected) and time.monotonic() < until:
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
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.stdin.close()


def _write_leases(config: KafkaConfig, sleeping: list[Client], url: str) -> None:
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
            endpoint_host="127.0.0.1",
            sealed=sealer.seal(client.lease_id, Endpoint(url, "whsec_" + "A" * 32, client.lease_id * 2)),
            wake=WakePolicy(min_events=client.min_events, urgency=Urgency.LOW),  # nobody is woken again within the hour
            ttl_s=604_800,
            created_at=now,
            expires_at=now + 604_800_000,
        )
        producer.produce(topics.LEASES, key=lease.id, value=lease_record.encode(lease), partition=lease.partition)
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
