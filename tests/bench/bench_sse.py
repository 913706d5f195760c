"""How many events a second an access server delivers to 1000 clients, how old they are on arrival,
and what it costs.

Method. Kafka, the server, the readers (one process) and the writer share the machine; loopback, no
TLS, no proxy. Readers connect and read from the latest event on; a figure is the mean of 8 s after
2 s. Every client's events are counted and compared with its first and last number, and ten clients
compare every number with the one before: what is missing or repeated fails the benchmark. Events
that arrive within 20 ms are written to a client together, so writes a second stand beside events a
second.

"one subscription" is the best case: one filtering and one encoding for all. With 100 and 1000
different filters (all pass every event) there are as many of both. "offered" is what is written to
Kafka times the clients; where less is delivered, that is the server's, or the readers', limit, and
clients fall behind without losing anything.

Rivals in the same run, with the same readers: sse-starlette with bytes made ready once and joined
as ours are, nchan under nginx (Debian's libnginx-mod-nchan, which `python -m tests.needs`
installs), and Mercure's hub where it is installed (`go install
github.com/dunglas/mercure/cmd/mercure@v0.20.0`; on 2026-11-28 the Go module proxy refused the list
of its versions, 403, so it could not be had). They filter nothing and sign no cursor. The goals are
two million deliveries a second, and no fewer than nchan's in the same run ("ours of nchan's"): what
falls short of one is said, and fails nothing.

`python -m tests.bench.bench_sse [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bench.figures import Found, rss_mib, run
from tests.bench.readers.mercure import PATH as MERCURE_PATH
from tests.bench.readers.mercure import TOPIC as MERCURE_TOPIC
from tests.bench.readers.rivals import Rival, mercure, mercure_program, nchan
from tests.bench.sse_world import access, reading, writing
from tests.needs import nginx_with_nchan
from tests.services import Process, free_ports, port_is_open, run_kafka, wait_until

LIMITS: Final = """
Server, 1000 readers, Kafka and writer share two processors. The readers, one process of Python,
take as much as the server, so they end the increase of deliveries before the server does; nchan
gives more to the same readers, so what ours takes of a processor for a write counts, too. Beside
other work on the machine all fall. An age holds half a tick (20 ms), the time until all 1000
connections are written, and the readers' own wait for a processor.
"""
CLIENTS = 1000
SETTLE_S, SECONDS = 2.0, 8.0
STREAM = "bench_sse"
CALM, BUSY, OVER = 400, 1200, 4000
"""Events a second that are written: an ordinary load for the latency, three times as much, and more
than can be delivered."""
DIFFERENT = ((1, OVER), (100, BUSY), (1000, CALM))
"""How many different subscriptions, and the events a second that are more than is delivered with so
many."""
GOAL, RSS_MIB_MAX, AGE_P99_MS_MAX = 2_000_000, 150, 100
OF_NCHANS, OF_NCHANS_GOAL = "× nchan's", 1.0

NCHAN, THEIR_DELIVERIES = "nchan under nginx", ": deliveries, same load"
THROUGHPUT = f"deliveries to {CLIENTS} clients, one subscription, offered {OVER * CLIENTS:,}"


def measure(folder: Path, runs: int, *, theirs: dict[str, list[float]]) -> Found:
    """Start what is needed, run, and stop it again.

    `theirs`: name → what the rivals did in each run.
    """
    nginx_with_nchan()
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        topic_admin.ensure_topics(
            KafkaConfig(bootstrap=node.bootstrap, partitions=1), [topics.stream_topic(STREAM)]
        )
        for i in range(runs):
            _measure_latency(folder / f"run-{i}", node.bootstrap, found)
            for different, rate in DIFFERENT:
                _measure_capacity(folder / f"run-{i}", node.bootstrap, different, rate, found)
            _measure_rivals(folder / f"run-{i}", node.bootstrap, found, theirs)
            _compare(found)
    return found


def _measure_latency(folder: Path, bootstrap: str, found: Found) -> None:
    for rate, most in ((CALM, AGE_P99_MS_MAX), (BUSY, None)):
        with access(folder, bootstrap) as (process, port), writing(bootstrap, folder, STREAM, rate):
            assert process.pid is not None
            with reading(port, f"/v1/streams/{STREAM}/events", CLIENTS) as readers:
                time.sleep(SETTLE_S)
                figures = readers.measure(SECONDS, process.pid)
                memory = rss_mib(process.pid)
                readers.assert_complete()
            found[f"age on arrival, {CLIENTS} clients, {rate} events/s, p50", "ms", None].append(
                figures["p50_ms"]
            )
            found[f"age on arrival, {CLIENTS} clients, {rate} events/s, p99", "ms", most].append(
                figures["p99_ms"]
            )
            found[
                f"server's memory with {CLIENTS} clients, {rate} events/s", "MiB", RSS_MIB_MAX
            ].append(memory)


def _measure_capacity(
    folder: Path, bootstrap: str, different: int, rate: int, found: Found
) -> None:
    query = f"?where=n%20%3E%20-1%20-%20{{k%{different}}}" if different > 1 else ""
    name = (
        THROUGHPUT
        if different == 1
        else f"deliveries to {CLIENTS} clients, {different} subscriptions, offered "
        f"{rate * CLIENTS:,}"
    )
    with (
        access(folder, bootstrap, hub='{"views_max": 2000}') as (process, port),
        writing(bootstrap, folder, STREAM, rate),
    ):
        assert process.pid is not None
        with reading(port, f"/v1/streams/{STREAM}/events{query}", CLIENTS) as readers:
            time.sleep(SETTLE_S)
            figures = readers.measure(SECONDS, process.pid)
            readers.assert_complete()
        found[name, "deliveries/s", GOAL if different == 1 else None].append(
            figures["deliveries_per_s"]
        )
        found[f"{different} subscriptions: writes", "writes/s", None].append(
            figures["writes_per_s"]
        )
        found[f"{different} subscriptions: processor time of a delivery", "µs", None].append(
            figures["cpu_us"]
        )
        found[f"{different} subscriptions: share of a processor", "%", None].append(
            100 * figures["cpu_share"]
        )


def _measure_rivals(
    folder: Path, bootstrap: str, found: Found, theirs: dict[str, list[float]]
) -> None:
    with _starlette(folder, bootstrap) as (pid, port):
        figures = _read_rival(folder, bootstrap, pid, port, OVER)
        theirs[THROUGHPUT].append(figures["deliveries_per_s"])
        theirs["1 subscriptions: writes"].append(figures["writes_per_s"])
        theirs["1 subscriptions: processor time of a delivery"].append(figures["cpu_us"])
    rivals: list[tuple[str, Rival, str]] = [(NCHAN, nchan, "/events")]
    if mercure_program() is not None:
        rivals.append(("Mercure", mercure, f"{MERCURE_PATH}?topic={MERCURE_TOPIC}"))
    for name, rival, path in rivals:
        with rival(folder, bootstrap, STREAM) as (pid, port):
            figures = _read_rival(folder, bootstrap, pid, port, OVER, path)
        found[f"{name}{THEIR_DELIVERIES}", "deliveries/s", None].append(figures["deliveries_per_s"])
        found[f"{name}: processor time of a delivery", "µs", None].append(figures["cpu_us"])


def _compare(found: Found) -> None:
    """The last run of ours with that of nchan."""
    ours = found[THROUGHPUT, "deliveries/s", GOAL][-1]
    nchans = found[f"{NCHAN}{THEIR_DELIVERIES}", "deliveries/s", None][-1]
    found["ours of nchan's: deliveries", OF_NCHANS, OF_NCHANS_GOAL].append(ours / nchans)


def _read_rival(
    folder: Path, bootstrap: str, pid: int, port: int, rate: int, path: str = "/events"
) -> dict[str, float]:
    with writing(bootstrap, folder, STREAM, rate), reading(port, path, CLIENTS) as readers:
        time.sleep(SETTLE_S)
        # Not checked for completeness: their queues drop what is too much.
        return readers.measure(SECONDS, pid)


@contextmanager
def _starlette(folder: Path, bootstrap: str) -> Iterator[tuple[int, int]]:
    (port,) = free_ports(1)
    command = [
        sys.executable,
        "-m",
        "tests.bench.sse_rival",
        bootstrap,
        topics.stream_topic(STREAM),
        str(port),
    ]
    with Process(command, folder / "rival.log") as process:
        wait_until(lambda: port_is_open(port), "the rival serves")
        assert process.pid is not None
        yield process.pid, port


if __name__ == "__main__":
    theirs: dict[str, list[float]] = defaultdict(list)
    run(partial(measure, theirs=theirs), __doc__, theirs, each_alone=True)
