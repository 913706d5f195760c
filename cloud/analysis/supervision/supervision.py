"""Keeps one lane running for each wanted job.

It plans and starts it, restarts it after a failure, takes out queries at fault, and stops it.

All of it belongs to the main loop (analysis/run.py); plans are made beside it (starts.py).
"""

from __future__ import annotations

import logging
import random
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from confluent_kafka import KafkaException
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job, lane_place
from edgewake.cloud.analysis.lanes.failure_causes import cause_of, fault_of
from edgewake.cloud.analysis.lanes.failures import Failure, Fault, Step, Trouble, step
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.lanes.lane_time import Upstream
from edgewake.cloud.analysis.supervision import blame, isolation, start_record
from edgewake.cloud.analysis.supervision.blame import FAULTS, Types
from edgewake.cloud.analysis.supervision.slow_search import FAULTS as SEARCH_FAULTS
from edgewake.cloud.analysis.supervision.slow_search import Found
from edgewake.cloud.analysis.supervision.starts import Starts
from edgewake.cloud.analysis.supervision.supervised_lane import SupervisedLane
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError

log = logging.getLogger("edgewake.analysis")

AWAY_S: Final = 4.0
"""The longest wait before a lane is started again, s, where Kafka, a disk or a worker is away: its
windows stay open until it runs."""
STOP_S: Final = 3.0
"""How long the lanes may take to end; then the JVM is killed, which costs nothing but doing the
batch again."""

LaneKey: TypeAlias = tuple[str, LaneKind]
"""Place and kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The process' services for its lanes."""

    types: Callable[[], Types]
    """Stream → field → type, from the catalogue."""
    beat: Callable[[], None]
    """Gives a sign of life."""
    leads: Callable[[], bool]
    """May lanes be started now?"""
    check_spark: Callable[[], None]
    """Raises where only a new process can go on."""
    on_start: Callable[[Job], None]
    """Called with queries whose progress their lane reports from now on."""
    on_retry: Callable[[Job, str], None]
    """Called with queries whose lane failed, with the reason, and is tried again."""


class Supervision:
    """The lanes of an analysis. `reconcile` says which are wanted; the rest is called each turn."""

    def __init__(
        self,
        session: SparkSession,
        config: AnalysisConfig,
        clock: Clock,
        rng: random.Random,
        upstream: Upstream,
        around: Around,
    ) -> None:
        self._session, self._config, self._clock, self._rng = session, config, clock, rng
        self._upstream, self._around = upstream, around
        self._starts = Starts(start_record.StartRecord(config.kept_dir / "starts.json"))
        self.places: dict[LaneKey, SupervisedLane] = {}
        self.failed: dict[str, str] = {}
        """Query (label) → why it was taken out."""
        self.isolated: set[str] = set()
        """Queries (label) with lanes of their own."""
        self.changes = 0
        """Grows when other jobs are wanted than before, because of what happened here."""

    @property
    def record(self) -> start_record.StartRecord:
        """The queries that were being started when a process died."""
        return self._starts.record

    def running(self) -> dict[LaneKey, Lane]:
        """The lanes that run."""
        return {key: place.lane for key, place in self.places.items() if place.lane is not None}

    def reconcile(self, jobs: Mapping[LaneKey, Job], stop: threading.Event) -> None:
        """Start these lanes, and stop all others."""
        self._starts.keep(jobs)
        for key, job in jobs.items():
            if not stop.is_set() and self._begins(key, job):
                self._plan(key, job)
        for key, place in list(self.places.items()):
            if place.lane is not None and place.lane.job != jobs.get(key):
                self._stop(key, place)
            if key not in jobs:
                del self.places[key]

    def start_planned(self, stop: threading.Event) -> None:
        """Start the lanes whose plans are made."""
        for key, lane in self._starts.planned():
            place = self.places.get(key)
            if (
                place is not None
                and not place.is_held
                and not stop.is_set()
                and self._around.leads()
            ):
                self._start(key, place, lane)
            else:
                lane.stop()

    def is_due(self) -> bool:
        """May a lane that failed be tried again?"""
        now_s = self._clock.monotonic_s()
        stand = [
            place
            for key, place in self.places.items()
            if place.lane is None and self._starts.job(key) is None
        ]
        return any(not place.is_held and now_s >= place.not_before_s for place in stand)

    def look_after(self) -> bool:
        """Publish which lanes run, and note those that ended and queries that failed; did any?

        Raises LocalError where another process computes a lane, Unavailable where Spark has ended.
        """
        before, has_ended = self.changes, False
        for key, place in self.places.items():
            if place.lane is None:
                continue
            if place.lane.broken:
                self.failed |= place.lane.broken
                self.changes += 1
            failure = place.lane.failure() or self._speak(place.lane)
            if failure is not None:
                lane, place.lane = place.lane, None
                if lane.finished:
                    place.trouble = Trouble()
                    place.backoff.reset()
                lane.stop()
                self._on_failure(key, place, lane.job, lane.checkpoint, failure)
                has_ended = True
        return has_ended or self.changes > before

    def hold(self, key: LaneKey) -> None:
        """Stop a lane, and keep it stopped until `release`."""
        place = self.places[key]
        self._stop(key, place)
        place.emitted_rows.clear()  # rows may be emitted again
        place.is_held = True

    def release(self) -> None:
        """Start the lanes again that are held."""
        for place in self.places.values():
            place.is_held = False

    def isolate(self, found: Found, lane: Lane) -> None:
        """Isolate a query: give it a lane of its own."""
        place, query = self.places[found.lane], found.slow.query
        self._stop(found.lane, place)
        self.changes += 1  # whatever becomes of it, the lane is to start again
        now_ms = self._clock.now_ms()
        reason = isolation.why(found.slow, now_ms)
        try:
            own = isolation.isolate(self._config, lane, query, reason, now_ms, self._rng)
        except SEARCH_FAULTS as error:
            log.warning(
                "query %s stays in its lane: %s",
                query.query.name,
                cause_of(error)[:500],
                extra={"event": "slow.failed"},
            )
            return
        self.isolated.add(own.label)
        emitted_rows = {
            label: one for label, one in place.emitted_rows.items() if label == own.label
        }
        self.places[lane_place(own), lane.job.kind] = SupervisedLane(
            self._backoff(), emitted_rows=emitted_rows
        )
        log.warning("query %s: %s", own.query.name, reason, extra={"event": "query.slow"})

    def close(self) -> None:
        """Stop all; returns within STOP_S or a little later. `close_starts` follows."""
        threads = [
            threading.Thread(target=lane.stop, name=f"stop-{lane.name}", daemon=True)
            for lane in self.running().values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(STOP_S)

    def close_starts(self) -> None:
        """Abandon the plans that are being made."""
        self._starts.close()

    def _begins(self, key: LaneKey, job: Job) -> bool:
        """Is a lane to be started, or to be started again?"""
        place, planned = self.places.get(key), self._starts.job(key)
        if planned is not None:
            return planned != job
        if place is None or place.is_held:
            return place is None
        if place.lane is not None:
            return place.lane.job != job
        return self._clock.monotonic_s() >= place.not_before_s

    def _plan(self, key: LaneKey, job: Job) -> None:
        """Begin making a lane's plan, while the lane that it replaces is stopped."""
        place = self.places.setdefault(key, SupervisedLane(self._backoff()))
        self._starts.begin(
            key,
            Lane(
                self._session,
                self._config,
                job,
                self._clock,
                place.counters,
                place.emitted_rows,
                self._upstream,
            ),
        )

    def _start(self, key: LaneKey, place: SupervisedLane, lane: Lane) -> None:
        job, started_s = lane.job, self._clock.monotonic_s()
        self._around.on_start(job)
        try:
            topic_admin.ensure_topics(
                self._config.kafka, [registered.topic for registered in job.queries]
            )
            lane.start()
        except FAULTS as error:
            lane.stop()
            if isinstance(error, PySparkException) and self._take_out(self._refused(job)):
                return
            failure = Failure(fault_of(error), cause_of(error))
            self._on_failure(key, place, job, lane.checkpoint, failure)
            return
        place.lane, place.failed_by = lane, ""
        log.info(
            "lane %s runs %d queries",
            lane.name,
            len(job.queries),
            extra={
                "event": "lane.started",
                "seconds": round(self._clock.monotonic_s() - started_s, 2),
            },
        )

    def _refused(self, job: Job) -> dict[str, str]:
        return blame.refused(self._session, self._config, job, self._around.types())

    def _take_out(self, found: Mapping[str, str]) -> bool:
        """Were there any?"""
        if found:
            self.failed |= found
            self.changes += 1
        return bool(found)

    def _stop(self, key: LaneKey, place: SupervisedLane) -> None:
        if place.lane is None:
            return
        began_s = self._clock.monotonic_s()
        place.lane.stop()
        place.lane = None
        log.info(
            "lane %s-%s stopped",
            *key,
            extra={
                "event": "lane.stopped",
                "seconds": round(self._clock.monotonic_s() - began_s, 2),
            },
        )

    def _speak(self, lane: Lane) -> Failure | None:
        try:
            lane.say_running()
            if lane.is_running:
                self._starts.record.ran([registered.label for registered in lane.job.queries])
            lane.advance_in_silence()
        except KafkaException as error:
            return Failure(fault_of(error), cause_of(error))
        return None

    def _on_failure(
        self, key: LaneKey, place: SupervisedLane, job: Job, checkpoint: Path, failure: Failure
    ) -> None:
        """Handle a failure of a lane.

        Raises LocalError where another process computes the lane, Unavailable where Spark has
        ended: a new process starts a new one.
        """
        self._around.check_spark()
        place.trouble, what = step(place.trouble, failure)
        place.failed_by = failure.cause
        wait_s = place.backoff.next_s()
        if failure.fault is Fault.SURROUNDINGS:
            wait_s = min(wait_s, AWAY_S)
        place.not_before_s = self._clock.monotonic_s() + wait_s
        log.warning(
            "lane %s-%s failed: %s",
            *key,
            failure.cause[:500],
            extra={
                "event": "lane.failed",
                "fault": failure.fault,
                "failures": place.trouble.failures,
            },
        )
        if what is Step.END:
            raise LocalError(
                f"another analysis computes {key[0]!r}: only one may; this one ends, and stands "
                "by when it is started again"
            )
        if what is Step.REBUILD:
            shutil.rmtree(checkpoint, ignore_errors=True)
            log.warning(
                "lane %s-%s: its state is built again", *key, extra={"event": "checkpoint.removed"}
            )
        if what is Step.BISECT:
            types, beat = self._around.types(), self._around.beat
            found = blame.failing(
                self._session, self._config, job, types, checkpoint, failure, beat
            )
            if self._take_out(found):
                place.trouble, place.not_before_s = Trouble(), 0.0
                return
        self._around.on_retry(job, failure.cause)

    def _backoff(self) -> Backoff:
        return Backoff(self._rng, first_s=0.5, max_s=30)
