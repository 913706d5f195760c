"""How many long polls a second find something, with 1000 clients that all stand at one place.

Method. Kafka, the server, the clients (one process) and the writer share the machine; loopback, no
TLS, no proxy. Each client keeps one connection, asks for what comes after its cursor with
`wait=30`, and asks again as soon as it is answered; a writer gives RATE readings a second, each a
record of its own, so that there is something new every 10 ms. Counted are the answers that had a
reading. A figure is the mean of 8 s after 2 s. Every client's readings are counted and compared
with its first and last number, and ten clients compare every number with the one before: what is
missing or repeated fails the benchmark.

The rival in the same run, with the same clients: nchan's long polls under nginx, where the place is
said by the headers of the answer before, and each answer is one message of 20 ms.

`python -m tests.bench.bench_polls [--runs 3] [--json FILE] [--clients 1000] [--rate 100]`
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bench.figures import Found, run
from tests.bench.readers.rivals import nchan
from tests.bench.sse_world import access, reading, writing
from tests.needs import nginx_with_nchan
from tests.services import run_kafka

LIMITS: Final = """
A poll is a request: its head is parsed, its cursor verified, its right looked at, and its answer
has a head of its own, all in Python, on a processor that the clients, Python too, share. Half of it
are the layers of the server, its middlewares and the routes before the first word of the request is
looked at, so twenty thousand a second are out of reach of one process on ASGI. By a profile, of the
server's thread 61 % are requests: 15 % middlewares, 14 % FastAPI's routes, 6 % words and addresses,
12 % the place that one holds, 13 % its waiting for a page that is read for all; 7 % are the parser.
What is read and encoded is made once for all who stand at one place.
"""
CLIENTS: Final = 1000
RATE: Final = 100
POLLS_MIN: Final = 20_000
SETTLE_S, SECONDS = 2.0, 8.0
STREAM: Final = "bench_polls"
NCHAN: Final = "nchan under nginx"
SETTINGS: Final = "address_share = 1\n"
BY: Final = "tests.bench.readers.poll_clients"


def measure(folder: Path, runs: int, *, clients: int = CLIENTS, rate: int = RATE) -> Found:
    """Start what is needed, run, and stop it again."""
    nginx_with_nchan()
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        topic_admin.ensure_topics(
            KafkaConfig(bootstrap=node.bootstrap, partitions=1), [topics.stream_topic(STREAM)]
        )
        for i in range(runs):
            own = folder / f"run-{i}"
            name = f"long polls that find something, {clients:,} clients at one place"
            least = POLLS_MIN if clients >= CLIENTS else None
            with (
                writing(node.bootstrap, folder, STREAM, rate),
                access(own, node.bootstrap, settings=SETTINGS) as (process, port),
            ):
                assert process.pid is not None
                path = f"/v1/streams/{STREAM}/events"
                ours = _one(port, process.pid, path, clients, name, least, found)
            with (
                nchan(own, node.bootstrap, STREAM) as (pid, port),
                writing(node.bootstrap, folder, STREAM, rate),
            ):
                theirs = _one(port, pid, "/events", clients, f"{NCHAN}: long polls", None, found)
            found["ours of nchan's: long polls", "× nchan's", None].append(ours / max(1.0, theirs))
    return found


def _one(
    port: int,
    pid: int,
    path: str,
    clients: int,
    name: str,
    least: float | None,
    found: Found,
) -> float:
    """Polls a second."""
    with reading(port, path, clients, by=BY) as readers:
        time.sleep(SETTLE_S)
        figures = readers.measure(SECONDS, pid)
        if least is not None or path != "/events":
            readers.assert_complete()
    polls = figures["writes_per_s"]
    found[name, "polls/s", least].append(polls)
    found[f"{name}: processor time of one", "µs", None].append(
        figures["cpu_share"] / max(1.0, polls) * 1e6
    )
    found[f"{name}: age of the newest on arrival, p99", "ms", None].append(figures["p99_ms"])
    return polls


if __name__ == "__main__":
    run(measure, __doc__, sizes={"clients": CLIENTS, "rate": RATE}, each_alone=True)
