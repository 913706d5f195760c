"""A filter by a named set of ten thousand devices against no filter: what an event costs a server
whose clients all read the same.

Method. Kafka, the server, the readers (one process) and the writer share the machine; loopback, no
TLS, no proxy. CLIENTS readers follow one stream from the latest event on, first without a filter
and then with `device IN SET('bench_filters')`, a set of DEVICES devices that has the writer's; a
writer writes RATE readings a second. A figure is the mean of 8 s after 2 s. Every client's events
are counted and compared with its first and last number, and ten clients compare every number with
the one before: what is missing or repeated fails the benchmark. The last figure is the processor
time of a delivery with the set over that without a filter.

`python -m tests.bench.bench_filters [--runs 3] [--json FILE] [--clients 200] [--rate 2000]`
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Final
from urllib.parse import quote

from edgewake.cloud.kafka import clients as kafka_clients
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.ops.named_set import MEMBERS_MAX, NamedSet
from tests.bench.figures import Found, run
from tests.bench.sse_world import access, reading, writing
from tests.services import run_kafka

LIMITS: Final = """
All clients have the same filter, so it is evaluated once for an event; what is compared is the way
of an event through the index and the filter, and its bytes, which are the same.
"""
CLIENTS: Final = 200
RATE: Final = 2000
DEVICES: Final = MEMBERS_MAX
SETTLE_S, SECONDS = 2.0, 8.0
STREAM: Final = "bench_filters"
RATIO_MAX: Final = 1.3
SETTINGS: Final = "address_share = 1\n"
PATH: Final = f"/v1/streams/{STREAM}/events"
WHERE: Final = "?where=" + quote(f"device IN SET('{STREAM}')")


def measure(folder: Path, runs: int, *, clients: int = CLIENTS, rate: int = RATE) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        config = KafkaConfig(bootstrap=node.bootstrap, partitions=1)
        topic_admin.ensure_topics(config, [topics.stream_topic(STREAM), topics.SETS])
        _keep_set(config)
        for i in range(runs):
            plain = _one(folder / f"run-{i}", node.bootstrap, "", "no filter", clients, rate, found)
            by_set = _one(
                folder / f"run-{i}",
                node.bootstrap,
                WHERE,
                f"a set of {DEVICES:,} devices",
                clients,
                rate,
                found,
            )
            found["a delivery with the set, over one without a filter", "×", RATIO_MAX].append(
                by_set / plain
            )
    return found


def _keep_set(config: KafkaConfig) -> None:
    members = tuple(f"car-{number}" for number in range(DEVICES))
    row = NamedSet(name=STREAM, members=members, version=1, changed_at=0, changed_by="bench")
    producer = kafka_clients.producer(config, "bench-set")
    producer.produce(topics.SETS, key=STREAM, value=row.model_dump_json().encode())
    assert producer.flush(30) == 0


def _one(
    folder: Path, bootstrap: str, where: str, how: str, clients: int, rate: int, found: Found
) -> float:
    name = f"{clients:,} clients, {rate:,} events/s, {how}"
    with access(folder, bootstrap, settings=SETTINGS) as (process, port):
        assert process.pid is not None
        with (
            writing(bootstrap, folder, STREAM, rate),
            reading(port, PATH + where, clients) as readers,
        ):
            time.sleep(SETTLE_S)
            figures = readers.measure(SECONDS, process.pid)
            readers.assert_complete()
    found[f"{name}: deliveries", "deliveries/s", None].append(figures["deliveries_per_s"])
    found[f"{name}: a delivery", "µs", None].append(figures["cpu_us"])
    found[f"{name}: age on arrival, p99", "ms", None].append(figures["p99_ms"])
    return figures["cpu_us"]


if __name__ == "__main__":
    run(measure, __doc__, sizes={"clients": CLIENTS, "rate": RATE}, each_alone=True)
