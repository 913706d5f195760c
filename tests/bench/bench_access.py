"""What a hiccup, a past and sparse filters cost an access server, and those who read live
meanwhile.

Kafka, the server, readers and writer share the machine, in processes of their own. Readers compare
every event's number with the one before, so nothing counts that is missing or repeated.

pause      1000 clients read one stream at 1200 events/s; the server is stopped (SIGSTOP) for 3 s.
           When do all get events again that are
           younger than a second, and what does the server use of a processor before and after?
catch-up   1000 clients come at once and read 10,000 stored events each: processor time of the
           server, from memory and from Kafka.
sparse     100 clients, each with a filter of its own that one event of 40,000 passes, read the past
           while one client reads live: its
           events' age alone, in the half second in which the others come, and in the three seconds
           after, in which they all read.

`python -m tests.bench.bench_access [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bench.figures import Found, cpu_s, run
from tests.bench.sse_world import Readers, access, fill, reading, writing
from tests.services import run_kafka

LIMITS: Final = """
The pause needs a machine that carries 1000 clients at 1200 events/s to begin with: 1.2 million
deliveries a second are nine tenths of one processor for the server and one more for the readers, so
two processors that anybody else uses cannot catch up with what three seconds left, and the figure
is then that of the readers ("never": not within a minute). The share of a processor and the age
beside sparse readers grow with the load of the machine, too: a server that computes waits for its
turn like everybody else. The processor times do not.
"""
CLIENTS = 1000
RATE = 1200
PAUSE_S = 3.0
PAST = 10_000
SPARSE_CLIENTS, SPARSE_PAST = 100, 40_000
ALL_LIVE_S_MAX = 5.0
CATCH_UP_MEMORY_S_MAX, CATCH_UP_KAFKA_S_MAX = 4.0, 8.0


def measure(folder: Path, runs: int) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        for i in range(runs):
            _pause(
                folder / f"pause-{i}",
                node.bootstrap,
                _stream(node.bootstrap, f"bench_pause_{i}"),
                found,
            )
            _catch_up(
                folder / f"past-{i}",
                node.bootstrap,
                _stream(node.bootstrap, f"bench_past_{i}"),
                found,
            )
            _sparse(
                folder / f"sparse-{i}",
                node.bootstrap,
                _stream(node.bootstrap, f"bench_sparse_{i}"),
                found,
            )
    return found


def _stream(bootstrap: str, name: str) -> str:
    topic_admin.ensure_topics(
        KafkaConfig(bootstrap=bootstrap, partitions=1), [topics.stream_topic(name)]
    )
    return name


def _pause(folder: Path, bootstrap: str, stream: str, found: Found) -> None:
    with (
        access(folder, bootstrap) as (process, port),
        writing(bootstrap, folder, stream, RATE),
        reading(port, f"/v1/streams/{stream}/events", CLIENTS) as readers,
    ):
        time.sleep(2)
        assert process.pid is not None
        before = readers.measure(4, process.pid)
        process.freeze()
        time.sleep(PAUSE_S)
        process.thaw()
        took = _until_all_live(readers)
        after = readers.measure(4, process.pid)
        readers.assert_complete()
        found[
            f"pause of {PAUSE_S:.0f} s: all {CLIENTS} clients live again", "s", ALL_LIVE_S_MAX
        ].append(took)
        found["pause: share of a processor before", "%", None].append(100 * before["cpu_share"])
        found["pause: share of a processor after", "%", None].append(100 * after["cpu_share"])
        found["pause: age on arrival after it, p99", "ms", None].append(after["p99_ms"])


def _until_all_live(readers: Readers) -> float:
    began = time.monotonic()
    while readers.ask("measure 0.25")["live"] < CLIENTS:
        if time.monotonic() - began > 60:
            return float("inf")
    return time.monotonic() - began


def _catch_up(folder: Path, bootstrap: str, stream: str, found: Found) -> None:
    fill(bootstrap, stream, PAST)
    for where, hub, most in (
        ("memory", '{"tail_back_records": 100000}', CATCH_UP_MEMORY_S_MAX),
        ("Kafka", '{"tail_back_records": 0}', CATCH_UP_KAFKA_S_MAX),
    ):
        with access(folder, bootstrap, name=where, hub=hub) as (process, port):
            assert process.pid is not None
            used = cpu_s(process.pid)
            with reading(port, f"/v1/streams/{stream}/events?from=earliest", CLIENTS) as readers:
                took = readers.ask(f"until {PAST}")["seconds"]
                used = cpu_s(process.pid) - used
                assert readers.assert_complete() == CLIENTS * PAST
            found[
                f"{CLIENTS} clients × {PAST:,} events of the past, from {where}: processor time",
                "s",
                most,
            ].append(used)
            found[
                f"{CLIENTS} clients × {PAST:,} events of the past, from {where}: until all have "
                "them",
                "s",
                None,
            ].append(took)


def _sparse(folder: Path, bootstrap: str, stream: str, found: Found) -> None:
    fill(bootstrap, stream, SPARSE_PAST)
    live = _stream(bootstrap, f"{stream}_live")
    with (
        access(folder, bootstrap, hub='{"tail_back_records": 100000}') as (process, port),
        writing(bootstrap, folder, live, 100),
        reading(port, f"/v1/streams/{live}/events", 1) as reader,
    ):
        assert process.pid is not None
        time.sleep(1)
        alone = reader.measure(4, process.pid)
        sparse = (
            f"/v1/streams/{stream}/events?from=earliest&"
            f"where=n%20%25%20{SPARSE_PAST}%20%3D%20{{k}}%20OR%20n%20%3D%20{SPARSE_PAST}"
        )
        with reading(port, sparse, SPARSE_CLIENTS) as others:
            opening = reader.measure(0.5, process.pid)
            meanwhile = reader.measure(3, process.pid)
            assert others.ask("check")["events"] < 2 * SPARSE_CLIENTS - 1, (
                "they had read everything before the end of the measurement"
            )
            others.ask("until 1")
            reader.assert_complete()
        found["live client alone: age p50", "ms", None].append(alone["p50_ms"])
        found[
            f"live client beside {SPARSE_CLIENTS} sparse readers of {SPARSE_PAST:,} events: age "
            "p50",
            "ms",
            None,
        ].append(meanwhile["p50_ms"])
        found[
            f"live client while {SPARSE_CLIENTS} sparse readers come: age p50", "ms", None
        ].append(opening["p50_ms"])
        found[f"live client beside {SPARSE_CLIENTS} sparse readers: age p99", "ms", None].append(
            meanwhile["p99_ms"]
        )


if __name__ == "__main__":
    run(measure, __doc__)
