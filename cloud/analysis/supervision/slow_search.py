"""Looks for the slow query of a lane, in a thread beside the lanes.

A thin shell around schedule/slow.py; isolation.py does what follows.

What the lane reads next is computed once more without state, in Spark jobs that emit nothing: by
all of its queries, then by ever fewer. What counts is the time of processor that Spark's tasks
took, which a busy machine does not make longer, as it does every other time, and with it what the
driver took for the same queries in the lane's last batch, for as many records: that needs the state
that the lane has.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes.batch_range import records
from edgewake.cloud.analysis.lanes.failure_causes import cause_of
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.transaction import Ends
from edgewake.cloud.analysis.schedule.slow import Cost, Slow, slow_one
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import EdgewakeError
from edgewake.protocol.frames.field_type import FieldType

log = logging.getLogger("edgewake.analysis")

Key: TypeAlias = tuple[str, LaneKind]
"""Place and kind of a lane."""
Types: TypeAlias = Mapping[str, Mapping[str, FieldType]]
"""Stream → field → type."""

GROUP: Final = "slow"
"""Spark's name for the jobs of a search, the pool that they run in, and Kafka's for who reads."""
ENOUGH_S: Final = 0.5
"""The least cost of a measurement, in seconds of processor, beside which the fixed cost of a task,
about 0.05 s, decides nothing."""
RECORDS_MAX: Final = 4096
"""The most records of a measurement, per partition. A lane that takes less than ENOUGH_S for them
is behind for another reason."""
GROWTH: Final = 4
"""The factor by which records grow from one measurement to the next, where it was too short. It
begins with one per partition."""
SEARCH_S_MAX: Final = 120.0
"""How long a search may take, s; then it is abandoned, no query is isolated, and the next one is
due later. It takes a core meanwhile."""
AGAIN_S: Final = 60.0
"""Seconds until a lane of the same queries that is still behind is searched again, up to twice as
long after each search."""
AGAIN_S_MAX: Final = 900.0
"""The longest time between searches, s, so that a query that becomes slow later is found."""
ISOLATED_MAX: Final = 4
"""Queries that have lanes of their own: each is a Spark query more, and may take half of a core.
Others stay where they are, and a warning says so."""
CLOSE_S: Final = 1.0
FAULTS: Final = (EdgewakeError, KafkaException, OSError, PySparkException, Py4JError, ValueError)
"""Errors after which the next search tries again."""


class GivenUp(Exception):
    """The search took too long, or the analysis is stopping."""


class TooLittle(Exception):
    """The unread readings are too cheap to compare queries by."""


@dataclass(frozen=True, slots=True)
class Found:
    """The slow query of a lane, with the job in which it was found."""

    lane: Key
    job: Job
    slow: Slow[Registered]


@dataclass(slots=True)
class _Turn:
    """When a lane of these queries may be searched again, s."""

    job: Job
    backoff: Backoff
    not_before_s: float = 0.0


class SlowSearch:
    """One search at a time. `turn` and `close` belong to one thread."""

    def __init__(
        self, session: SparkSession, config: AnalysisConfig, clock: Clock, rng: random.Random
    ) -> None:
        self._session, self._config, self._clock, self._rng = session, config, clock, rng
        self._turns: dict[Key, _Turn] = {}
        self._worker: threading.Thread | None = None
        self._until_s = 0.0
        self._is_over = threading.Event()
        self._found: Found | None = None
        self._runs = 0

    def turn(self, lanes: Mapping[Key, Lane], types: Callable[[], Types]) -> Found | None:
        """Begin a search that is due; give up one that takes too long.

        Returns what was found, once. `lanes`: those that run.
        """
        if self._worker is not None:
            if self.is_looking:
                if self._clock.monotonic_s() >= self._until_s:
                    self._give_up()
                return None
            found, self._found, self._worker = self._found, None, None
            return found
        self._turns = {
            key: turn
            for key, turn in self._turns.items()
            if key in lanes and lanes[key].job == turn.job
        }
        for key, lane in lanes.items():
            behind_s, cost = lane.behind.seconds(self._clock.monotonic_s()), lane.behind.cost
            if (
                behind_s >= self._config.slow_s
                and self._is_due(key, lane.job, cost)
                and _has_room(key, lanes)
            ):
                self._is_over.clear()
                self._until_s = self._clock.monotonic_s() + SEARCH_S_MAX
                of = key, lane.job, lane.record, types(), cost
                self._worker = threading.Thread(
                    target=self._search, args=of, name=GROUP, daemon=True
                )
                self._worker.start()
                return None
        return None

    def close(self) -> None:
        """Stop: the current measurement is abandoned."""
        if self._worker is not None:
            self._give_up()
            self._worker.join(CLOSE_S)

    def _is_due(self, key: Key, job: Job, cost: Cost) -> bool:
        """May one of its queries delay another? Then the next search is due later.

        The driver's cost must be known, where the driver computes.
        """
        if len(job.queries) < 2 or (job.is_driven and not cost.records):
            return False
        now_s = self._clock.monotonic_s()
        turn = self._turns.setdefault(
            key, _Turn(job, Backoff(self._rng, first_s=AGAIN_S, max_s=AGAIN_S_MAX))
        )
        is_due = now_s >= turn.not_before_s
        if is_due:
            turn.not_before_s = now_s + turn.backoff.next_s()
        return is_due

    def _give_up(self) -> None:
        self._is_over.set()
        self._session.sparkContext.cancelJobGroup(self.group)

    @property
    def group(self) -> str:
        """Spark's name for the jobs of the last measurement."""
        return f"{GROUP}-{self._runs}"

    @property
    def is_looking(self) -> bool:
        """Is a search under way?"""
        return self._worker is not None and self._worker.is_alive()

    def _search(self, key: Key, job: Job, record: LaneRecord, types: Types, cost: Cost) -> None:
        place = f"{key[0]}-{key[1]}"
        log.info(
            "lane %s is behind: searching for a slow query", place, extra={"event": "slow.searched"}
        )
        try:
            self._session.sparkContext.setLocalProperty("spark.scheduler.pool", GROUP)
            slow = self._slow(job, record, types, cost)
        except GivenUp:
            log.warning(
                "lane %s: the search for a slow query was abandoned",
                place,
                extra={"event": "slow.given_up"},
            )
        except TooLittle:
            log.info(
                "lane %s is behind, but its next readings are cheap: no query to isolate",
                place,
                extra={"event": "slow.too_little"},
            )
        except FAULTS as error:
            if not self._is_over.is_set():
                log.warning(
                    "lane %s: the search for a slow query failed: %s",
                    place,
                    cause_of(error)[:500],
                    extra={"event": "slow.failed"},
                )
        else:
            if slow is None:
                log.info(
                    "lane %s is behind, but none of its queries is slow",
                    place,
                    extra={"event": "slow.nobody"},
                )
            else:
                self._found = Found(key, job, slow)

    def _slow(
        self, job: Job, record: LaneRecord, types: Types, cost: Cost
    ) -> Slow[Registered] | None:
        """Raises TooLittle, GivenUp, FAULTS."""
        sources = job.source_topics
        with closing(Ends(self._config.kafka, sources)) as ends:
            kept = ends.kept()
        emitted = sources.flat(record.offsets)
        first = {number: max(low, emitted.get(number, 0)) for number, (low, _) in kept.items()}
        first = {number: at for number, at in first.items() if kept[number][1] > at}
        count = 1
        while first and count <= RECORDS_MAX:
            last = {number: min(kept[number][1], at + count) for number, at in first.items()}
            read = records(
                self._session,
                self._config.kafka,
                sources.by_topic(first),
                sources.by_topic(last),
                group=GROUP,
            )

            tried = sum(last.values()) - sum(first.values())

            def seconds(
                queries: Sequence[Registered], read: DataFrame = read, tried: int = tried
            ) -> float:
                (part,) = jobs_of(queries, types).values()
                return self._seconds(part.graph(read)) + cost.of(
                    (one.label for one in queries), tried
                )

            if seconds(job.queries) >= ENOUGH_S:
                return slow_one(job.queries, seconds)
            if all(last[number] == kept[number][1] for number in first):
                break
            count *= GROWTH
        raise TooLittle

    def _seconds(self, frame: DataFrame) -> float:
        """Return the seconds of processor that its tasks take. Raises GivenUp."""
        if self._is_over.is_set():
            raise GivenUp
        context = self._session.sparkContext
        self._runs += 1
        context.setJobGroup(self.group, "search for a slow query")
        frame.write.format("noop").mode("overwrite").save()
        # Spark has no public way to say what a task took to who began it; what it keeps for its own
        # page has it, a moment later.
        spark: Any = context._jsc.sc()
        spark.listenerBus().waitUntilEmpty()
        stages = {
            stage
            for job in context.statusTracker().getJobIdsForGroup(self.group)
            for stage in _stages(context, job)
        }
        return (
            float(
                sum(
                    spark.statusStore().lastStageAttempt(stage).executorCpuTime()
                    for stage in stages
                )
            )
            / 1e9
        )


def _stages(context: Any, job: int) -> Sequence[int]:
    info = context.statusTracker().getJobInfo(job)
    return [] if info is None else list(info.stageIds)


def _has_room(key: Key, lanes: Mapping[Key, Lane]) -> bool:
    if sum(lane.job.queries[0].is_isolated for lane in lanes.values()) < ISOLATED_MAX:
        return True
    log.warning(
        "lane %s-%s is behind, and %d queries are isolated already, the most there may be",
        *key,
        ISOLATED_MAX,
        extra={"event": "slow.full"},
    )
    return False
