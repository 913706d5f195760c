"""A million states: how fast one, two and four sequencers put records in order, and what a kill -9
at full load costs.

Method: all records lie in `ew.up` (64 partitions) before the clock runs, so the load is above
capacity; each stage has its own RECORDS, one of each state in turn, which is the worst case for
caches and for rows. A rate counts from the first position that moves to the last record committed.
Kafka and all processes share the machine, so beside the rate there is the processor time of a
record: where cores do not suffice for n processes, the ratio of rates says nothing and the ratio of
processor times does.

Takeover: from the kill to the moment when every shard of the dead process has gone on. Where that
time goes, by the log of the process that lives: the group waits `session_s` for the dead one (6 s,
the default, because a broker allows no less by its own) and up to half a second until it tells the
other one; a shard is restored when its rows and the records after them are read; then it has its
turn among all that have a backlog. Restart: one process for all states, and for more of them.

The records are written as bridges write them, so a turn of a process holds some of all of its
shards, and its transaction writes to a partition of `ew.sequence` for each: one of four processes
has a quarter of these for as many records.

Completeness: at the end every record of every stream is read and compared with what was written:
each frame once, in order, no gap record.

`python -m tests.bench.bench_sequencer [--runs 1] [--states 1000000] [--records 600000] [--more
1000000] [--json FILE]`
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bench.figures import Found, cpu_s, rss_mib, run
from tests.bench.up_writer import STREAMS, names
from tests.sequencer.progress import Progress
from tests.services import Process, free_ports, part, run_kafka, wait_until

LIMITS: Final = """
Six seconds of a takeover are the group's: with Kafka's defaults no process may be taken for dead
sooner. The rest is the work of one core: reading rows, and up to 5000 records of each partition
again, while the living process goes on with its own. On a machine with as many cores as processes,
and some for Kafka, the rates should grow as the processor times allow; with two cores they cannot.
"""
PROCESSES = (1, 2, 4)
STAGE_S = 240.0
"""Seconds for one stage at most."""
_FRAME = re.compile(rb'"frame":(\d+)')


def measure(folder: Path, runs: int, *, states: int, records: int, more: int) -> Found:
    """Start Kafka, fill, run the stages, and compare."""
    found: Found = defaultdict(list)
    for i in range(runs):
        with run_kafka(folder / f"kafka-{i}") as node:
            config = KafkaConfig(bootstrap=node.bootstrap, retention_bytes=1 << 40)
            _Bench(folder / f"run-{i}", config, states, records, more, found).go()
    return found


class _Bench:
    def __init__(
        self, folder: Path, config: KafkaConfig, states: int, records: int, more: int, found: Found
    ) -> None:
        folder.mkdir()
        self.folder, self.config, self.states, self.records, self.more, self.found = (
            folder,
            config,
            states,
            records,
            more,
            found,
        )
        self.written = self.grown = 0
        topic_admin.ensure_topics(config, [topics.UP, topics.SEQUENCE])
        self.admin = clients.admin(config)
        self.progress = Progress(config)

    def go(self) -> None:
        self.write(self.states)
        rates = {}
        with self.sequencers(1) as (one,):
            rate, cpu_us = self.drain([one])
            self.figure("first frame of each state", "records/s", rate)
            self.figure("resident memory with all states", "MiB", rss_mib(one.pid))
            self.figure(
                "memory of a state",
                "bytes",
                self.metric(one, "states_bytes") / self.metric(one, "states"),
            )
            self.figure("rows of states", "/1000 records", self.progress.rows / self.written * 1000)
        for count in PROCESSES:
            self.write(self.records)
            with self.sequencers(count) as processes:
                rate, cpu_us = self.drain(processes)
                rates[count] = rate, cpu_us
            self.figure(f"{count} process{'es' if count > 1 else ''}", "records/s", rate)
            self.figure(
                f"{count} process{'es' if count > 1 else ''}: processor time of a record",
                "µs",
                cpu_us,
            )
        for count in PROCESSES[1:]:
            self.figure(
                f"{count} processes: rate over n times one",
                "of 1",
                rates[count][0] / rates[1][0] / count,
            )
            self.figure(
                f"{count} processes: processor time of one over n",
                "of 1",
                rates[1][1] / rates[count][1],
                0.9,
            )
        self.kill()
        self.restart()
        if self.more:
            self.grow()
            self.restart()
        self.compare()
        self.progress.close()

    def figure(self, name: str, unit: str, value: float, floor: float | None = None) -> None:
        print(f"  {name}: {value:,.2f} {unit}", flush=True)
        self.found[f"sequencer: {name}", unit, floor].append(value)

    # Parts

    def write(self, count: int) -> None:
        """More records behind all others."""
        now_ms = time.time_ns() // 1_000_000
        half = count // 2
        jobs = (
            [(self.written, half), (self.written + half, count - half)]
            if self.written % self.states
            else [(self.written, count)]
        )
        # Two writers would disorder a device's frames if both had some of it; one after the other
        # keeps each device's order.
        for first, some in jobs:
            self._write(first, some, self.states, now_ms)
        self.written += count

    def _write(self, first: int, count: int, states: int, now_ms: int) -> None:
        command = [sys.executable, "-m", "tests.bench.up_writer", self.config.bootstrap]
        subprocess.run(
            [*command, *map(str, (first, count, states, now_ms))], check=True, timeout=STAGE_S
        )

    def grow(self) -> None:
        """As many states more, one frame of each, in one process."""
        self._write(self.states, self.more, self.states + self.more, time.time_ns() // 1_000_000)
        self.grown = self.more
        with self.sequencers(1) as (one,):
            self.drain([one])

    @property
    def total(self) -> int:
        """Records written."""
        return self.written + self.grown

    @contextlib.contextmanager
    def sequencers(self, count: int) -> Iterator[Sequence[Process]]:
        """So many, each serving its part."""
        wait_until(
            self._nobody_is_left,
            "the group has forgotten the processes of the last stage",
            timeout_s=STAGE_S,
        )
        processes = [self.start(i) for i in range(count)]
        try:
            yield processes
        finally:
            for process in processes:
                if process.is_running():
                    assert process.stop() == 0, process.output()[-2000:]

    def _nobody_is_left(self) -> bool:
        group = topics.SEQUENCER_GROUP
        try:
            return not self.admin.describe_consumer_groups([group])[group].result().members
        except KafkaException:
            return True

    def start(self, number: int) -> Process:
        (port,) = free_ports(1)
        file = self.folder / f"sequencer-{number}.toml"
        states_max = 2 * (self.states + self.more)
        keys = f'name = "bench-{number}"\nmetrics_port = {port}\nstates_max = {states_max}\n'
        file.write_text(f'{keys}[kafka]\nbootstrap = "{self.config.bootstrap}"\n')
        process = part("sequencer", file, self.folder / f"sequencer-{number}.log")
        process.port = port  # type: ignore[attr-defined]
        return process.start()

    def metric(self, process: Process, name: str) -> float:
        """A figure of a process; NaN while it does not answer yet."""
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(
                f"http://127.0.0.1:{process.port}/metrics", timeout=10
            ) as answer,
        ):  # type: ignore[attr-defined]
            for line in answer.read().decode().splitlines():
                if line.startswith(f"edgewake_sequencer_{name} "):
                    return float(line.rpartition(" ")[2])
        return math.nan

    # Stages

    def drain(self, processes: Sequence[Process]) -> tuple[float, float]:
        """Records a second and processor µs a record until everything is passed on."""
        before = self.progress.done()
        wait_until(lambda: self.progress.done() > before, "it begins", timeout_s=STAGE_S)
        start, used, first = (
            time.perf_counter(),
            sum(cpu_s(one.pid) for one in processes),
            self.progress.done(),
        )
        wait_until(
            lambda: self.progress.done() >= self.total, "everything is passed on", timeout_s=STAGE_S
        )
        took, count = time.perf_counter() - start, self.total - first
        return count / took, (sum(cpu_s(one.pid) for one in processes) - used) / count * 1e6

    def kill(self) -> None:
        """Kill -9 one of two at full load, with so much waiting that the other one is busy with its
        own until the end.
        """
        self.write(2 * self.records)
        with self.sequencers(2) as (victim, other):
            wait_until(
                lambda: self.metric(victim, "shards") == topics.SHARDS / 2,
                "it serves half",
                timeout_s=STAGE_S,
            )
            goal = self.written - 2 * self.records * 3 // 4
            wait_until(lambda: self.progress.done() >= goal, "full load", timeout_s=STAGE_S)
            served = self._served(victim)
            victim.kill()
            killed_s, killed_ms = time.monotonic(), time.time_ns() // 1_000_000
            self.progress.poll()
            ends, seen = self.progress.ends(), dict(self.progress.positions)
            waiting = {
                p
                for p in self.progress.positions
                if topics.shard_of(p) in served and seen[p] < ends[p]
            }
            assert waiting, (
                "nothing waited in the dead process's shards: the kill did not come at full load"
            )
            moved: dict[int, float] = {}

            def all_moved() -> bool:
                self.progress.poll(0.01)
                for partition in waiting - moved.keys():
                    if self.progress.positions[partition] > seen[partition]:
                        moved[partition] = time.monotonic() - killed_s
                return moved.keys() == waiting

            wait_until(all_moved, "the shards of the dead process go on", timeout_s=STAGE_S)
            restored = self._restored(other, killed_ms)
            self.figure("kill -9 at full load: until the first shard is restored", "s", restored[0])
            self.figure("kill -9 at full load: until all shards are restored", "s", restored[-1])
            self.figure(
                "kill -9 at full load: takeover of the first shard", "s", min(moved.values())
            )
            self.figure(
                "kill -9 at full load: takeover of all shards", "s", max(moved.values()), 15
            )
            wait_until(
                lambda: self.progress.done() >= self.total,
                "everything is passed on",
                timeout_s=STAGE_S,
            )

    def _served(self, process: Process) -> set[int]:
        """The shards that it was assigned last, by its log."""
        found = re.findall(r"serves shards \[([\d, ]*)\]", process.output())
        return set(map(int, found[-1].split(",")))

    def _restored(self, process: Process, since_ms: int) -> list[float]:
        """Seconds after which it had restored each shard, by its log."""
        lines = [
            json.loads(line)
            for line in process.output().splitlines()
            if '"event":"sequencer.restored"' in line
        ]
        return sorted((line["time"] - since_ms) / 1000 for line in lines if line["time"] > since_ms)

    def restart(self) -> None:
        """All states in one process: from its start until it has them all and is ready."""
        name = f"restart with {self.states + self.grown:,} states"
        with self.sequencers(1) as (one,):
            start = time.monotonic()
            wait_until(
                lambda: self.metric(one, "ready") == 1, "it has caught up", timeout_s=STAGE_S
            )
            self.figure(f"{name}: ready after", "s", time.monotonic() - start, 15)
            self.figure(
                f"{name}: memory of a state",
                "bytes",
                self.metric(one, "states_bytes") / self.metric(one, "states"),
                100,
            )
            self.figure(f"{name}: resident memory", "MiB", rss_mib(one.pid))
            wait_until(
                lambda: self.metric(one, "states") == self.states + self.grown,
                "every state is there",
                timeout_s=STAGE_S,
            )

    def compare(self) -> None:
        """Every record of every stream against what was written."""
        passed = [0] * (self.states + self.grown)
        repeated = gaps = disorder = 0
        numbers = {
            bytes(device, "ascii"): i
            for i in range(0, len(passed), STREAMS)
            for device, _ in [names(i)]
        }
        reader = clients.consumer(
            self.config,
            "bench-compare",
            **{"enable.partition.eof": True, "auto.offset.reset": "earliest"},
        )
        for stream in range(STREAMS):
            topic = topics.stream_topic(f"bench_{stream}")
            open_partitions = set(range(metadata.partition_count(reader, topic)))
            reader.assign(
                [
                    TopicPartition(topic, partition, OFFSET_BEGINNING)
                    for partition in open_partitions
                ]
            )
            while open_partitions:
                for message in reader.consume(10_000, 1.0):
                    if message.error() is not None:
                        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                        open_partitions.discard(message.partition())
                        continue
                    value = message.value()
                    state, match = numbers[message.key()] + stream, _FRAME.search(value)
                    assert match is not None
                    frame = int(match[1])
                    if b'"gap":' in value:
                        gaps += 1
                    elif frame <= passed[state]:
                        repeated += 1
                    else:
                        disorder += frame != passed[state] + 1
                        passed[state] = frame
        reader.close()
        rounds, rest = divmod(self.written, self.states)
        missing = sum(
            passed[state] < rounds + (state < rest) for state in range(self.states)
        ) + passed[self.states :].count(0)
        self.figure("repeated", "frames", repeated)
        self.figure("missing or out of order", "frames", disorder + missing)
        self.figure("false gaps", "gaps", gaps)
        assert (repeated, disorder, missing, gaps) == (0, 0, 0, 0)


if __name__ == "__main__":
    run(measure, __doc__, sizes={"states": 1_000_000, "records": 600_000, "more": 1_000_000})
