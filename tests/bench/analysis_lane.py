"""One Spark session of the analysis in a process of its own, that computes what it is asked for: a
line of JSON in, a line out.

`python -m tests.bench.analysis_lane CONFIG` (JSON of AnalysisConfig). A question names streams,
queries and readings; the answer gives time and processor time from the end of the warm-up to the
last reading.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import psutil
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.configured_session import start_session_of
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.minutes.minute_job import MinuteJob
from edgewake.cloud.analysis.minutes.minute_lake import Lake
from edgewake.cloud.analysis.minutes.summary_record import StreamPlace
from edgewake.cloud.analysis.spark.session import jvm_pid, kill_jvm
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.bench.analysis_traffic import FEW_KEYS, FIELDS
from tests.services import wait_until


@dataclass(frozen=True, slots=True)
class Computed:
    """What a lane took for what came behind its warm-up."""

    readings: int
    results: int
    seconds: float
    jvm_cpu_s: float
    python_cpu_s: float
    executors_cpu_s: float
    jvm_mib: float
    python_mib: float
    state_bytes: int
    """Memory that it takes."""


@dataclass(frozen=True, slots=True)
class LaneProcess:
    """Another process with a session."""

    child: subprocess.Popen[str]

    def compute(
        self,
        stream: str,
        queries: Sequence[str],
        readings: int,
        *,
        warm: int = 1,
        other: str | None = None,
    ) -> Computed:
        """Start the lane of these query files (none: of the minute summaries), wait until it has
        computed so many readings, stop it.

        `warm`: how many of them are not measured, at least; its first batch never is. `other`: a
        stream that they join.
        """
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        question = {
            "stream": stream,
            "queries": list(queries),
            "readings": readings,
            "warm": warm,
            "other": other,
        }
        self.child.stdin.write(json.dumps(question) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        assert line, f"the session ended with {self.child.wait()}"
        return Computed(**json.loads(line))


@contextmanager
def lane_process(config: AnalysisConfig) -> Iterator[LaneProcess]:
    """Start one; it ends with the block."""
    command = [sys.executable, "-m", "tests.bench.analysis_lane", config.model_dump_json()]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield LaneProcess(child)
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.wait(60)


_Running: TypeAlias = tuple[Callable[[], int], Counters, Callable[[], int]]
"""Readings computed so far, counters, and what asks for the bytes of the state."""


class _Session:
    def __init__(self, session: SparkSession, config: AnalysisConfig) -> None:
        self._session, self._config = session, config
        self._jvm = psutil.Process(jvm_pid(session))

    def compute(
        self, stream: str, queries: Sequence[str], readings: int, warm: int, other: str | None
    ) -> Computed:
        with (
            self._lane(stream, queries, other) if queries else self._summing(stream) as (
                computed,
                counters,
                state,
            )
        ):
            wait_until(lambda: computed() >= warm, "the warm-up", timeout_s=300)
            began_s, before, results, cpu = (
                time.monotonic(),
                computed(),
                counters.results,
                self._cpu_s(),
            )
            wait_until(lambda: computed() >= readings, "all readings", timeout_s=600)
            took_s = time.monotonic() - began_s
            spent = [now - then for now, then in zip(self._cpu_s(), cpu, strict=True)]
            memory = [
                process.memory_info().rss / (1 << 20) for process in (self._jvm, psutil.Process())
            ]
            return Computed(
                computed() - before, counters.results - results, took_s, *spent, *memory, state()
            )

    @contextmanager
    def _lane(self, stream: str, queries: Sequence[str], other: str | None) -> Iterator[_Running]:
        job = self._job([name for name in (stream, other) if name is not None], queries)
        topic_admin.ensure_topics(self._config.kafka, [each.topic for each in job.queries])
        lane = Lane(self._session, self._config, job, SystemClock())

        def computed() -> int:
            assert lane.failure() is None, lane.failure()
            return lane.counters.readings

        lane.start()
        try:
            yield computed, lane.counters, lambda: _state_bytes(lane)
        finally:
            lane.stop()

    @contextmanager
    def _summing(self, stream: str) -> Iterator[_Running]:
        config = self._config.model_copy(update={"summary_interval_s": 1})
        made = MinuteJob(
            self._session,
            config,
            SystemClock(),
            random.Random(1),
            Lake(config.kept_dir / "lake", SystemClock()).keep,
        )
        made.streams = {stream: dict.fromkeys(FIELDS, FieldType.NUMBER)}
        stop = threading.Event()
        thread = threading.Thread(target=made.run, args=(stop,), daemon=True)
        thread.start()
        place = lambda: made.record.streams.get(stream, StreamPlace())  # noqa: E731
        try:
            # It counts no readings, but says how many frames it has summed up.
            yield (
                lambda: sum(place().offsets.values()) * FEW_KEYS.readings,
                made.counters,
                lambda: 0,
            )
        finally:
            stop.set()
            thread.join()

    @staticmethod
    def _job(streams: Sequence[str], queries: Sequence[str]) -> Job:
        fields = {name: FieldInfo(type=FieldType.NUMBER) for name in FIELDS}
        registered = [
            Registered(parse(text, {one: Stream(name=one, fields=fields) for one in streams}), 1)
            for text in queries
        ]
        (job,) = jobs_of(
            registered, dict.fromkeys(streams, dict.fromkeys(FIELDS, FieldType.NUMBER))
        ).values()
        return job

    def _cpu_s(self) -> tuple[float, float, float]:
        """Of the driver's JVM, of this process, of the executors of a cluster."""
        times = (
            _cpu_s(process)
            for process in psutil.process_iter()
            if _is_executor(process, self._config.master)
        )
        return _cpu_s(self._jvm), _cpu_s(psutil.Process()), sum(times)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _is_executor(process: psutil.Process, master: str) -> bool:
    try:
        return master.startswith("spark:") and any(
            word.endswith("CoarseGrainedExecutorBackend") for word in process.cmdline()
        )
    except psutil.Error:
        return False


def _state_bytes(lane: Lane) -> int:
    assert lane.query is not None
    progress: Mapping[str, Any] = lane.query.lastProgress or {}
    operators = progress["stateOperators"] if progress else []
    return sum(one["memoryUsedBytes"] for one in operators)


def main() -> None:
    """Answer until standard input ends."""
    config = AnalysisConfig.model_validate_json(sys.argv[1])
    session = start_session_of(config)
    try:
        one = _Session(session, config)
        for line in sys.stdin:
            print(json.dumps(asdict(one.compute(**json.loads(line)))), flush=True)
    finally:
        kill_jvm(session)


if __name__ == "__main__":
    main()
