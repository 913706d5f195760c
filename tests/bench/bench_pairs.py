"""How fast two streams are joined, and what a query that may leave readings out does with more than
it can take.

Method: as bench_analysis, Kafka to Kafka, exactly once, from the end of a lane's first batch, which
compiles, to the last reading. *Pairs*: two streams with the same readings of 50 devices, 100 a
frame, joined by device within 50 ms, so each reading of one has one partner in the other; all of
them pass through the driver. Completeness: as many rows as pairs, none twice. *Shedding*: a backlog
for a query of count, mean and maximum that may leave readings out above one second of lag, and for
one that may not. Completeness: what its rows say they are made of and what `shed_readings` says was
left out is what was sent, window by window; corrected counts are right in sum within 5 %. `python
-m tests.bench.bench_pairs [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Final

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy.programs import jars
from edgewake.protocol import topics
from tests.analysis.support import left_out, results, truth
from tests.bench.analysis_lane import LaneProcess, lane_process
from tests.bench.analysis_traffic import END, FEW_KEYS, Traffic, begin_of, fill, windows
from tests.bench.figures import Found, run
from tests.services import run_kafka

OF_EACH: Final = replace(FEW_KEYS, frames=1_200)
"""Of the two streams that are joined: 120,000 readings each."""
BACKLOG: Final = replace(FEW_KEYS, frames=12_000)
WARM_UP: Final = 4
"""The part of both that the run has which nobody measures."""
PAIRS: Final = """-- name: {name}
SELECT a.speed, b.speed AS other FROM {stream} a JOIN {other} b
ON a.device = b.device AND b.event_time
BETWEEN a.event_time - INTERVAL 50 MILLISECONDS AND a.event_time + INTERVAL 50 MILLISECONDS
"""
WINDOWS: Final = """-- name: {name}
-- lateness: 1 day
{shed}SELECT device, count(speed) AS n, avg(speed) AS mean, max(speed) AS high
FROM {stream} GROUP BY window(event_time, '1 minute'), device
"""
CORRECTED_WITHIN: Final = 0.05
_names = itertools.count()


def measure(folder: Path, runs: int) -> Found:
    """Start Kafka and one session; a run that nobody measures is first."""
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        config = AnalysisConfig(
            data_dir=folder / "analysis",
            jars_dir=jars.ensure("spark"),
            trigger_ms=0,
            summary_interval_s=0,
            batch_records_max=400,
            driver_memory="1g",
            kafka=KafkaConfig(bootstrap=node.bootstrap),
        )
        topic_admin.ensure_topics(
            config.kafka, [topics.LANES, topics.PROGRESS, topics.LATE, topics.SHED, topics.WINDOWS]
        )
        with lane_process(config) as lane:
            for i in range(1 + runs):
                share, into = (1, found) if i else (WARM_UP, defaultdict(list))
                _pairs(config.kafka, lane, replace(OF_EACH, frames=OF_EACH.frames // share), into)
                _shedding(
                    config.kafka, lane, replace(BACKLOG, frames=BACKLOG.frames // share), into
                )
    return found


def _pairs(kafka: KafkaConfig, lane: LaneProcess, traffic: Traffic, found: Found) -> None:
    begin_ms = begin_of(traffic)
    stream, other = (f"bench{next(_names)}" for _ in range(2))
    for one in (stream, other):
        fill(kafka, one, traffic, begin_ms)
    name = f"{stream}_pairs"
    computed = lane.compute(
        stream,
        [PAIRS.format(name=name, stream=stream, other=other)],
        2 * traffic.count,
        other=other,
    )
    rows = [row for row in results(kafka, name) if row["device"] != END]
    assert len({(row["reading"], row["partner"]) for row in rows}) == len(rows) == traffic.count, (
        len(rows),
        traffic.count,
    )
    assert all(row["speed"] == row["other"] for row in rows)
    found["pairs: readings of both streams", "readings/s", None].append(
        computed.readings / computed.seconds
    )
    cpu_s = computed.jvm_cpu_s + computed.python_cpu_s
    found["pairs: processor time of a million readings", "s", None].append(
        cpu_s * 1e6 / computed.readings
    )
    found["pairs: Python, resident", "MiB", None].append(computed.python_mib)


def _shedding(kafka: KafkaConfig, lane: LaneProcess, traffic: Traffic, found: Found) -> None:
    for kind, shed in (
        ("takes all", ""),
        ("may leave readings out", "-- shed: random above 1 second\n"),
    ):
        stream, begin_ms = f"bench{next(_names)}", begin_of(traffic)
        fill(kafka, stream, traffic, begin_ms)
        name = f"{stream}_windows"
        computed = lane.compute(
            stream, [WINDOWS.format(name=name, stream=stream, shed=shed)], traffic.count
        )
        found[f"shedding, backlog: a query that {kind}", "readings/s", None].append(
            computed.readings / computed.seconds
        )
        sent: Counter[int] = Counter()
        for (_, start), window in windows(traffic, begin_ms).items():
            sent[start] += window.n
        rows = [
            row for row in truth(results(kafka, name), "device").values() if row["device"] != END
        ]
        taken: Counter[int] = Counter()
        for row in rows:
            taken[row["window_start"]] += round(row["n"] * row.get("kept", 1))
        lacking = Counter(left_out(kafka, name))
        assert {start: taken[start] + lacking[start] for start in sent} == sent, (
            "what is taken and left out is what was sent"
        )
        assert abs(sum(row["n"] for row in rows) / traffic.count - 1) <= CORRECTED_WITHIN
        if shed:
            found["shedding: share of the readings that was taken", "", None].append(
                sum(taken.values()) / traffic.count
            )


if __name__ == "__main__":
    run(measure, __doc__)
