"""The records of a micro-batch's transaction beside its results (finish.py).

Pure: no Kafka, no Spark, no clock.

watermarks  up to when every window of a query is final, where that moved past a window's end
late        how many readings came after their window was closed, and some of them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

from edgewake.cloud.analysis.plan.late import LateWindow
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.queries.query import Query, Registered
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.ops import result

OUTPUT_BYTES_MAX: Final = 1 << 20
"""The largest key and value of a record, bytes: half of what Kafka takes. A larger record goes to
the dead letters, and the others of its batch go on."""
DEAD_BYTES_MAX: Final = 1 << 16
"""How much of it the dead letter keeps, bytes."""
Broken: TypeAlias = dict[str, str]
"""Query (label) → why its results could not be made."""


_NO_HEADERS: Final[Mapping[str, bytes]] = {}


class Output(NamedTuple):
    """A record to produce. A tuple, because a batch may have a million of them."""

    topic: str
    key: bytes
    value: bytes | None
    """None removes the row of a compacted topic."""
    headers: Mapping[str, bytes] = _NO_HEADERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro-batch beside its rows."""

    revision: int
    top_before: int | None
    """Event time before the batch, ms: decides what is late and what was final."""
    top: int | None
    """Event time after the batch, ms."""
    complete_from: Mapping[str, int] = field(default_factory=dict)
    """Query (label) → event time, ms: windows that begin before it may lack readings
    (lane_record)."""
    emitted_rows: dict[str, EmittedRows] = field(default_factory=dict)
    """Query (label) → its emitted rows, where it needs them."""
    unknown_to: Mapping[str, int] = field(default_factory=dict)
    """Query (label) → windows that begin before it (ms) may have been emitted by an earlier
    process."""
    emitted: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic → partition → first offset whose results were not emitted before the batch."""
    lacks_before: dict[str, int] = field(default_factory=dict)
    """Query (label) → event time, ms: windows that began before it were forgotten in this batch
    because more was open than is kept, so their next rows may lack readings."""
    meter: Meter = field(default_factory=Meter)
    """Measures the cost of each query's records."""


class Outputs(NamedTuple):
    """Records of one topic, without headers, as columns.

    A tuple for each would cost as much as producing it.
    """

    topic: str
    keys: Sequence[bytes]
    values: Sequence[bytes]


def each(outputs: Iterable[Output | Outputs]) -> Iterator[Output]:
    """The outputs one by one."""
    for output in outputs:
        if isinstance(output, Output):
            yield output
        else:
            yield from map(Output, repeat(output.topic), output.keys, output.values)


def results_of(registered: Registered, outputs: Iterable[Output | Outputs]) -> Iterator[Output]:
    """Those outputs that are results of a query, without its watermarks."""
    return (
        output
        for output in each(outputs)
        if output.topic == registered.topic and not result.is_watermark(output.key)
    )


def watermark(query: Query, top: int | None) -> int | None:
    """Event time in ms up to which every window of the query is final: the end of one of them.

    None where it has none that end.
    """
    if top is None or query.is_rows or not query.window.ends:
        return None
    return query.window.over(top - query.lateness_ms)


def closed(query: Query, top: int | None) -> int | None:
    """Event time in ms up to which the query's windows are closed.

    They are final, and no later reading opens them again.
    """
    return (
        None
        if top is None or query.is_rows or not query.window.ends
        else query.window.over(top - query.kept_ms)
    )


def watermarks(queries: Sequence[Registered], batch: Batch) -> Iterator[Output]:
    """Announcements of the queries whose windows became final; they follow the results."""
    for registered in queries:
        query = registered.query
        before, after = watermark(query, batch.top_before), watermark(query, batch.top)
        if after is not None and after != before:
            value = result.watermark_value(query.name, after, batch.revision)
            yield Output(registered.topic, result.WATERMARK_KEY, value)


def late_readings(
    windows: Iterable[LateWindow], queries: Sequence[Registered]
) -> Mapping[str, int]:
    """Query (label) → its late readings."""
    found: Counter[str] = Counter()
    for window in windows:
        found[queries[window.place].label] += window.readings
    return found


def late_outputs(
    windows: Iterable[LateWindow], queries: Sequence[Registered], batch: Batch
) -> Iterator[Output]:
    """Emit a record of `late_readings` for each query and window that readings came too late for.

    Its time is event time.
    """
    now_ms = batch.top or 0
    for window in windows:
        query = queries[window.place].query
        fields = {
            "late_query": query.name,
            "late_stream": window.stream or "+".join((query.stream, *query.others)),
            "window_begins": window.start,
            "window_ends": window.end,
            "readings": window.readings,
            "examples": f"[{','.join(window.examples)}]",
        }
        yield own_reading(topics.LATE, query, now_ms, fields)


def own_reading(
    topic: str, query: Query, at_ms: int, fields: Mapping[str, str | int | None]
) -> Output:
    """A reading of a stream that the analysis itself writes, about a query."""
    body = frame.encode(
        frame.Frame(None, None, None, [at_ms], {name: [value] for name, value in fields.items()})
    )
    stream = topic.removeprefix(topics.STREAM_PREFIX)
    value = record.encode(
        device="analysis",
        stream=stream,
        mode=record.Mode.ACK,
        sent_at=None,
        received_at=at_ms,
        frame_bytes=body,
    )
    return Output(topic, query.name.encode(), value)


def all_bounded(outputs: Outputs, *, now_ms: int) -> Iterator[Output | Outputs]:
    """The records, where those that are too large are dead letters."""
    if (
        not outputs.keys
        or max(map(len, outputs.keys)) + max(map(len, outputs.values)) <= OUTPUT_BYTES_MAX
    ):
        yield outputs
    else:
        yield from (bounded(output, now_ms=now_ms) for output in each([outputs]))


def bounded(output: Output, *, now_ms: int) -> Output:
    """The record, or a dead letter where it is too large."""
    value = output.value or b""
    size = len(output.key) + len(value)
    if size <= OUTPUT_BYTES_MAX:
        return output
    letter = DeadLetter(
        reason=RejectReason.OVERSIZE,
        detail=(
            f"a record of {size} bytes, at most {OUTPUT_BYTES_MAX} are kept; these are its first "
            f"{DEAD_BYTES_MAX}"
        ),
        topic=output.topic,
        part="analysis",
        received_at=now_ms,
        content_type="application/json",
    )
    return Output(
        topics.DEAD, output.key[:DEAD_BYTES_MAX], value[:DEAD_BYTES_MAX], dict(letter.headers())
    )
