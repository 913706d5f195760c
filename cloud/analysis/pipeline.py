"""The graph on one screen: from records of a stream to changed partials of all its queries.

records ─ decode ─ correct ─ observe ─ watermark ─ readings ─ tagged ─ aggregate ─ estimate ─→ foreachBatch (lane.py)
          frames   clocks    late,     event time   one row    one row   RocksDB     values
                             counts    of frames    a reading  a tag     state       of sketches
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cloud.analysis import late, partials, tags
from cloud.analysis.clock_correction import correct
from cloud.analysis.decode import decode, readings
from cloud.analysis.query_plan import Registered
from protocol.stream import FieldType


class LaneKind(StrEnum):
    """Queries without sketches must not pay for sketches, so a stream has up to two lanes, each a Spark query with its checkpoint."""

    PLAIN = "plain"
    SKETCH = "sketch"


@dataclass(frozen=True, slots=True)
class LanePlan:
    """What one lane computes. An equal plan needs no restart."""

    stream: str
    kind: LaneKind
    fields: tuple[tuple[str, FieldType], ...]
    """Only those that its queries read, sorted."""
    queries: tuple[Registered, ...]

    @property
    def ranks(self) -> tuple[float, ...]:
        """Ranks of all quantiles, ascending."""
        aggregates = [a for registered in self.queries for a in registered.query.aggregates]
        return tuple(sorted({a.parameter for a in aggregates if a.function == "quantile"}))

    @property
    def top_k(self) -> int:
        """Largest k of all approx_top_k."""
        return max((int(a.parameter) for r in self.queries for a in r.query.aggregates if a.function == "top_k"), default=1)


def partials_of(records: DataFrame, plan: LanePlan) -> DataFrame:
    """The whole graph. In: a Kafka source's `value`. Out: see partials.estimate; streaming, to be run in update mode."""
    fields: Mapping[str, FieldType] = dict(plan.fields)
    sketches = plan.kind is LaneKind.SKETCH
    all_tags = [tag for registered in plan.queries for tag in tags.tags_of(registered)]
    keys = tags.key_columns(all_tags)

    frames = correct(decode(records, fields))
    frames = late.observe(frames, [registered.query for registered in plan.queries], fields)
    frames = with_event_time(frames)
    frames, kept = _frame_keys(frames, keys)
    tagged = tags.tagged(readings(frames, fields, kept), all_tags, keys, sketches=sketches)
    return partials.estimate(partials.aggregate(tagged, sketches=sketches), ranks=plan.ranks, k=plan.top_k)


def with_event_time(frames: DataFrame) -> DataFrame:
    """The watermark is the latest event time of all frames so far, without delay: each query's lateness is in its rows' `expires`.

    A frame's event time never passes its reception, so one device's clock in the future makes nobody else's readings late.
    """
    return frames.withColumn("event_time", F.timestamp_millis("top")).withWatermark("event_time", "0 seconds")


def _frame_keys(frames: DataFrame, keys: Mapping[tags.Keys, str]) -> tuple[DataFrame, list[str]]:
    made = {name: tags.key_json(key, F.col) for key, name in keys.items() if tags.of_the_frame(key)}
    return frames.withColumns(made) if made else frames, list(made)
