"""Many clients, each with one device of its own: what an event costs when it is for one client of
thousands.

Method. Kafka, the server, the readers (one process) and the writer share the machine; loopback, no
TLS, no proxy. CLIENTS readers connect, each with a key of its own, which sees one device
(`devices = ["$device"]`), and read from the latest event on; the server's bounds are those of keys
in its configuration. A writer gives the devices' readings in turns, one reading a record. A figure
is the mean of 8 s after 2 s. Every client's events are counted and compared with its first and last
number, and ten clients compare every number with the one before: what is missing or repeated fails
the benchmark. The memory of 1,000 clients is what the server's process grew by while they
connected, their connections included.

"the same without an index" is a server without rights, which tries each event on every filter for
the same devices, with a tenth of the clients and of the readings, because all would need many
processors.

`python -m tests.bench.bench_own_device [--runs 3] [--json FILE] [--clients 10000] [--rate 5000]`
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bench.figures import Found, rss_mib, run
from tests.bench.sse_world import access, reading
from tests.services import Process, run_kafka

LIMITS: Final = """
A delivery is a chunk of one event for one client: its cursor is signed, and it is written to a
connection of its own. The readers and the writer, Python too, take as much of the two processors as
the server. A client costs some 45 KiB: its connection with uvloop's transport and parser, its
session, and a view with a filter of its own, which nobody shares. The coroutines that server,
middlewares and FastAPI keep for a request, another 20 to 40 KiB, are let go when the stream has
begun. A client of 12 KiB would have to share its view's parts with others.
Open streams are kept out of the walks of Python's collector (cloud/access/long_lived.py): without
that one walk after so many came took over a second, in the measured ones.
"""
CLIENTS: Final = 10_000
RATE: Final = 5000
SHARE_WITHOUT: Final = 10
WITHOUT: Final = "the same without an index"
SETTLE_S, SECONDS = 2.0, 8.0
STREAM: Final = "bench_own_device"
CORE_PERCENT_MAX, AGE_P99_MS_MAX, MIB_MAX = 100, 200, 12
SETTINGS: Final = """
clients_max = {most}
views_max = {most}
memory_mib = 640
address_share = 1
"""
"""`most`: a fourth more than there are clients (docs/rights.md)."""
RIGHTS: Final = """
[rights]
key_file = "{folder}/readers.keys"
[rights.roles.owner]
grants = [{{ streams = ["{stream}"], devices = ["$device"], actions = ["read"] }}]
"""
KEY: Final = "key-of-an-owner-{k}"
PATH: Final = f"/v1/streams/{STREAM}/events"
PLAIN: Final = (
    "?where=starts_with(device%2C%20%27car-{k}%27)"
    "%20AND%20length(device)%20%3D%20length(%27car-{k}%27)"
)


def measure(folder: Path, runs: int, *, clients: int = CLIENTS, rate: int = RATE) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        topic_admin.ensure_topics(
            KafkaConfig(bootstrap=node.bootstrap, partitions=1), [topics.stream_topic(STREAM)]
        )
        for i in range(runs):
            own = folder / f"run-{i}"
            _one(own, node.bootstrap, "by their rights", clients, rate, found)
            few, slow = clients // SHARE_WITHOUT, rate // SHARE_WITHOUT
            _one(own, node.bootstrap, WITHOUT, few, slow, found)
    return found


def _one(folder: Path, bootstrap: str, how: str, clients: int, rate: int, found: Found) -> None:
    goals = clients >= CLIENTS and rate >= RATE
    name = f"{clients:,} clients with a device each, {rate:,} events/s, {how}"
    settings, key, where = SETTINGS.format(most=clients * 5 // 4), "", PLAIN
    if how != WITHOUT:
        folder.mkdir(parents=True, exist_ok=True)
        lines = (f"owner-{k} owner {KEY.replace('{k}', str(k))} car-{k}\n" for k in range(clients))
        (folder / "readers.keys").write_text("".join(lines))
        settings += RIGHTS.format(folder=folder, stream=STREAM)
        key, where = KEY, ""
    with access(folder, bootstrap, settings=settings) as (process, port):
        assert process.pid is not None
        before = rss_mib(process.pid)
        with (
            _writing(bootstrap, folder, rate, clients),
            reading(port, PATH + where, clients, key=key) as readers,
        ):
            time.sleep(SETTLE_S)
            grown = rss_mib(process.pid) - before
            figures = readers.measure(SECONDS, process.pid)
            readers.assert_complete()
    share, age = 100 * figures["cpu_share"], figures["p99_ms"]
    found[f"{name}: deliveries", "deliveries/s", None].append(figures["deliveries_per_s"])
    found[f"{name}: processor", "% of a core", CORE_PERCENT_MAX if goals else None].append(share)
    found[f"{name}: a delivery", "µs", None].append(figures["cpu_us"])
    found[f"{name}: age on arrival, p99", "ms", AGE_P99_MS_MAX if goals else None].append(age)
    found[f"{name}: memory of 1,000 clients", "MiB", MIB_MAX if goals else None].append(
        1000 * grown / clients
    )


@contextmanager
def _writing(bootstrap: str, folder: Path, rate: int, devices: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.bench.devices_writer", bootstrap, STREAM]
    with Process([*command, str(rate), str(devices)], folder / "writer.log") as writer:
        writer.wait_for("writing")
        yield


if __name__ == "__main__":
    run(measure, __doc__, sizes={"clients": CLIENTS, "rate": RATE}, each_alone=True)
