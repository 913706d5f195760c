"""The Spark query of a lane: its plan, its batches' figures, and changes between batches.

Whatever uses Spark's internals says so: within a batch a lane needs figures that Spark reports only
after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Dials, Job
from edgewake.cloud.analysis.lanes.batch_rows import BatchRows
from edgewake.cloud.analysis.lanes.kafka_source import source
from edgewake.cloud.analysis.plan import late
from edgewake.cloud.analysis.plan.observed import Observed, observed_in
from edgewake.cloud.analysis.results import event_progress
from edgewake.cloud.analysis.results.batch_commit import Offsets
from edgewake.cloud.analysis.results.transaction import Ends
from edgewake.cloud.analysis.schedule import schedule
from edgewake.cloud.analysis.schedule.shedder import Shedder
from edgewake.cloud.analysis.spark import next_plan
from edgewake.cloud.analysis.spark.plan_values import PlanValues
from edgewake.cloud.kafka import topic_admin


class LanePlan:
    """Call `made`, `start`, then what each batch asks for. One thread at a time."""

    def __init__(self, session: SparkSession, config: AnalysisConfig, job: Job) -> None:
        self._session, self._config, self._job = session, config, job
        self.sources = job.source_topics
        self.partitions = 1
        """Records of its topics together."""
        self.shedder: Shedder | None = None
        """Sheds readings; only of queries that may."""
        self._ends: Ends | None = None
        self._eviction_watermark: PlanValues | None = None
        self._rows = BatchRows(session, job.queries if job.has_spark_state else ())
        self._settings: Mapping[str, str] = {}
        self._query: StreamingQuery | None = None

    def made(self, records_max: int) -> DataFrame:
        """The plan, of topics that are there. Raises Unavailable, or what Spark says of it.

        `records_max`: of a batch, until `set_limit`.
        """
        topic_admin.ensure_topics(self._config.kafka, self.sources.topics)
        self._ends = self._ends or Ends(self._config.kafka, self.sources)
        self.partitions = max(1, self._ends.partitions())
        names = self.sources.topics
        records = source(self._session, self._config, *names, records_max=records_max)
        levels: Mapping[str, Column] = {}
        if self._job.kind.sheds:
            self.shedder = Shedder(self._session, self._job.queries, self.partitions)
            levels = self.shedder.levels
        # A batch that an earlier process planned leaves out nothing that Spark counted in its
        # state then.
        self._eviction_watermark = PlanValues(self._session) if self._job.has_spark_state else None
        return self._job.graph(records, self.partitions, Dials(levels, self._eviction_watermark))

    def start(
        self,
        changed: DataFrame,
        name: str,
        checkpoint: Path,
        process: Callable[[DataFrame, int], None],
    ) -> StreamingQuery:
        """Let Spark run the plan.

        `process` is called with each batch's rows and number, in a thread of Spark's.
        """
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        self._query = (
            changed.writeStream.queryName(name)
            .foreachBatch(process)
            .option("checkpointLocation", str(checkpoint))
            .outputMode("update")
            # Whether there is anything new, at full steps of it; after a batch not before
            # `process` has returned.
            .trigger(processingTime=f"{schedule.asks_ms(self._config.trigger_ms)} milliseconds")
            .start()
        )
        return self._query

    @property
    def ends(self) -> Ends:
        """The bounds of its topics; only of a plan that was made."""
        assert self._ends is not None
        return self._ends

    def left(self, offsets: Offsets) -> dict[int, int] | None:
        """Number of partition → records after these offsets; None where Kafka does not say."""
        return self.ends.left(self.sources.flat(offsets))

    def rows(self, changed: DataFrame) -> pa.Table:
        """Runs the batch, and takes its rows. Raises what Spark does."""
        return self._rows.collected(changed)

    def observed(self) -> Observed:
        """The figures that the plan has measured of the current batch."""
        # Spark hands out what was observed only after the batch; within it, it is in the plan that
        # has just run.
        found: Any = self._execution.lastExecution().observedMetrics()
        return observed_in(json.loads(found.get(late.OBSERVED).get().json()), self.partitions)

    def suit(self, changed: DataFrame, rows: int, readings: int) -> None:
        """Set Spark's options for the next batches, given the rows and readings of this one."""
        self._settings = next_plan.apply_settings(changed, rows, readings, before=self._settings)

    def set_limit(self, records: int) -> None:
        """Limit the records of the next batches; to be called from the thread of a batch."""
        # Spark asks a source for its option once, when the query starts, and has no public way to
        # change what came of it.
        jvm: Any = self._session._jvm
        limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(records)
        sources = self._execution.uniqueSources()
        names = sources.keysIterator()
        while names.hasNext():
            sources = sources.updated(names.next(), limit)
        getattr(self._execution, "uniqueSources_$eq")(sources)

    def forget_to(self, top: int | None) -> None:
        """Let Spark forget windows up to this event time, ms, from the next batch on.

        A repeated batch forgets what it forgot before.
        """
        if top is None or self._query is None:
            return
        # Spark has no public way to set a watermark: its own is the highest event time of all
        # partitions, or needs a source for each.
        reached = event_progress.for_spark(top)
        self._execution.watermarkTracker().setWatermark(reached)
        if self._eviction_watermark is not None:
            self._eviction_watermark.set(0, reached)

    def close(self) -> None:
        """Close the clients of Kafka; whoever started the Spark query stops it."""
        if self._ends is not None:
            self._ends.close()

    @property
    def _execution(self) -> Any:
        assert self._query is not None
        return self._query._jsq.streamingQuery()
