"""Finds the queries at fault when Spark refuses a plan, or a batch fails twice.

They fail alone, too.

Nothing is emitted, and no state is touched. lanes/failures.py decides when this is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.checkpoints.checkpoint import offsets_of
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes.batch_range import as_text, records
from edgewake.cloud.analysis.lanes.failure_causes import cause_of, fault_of
from edgewake.cloud.analysis.lanes.failures import Failure, Fault, find_failing
from edgewake.cloud.analysis.lanes.kafka_source import source
from edgewake.cloud.queries.query import Registered
from edgewake.protocol.errors import EdgewakeError
from edgewake.protocol.frames.field_type import FieldType

log = logging.getLogger("edgewake.analysis")

FAULTS: Final = (EdgewakeError, KafkaException, OSError, PySparkException, Py4JError)
"""What may go wrong when a lane starts, or when its readings are computed once more."""
Types: TypeAlias = Mapping[str, Mapping[str, FieldType]]
"""Stream → field → type."""


def refused(
    session: SparkSession, config: AnalysisConfig, job: Job, types: Types
) -> dict[str, str]:
    """Query (label) → why Spark refuses it, of those that it refuses alone."""
    found: dict[str, str] = {}
    read = source(session, config, *job.source_topics.topics, records_max=1)
    for registered in job.queries:
        (alone,) = jobs_of([registered], types).values()
        try:
            alone.graph(read)
        except PySparkException as error:
            found[registered.label] = f"Spark refuses it: {_one_line(error)}"
    return found


def failing(
    session: SparkSession,
    config: AnalysisConfig,
    job: Job,
    types: Types,
    checkpoint: Path,
    failure: Failure,
    beat: Callable[[], None],
) -> dict[str, str]:
    """Return query (label) → why it cannot compute the readings of a batch that failed.

    It is empty where no query is at fault, or where it cannot be found now.

    `beat` is called before each try, of which there are about two for each doubling of the queries.
    """
    try:
        return _failing(session, config, job, types, checkpoint, failure, beat)
    except FAULTS as error:
        log.warning(
            "the failing query cannot be determined now: %s",
            cause_of(error)[:500],
            extra={"event": "lane.bisect_failed"},
        )
        return {}


def _failing(
    session: SparkSession,
    config: AnalysisConfig,
    job: Job,
    types: Types,
    checkpoint: Path,
    failure: Failure,
    beat: Callable[[], None],
) -> dict[str, str]:
    """Raises FAULTS where the surroundings fail."""
    assert failure.reached is not None
    start = offsets_of(checkpoint, failure.batch - 1) if failure.batch > 0 else {}
    frames = records(session, config.kafka, start, failure.reached)
    causes: dict[str, str] = {}

    def fails(queries: Sequence[Registered]) -> bool:
        beat()
        (part,) = jobs_of(queries, types).values()
        try:
            part.graph(frames).toArrow()
        except (PySparkException, Py4JError) as error:
            if fault_of(error) is not Fault.SUSPECT:
                raise
            causes.update({registered.label: cause_of(error) for registered in queries})
            return True
        return False

    until = f"it cannot compute the readings up to {as_text(failure.reached)}"
    return {one.label: f"{until}: {causes[one.label]}" for one in find_failing(job.queries, fails)}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:800]
