"""How many events a second an access server delivers to 1000 WebSockets with credits, how old they
are on arrival, and what it costs.

Method. As `bench_sse`, with the same writer and the same events: Kafka, the server, the readers
(one process) and the writer share the machine; loopback, no TLS, no proxy. Each client subscribes
once, gives 1000 credits and gives them again when half of them are used, so a server that sends
without leave would end the run. A figure is the mean of 8 s after 2 s. Every client's events are
counted and compared with its first and last number, and ten clients compare every number with the
one before: what is missing or repeated fails the benchmark.

Rivals in the same run, with the same clients: nchan under nginx, and Centrifugo where it is
installed (`go install github.com/centrifugal/centrifugo/v6@v6.9.1`). They have no credits, filter
nothing and sign no cursor; what comes within 20 ms is one message of theirs. The goals are a
million deliveries a second, and no fewer than nchan's in the same run: what falls short of one is
said, and fails nothing.

`python -m tests.bench.bench_sockets [--runs 3] [--json FILE] [--clients 1000] [--rate 4000]`
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
from tests.bench.readers.rivals import Rival, centrifugo, centrifugo_program, nchan
from tests.bench.sse_world import access, reading, writing
from tests.needs import nginx_with_nchan
from tests.services import run_kafka

LIMITS: Final = """
Server, readers, Kafka and writer share two processors. The readers, one process of Python, take
apart the frames of 1000 sockets and give credits, and take more than the server does.
"""
CLIENTS: Final = 1000
RATE: Final = 4000
GOAL: Final = 1_000_000
OF_NCHANS, OF_NCHANS_GOAL = "× nchan's", 1.0
NCHAN: Final = "nchan under nginx"
SETTLE_S, SECONDS = 2.0, 8.0
STREAM: Final = "bench_sockets"
SETTINGS: Final = "address_share = 1\n"
BY: Final = "tests.bench.readers.socket_clients"


def measure(folder: Path, runs: int, *, clients: int = CLIENTS, rate: int = RATE) -> Found:
    """Start what is needed, run, and stop it again."""
    nginx_with_nchan()
    rivals: list[tuple[str, Rival, str]] = [(NCHAN, nchan, "/events")]
    if centrifugo_program() is not None:
        rivals.append(("Centrifugo", centrifugo, "/connection/websocket"))
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        topic_admin.ensure_topics(
            KafkaConfig(bootstrap=node.bootstrap, partitions=1), [topics.stream_topic(STREAM)]
        )
        for i in range(runs):
            own = folder / f"run-{i}"
            ours = _ours(own, node.bootstrap, clients, rate, found)
            for name, rival, path in rivals:
                theirs = _theirs(own, node.bootstrap, name, rival, path, clients, rate, found)
                if name == NCHAN:
                    goal = OF_NCHANS_GOAL if _is_full(clients, rate) else None
                    found["ours of nchan's: deliveries", OF_NCHANS, goal].append(ours / theirs)
    return found


def _is_full(clients: int, rate: int) -> bool:
    """Is it the load that the goals are for?"""
    return clients >= CLIENTS and rate >= RATE


def _ours(folder: Path, bootstrap: str, clients: int, rate: int, found: Found) -> float:
    """Deliveries a second."""
    name = f"{clients:,} WebSockets with credits, offered {clients * rate:,}"
    with (
        access(folder, bootstrap, settings=SETTINGS) as (process, port),
        writing(bootstrap, folder, STREAM, rate),
        reading(port, f"/v1/ws#{STREAM}", clients, by=BY) as readers,
    ):
        assert process.pid is not None
        time.sleep(SETTLE_S)
        figures = readers.measure(SECONDS, process.pid)
        readers.assert_complete()
    least = GOAL if _is_full(clients, rate) else None
    found[f"{name}: deliveries", "deliveries/s", least].append(figures["deliveries_per_s"])
    found[f"{name}: processor time of a delivery", "µs", None].append(figures["cpu_us"])
    found[f"{name}: share of a processor", "%", None].append(100 * figures["cpu_share"])
    found[f"{name}: age on arrival, p99", "ms", None].append(figures["p99_ms"])
    return figures["deliveries_per_s"]


def _theirs(
    folder: Path,
    bootstrap: str,
    name: str,
    rival: Rival,
    path: str,
    clients: int,
    rate: int,
    found: Found,
) -> float:
    """Deliveries a second."""
    with (
        rival(folder, bootstrap, STREAM) as (pid, port),
        writing(bootstrap, folder, STREAM, rate),
        reading(port, path, clients, by=BY) as readers,
    ):
        time.sleep(SETTLE_S)
        figures = readers.measure(SECONDS, pid)
        # Not checked for completeness: their queues drop what is too much.
    found[f"{name}: deliveries, same load", "deliveries/s", None].append(
        figures["deliveries_per_s"]
    )
    found[f"{name}: processor time of a delivery", "µs", None].append(figures["cpu_us"])
    found[f"{name}: age on arrival, p99", "ms", None].append(figures["p99_ms"])
    return figures["deliveries_per_s"]


if __name__ == "__main__":
    run(measure, __doc__, sizes={"clients": CLIENTS, "rate": RATE}, each_alone=True)
