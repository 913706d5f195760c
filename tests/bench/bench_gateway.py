"""What 1,000 things behind one gateway cost, beside the same readings of the gateway alone: a real
agent, a real broker, a real bridge, a real sequencer and a real Kafka.

`python -m tests.bench.bench_gateway [--runs 3] [--things 1000] [--seconds 20] [--json FILE]`. Once
a second one document with a reading of each thing (time, number, a value) is posted to the HTTP
intake of the agent, first with `things = "devices"`, so that each thing has a stream, numbers and
frames of its own, then of the same things with `things = "field"`, as one stream of the gateway.
CPU is that of the agent's and the bridge's process (user and system time), from the first document
to the moment when the stream in Kafka has all; the names of things are made known before. Memory is
the agent's at the end of each half, with all its streams. Readings a record: how many Kafka's
records hold, as each thing has frames of its own. Completeness: each number of each thing is in the
stream once, behind the sequencer, and nothing else, or the run fails.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import httpx

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from tests.bench.figures import Found, cpu_s, rss_mib, run
from tests.bridge.running import World, read, start
from tests.services import (
    PATIENCE_S,
    free_ports,
    part,
    port_is_open,
    run_kafka,
    run_mosquitto,
    wait_until,
)

GATEWAY: Final = "gw-bench"
BRIDGE: Final = "bench-gateway"
PERIOD_S: Final = 1.0
AGENT: Final = """
device = "{gateway}"
data_dir = "{folder}/data"
[mqtt]
port = {mqtt}
[[source]]
type = "http_intake"
stream = "power"
things = "{things}"
things_max = {count}
port = {port}
"""


def measure(folder: Path, runs: int, things: int = 1000, seconds: int = 20) -> Found:
    """All figures."""
    found: Found = defaultdict(list)
    for number in range(runs):
        place = folder / str(number)
        place.mkdir()
        with run_kafka(place / "kafka") as node, run_mosquitto(place / "broker") as broker:
            here = World(broker, node, place)
            try:
                here.bridge(BRIDGE)
                here.sequencer()
                for kind, name in (("devices", "each a device"), ("field", "all one stream")):
                    _half(here, kind, name, things, seconds, found)
            finally:
                here.stop()
    return found


def _half(here: World, kind: str, name: str, things: int, seconds: int, found: Found) -> None:
    folder = here.folder / kind
    folder.mkdir()
    (port,) = free_ports(1)
    gateway = f"{GATEWAY}-{kind}"
    file = folder / "agent.toml"
    file.write_text(
        AGENT.format(
            gateway=gateway,
            folder=folder,
            mqtt=here.broker.port,
            things=kind,
            count=things,
            port=port,
        )
    )
    agent = part("agent", file, folder / "agent.log")
    start(agent)
    bridge = here.parts[0].pid
    names = [f"meter-{kind}-{n:04d}" for n in range(things)]
    try:
        wait_until(lambda: port_is_open(port), "the intake")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            came = _Came(here.config, gateway)
            _post(client, names, 0)
            came.wait(things)
            used_s = [cpu_s(pid) for pid in (agent.pid, bridge)]
            records = came.records
            begin_s = time.monotonic()
            for n in range(1, seconds + 1):
                _post(client, names, n)
                time.sleep(max(0.0, begin_s + n * PERIOD_S - time.monotonic()))
            came.wait(things * (seconds + 1))
            used_s = [
                cpu_s(pid) - old for pid, old in zip((agent.pid, bridge), used_s, strict=True)
            ]
            sent = things * seconds
            for of, cpu in zip(("agent", "bridge"), used_s, strict=True):
                found[f"{of}, {name}", "µs/reading", None].append(cpu / sent * 1e6)
            found[f"agent's memory, {name}", "MiB", None].append(rss_mib(agent.pid))
            per_record = sent / (came.records - records)
            found[f"readings a record, {name}", "readings", None].append(per_record)
            came.check(names, seconds)
    finally:
        if agent.is_running():
            agent.stop()


class _Came:
    """What Kafka has of one gateway."""

    def __init__(self, kafka: KafkaConfig, gateway: str) -> None:
        self._kafka, self._gateway = kafka, gateway
        self._counts = Counter[tuple[str, int]]()
        self.records = 0

    def _read(self) -> int:
        """All readings up to now, from the beginning: a reader that waits is slow to go on."""
        self._counts.clear()
        self.records = 0
        for message in read(self._kafka, topics.stream_topic("power")):
            one = record.decode(message.value() or b"")
            key = (message.key() or b"").decode()
            if one.stream != "power" or self._gateway not in (key, one.via):
                continue
            self.records += 1
            fields = one.frame.fields
            of = fields.get("thing") or [key] * len(fields["n"])
            self._counts.update(zip(map(str, of), map(int, fields["n"]), strict=True))  # type: ignore[arg-type]
        return self._counts.total()

    def wait(self, count: int) -> None:
        """Until so many readings are there."""
        wait_until(lambda: self._read() >= count, f"{count} readings in Kafka")

    def check(self, names: list[str], last: int) -> None:
        """Raises AssertionError unless each thing's numbers are there once."""
        wanted = {(name, n) for name in names for n in range(last + 1)}
        assert self._counts.keys() == wanted, "a reading is missing, or is nobody's"
        assert set(self._counts.values()) == {1}, "a reading came twice"


def _post(client: httpx.Client, names: list[str], n: int) -> None:
    t = time.time_ns() // 1_000_000
    answer = client.post("/", json=[{"thing": one, "t": t, "n": n, "w": 51.2} for one in names])
    assert answer.status_code < 300, answer.text


if __name__ == "__main__":
    run(measure, __doc__, sizes={"things": 1000, "seconds": 20})
