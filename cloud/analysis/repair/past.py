"""Reads from the lake what the log no longer has, so that a repair can go further back.

Each reading is taken once.

    lake: offsets below the seam ─┐
                                  ├─ frames (plan/decode.py) ─→ the query's graph
    log:  offsets from the seam ──┘

The seam is how far the lake reaches according to its manifest, partition by partition. It must not
lie before what Kafka keeps, the lake must not lack records that Kafka has deleted, and it must
still have all days that a window needs. Otherwise nothing is computed, and the reason is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.checkpoints.log_reader import LOG_BEFORE_MS, Overtaken
from edgewake.cloud.analysis.lanes.batch_range import records
from edgewake.cloud.analysis.plan.decode import decode
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import partition_count, topic_id
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.lake.manifest import Contents, File, contents
from edgewake.cloud.lake.shape import ColumnType, Fields, Kind, physical
from edgewake.protocol.frames.field_type import FieldType

log = logging.getLogger("edgewake.analysis")

_SQL: Final = {FieldType.NUMBER: "double", FieldType.STRING: "string", FieldType.BOOLEAN: "boolean"}
_COLUMN_TYPE: Final = {
    FieldType.NUMBER: ColumnType.NUMBER,
    FieldType.STRING: ColumnType.STRING,
    FieldType.BOOLEAN: ColumnType.BOOLEAN,
}


@dataclass(frozen=True, slots=True)
class Kept:
    """What Kafka has of a topic."""

    topic_id: str
    offsets: Mapping[int, tuple[int, int]]
    """Partition → first offset that is kept, and the one after the last."""


def seam(
    topic: str,
    lake: Contents,
    kafka: Kept,
    first_begin_ms: int,
    first_offsets: Callable[[], Mapping[int, int]],
) -> dict[int, int]:
    """Partition → the offset from which on the log is read, and below which the lake.

    `first_offsets`: partition → the first one in the lake; read only where days do not decide.
    Raises Overtaken where the two do not have all readings of windows that begin at
    `first_begin_ms` or later.
    """
    if lake.gaps:
        raise Overtaken(
            f"retention deleted readings of {topic}, and the lake lacks {lake.gaps} records that "
            "Kafka deleted before it had them"
        )
    found = {}
    for partition, (low, high) in kafka.offsets.items():
        place = lake.places.get((topic, partition))
        at = place.next if place is not None and place.topic_id == kafka.topic_id else 0
        if not low <= at <= high:
            raise Overtaken(
                f"retention deleted readings of {topic}[{partition}] before offset {low}, and the "
                f"lake has them up to {at}"
            )
        found[partition] = at
    # The oldest days go first, so where there is an older one than is needed, nothing that is
    # needed was given up.
    first_day = min((file.date for file in lake.files), default="")
    if first_day >= needed_day(first_begin_ms):
        firsts = first_offsets()
        if any(firsts.get(partition, at) > 0 for partition, at in found.items()):
            raise Overtaken(
                f"retention deleted readings of {topic}, and the lake may lack some before the "
                f"end of {first_day}"
            )
    return found


def needed_day(first_begin_ms: int) -> str:
    """The first day of Kafka (UTC) that can have readings of windows that begin then or later."""
    return (
        datetime.fromtimestamp(max(0, first_begin_ms - LOG_BEFORE_MS) / 1000, UTC)
        .date()
        .isoformat()
    )


def joined(
    session: SparkSession,
    kafka: KafkaConfig,
    folder: Path,
    topic: str,
    fields: Mapping[str, FieldType],
    first_begin_ms: int,
) -> tuple[DataFrame, int]:
    """Join frames of lake and log with all readings of windows that begin then or later.

    With them comes the number of the topic's partitions.

    Raises Overtaken, Unavailable.
    """
    with closing(clients.consumer(kafka, "analysis-repair")) as consumer:
        offsets = {
            p: watermarks(consumer, topic, p) for p in range(partition_count(consumer, topic))
        }
    kept = Kept(topic_id(clients.admin(kafka), topic), offsets)
    lake = contents(folder, [topic])
    at = seam(
        topic, lake, kept, first_begin_ms, lambda: _first_offsets(session, folder, lake.files)
    )
    needed = [file for file in lake.files if file.date >= needed_day(first_begin_ms)]
    past = frames(session, folder, needed, fields, at, first_begin_ms)
    log_from = {p: first for p, first in at.items() if first < offsets[p][1]}
    present = (
        decode(
            records(
                session, kafka, {topic: log_from}, {topic: {p: offsets[p][1] for p in log_from}}
            ),
            fields,
        )
        if log_from
        else None
    )
    both = [one for one in (past, present) if one is not None]
    if not both:
        raise Overtaken(f"neither {topic} nor the lake has records of that time")
    log.info(
        "goes on from the lake below offsets %s of %s",
        at,
        topic,
        extra={"event": "repair.from_lake", "files": len(needed)},
    )
    return reduce(DataFrame.unionByName, both), max(1, len(offsets))


def _first_offsets(session: SparkSession, folder: Path, files: Sequence[File]) -> dict[int, int]:
    if not files:
        return {}
    rows = session.read.parquet(*[str(folder / file.path) for file in files])
    firsts = (
        rows.groupBy(F.col("`@partition`").alias("partition"))
        .agg(F.min("`@offset`").alias("first"))
        .collect()
    )
    return {row["partition"]: row["first"] for row in firsts}


def frames(
    session: SparkSession,
    folder: Path,
    files: Sequence[File],
    fields: Mapping[str, FieldType],
    below: Mapping[int, int],
    start_ms: int,
) -> DataFrame | None:
    """Return the lake's readings before the seam as frames of one reading each (decode.decode).

    None where it has no file.

    `below`: partition → offset; `start_ms`: ms; readings that were made and received before it are
    not wanted.
    """
    tables = [
        _table(session, folder, list(group), shape, fields)
        for shape, group in groupby(sorted(files, key=_shape), key=_shape)
    ]
    if not tables:
        return None
    before = F.coalesce(
        *[
            F.when(F.col("partition") == partition, F.col("offset") < at)
            for partition, at in below.items()
        ],
        F.lit(False),
    )
    return reduce(DataFrame.unionByName, tables).where(
        before & (F.greatest(F.col("t")[0], "received_at") >= start_ms)
    )


def _shape(file: File) -> tuple[tuple[str, ColumnType], ...]:
    return tuple(sorted(file.fields.items()))


def _table(
    session: SparkSession,
    folder: Path,
    files: Sequence[File],
    shape: tuple[tuple[str, ColumnType], ...],
    fields: Mapping[str, FieldType],
) -> DataFrame:
    rows = session.read.parquet(*[str(folder / file.path) for file in files])
    of_file: Fields = dict(shape)
    columns = physical(Kind.STREAM, of_file)

    def value(name: str, kind: FieldType) -> Column:
        is_there = of_file.get(name) is _COLUMN_TYPE[kind]
        return (F.col(f"`{columns[name]}`") if is_there else F.lit(None)).cast(_SQL[kind])

    values = [F.array(value(name, kind)).alias(name) for name, kind in sorted(fields.items())]
    return rows.select(
        F.col("`@partition`").alias("partition"),
        F.col("`@offset`").alias("offset"),
        "device",
        F.lit(0).cast("bigint").alias("shift"),
        _ms("received_at").alias("received_at"),
        F.coalesce(_ms("sent_at"), _ms("received_at")).alias("sent_at"),
        F.array(_ms("t")).alias("t"),
        F.struct(*(values or [F.lit(None).cast("string").alias("-")])).alias("fields"),
    )


def _ms(name: str) -> Column:
    """A file's time, which has no zone and is UTC, as the session's."""
    return F.unix_millis(F.col(name).cast("timestamp"))
