"""How fast the analysis computes windows, Kafka to Kafka, exactly once, beside other stream
processors on the same records and machine.

`python -m tests.bench.bench_analysis [--runs 3] [--rivals 1] [--rivals-only LIBRARY] [--json
FILE]`. A query counts, averages, takes the maximum and an approximate distinct count for each
device and minute. Few keys: 50 devices in frames of 100 readings, 14.4 million of them (3.6 for
summaries), in batches as large as they are by default; many keys: 100,000 devices in frames of 4
readings, one frame a minute, so 4 readings a result, 3.2 million of them in batches of 50,000
frames. Each run has a stream of its own, and what is measured is its second half: for some ten
seconds the JVM compiles what a new lane runs. A session computes two of each before that nobody
measures. Results of the main query are read back from Kafka and compared with sums that were made
without our code: counts, maxima and means are equal, distinct counts within 5 %.

Rivals get the first 360,000 of few keys and 400,000 of many, in the same records, one process each.
Two forms of each: all readings through its window, as its documents show; and frames summed up by
hand in Python before the window, which is a program for this query alone. Quix Streams keeps its
state without a changelog; Bytewax has no exactly-once to Kafka, and runs without recovery. Faust,
at least once, keeps its state without a changelog, and its windows are closed by lines of ours: its
own timer goes by the machine's clock and loses the windows of all partitions but one. Pathway, at
least once and without persistence, passes on each change of a window, and the last one counts.
Their time runs from the first record to the last result, without their start. Processor time is of
the driver's JVM, of Python and of the executors; Kafka shares the machine and is not in it.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Final

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy.programs import jars
from edgewake.protocol import topics
from tests.bench import analysis_results
from tests.bench.analysis_lane import Computed, LaneProcess, lane_process
from tests.bench.analysis_replay import rows_per_s
from tests.bench.analysis_rivals import RIVALS, install, rate
from tests.bench.analysis_traffic import FEW_KEYS, MANY_KEYS, Traffic, begin_of, fill, windows
from tests.bench.figures import Found, run
from tests.services import Kafka, run_kafka

MAIN: Final = (
    "count(speed) AS n, avg(speed) AS mean, max(speed) AS high, approx_count_distinct(bat) AS "
    "levels"
)
MORE: Final = MAIN + ", approx_percentile(speed, 0.99) AS p99, approx_top_k(bat, 5) AS top"
PLAIN: Final = "count(speed) AS n, avg(speed) AS mean, max(speed) AS high"
SHARED_WINDOWS: Final = ("10 seconds", "1 minute", "30 seconds", "2 minutes", "5 minutes")
BACKLOG: Final = replace(FEW_KEYS, frames=144_000)
MANY_BACKLOG: Final = replace(MANY_KEYS, frames=800_000)
OPEN_KEYS: Final = Traffic(devices=1_000_000, readings=1, step_ms=60_000, frames=1_000_000)
RIVALS_SHARE: Final = (
    ("50 keys", replace(FEW_KEYS, frames=3_600)),
    ("100,000 keys", replace(MANY_KEYS, frames=100_000)),
)
"""What rivals get of it: they take longer."""
WARM: Final = 2
"""Rounds that nobody measures: with many keys the JVM still compiles in the second one what a
batch's plan takes, a tenth of the time."""
FLOORS: Final = {"50 keys": 1_000_000, "100,000 keys": 150_000}
LIMITS: Final = """
A frame that lies in one window is read, summed up and sketched as a whole; quantiles and most
frequent values look at each reading. A query beside others costs its results: ten queries have 19
times the results of the one that they are compared with, and fifty 97 times, most of them of
windows of ten seconds, one for each frame. With many keys it is the same, four readings a result:
Spark groups it before and after it crosses from one task to another and once more beside the state,
which together takes a third; the state itself a twentieth. Eight times the best of all is out of
reach with them: of 34 µs of processor that a result took, 17 were those of Kafka, its clients,
Python, and what no grouping saves (to read frames, to sketch, to send from task to task, to plan).
If all the rest took nothing, it would be seven and a half times. Between two batches nobody
computes: Spark plans, asks Kafka and writes its files, the driver hands the results to Kafka's
client, and a transaction ends.
"""
_streams = itertools.count()


class World:
    """Kafka, and streams of their own for each run."""

    def __init__(self, config: AnalysisConfig) -> None:
        self.config = config
        topic_admin.ensure_topics(
            config.kafka, [topics.LANES, topics.PROGRESS, topics.LATE, *topics.SUMMARIES]
        )

    def compute(
        self,
        lane: LaneProcess,
        traffic: Traffic,
        columns: str,
        *,
        queries: int = 1,
        check: bool = False,
    ) -> Computed:
        """Fill a stream and let a lane compute it; what it took for the second half."""
        stream = f"bench{next(_streams)}"
        begin_ms = begin_of(traffic)
        fill(self.config.kafka, stream, traffic, begin_ms)
        names = [f"{stream}_q{i}" for i in range(queries)]
        files = [_query(name, stream, columns, i, queries) for i, name in enumerate(names)]
        computed = lane.compute(stream, files, traffic.count, warm=traffic.count // 2)
        sys.stderr.write(
            f"  {computed.readings:,} readings, {queries} queries of {columns}: "
            f"{computed.seconds:.1f} s\n"
        )
        if check:
            found = analysis_results.read(self.config.kafka, topics.query_topic(names[0], 1))
            analysis_results.check(found, windows(traffic, begin_ms), "edgewake")
        return computed


def _query(name: str, stream: str, columns: str, i: int, queries: int) -> str:
    window = "1 minute" if queries == 1 else SHARED_WINDOWS[i % len(SHARED_WINDOWS)]
    return (
        f"-- name: {name}\nSELECT device, {columns} FROM {stream} GROUP BY window(event_time, "
        f"'{window}'), device"
    )


def configuration(data_dir: Path, node: Kafka) -> AnalysisConfig:
    """Of a lane that takes batch after batch, with nothing beside it."""
    return AnalysisConfig(
        data_dir=data_dir,
        jars_dir=jars.ensure("spark"),
        trigger_ms=0,
        summary_interval_s=0,
        state_partitions=2,
        driver_memory="2g",
        kafka=KafkaConfig(bootstrap=node.bootstrap),
    )


def measure(folder: Path, runs: int, rivals: int, rivals_only: str) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        if rivals_only:
            _rivals(KafkaConfig(bootstrap=node.bootstrap), folder, runs, found, rivals_only)
            return found
        config = configuration(folder / "analysis", node)
        world = World(config)
        with lane_process(config) as lane:
            for columns in (PLAIN, MAIN):
                world.compute(lane, BACKLOG, columns)
            for _ in range(runs):
                _few_keys(world, lane, found)
        with lane_process(
            config.model_copy(update={"data_dir": folder / "many", "batch_records_max": 50_000})
        ) as lane:
            for i in range(WARM + runs):
                _many_keys(world, lane, found if i >= WARM else defaultdict(list))
        for i in range(runs):
            replayed = rows_per_s(folder / f"replay-{i}", node.bootstrap, f"replay{i}")
            found["edgewake replay --speed max, one process", "rows/s", 20_000].append(replayed)
        if rivals:
            _rivals(config.kafka, folder, runs, found)
    return found


def _few_keys(world: World, lane: LaneProcess, found: Found) -> None:
    main = world.compute(lane, BACKLOG, MAIN, check=True)
    found["50 keys: count, mean, max, distinct", "readings/s", FLOORS["50 keys"]].append(
        main.readings / main.seconds
    )
    found["50 keys: the same, processor time of a million readings", "s", None].append(
        cpu_s(main) * 1e6 / main.readings
    )
    more = world.compute(lane, BACKLOG, MORE)
    found["50 keys: and quantile and top 5", "readings/s", 500_000].append(
        more.readings / more.seconds
    )
    summed = world.compute(lane, FEW_KEYS, PLAIN, queries=0)
    found["50 keys: minute summaries of four fields", "readings/s", None].append(
        summed.readings / summed.seconds
    )
    one = world.compute(lane, BACKLOG, PLAIN)
    found["50 keys: count, mean, max", "readings/s", None].append(one.readings / one.seconds)
    for queries, ceiling in ((10, 1.8), (50, 5.0)):
        many = world.compute(lane, BACKLOG, PLAIN, queries=queries)
        ratio = many.seconds / many.readings * one.readings / one.seconds
        found[f"{queries} queries on one stream against one", "x", ceiling].append(ratio)


def _many_keys(world: World, lane: LaneProcess, found: Found) -> None:
    main = world.compute(lane, MANY_BACKLOG, MAIN, check=True)
    found["100,000 keys: count, mean, max, distinct", "readings/s", FLOORS["100,000 keys"]].append(
        main.readings / main.seconds
    )
    plain = world.compute(lane, MANY_BACKLOG, PLAIN, check=True)
    found["100,000 keys: count, mean, max", "readings/s", None].append(
        plain.readings / plain.seconds
    )
    found["100,000 keys: results through the driver", "results/s", None].append(
        plain.results / plain.seconds
    )
    found["100,000 keys: Python's processor time of a result", "µs", None].append(
        plain.python_cpu_s * 1e6 / plain.results
    )
    found["100,000 keys: driver's JVM, resident", "MiB", None].append(plain.jvm_mib)
    found["100,000 keys: Python, resident", "MiB", None].append(plain.python_mib)
    still = world.compute(lane, OPEN_KEYS, PLAIN)
    found["a million open keys: memory that the state takes for a key", "bytes", 250].append(
        still.state_bytes / OPEN_KEYS.devices
    )


def cpu_s(computed: Computed) -> float:
    """Of everybody who computes."""
    return computed.jvm_cpu_s + computed.python_cpu_s + computed.executors_cpu_s


def _rivals(config: KafkaConfig, folder: Path, runs: int, found: Found, only: str = "") -> None:
    pythons = install(folder / "rivals", only)
    for name, traffic in RIVALS_SHARE:
        best = best_exact = 0.0
        for rival in RIVALS:
            if rival.library not in pythons:
                continue
            for _ in range(runs):
                stream = f"rival{next(_streams)}"
                try:
                    reached = rate(config, pythons[rival.library], rival, stream, traffic, folder)
                except (
                    AssertionError,
                    subprocess.TimeoutExpired,
                ) as error:  # none takes the others' figures with it
                    sys.stderr.write(f"  {rival.name}: no figure: {error}\n")
                    break
                sys.stderr.write(f"  {rival.name}, {name}: {reached:,.0f} readings/s\n")
                found[f"{name}: {rival.name}", "readings/s", None].append(reached)
                best = max(best, reached) if rival.form == "readings" else best
                best_exact = max(best_exact, reached) if rival.is_exact else best_exact
        ours = found.get((f"{name}: count, mean, max, distinct", "readings/s", FLOORS[name]), [])
        for which, rate_of_it in (
            ("the best of them", best),
            ("the best of those that are exactly once, as ours is", best_exact),
        ):
            if rate_of_it and ours:
                found[f"{name}: against {which}", "times", 8.0].extend(
                    one / rate_of_it for one in ours
                )


if __name__ == "__main__":
    run(measure, __doc__, sizes={"rivals": 1, "rivals_only": ""})
