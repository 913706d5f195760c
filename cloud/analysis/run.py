"""The analysis as a process: follows the registered queries and runs their lanes.

There is one lane for each stream and kind.

Order of shutdown: lanes (each waits for its transaction under way), then Spark, then the JVM. What
was not finished is done again from the checkpoint at the next start.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client.core import Metric
from pyspark.sql import SparkSession

from edgewake.cloud import metrics, metrics_port
from edgewake.cloud.analysis import analysis_metrics
from edgewake.cloud.analysis.checkpoints.checkpoint import remove_unused
from edgewake.cloud.analysis.checkpoints.state_rows import StateRows
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.configured_session import start_session_of
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes.batch_traces import tracer_of
from edgewake.cloud.analysis.lanes.lane_time import Upstream
from edgewake.cloud.analysis.minutes.erasing import Erasing
from edgewake.cloud.analysis.minutes.minute_job import MinuteJob
from edgewake.cloud.analysis.minutes.minute_lake import Lake
from edgewake.cloud.analysis.query_tables import QueryTables
from edgewake.cloud.analysis.repair.previews import Previews
from edgewake.cloud.analysis.repair.repair import Standing
from edgewake.cloud.analysis.repair.repairs import Repairs
from edgewake.cloud.analysis.sequencer_watch import SequencerWatch
from edgewake.cloud.analysis.spark import class_archive
from edgewake.cloud.analysis.spark import session as spark
from edgewake.cloud.analysis.spark.settings import is_local
from edgewake.cloud.analysis.standby import Standby
from edgewake.cloud.analysis.status_board import StatusBoard
from edgewake.cloud.analysis.supervision import start_record
from edgewake.cloud.analysis.supervision.slow_search import SlowSearch
from edgewake.cloud.analysis.supervision.supervision import STOP_S, Around, LaneKey, Supervision
from edgewake.cloud.health import Health
from edgewake.cloud.kafka import clients
from edgewake.cloud.part_words import PartWords
from edgewake.cloud.queries.lane_kind import APART, KIND_NAMED, LaneKind
from edgewake.cloud.queries.registry import QueryStatus, statuses
from edgewake.cloud.traces.tracer import close, gathered
from edgewake.protocol import topics
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError, Unavailable
from edgewake.protocol.heartbeat import Heartbeat
from edgewake.protocol.ops.query import QueryState

log = logging.getLogger("edgewake.analysis")

LOOK_EVERY_S: Final = 0.2
"""How often changes of streams and the health of lanes are looked at; a change of a query is seen
at once."""
SUMMARY_AFTER_S: Final = 20.0
"""Summaries begin so long after the queries, or their interval: the first batches of all lanes at
once would make people wait for the first results."""
SILENT_S: Final = 180.0
"""Seconds without a turn of the main loop after which the analysis counts as hung. One turn may
start Spark or plan a lane's query, a minute on a busy machine; a JVM that hangs holds the loop up
in its next call."""


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
        health: Health | None = None,
    ) -> None:
        """`leads`: may it start lanes now?

        Raises LocalError where another analysis is certain to.
        """
        self._heartbeat, self._leads = heartbeat or Heartbeat(clock, {}), leads
        self._config, self._session, self._clock, self._rng = config, session, clock, rng
        self._producer = clients.producer(config.kafka, "analysis")
        self._board = StatusBoard(self._producer, clock)
        self._state_rows = StateRows(config.kafka, self._producer, clock)
        self._repairs = Repairs(
            session, config.kafka, clock, config.kept_dir / "checkpoints", config.lake_dir
        )
        self._previews = Previews(
            session, config.kafka, self._producer, clock, config.foreign_topics
        )
        self._lake = Lake(config.kept_dir / "lake", clock, days=config.lake_days)
        self._erasing = Erasing(self._lake, self._producer, clock)
        self._query_tables = QueryTables(
            config,
            self._producer,
            clock,
            on_repair=self._repairs.on_row,
            on_preview=self._previews.on_row,
            on_erasure=self._erasing.on_row,
            on_progress=self._board.on_progress,
        )
        self._registry = self._query_tables.registry
        self._sequencers = SequencerWatch(config.kafka, clock)
        self._supervision = Supervision(
            session,
            config,
            clock,
            rng,
            Upstream(self._sequencers.hold, self._sequencers.why),
            Around(
                types=self._query_tables.types,
                beat=self._heartbeat.beat,
                leads=leads,
                check_spark=self._check_spark,
                on_start=self._hand_over,
                on_retry=self._say_retrying,
            ),
        )
        self._slow = SlowSearch(session, config, clock, rng)
        self._minute_job = MinuteJob(session, config, clock, rng, self._lake.keep)
        self._minute_thread: threading.Thread | None = None
        self._summaries_from_s = clock.monotonic_s() + min(
            SUMMARY_AFTER_S, config.summary_interval_s
        )
        self._summed_of = -1
        """Number of the tables' change that the summaries know."""
        self.health = health or Health(clock.monotonic_s)

    def run(self, stop: threading.Event) -> None:
        """Follow the queries until `stop` is set. Raises what waiting cannot fix."""
        self._open(stop)
        self._sequencers.start()
        seen = (-1, -1)
        ready = False
        while not stop.is_set():
            self._heartbeat.beat()
            self._leads()
            if not is_local(self._config.master):
                self._check_spark()  # a lane that waits for readings does not notice
            self._query_tables.poll()
            has_ended = self._supervision.look_after()
            changes = self._registry.changes, self._supervision.changes
            if has_ended or changes != seen or self._supervision.is_due():
                seen = changes
                self._reconcile(stop)
            self._supervision.start_planned(stop)
            self._repair()
            self._previews.turn(self._registry.streams)
            self._look_for_slow()
            self._sum_up(stop)
            if self._leads():
                self._erasing.turn()
            self._look_at_health()
            if not ready and not stop.is_set():
                ready = True
                log.info(
                    "the analysis is ready",
                    extra={"event": "part.ready", "lanes": len(self._supervision.places)},
                )
            self._pause(stop)
        self._supervision.record.end()

    def _look_at_health(self) -> None:
        for what, why in self._sequencers.troubles(self._clock.now_ms()).items():
            self.health.note(what, why)
        failed = [
            f"lane {'-'.join(key)} is tried again: {place.failed_by}"
            for key, place in self._supervision.places.items()
            if place.failed_by
        ]
        self.health.note("lanes", "; ".join(failed)[:500] or None)
        self.health.note("start", self._what_starts())

    def _what_starts(self) -> str | None:
        """What windows wait for after a start; None once all that can run does."""
        places = [place for place in self._supervision.places.values() if not place.failed_by]
        starting = [
            place
            for place in places
            if not place.is_held and (place.lane is None or not place.lane.is_running)
        ]
        if not starting:
            return None
        return (
            f"{len(starting)} of {len(places)} lanes are starting, and their windows do not advance"
        )

    def _pause(self, stop: threading.Event) -> None:
        """Until the next look; a query that is registered, paused or removed ends it."""
        until_s = self._clock.monotonic_s() + LOOK_EVERY_S
        if not self._query_tables.wait(LOOK_EVERY_S):
            stop.wait(max(0.0, until_s - self._clock.monotonic_s()))

    def _check_spark(self) -> None:
        if spark.has_ended(self._session):
            raise Unavailable(
                f"Spark has ended, so this process ends too: {self._config.master!r} dismissed "
                "it, or all its workers failed"
            )

    def close(self) -> None:
        """Stop all lanes; returns within STOP_S or a little later."""
        self._supervision.close()
        self._repairs.close()
        self._previews.close()
        self._slow.close()
        self._sequencers.close()
        if self._minute_thread is not None:
            self._minute_thread.join(STOP_S)
        self._supervision.close_starts()
        self._producer.flush(0.5)

    def _open(self, stop: threading.Event) -> None:
        backoff = Backoff(self._rng)
        said = False
        while not stop.is_set():
            try:
                self._query_tables.read()
                self._adopt()
                return
            except Unavailable as error:
                self._heartbeat.beat()
                if not said:
                    log.warning("waits for Kafka: %s", error, extra={"event": "kafka.away"})
                    said = True
                stop.wait(backoff.next_s())

    def _adopt(self) -> None:
        """What a process before this one said of queries holds."""
        self._supervision.failed = dict(self._board.quarantined)
        if (label := self._supervision.record.taken_out()) is not None:
            self._supervision.failed[label] = start_record.WHY
        self._supervision.isolated = set(self._board.isolated.values())

    def _repair(self) -> None:
        if not self._repairs.is_working:
            self._supervision.release()
        if self._repairs.is_idle:
            return
        types = self._query_tables.types()
        standings = {
            registered.query.name: Standing(registered, lane.record, types, lane.job.queries)
            for lane in self._supervision.running().values()
            for registered in lane.job.queries
        }
        registered_at = {
            name: registration.registered_at
            for name, registration in self._registry.registrations.items()
        }
        self._repairs.turn(
            registered_at,
            standings,
            lambda key: self._supervision.hold((key[0], KIND_NAMED[key[1]])),
        )

    def _wanted(self) -> tuple[dict[str, QueryStatus], dict[LaneKey, Job]]:
        lanes = self._supervision
        found = statuses(self._registry, lanes.failed, self._config.foreign_topics, lanes.isolated)
        queries = [one.registered for one in found.values() if one.registered is not None]
        return found, dict(jobs_of(queries, self._query_tables.types()))

    def _reconcile(self, stop: threading.Event) -> None:
        found, jobs = self._wanted()
        self._supervision.reconcile(jobs, stop)
        labels = {one.label for one in self._registry.registrations.values()}
        self._supervision.isolated &= labels
        self._drop_checkpoints(found)
        self._state_rows.keep(labels)
        self._supervision.record.keep(labels)
        for name, one in found.items():
            if one.registered is None:
                self._publish(name, one)
        self._board.keep(set(found))
        running = {one.label for one in self._registry.registrations.values() if not one.paused}
        failed = self._supervision.failed
        self._supervision.failed = {label: why for label, why in failed.items() if label in running}

    def _drop_checkpoints(self, found: Mapping[str, QueryStatus]) -> None:
        """Remove checkpoints of streams that no query reads.

        The next query would find a state without what was sent in between.
        """
        removed = remove_unused(
            self._config.kept_dir / "checkpoints",
            queried={one.stream for one in found.values()},
            kinds=set(LaneKind),
            isolated=self._supervision.isolated,
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

    def _hand_over(self, job: Job) -> None:
        self._board.hand_over(registered.query.name for registered in job.queries)

    def _say_retrying(self, job: Job, why: str) -> None:
        status = QueryStatus(QueryState.RETRYING, job.stream, why)
        for registered in job.queries:
            self._publish(registered.query.name, status)

    def _publish(self, name: str, status: QueryStatus) -> None:
        registration = self._registry.registrations.get(name)
        if registration is not None:
            label = registration.label
            self._board.publish(
                name,
                status,
                registered_at=registration.registered_at,
                quarantined=label in self._supervision.failed,
                isolated=label in self._supervision.isolated,
            )

    def _look_for_slow(self) -> None:
        """Isolate a query that others wait for, and begin the next search that is due."""
        running = self._supervision.running()
        found = self._slow.turn(running, self._query_tables.types)
        if found is None:
            return
        lane = running.get(found.lane)
        # Not during a step of a repair: it would go on with the lane that the query was in.
        if lane is not None and lane.job == found.job and not self._repairs.is_working:
            self._supervision.isolate(found, lane)

    def _sum_up(self, stop: threading.Event) -> None:
        """Say what is to be summed up, and begin when it is time.

        Raises LocalError where another process does so.
        """
        if (
            not self._config.summary_interval_s
            or self._clock.monotonic_s() < self._summaries_from_s
        ):
            return
        if self._minute_job.fenced is not None:
            raise LocalError(
                "another analysis summarizes; only one may, this one ends: "
                f"{self._minute_job.fenced}"
            )
        if self._summed_of != self._registry.changes:
            self._summed_of = self._registry.changes
            self._minute_job.streams = self._query_tables.types()
        if self._minute_thread is None and self._leads():
            self._minute_thread = threading.Thread(
                target=self._minute_job.run, args=(stop,), name="summaries", daemon=True
            )
            self._minute_thread.start()

    def gather(self) -> Iterable[Metric]:
        """The metrics of the analysis for Prometheus."""
        lanes = {
            key: (place.counters, place.lane is not None)
            for key, place in self._supervision.places.items()
        }
        yield from analysis_metrics.gather(
            lanes, self._minute_job.counters, left_out=len(self._minute_job.left_out)
        )
        yield from self.health.gather()


def run(
    config: AnalysisConfig,
    *,
    clock: Clock,
    rng: random.Random,
    stop: threading.Event,
    heartbeat: Heartbeat | None = None,
) -> None:
    """Stand by until this analysis leads, start Spark, follow the queries until `stop`.

    All ends within 5 s.
    """
    # A link may lead elsewhere on another machine.
    shared_dir = None if config.shared_dir is None else config.shared_dir.absolute()
    config = config.model_copy(
        update={"data_dir": config.data_dir.resolve(), "shared_dir": shared_dir}
    )
    heartbeat = heartbeat or Heartbeat(clock, {})
    spark.jars_in(config.jars_dir)  # known before it stands by
    tracer = tracer_of(config.traces)
    leading: list[Analysis] = []
    health = Health(clock.monotonic_s)

    def gather() -> Iterable[Metric]:
        yield metrics.gauge(
            "edgewake_analysis_leads",
            "1 where this analysis computes, 0 where it stands by",
            float(bool(leading)),
        )
        for each in leading:
            yield from each.gather()
        if not leading:
            yield from health.gather()
        yield from gathered(tracer)

    metrics_port.serve(
        config.metrics_port,
        gather,
        part="analysis",
        certificates=config.kafka.security.certificates,
        host=config.metrics_host,
        is_alive=lambda: heartbeat.is_alive(SILENT_S),
        why_not_ready=health.why_not_ready,
    )
    words = PartWords(
        config.kafka,
        "analysis",
        "analysis",
        clock,
        why_not_ready=health.why_not_ready,
        is_alive=lambda: heartbeat.is_alive(SILENT_S),
    )
    try:
        with words.beside():
            _stand_by(config, clock, rng, stop, heartbeat, health, leading)
    finally:
        close(tracer)


def _stand_by(
    config: AnalysisConfig,
    clock: Clock,
    rng: random.Random,
    stop: threading.Event,
    heartbeat: Heartbeat,
    health: Health,
    leading: list[Analysis],
) -> None:
    """Wait until this analysis leads, and then lead; `leading` gets it."""
    health.note("start", "whether another analysis leads is not known yet", is_told_at_once=True)
    standby = Standby(config, rng, stop, heartbeat.beat, lambda: health.note("start", None))
    leadership = standby.wait()
    if leadership is None:
        return
    health.note("start", "Spark is starting, and no window advances", is_told_at_once=True)
    classes = class_archive.archive_of(config.data_dir, config.jars_dir)
    session = start_session_of(config, [] if classes is None else classes.options())
    analysis = Analysis(config, session, clock, rng, heartbeat, leadership.leads, health)
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
