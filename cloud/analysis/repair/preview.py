"""A query's results over what a stream received in the last minutes.

It is one batch without state, which writes nothing and disturbs nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import orjson
import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.jobs.job import Job, States
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.lanes.batch_range import records
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S, KafkaConfig
from edgewake.cloud.kafka.metadata import partition_count
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.registry import check_foreign
from edgewake.protocol.frames.stream import Stream

RECORDS_MAX: Final = 100_000
"""Records (frames) of a preview, of all partitions together, the latest ones: about as much as five
micro-batches."""


Range = dict[int, tuple[int, int]]
"""Partition → first offset and the one after the last."""


def preview(
    session: SparkSession,
    kafka: KafkaConfig,
    text: str,
    streams: Mapping[str, Stream],
    *,
    since_ms: int,
    now_ms: int,
    foreign: Collection[str] = (),
) -> Iterator[dict[str, Any]]:
    """Results, one for each window and group, or for each reading that passes.

    Raises QueryError, Unavailable.

    `streams`: the catalogue; `since_ms`: when Kafka had the first record that counts. Windows that
    may have had readings before say `"complete": false`. `foreign`: see check_foreign.
    """
    registered = Registered(replace(parse(text, streams), reopen_ms=0), now_ms)
    check_foreign(registered.query, foreign)
    types = {
        name: {field: info.type for field, info in stream.fields.items()}
        for name, stream in streams.items()
    }
    (job,) = jobs_of([registered], types).values()
    asked = {topic: recent(kafka, topic, since_ms) for topic in job.source_topics.topics}
    found = {topic: places for topic, places in asked.items() if places}
    if not found and not job.is_of_tables:
        return
    starts, ends = (
        {topic: {p: bounds[i] for p, bounds in places.items()} for topic, places in found.items()}
        for i in (0, 1)
    )
    rows = (
        pa.table({})
        if job.is_of_tables
        else job.graph(records(session, kafka, starts, ends)).toArrow()
    )
    step = emit.Batch(
        revision=1,
        top_before=None,
        top=now_ms if job.waits_for_partners else None,
        complete_from={registered.label: since_ms},
    )
    states = _states(kafka, job)
    broken: emit.Broken = {}
    for output in emit.results_of(registered, states.outputs(rows, step, broken)):
        assert output.value is not None
        yield orjson.loads(output.value)
    for why in broken.values():
        raise ValueError(why)


def _states(kafka: KafkaConfig, job: Job) -> States:
    """States with nothing open; tables are read from their beginning."""
    states = job.new_states()
    if (follower := states.follower(kafka)) is not None:
        with closing(follower):
            for _ in states.catch_up(follower, {}, Meter()):
                pass
    return states


def recent(kafka: KafkaConfig, topic: str, since_ms: int) -> Range:
    """Return what each partition received since then, at most RECORDS_MAX in all.

    Partitions that received nothing are left out.
    """
    with closing(clients.consumer(kafka, "analysis-preview")) as consumer:
        partitions = range(partition_count(consumer, topic))
        asked = [TopicPartition(topic, partition, since_ms) for partition in partitions]
        try:
            firsts = consumer.offsets_for_times(asked, timeout=METADATA_TIMEOUT_S) if asked else []
        except KafkaException as error:
            raise clients.away(kafka, error.args[0]) from error
        found: Range = {}
        for first in firsts:
            low, end = watermarks(consumer, topic, first.partition)
            if first.offset >= 0:
                found[first.partition] = (
                    max(low, first.offset, end - RECORDS_MAX // len(partitions)),
                    end,
                )
        return {partition: bounds for partition, bounds in found.items() if bounds[0] < bounds[1]}
