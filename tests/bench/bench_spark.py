"""How fast the analysis computes windows: Kafka to Kafka, exactly once, in frames of 100 readings, on two cores.

`python -m tests.bench.bench_spark [--runs 3] [--json FILE]`. Each run has streams of its own; a lane's first batch, which compiles, is left
out. The broker shares the machine.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.lake import Lake
from edgewake.cloud.analysis.lane import Lane
from edgewake.cloud.analysis.pipeline import Job, jobs_of
from edgewake.cloud.analysis.query_file import parse
from edgewake.cloud.analysis.query_plan import Registered
from edgewake.cloud.analysis.session import jvm_pid, kill_jvm, start_session
from edgewake.cloud.analysis.summing import Summing
from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy import jars
from edgewake.protocol import frame, record, topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.field_type import FieldType
from edgewake.protocol.stream import FieldInfo, Stream
from tests.bench.figures import Found, rss_mib, run
from tests.services import run_kafka, wait_until

READINGS = 100
DEVICES = 200
FRAMES = 36_000
BATCH_FRAMES = 6_000
FIELDS = ("speed", "lat", "lon", "bat")
WINDOWS = ("10 seconds", "1 minute", "30 seconds", "2 minutes", "5 minutes")
QUERY = (
    "-- name: {}\nSELECT device, count(speed) AS n, avg(speed) AS mean, min(speed) AS low, max(speed) AS high FROM {}"
    " GROUP BY window(event_time, '{}'), device"
)
SKETCHES = (
    "-- name: {}\nSELECT approx_count_distinct(device) AS devices, approx_percentile(speed, 0.99) AS p99, approx_top_k(bat, 5) AS top"
    " FROM {} GROUP BY window(event_time, '{}')"
)


def measure(folder: Path, runs: int) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        config = AnalysisConfig(
            data_dir=folder / "analysis",
            jars_dir=jars.ensure("spark"),
            trigger_ms=0,
            summary_interval_s=0,
            state_partitions=2,
            batch_records_max=BATCH_FRAMES,
            kafka=KafkaConfig(bootstrap=node.bootstrap),
        )
        session = start_session(
            jars_dir=config.jars_dir,
            work_dir=folder / "spark",
            master=config.master,
            driver_memory="1g",
            state_partitions=config.state_partitions,
            maintenance_s=60,
        )
        try:
            bench = Bench(session, config)
            for name, queries, text in (("warm_one", 1, QUERY), ("warm_five", 5, QUERY), ("warm_sketch", 1, SKETCHES)):
                bench.seconds(name, queries, text)  # the JVM compiles what it runs often; that takes some ten seconds of work
            for i in range(runs):
                one = bench.seconds(f"one_{i}", 1, QUERY)
                five = bench.seconds(f"five_{i}", 5, QUERY)
                readings = (FRAMES - BATCH_FRAMES) * READINGS
                found["analysis: readings through one query", "readings/s", 400_000].append(readings / one)
                found["analysis: readings through five queries", "readings/s", None].append(readings / five)
                found["analysis: five queries against one", "x", 2.0].append(five / one)
                found["analysis: readings through three sketches", "readings/s", None].append(
                    readings / bench.seconds(f"sketch_{i}", 1, SKETCHES)
                )
                found["analysis: minute summaries of four fields", "readings/s", None].append(readings / bench.summary_seconds(f"sum_{i}"))
                found["analysis: driver's JVM, resident", "MiB", None].append(rss_mib(jvm_pid(session)))
        finally:
            kill_jvm(session)
    return found


class Bench:
    """Fills a stream and lets one lane compute it."""

    def __init__(self, session: SparkSession, config: AnalysisConfig) -> None:
        self._session, self._config = session, config
        topic_admin.ensure_topics(config.kafka, [topics.LANES, topics.PROGRESS, topics.LATE, topics.MINUTES])

    def seconds(self, stream: str, queries: int, text: str, batches: int = FRAMES // BATCH_FRAMES) -> float:
        """How long the batches after the first take."""
        catalogue = {stream: Stream(name=stream, fields={name: FieldInfo(type=FieldType.NUMBER) for name in FIELDS})}
        names = [f"{stream}_{i}" for i in range(queries)]
        registered = [Registered(parse(text.format(name, stream, WINDOWS[i]), catalogue), 1) for i, name in enumerate(names)]
        (job,) = jobs_of(registered, {stream: dict.fromkeys(FIELDS, FieldType.NUMBER)}).values()
        topic_admin.ensure_topics(self._config.kafka, [topics.query_topic(name, 1) for name in names])
        return self._run(job, batches)

    def summary_seconds(self, stream: str) -> float:
        """The same for the minute summaries."""
        batches = FRAMES // BATCH_FRAMES
        self._fill(stream, batches * BATCH_FRAMES)
        config = self._config.model_copy(update={"summary_interval_s": 1})
        made = Summing(self._session, config, SystemClock(), random.Random(1), Lake(config.data_dir / "lake", SystemClock()).keep)
        made.streams = {stream: dict.fromkeys(FIELDS, FieldType.NUMBER)}
        stop = threading.Event()
        thread = threading.Thread(target=made.run, args=(stop,), daemon=True)
        thread.start()
        try:
            wait_until(lambda: made.counters.batches >= 1, "the first batch", timeout_s=300)
            started = time.monotonic()
            wait_until(lambda: made.counters.batches >= batches, "all batches", timeout_s=600)
            return time.monotonic() - started
        finally:
            stop.set()
            thread.join()

    def _run(self, job: Job, batches: int) -> float:
        self._fill(job.stream, batches * BATCH_FRAMES)
        lane = Lane(self._session, self._config, job, SystemClock())
        lane.start()
        try:
            wait_until(lambda: _computed(lane) >= BATCH_FRAMES * READINGS, "the first batch", timeout_s=300)
            started, before = time.monotonic(), _computed(lane)
            wait_until(lambda: _computed(lane) >= batches * BATCH_FRAMES * READINGS, "all batches", timeout_s=600)
            took = time.monotonic() - started
        finally:
            lane.stop()
        # Scaled to what the run was to compute after the first batch, should the watch have come a batch late.
        return took * (batches - 1) * BATCH_FRAMES * READINGS / (lane.counters.readings - before)

    def _fill(self, stream: str, frames: int) -> None:
        topic_admin.ensure_topics(self._config.kafka, [topics.stream_topic(stream)])
        producer = clients.producer(self._config.kafka, "bench", **{"queue.buffering.max.kbytes": 262_144})
        rng = random.Random(1)
        now = SystemClock().now_ms()
        columns = [{name: [round(rng.random() * 100, 2) for _ in range(READINGS)] for name in FIELDS} for _ in range(50)]
        for i in range(frames):
            number = i // DEVICES
            t = [now + number * 100 + j for j in range(READINGS)]
            body = frame.encode(frame.Frame(1, number + 1, number * READINGS + 1, t, columns[i % 50]))
            device = f"d{i % DEVICES}"
            value = record.encode(
                device=device, stream=stream, mode=record.Mode.ACK, sent_at=None, received_at=t[-1] + 50, frame_bytes=body
            )
            while True:
                try:
                    producer.produce(topics.stream_topic(stream), value, device)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0


def _computed(lane: Lane) -> int:
    assert lane.failure() is None, lane.failure()
    return lane.counters.readings


if __name__ == "__main__":
    run(measure, __doc__)
