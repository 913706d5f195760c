"""Decodes Kafka records into frames in columns, and frames into readings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan import frame_code
from edgewake.cloud.analysis.plan.clock_correction import corrected, sent
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.topics import STREAM_PREFIX

TOPIC_CHARS_MAX: Final = 249
"""The longest name of a topic in Kafka."""
IN_FRAME: Final = "$number"
"""A reading's number in its frame, from 0. No field can have this name, nor one of PLACE."""
PLACE: Final = ("$partition", "$offset", IN_FRAME)
"""The place of a reading in its stream."""
_ELEMENT: Final = {
    FieldType.NUMBER: "double",
    FieldType.STRING: "string",
    FieldType.BOOLEAN: "boolean",
}


def decode(
    records: DataFrame, fields: Mapping[str, FieldType], keep: Sequence[str] = ()
) -> DataFrame:
    """Decode frames of `ew.s.<stream>` with only the fields that somebody reads.

    Gap records are left out.

    In: partition, value (protocol/frames/record.py). Out: partition, offset, device, shift,
    received_at (by a clock that is right), sent_at (corrected), t array<bigint>, fields
    struct<name: array>, and the columns `keep` of the records.
    """
    named = sorted(fields.items())
    columns = ",".join(f"`{name}`:array<{_ELEMENT[kind]}>" for name, kind in named)
    schema = _schema(f"struct<{columns or '`-`:string'}>")
    letters = "".join(_ELEMENT[kind][0] for _, kind in named)
    fast = frame_code.read(
        records.sparkSession,
        F.col("value"),
        f"struct<{schema}>",
        [name for name, _ in named],
        letters,
    )
    return _frames(records, F.coalesce(fast, _from_json(schema)), "partition", "offset", *keep)


def decode_any(records: DataFrame) -> DataFrame:
    """Decode frames of several streams at once, with all of their fields as they stand in JSON.

    Gap records are left out.

    In: topic, partition, value. Out: stream, partition, device, shift, received_at, sent_at, t,
    fields map<string, array<string>>.
    """
    named = records.withColumn(
        "stream", F.substring("topic", len(STREAM_PREFIX) + 1, TOPIC_CHARS_MAX)
    )
    return _frames(named, _from_json(_schema("map<string, array<string>>")), "stream", "partition")


def _schema(fields: str) -> str:
    return (
        "device string, shift bigint, kept_at bigint, sent_at bigint, received_at bigint, t "
        f"array<bigint>, fields {fields}"
    )


def _from_json(schema: str) -> Column:
    return F.from_json(F.col("value").cast("string"), schema)


def _frames(records: DataFrame, body: Column, *kept: str) -> DataFrame:
    # Spark would copy a plain column below the condition and behind it, and so parse each record
    # twice.
    frames = records.select(*kept, F.inline(F.array(body))).where(
        F.col("t").isNotNull() & (F.size("t") > 0)
    )
    shift = F.coalesce("shift", F.lit(0).cast("bigint")).alias("shift")
    clocks = frames.select(
        *kept,
        "device",
        shift,
        F.coalesce("kept_at", "received_at").alias("received_at"),
        "sent_at",
        "t",
        "fields",
    )
    return clocks.withColumn("sent_at", sent())


def rows(fields: Mapping[str, FieldType], is_one_enough: Column | None = None) -> Column:
    """Return a frame's readings as array<struct<t, field, …>>.

    A field that a frame lacks is null in all of them.

    `is_one_enough`: of which frames only the first one is needed.
    """
    columns = {"t": F.col("t")}
    for name, kind in sorted(fields.items()):
        columns[name] = F.coalesce(
            F.col(f"fields.`{name}`"), F.array().cast(f"array<{_ELEMENT[kind]}>")
        )
    if is_one_enough is not None:
        count = F.when(is_one_enough, 1).otherwise(F.size("t"))
        columns = {name: F.slice(values, F.lit(1), count) for name, values in columns.items()}
    return F.arrays_zip(*[values.alias(name) for name, values in columns.items()])


def readings(
    frames: DataFrame,
    fields: Mapping[str, FieldType],
    keep: Sequence[str],
    *,
    numbered: bool = False,
    placed: bool = False,
    is_one_enough: Column | None = None,
) -> DataFrame:
    """One row for each reading, with corrected event time.

    In: device, received_at, sent_at, t, fields, shift and the columns `keep`, which are called as
    no field can be. Out: device, t, received_at, sent_at, the fields, the columns `keep`, and where
    it is `numbered` IN_FRAME, where it is `placed` PLACE. `is_one_enough`: see rows.
    """
    names = [F.col(f"reading.`{name}`").alias(name) for name in sorted(fields)]
    made = rows(fields, is_one_enough)
    each_of = (
        F.posexplode(made).alias(IN_FRAME, "reading")
        if numbered or placed
        else F.explode(made).alias("reading")
    )
    place = [F.col(name.removeprefix("$")).alias(name) for name in PLACE[:2]] if placed else []
    each = frames.select("device", "received_at", "sent_at", "shift", *keep, *place, each_of)
    kept = list(keep)
    if placed:
        kept += PLACE
    elif numbered:
        kept.append(IN_FRAME)
    return each.select(
        "device", corrected(F.col("reading.t")).alias("t"), "received_at", "sent_at", *names, *kept
    )
