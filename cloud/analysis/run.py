"""The analysis as a process: follows the registered queries and keeps one lane for each stream and
kind of them running.

Order of the end: lanes (each waits for its transaction under way), then Spark, then the JVM. What
was not finished is done again from the checkpoint at the next start.
"""

from __future__ import annotations

import logging
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import orjson
from confluent_kafka import KafkaException
from prometheus_client.core import Metric
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from edgewake.cloud import metrics, metrics_port, process_metrics
from edgewake.cloud.analysis import analysis_metrics
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.configured_session import start_session_of
from edgewake.cloud.analysis.jobs.job import Job, lane_place
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes import isolation, start_record
from edgewake.cloud.analysis.lanes.batch_range import as_text, records
from edgewake.cloud.analysis.lanes.checkpoint import offsets_of, remove_unused
from edgewake.cloud.analysis.lanes.failure_causes import cause_of, fault_of
from edgewake.cloud.analysis.lanes.failures import Failure, Fault, Step, Trouble, guilty, step
from edgewake.cloud.analysis.lanes.kafka_source import source
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.lanes.slow_search import FAULTS, Found, SlowSearch
from edgewake.cloud.analysis.lanes.starts import Starts
from edgewake.cloud.analysis.lanes.state_rows import StateRows
from edgewake.cloud.analysis.lanes.supervised_lane import SupervisedLane
from edgewake.cloud.analysis.minutes.minute_job import Summing
from edgewake.cloud.analysis.minutes.minute_lake import Lake
from edgewake.cloud.analysis.repair.previews import Previews
from edgewake.cloud.analysis.repair.repair import Standing
from edgewake.cloud.analysis.repair.repairs import Repairs
from edgewake.cloud.analysis.sequencer_watch import SequencerWatch
from edgewake.cloud.analysis.spark import class_archive
from edgewake.cloud.analysis.spark import session as spark
from edgewake.cloud.analysis.spark.heap_collection import Garbage
from edgewake.cloud.analysis.spark.settings import is_local
from edgewake.cloud.analysis.standby import Standby
from edgewake.cloud.analysis.status_board import StatusBoard
from edgewake.cloud.health import Health
from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.queries.lane_kind import APART, LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.registry import QueryStatus, Tables, built_in, statuses
from edgewake.cloud.retry import Backoff
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import EdgewakeError, LocalError, Unavailable
from edgewake.protocol.field_type import FieldType
from edgewake.protocol.heartbeat import Heartbeat
from edgewake.protocol.query import QueryState, Registration, claim_of
from edgewake.protocol.stream import NameKind, Stream

log = logging.getLogger("edgewake.analysis")

LOOK_EVERY_S: Final = 0.2
"""How often changes of streams and the health of lanes are looked at; a change of a query is seen
at once."""
SUMMARY_AFTER_S: Final = 20.0
"""Summaries begin so long after the queries, or their interval: the first batches of all lanes at
once would make people wait for the first results."""
AWAY_S: Final = 4.0
"""Seconds until a lane is tried again at most, where Kafka, a disk or a worker is away: windows
stand until it runs."""
STOP_S: Final = 3.0
"""How long the lanes may take to end; then the JVM is killed, which costs nothing but doing the
batch again."""
SILENT_S: Final = 180.0
"""Seconds without a turn of the main loop after which the analysis counts as hung. One turn may
start Spark or plan a lane's query, a minute on a busy machine; a JVM that hangs holds the loop up
in its next call."""
_START_FAULTS: Final = (EdgewakeError, KafkaException, OSError, PySparkException, Py4JError)
"""What may go wrong when a lane starts, or when its readings are computed once more."""

LaneKey: TypeAlias = tuple[str, LaneKind]


class Analysis:
    """Everything that runs. `run` returns when `stop` is set."""

    def __init__(
        self,
        config: AnalysisConfig,
        session: SparkSession,
        clock: Clock,
        rng: random.Random,
        heartbeat: Heartbeat | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """`leads`: may it start lanes now? Raises LocalError where another analysis does for
        certain.
        """
        self._heartbeat, self._leads = heartbeat or Heartbeat(clock, {}), leads
        self._config, self._session, self._clock, self._rng = config, session, clock, rng
        self._tables = Tables()
        self._lanes: dict[LaneKey, SupervisedLane] = {}
        self._failed: dict[str, str] = {}
        self._starts = Starts(start_record.StartRecord(config.kept_dir / "starts.json"))
        self._apart: set[str] = set()
        """Queries (label) with lanes of their own."""
        self._lake = Lake(config.kept_dir / "lake", clock, days=config.lake_days)
        self._producer = clients.producer(config.kafka, "analysis")
        self._readers: list[TableReader] = []
        self._summaries_from_s = clock.monotonic_s() + min(
            SUMMARY_AFTER_S, config.summary_interval_s
        )
        self._summing = Summing(session, config, clock, rng, self._lake.keep)
        self._summing_thread: threading.Thread | None = None
        self._summed_of = -1
        """Number of the tables' change that the summaries know."""
        self._board = StatusBoard(self._producer, clock)
        self._state_rows = StateRows(config.kafka, self._producer, clock)
        self._repairs = Repairs(
            session, config.kafka, clock, config.kept_dir / "checkpoints", config.lake_dir
        )
        self._previews = Previews(
            session, config.kafka, self._producer, clock, config.foreign_topics
        )
        self._slow = SlowSearch(session, config, clock, rng)
        self._sequencers = SequencerWatch(config.kafka, clock)
        self._garbage = Garbage(session, clock)
        self.health = Health(clock.monotonic_s)

    def run(self, stop: threading.Event) -> None:
        """Follow the queries until told to stop. Raises what cannot be mended by waiting."""
        self._open(stop)
        self._sequencers.start()
        seen = -1
        ready = False
        while not stop.is_set():
            self._heartbeat.beat()
            self._leads()
            if not is_local(self._config.master):
                self._check_spark()  # a lane that waits for readings does not notice
            for reader in self._readers:
                reader.poll(0)
            if self._has_changed() or self._tables.changes != seen or self._is_due():
                seen = self._tables.changes
                self._reconcile(stop)
            self._start_planned(stop)
            self._repair()
            self._previews.turn(self._tables.streams)
            self._look_for_slow()
            self._sum_up(stop)
            self._garbage.turn()
            self._look_at_health()
            if not ready and not stop.is_set():
                ready = True
                log.info(
                    "the analysis is ready",
                    extra={"event": "part.ready", "lanes": len(self._lanes)},
                )
            self._pause(stop)
        self._starts.record.end()

    def _look_at_health(self) -> None:
        for what, why in self._sequencers.troubles(self._clock.now_ms()).items():
            self.health.note(what, why)
        failed = [
            f"lane {'-'.join(key)} is tried again: {place.failed_by}"
            for key, place in self._lanes.items()
            if place.failed_by
        ]
        self.health.note("lanes", "; ".join(failed)[:500] or None)

    def _pause(self, stop: threading.Event) -> None:
        """Until the next look; a query that is registered, paused or removed ends it."""
        until_s = self._clock.monotonic_s() + LOOK_EVERY_S
        if not self._readers[0].poll(LOOK_EVERY_S):
            stop.wait(max(0.0, until_s - self._clock.monotonic_s()))

    def _check_spark(self) -> None:
        if spark.has_ended(self._session):
            raise Unavailable(
                f"Spark has ended, and so does this process: {self._config.master!r} sent it "
                "away, or all its workers failed"
            )

    def close(self) -> None:
        """Stop all lanes; returns within STOP_S or a little later."""
        threads = [
            threading.Thread(target=place.lane.stop, name=f"stop-{place.lane.name}", daemon=True)
            for place in self._lanes.values()
            if place.lane is not None
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(STOP_S)
        self._repairs.close()
        self._previews.close()
        self._slow.close()
        self._sequencers.close()
        if self._summing_thread is not None:
            self._summing_thread.join(STOP_S)
        self._starts.close()
        self._producer.flush(0.5)

    def _open(self, stop: threading.Event) -> None:
        backoff = Backoff(self._rng)
        said = False
        while not stop.is_set():
            try:
                self._read_tables()
                return
            except Unavailable as error:
                self._heartbeat.beat()
                if not said:
                    log.warning("waits for Kafka: %s", error, extra={"event": "kafka.away"})
                    said = True
                stop.wait(backoff.next_s())

    def _read_tables(self) -> None:
        config = self._config.kafka
        tables = (
            topics.QUERIES,
            topics.STREAMS,
            topics.PROGRESS,
            topics.REPAIRS,
            topics.PREVIEWS,
            topics.LANES,
            topics.WINDOWS,
        )
        topic_admin.ensure_topics(config, [*tables, topics.LATE, topics.SHED, *topics.SUMMARIES])
        for reader in self._readers:
            reader.close()
        others = {
            topics.STREAMS: self._tables.on_stream,
            topics.REPAIRS: self._repairs.on_row,
            topics.PREVIEWS: self._previews.on_row,
        }
        self._readers = [  # the first one wakes the main loop
            TableReader(config, "analysis-queries", {topics.QUERIES: self._tables.on_query}),
            TableReader(config, "analysis-tables", others),
        ]
        progress = TableReader(
            config,
            "analysis-progress",
            {topics.PROGRESS: self._board.on_progress},
            wait_ms=clients.ONCE_WAIT_MS,
        )
        try:
            for reader in (*self._readers, progress):
                reader.read_all()
        finally:
            progress.close()
        self._failed = dict(self._board.quarantined)
        if (label := self._starts.record.taken_out()) is not None:
            self._failed[label] = start_record.WHY
        self._apart = set(self._board.apart.values())
        self._register_built_in()

    def _register_built_in(self) -> None:
        """Once in the life of what is kept: whoever removes one of them does not get it back."""
        known = self._config.kept_dir / "built_in_queries.json"
        done = set(orjson.loads(known.read_bytes())) if known.exists() else set()
        now_ms = self._clock.now_ms()
        wanted = [
            Registration(
                name=name, text=text, registered_at=now_ms, claim=claim_of(now_ms, "analysis")
            )
            for name, text in built_in().items()
            if name not in done and name not in self._tables.registrations
        ]
        for registration in self._claimed(wanted):
            self._tables.registrations[registration.name] = registration
            self._producer.produce(
                topics.QUERIES, registration.model_dump_json().encode(), registration.name
            )
        if self._producer.flush(10) > 0:
            raise Unavailable("the built-in queries could not be registered")
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_bytes(orjson.dumps(sorted(done | set(built_in()))))

    def _claimed(self, wanted: Sequence[Registration]) -> list[Registration]:
        """Those that got their names: on `ew.streams` the first claim has a name, of a stream or of
        a query. Raises Unavailable.
        """
        for one in wanted:
            row = Stream(name=one.name, kind=NameKind.QUERY, claim=one.claim)
            self._producer.produce(topics.STREAMS, row.model_dump_json().encode(), one.name)
        if self._producer.flush(10) > 0:
            raise Unavailable("the names of the built-in queries could not be claimed")
        for reader in self._readers:
            reader.read_all()
        names = self._tables.names
        for one in wanted:
            if names[one.name].claim != one.claim:
                log.warning(
                    "built-in query %s: its name is taken",
                    one.name,
                    extra={"event": "query.name_taken"},
                )
        return [one for one in wanted if names[one.name].claim == one.claim]

    def _repair(self) -> None:
        if not self._repairs.is_working:
            for place in self._lanes.values():
                place.is_held = False
        if self._repairs.is_idle:
            return
        types = self._types()
        standings = {
            registered.query.name: Standing(
                registered, place.lane.record, types, place.lane.job.queries
            )
            for place in self._lanes.values()
            if place.lane is not None
            for registered in place.lane.job.queries
        }
        registered_at = {
            name: registration.registered_at
            for name, registration in self._tables.registrations.items()
        }
        self._repairs.turn(registered_at, standings, self._hold)

    def _hold(self, lane: tuple[str, str]) -> None:
        """Stop a lane, and let it stand still until the repair's step is over."""
        key = lane[0], LaneKind(lane[1])
        place = self._lanes[key]
        self._stop_lane(key, place)
        place.told.clear()  # rows may be told anew
        place.is_held = True

    def _wanted(self) -> tuple[dict[str, QueryStatus], dict[LaneKey, Job]]:
        found = statuses(self._tables, self._failed, self._config.foreign_topics, self._apart)
        types = self._types()
        return found, dict(
            jobs_of([one.registered for one in found.values() if one.registered is not None], types)
        )

    def _types(self) -> dict[str, dict[str, FieldType]]:
        return {
            name: {field: info.type for field, info in stream.fields.items()}
            for name, stream in self._tables.streams.items()
        }

    def _find_refused(self, job: Job) -> bool:
        """Try each query of a lane that Spark refuses alone, and take out those that fail alone;
        were there any?
        """
        before = len(self._failed)
        records = source(self._session, self._config, *job.source_topics.topics, records_max=1)
        for registered in job.queries:
            (alone,) = jobs_of([registered], self._types()).values()
            try:
                alone.graph(records)
            except PySparkException as error:
                self._failed[registered.label] = f"Spark refuses it: {_one_line(error)}"
        return len(self._failed) > before

    def _find_guilty(self, job: Job, checkpoint: Path, failure: Failure) -> bool:
        """Compute the readings of a batch that failed twice once more, without state, by ever fewer
        queries. Were any taken out?

        Raises _START_FAULTS where the surroundings fail.
        """
        assert failure.reached is not None
        start = offsets_of(checkpoint, failure.batch - 1) if failure.batch > 0 else {}
        frames = records(self._session, self._config.kafka, start, failure.reached)
        causes: dict[str, str] = {}

        def fails(queries: Sequence[Registered]) -> bool:
            self._heartbeat.beat()
            (part,) = jobs_of(queries, self._types()).values()
            try:
                part.graph(frames).toArrow()
            except (PySparkException, Py4JError) as error:
                if fault_of(error) is not Fault.SUSPECT:
                    raise
                causes.update({registered.label: cause_of(error) for registered in queries})
                return True
            return False

        found = guilty(job.queries, fails)
        for registered in found:
            self._failed[registered.label] = (
                f"it cannot compute the readings up to {as_text(failure.reached)}: "
                f"{causes[registered.label]}"
            )
        return bool(found)

    def _reconcile(self, stop: threading.Event) -> None:
        found, jobs = self._wanted()
        self._starts.keep(jobs)
        for key, job in jobs.items():
            if not stop.is_set() and self._begins(key, job):
                self._plan(key, job)
        for key, place in list(self._lanes.items()):
            if place.lane is not None and place.lane.job != jobs.get(key):
                self._stop_lane(key, place)
            if key not in jobs:
                del self._lanes[key]
        labels = {one.label for one in self._tables.registrations.values()}
        self._apart &= labels
        self._drop_checkpoints(found)
        self._state_rows.keep(labels)
        self._starts.record.keep(labels)
        for name, one in found.items():
            if one.registered is None:
                self._publish(name, one)
        self._board.keep(set(found))
        running = {one.label for one in self._tables.registrations.values() if not one.paused}
        self._failed = {label: why for label, why in self._failed.items() if label in running}

    def _start_planned(self, stop: threading.Event) -> None:
        for key, lane in self._starts.planned():
            place = self._lanes.get(key)
            if place is not None and not place.is_held and not stop.is_set() and self._leads():
                self._start_lane(key, place, lane)
            else:
                lane.stop()

    def _begins(self, key: LaneKey, job: Job) -> bool:
        """Is a lane to be started, or to be started anew?"""
        place, planned = self._lanes.get(key), self._starts.job(key)
        if planned is not None:
            return planned != job
        if place is None or place.is_held:
            return place is None
        return (
            self._clock.monotonic_s() >= place.not_before_s
            if place.lane is None
            else place.lane.job != job
        )

    def _plan(self, key: LaneKey, job: Job) -> None:
        """Let a lane's plan be made, while the one that it replaces ends."""
        place = self._lanes.setdefault(key, SupervisedLane(self._backoff()))
        lane = Lane(
            self._session,
            self._config,
            job,
            self._clock,
            place.counters,
            place.told,
            self._sequencers.hold,
            self._sequencers.why,
        )
        self._starts.begin(key, lane)

    def _drop_checkpoints(self, found: Mapping[str, QueryStatus]) -> None:
        """Of streams that no query reads any more: the next one would find a state without what was
        sent in between.
        """
        removed = remove_unused(
            self._config.kept_dir / "checkpoints",
            queried={one.stream for one in found.values()},
            kinds=set(LaneKind),
            apart=self._apart,
        )
        for place, kind in removed:
            log.info(
                "lane %s-%s: nobody needs it, its state is removed",
                place,
                kind,
                extra={"event": "checkpoint.removed"},
            )
            if APART in place:  # no other registration of the query goes on there
                self._producer.produce(topics.LANES, None, f"{place}|{kind}")

    def _start_lane(self, key: LaneKey, place: SupervisedLane, lane: Lane) -> None:
        job = lane.job
        started_s = self._clock.monotonic_s()
        self._board.hand_over(registered.query.name for registered in job.queries)
        try:
            topic_admin.ensure_topics(
                self._config.kafka, [registered.topic for registered in job.queries]
            )
            lane.start()
        except _START_FAULTS as error:
            lane.stop()
            if isinstance(error, PySparkException) and self._find_refused(job):
                self._tables.changes += 1
            else:
                self._on_failure(
                    key, place, job, lane.checkpoint, Failure(fault_of(error), cause_of(error))
                )
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

    def _stop_lane(self, key: LaneKey, place: SupervisedLane) -> None:
        if place.lane is not None:
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

    def _has_changed(self) -> bool:
        """Look after the lanes: say which run, and take note of those that ended by themselves and
        of queries in them that broke.
        """
        before = self._tables.changes
        ended = False
        for key, place in self._lanes.items():
            if place.lane is None:
                continue
            if place.lane.broken:
                self._failed |= place.lane.broken
                self._tables.changes += 1
            failure = place.lane.failure() or self._say_running(place.lane)
            if failure is not None:
                lane, place.lane = place.lane, None
                if lane.finished:
                    place.trouble = Trouble()
                    place.backoff.reset()
                lane.stop()
                self._on_failure(key, place, lane.job, lane.checkpoint, failure)
                ended = True
        return ended or self._tables.changes > before

    def _say_running(self, lane: Lane) -> Failure | None:
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
        """Raises LocalError where another process computes the lane, Unavailable where Spark has
        ended: a new process starts a new one.
        """
        self._check_spark()
        place.trouble, what = step(place.trouble, failure)
        place.failed_by = failure.cause
        wait_s = place.backoff.next_s()
        place.not_before_s = self._clock.monotonic_s() + (
            wait_s if failure.fault is not Fault.SURROUNDINGS else min(wait_s, AWAY_S)
        )
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
                f"another analysis computes {key[0]!r}: only one may, this one ends, and stands "
                "by when it is started again"
            )
        if what is Step.REBUILD:
            shutil.rmtree(checkpoint, ignore_errors=True)
            log.warning(
                "lane %s-%s: its state is built again", *key, extra={"event": "checkpoint.removed"}
            )
        if what is Step.BISECT and self._quarantine(job, checkpoint, failure):
            place.trouble, place.not_before_s = Trouble(), 0.0
            self._tables.changes += 1
            return
        status = QueryStatus(QueryState.RETRYING, job.stream, failure.cause)
        for registered in job.queries:
            self._publish(registered.query.name, status)

    def _quarantine(self, job: Job, checkpoint: Path, failure: Failure) -> bool:
        try:
            return self._find_guilty(job, checkpoint, failure)
        except _START_FAULTS as error:
            log.warning(
                "what failed cannot be found now: %s",
                cause_of(error)[:500],
                extra={"event": "lane.bisect_failed"},
            )
            return False

    def _publish(self, name: str, status: QueryStatus) -> None:
        registration = self._tables.registrations.get(name)
        if registration is not None:
            label = registration.label
            self._board.publish(
                name,
                status,
                registered_at=registration.registered_at,
                quarantined=label in self._failed,
                apart=label in self._apart,
            )

    def _look_for_slow(self) -> None:
        """Give a query that others wait for a lane of its own; begin the next search that is
        due.
        """
        running = {key: place.lane for key, place in self._lanes.items() if place.lane is not None}
        found = self._slow.turn(running, self._types)
        if found is None:
            return
        lane = running.get(found.lane)
        # Not during a step of a repair: it would go on with the lane that the query was in.
        if lane is not None and lane.job == found.job and not self._repairs.is_working:
            self._set_apart(found, lane)

    def _set_apart(self, found: Found, lane: Lane) -> None:
        place, query = self._lanes[found.lane], found.slow.query
        self._stop_lane(found.lane, place)
        self._tables.changes += 1  # whatever becomes of it, the lane is to start again
        now_ms = self._clock.now_ms()
        reason = isolation.why(found.slow, now_ms)
        try:
            own = isolation.set_apart(self._config, lane, query, reason, now_ms, self._rng)
        except FAULTS as error:
            log.warning(
                "query %s stays in its lane: %s",
                query.query.name,
                cause_of(error)[:500],
                extra={"event": "slow.failed"},
            )
            return
        self._apart.add(own.label)
        told = {label: one for label, one in place.told.items() if label == own.label}
        self._lanes[lane_place(own), lane.job.kind] = SupervisedLane(self._backoff(), told=told)
        log.warning("query %s: %s", own.query.name, reason, extra={"event": "query.slow"})

    def _backoff(self) -> Backoff:
        return Backoff(self._rng, first_s=0.5, max_s=30)

    def _sum_up(self, stop: threading.Event) -> None:
        """Say what is to be summed up, and begin when it is time.

        Raises LocalError where another process does so.
        """
        if (
            not self._config.summary_interval_s
            or self._clock.monotonic_s() < self._summaries_from_s
        ):
            return
        if self._summing.fenced is not None:
            raise LocalError(
                f"another analysis sums up: only one may, this one ends: {self._summing.fenced}"
            )
        if self._summed_of != self._tables.changes:
            self._summed_of, self._summing.streams = self._tables.changes, self._types()
        if self._summing_thread is None and self._leads():
            self._summing_thread = threading.Thread(
                target=self._summing.run, args=(stop,), name="summaries", daemon=True
            )
            self._summing_thread.start()

    def _is_due(self) -> bool:
        now_s = self._clock.monotonic_s()
        stand = [
            place
            for key, place in self._lanes.items()
            if place.lane is None and self._starts.job(key) is None
        ]
        return any(not place.is_held and now_s >= place.not_before_s for place in stand)

    def gather(self) -> Iterable[Metric]:
        """For Prometheus."""
        lanes = {
            key: (place.counters, place.lane is not None) for key, place in self._lanes.items()
        }
        yield from analysis_metrics.gather(
            lanes, self._summing.counters, left_out=len(self._summing.left_out)
        )
        yield from self.health.gather()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:800]


def run(
    config: AnalysisConfig,
    *,
    clock: Clock,
    rng: random.Random,
    stop: threading.Event,
    heartbeat: Heartbeat | None = None,
) -> None:
    """Stand by until this analysis leads, start Spark, follow the queries until `stop`, end all
    within 5 s.
    """
    # A link may lead elsewhere on another machine.
    shared_dir = None if config.shared_dir is None else config.shared_dir.absolute()
    config = config.model_copy(
        update={"data_dir": config.data_dir.resolve(), "shared_dir": shared_dir}
    )
    heartbeat = heartbeat or Heartbeat(clock, {})
    spark.jars_in(config.jars_dir)  # known before it stands by
    leading: list[Analysis] = []

    def gather() -> Iterable[Metric]:
        yield metrics.gauge(
            "edgewake_analysis_leads",
            "1 where this analysis computes, 0 where it stands by",
            float(bool(leading)),
        )
        for each in leading:
            yield from each.gather()

    metrics_port.serve(
        config.metrics_port,
        gather,
        part="analysis",
        certificates=process_metrics.of_kafka(config.kafka.security),
        host=config.metrics_host,
        is_alive=lambda: heartbeat.is_alive(SILENT_S),
        why_not_ready=lambda: "".join(each.health.why_not_ready() for each in leading),
    )
    leadership = Standby(config, rng, stop, heartbeat.beat).wait()
    if leadership is None:
        return
    classes = class_archive.archive_of(config.data_dir, config.jars_dir)
    session = start_session_of(config, [] if classes is None else classes.options())
    analysis = Analysis(config, session, clock, rng, heartbeat, leadership.leads)
    leading.append(analysis)
    try:
        if classes is not None:
            classes.begin(class_archive.command_line(spark.jvm_pid(session)))
        analysis.run(stop)
    finally:
        analysis.close()
        if classes is not None:
            classes.close()
        spark.kill_jvm(session)
        leadership.close()
