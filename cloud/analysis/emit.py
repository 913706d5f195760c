"""The records of a micro-batch's transaction beside its results (finish.py). Pure: no Kafka, no Spark, no clock.

watermarks  up to when every window of a query is final, where that moved past a window's end
late        how many readings came after their window was final
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import orjson

from edgewake.cloud.analysis.query_plan import Query, Registered
from edgewake.protocol import result, topics
from edgewake.protocol.dead_letter import DeadLetter
from edgewake.protocol.errors import RejectReason

OUTPUT_BYTES_MAX: Final = 1 << 20
"""Bytes of a record's value: half of what Kafka takes. A larger one goes to the dead letters, and the others of its batch go on."""
DEAD_BYTES_MAX: Final = 1 << 16
"""Bytes that the dead letter keeps of it."""
Broken: TypeAlias = dict[str, str]
"""Query (label) → why its results could not be made."""


_NO_HEADERS: Final[Mapping[str, bytes]] = {}


class Output(NamedTuple):
    """A record to produce. A tuple, because a batch may have a million of them."""

    topic: str
    key: bytes
    value: bytes
    headers: Mapping[str, bytes] = _NO_HEADERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What is known of a micro-batch beside its rows."""

    revision: int
    top_before: int | None
    """Latest event time before the batch: decides what is late and what was final."""
    top: int | None
    """Latest event time with the batch."""
    complete_from: Mapping[str, int] = field(default_factory=dict)
    """Query (label) → event time, ms: windows that begin before it may lack readings (lane_record)."""


def watermark(query: Query, top: int | None) -> int | None:
    """Event time in ms up to which every window of the query is final, on the grid of its windows."""
    if top is None:
        return None
    final = top - query.lateness_ms
    return final - final % query.slide_ms


def watermarks(queries: Sequence[Registered], batch: Batch) -> Iterator[Output]:
    """Announcements of the queries whose windows became final; they follow the results."""
    for registered in queries:
        query = registered.query
        before, after = watermark(query, batch.top_before), watermark(query, batch.top)
        if after is not None and after != before:
            value = result.watermark_value(query.name, after, batch.revision)
            yield Output(registered.topic, result.WATERMARK_KEY, value, {result.KIND_HEADER: result.KIND_WATERMARK})


def late_readings(counts: Iterable[tuple[int, int, int]], queries: Sequence[Registered], batch: Batch) -> Mapping[str, Counter[int]]:
    """Query (label) → end of window → late readings. `counts`: late.late_counts."""
    found: dict[str, Counter[int]] = {}
    for place, end, readings in counts:
        registered = queries[place]
        before = watermark(registered.query, batch.top_before)
        if before is not None and end <= before:
            found.setdefault(registered.label, Counter())[end] += readings
    return found


def late_outputs(found: Mapping[str, Counter[int]], queries: Sequence[Registered], batch: Batch) -> Iterator[Output]:
    """One record for each query and window that readings came too late for."""
    names = {registered.label: registered.query for registered in queries}
    for label, ends in found.items():
        query = names[label]
        for end, readings in sorted(ends.items()):
            value = {"query": query.name, "stream": query.stream, "window_end": end, "readings": readings, "revision": batch.revision}
            yield Output(topics.LATE, query.name.encode(), orjson.dumps(value))


def bounded(output: Output, *, now_ms: int) -> Output:
    """The record, or the dead letter that it becomes when it is too large."""
    if len(output.value) <= OUTPUT_BYTES_MAX:
        return output
    letter = DeadLetter(
        reason=RejectReason.OVERSIZE,
        detail=f"a record of {len(output.value)} bytes, at most {OUTPUT_BYTES_MAX} are kept; these are its first {DEAD_BYTES_MAX}",
        topic=output.topic,
        part="analysis",
        received_at=now_ms,
        content_type="application/json",
    )
    return Output(topics.DEAD, output.key[:DEAD_BYTES_MAX], output.value[:DEAD_BYTES_MAX], dict(letter.headers()))
