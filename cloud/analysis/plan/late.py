"""Finds late readings: those of closed windows, which Spark drops.

They are counted, and reported with query, window and examples.

The plan of a micro-batch notes how old its oldest reading is (`observe`). Only where windows as old
as that are closed does the driver read the batch's records once more and sort out the readings of
old frames itself (`late_windows`): in Spark a week of one device took seconds, for which the other
readings waited. So current readings pay for one comparison per frame, and 10,000 old ones in one
frame for being looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice, zip_longest
from typing import Any, Final, TypeAlias

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan.clock_correction import corrected
from edgewake.cloud.analysis.plan.table_rows import typed
from edgewake.cloud.analysis.plan.tags import variants, where_of
from edgewake.cloud.queries.query import Query
from edgewake.cloud.queries.terms.evaluate import Evaluated, evaluated
from edgewake.cloud.queries.terms.expressions import READING, TIMES
from edgewake.cloud.queries.terms.tree import Expression
from edgewake.cloud.queries.terms.windows import Window
from edgewake.protocol.frames import record
from edgewake.protocol.frames.corrected_time import corrected_ms, sent_ms
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Scalar

OBSERVED: Final = "frames"
EXAMPLES_MAX: Final = 10
"""Readings that are reported in full, per query, window and batch; all are counted, and all are in
their stream."""
READINGS_AT_ONCE: Final = 200_000
"""Readings after which only the oldest windows are kept, some 100 bytes for each example."""
WINDOWS_MAX: Final = 1000
"""Windows of a batch, over all queries, that are reported one by one, the oldest first; the rest is
reported as one number for each query."""


@dataclass(frozen=True, slots=True)
class LateWindow:
    """A batch's readings that came too late for one window, or for all beyond WINDOWS_MAX."""

    place: int
    """Number of the query in its lane."""
    start: int | None
    end: int | None
    readings: int
    examples: tuple[str, ...] = ()
    """Readings as JSON: device, t (corrected), and the fields that the lane's queries use."""
    stream: str | None = None
    """The stream of these readings, where that is not the query's stream."""


def observe(frames: DataFrame, partitions: int) -> DataFrame:
    """The frames as they came; on the way each batch is measured.

    Frames, readings, the oldest event time (ms, corrected), flagged frames; and of each of the
    topic's partitions the latest event time and the latest reception.
    """
    latest: list[Column] = []
    for i in range(partitions):
        is_there = F.pmod("partition", F.lit(partitions)) == i
        latest += [
            F.max(F.when(is_there, F.col("top"))).alias(f"top_{i}"),
            F.max(F.when(is_there, F.col("received_at"))).alias(f"read_{i}"),
        ]
    return frames.observe(
        OBSERVED,
        F.count(F.lit(1)).alias("frames"),
        F.sum(F.size("t")).alias("readings"),
        F.min(corrected(F.array_min("t"))).alias("oldest"),
        F.count("clock_flag").alias("flagged"),
        *latest,
    )


def late_windows(
    values: Iterable[bytes | None],
    queries: Sequence[Query],
    fields: Mapping[str, FieldType],
    closed: Sequence[int | None],
) -> list[LateWindow]:
    """Find the readings of a batch that are too late for their windows. Pure.

    `values`: the records of the stream; `closed`: per query, the end of windows that take no more
    readings, None where there are none. A reading counts once for each closed window that it
    belongs to.
    """
    names = (*READING, *sorted(fields))
    rules = _rules(queries, closed, names)
    found: dict[_Key, _Late] = {}
    rest = dict.fromkeys(range(len(queries)), 0)
    for count, reading in enumerate(
        _old_readings(values, fields, max((rule.closed for rule in rules), default=0)), 1
    ):
        for rule in rules:
            for start, end in rule.late(reading):
                if (one := found.get(key := (end, start, rule.number))) is None:
                    one = found[key] = _Late()
                one.add(reading)
        if count % READINGS_AT_ONCE == 0:
            _keep_oldest(found, rules, rest)
    windows = sorted(
        (end, start, place, one)
        for (end, start, number), one in found.items()
        for place in rules[number].places
    )
    for _, _, place, one in windows[WINDOWS_MAX:]:
        rest[place] += one.readings
    emitted = [
        LateWindow(place, start, end, one.readings, one.texts(names))
        for end, start, place, one in windows[:WINDOWS_MAX]
    ]
    return emitted + [
        LateWindow(place, None, None, count) for place, count in sorted(rest.items()) if count
    ]


_Key: TypeAlias = tuple[int, int, int]
"""End and start of a window, and the number of its rule."""
_Reading: TypeAlias = tuple[Any, ...]
"""Values of READING and the fields."""


@dataclass(order=True, slots=True)
class _Late:
    """The late readings of a window."""

    readings: int = 0
    examples: list[_Reading] = field(default_factory=list, compare=False)

    def add(self, reading: _Reading) -> None:
        self.readings += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(reading)

    def texts(self, names: Sequence[str]) -> tuple[str, ...]:
        columns = [(i, name) for i, name in enumerate(names) if name == "t" or name not in TIMES]
        examples = (
            {name: reading[i] for i, name in columns if reading[i] is not None}
            for reading in self.examples
        )
        return tuple(orjson.dumps(one).decode() for one in examples)


@dataclass(frozen=True, slots=True)
class _Rule:
    """The part of a query that decides which readings are late.

    Queries that share it are checked once.
    """

    number: int
    window: Window
    closed: int
    at: int
    """The position of its time among a reading's values."""
    wheres: tuple[Evaluated, ...]
    places: list[int]

    def late(self, reading: _Reading) -> Iterator[tuple[int, int]]:
        """Start and end of the closed windows that it belongs to."""
        time, closed = reading[self.at], self.closed
        if time > closed or not self._passes(reading):
            return
        if self.window.is_sequence:
            yield time, time
            return
        for start, end in self.window.around(time):
            if end <= closed:
                yield start, end

    def _passes(self, reading: _Reading) -> bool:
        return not self.wheres or any(where(reading) is True for where in self.wheres)


def _rules(
    queries: Sequence[Query], closed: Sequence[int | None], names: Sequence[str]
) -> list[_Rule]:
    at = {name: i for i, name in enumerate(names)}
    found: dict[tuple[Window, int, tuple[Expression, ...]], _Rule] = {}
    for place, (query, end) in enumerate(zip(queries, closed, strict=True)):
        if end is None:
            continue
        wheres = [where_of(query, values) for values in variants(query)]
        conditions = tuple(where for where in wheres if where is not None)
        rule = _Rule(
            len(found),
            query.window,
            end,
            at[query.window.time],
            tuple(evaluated(one, at) for one in conditions),
            [],
        )
        found.setdefault((query.window, end, conditions), rule).places.append(place)
    return list(found.values())


def _old_readings(
    values: Iterable[bytes | None], fields: Mapping[str, FieldType], latest: int
) -> Iterator[_Reading]:
    """Select frames with a reading of `latest` (ms) or before, by any of TIMES.

    What cannot be read is left out.
    """
    for value in values:
        try:
            found = record.decode(value or b"")
            received_at = found.received_at if found.kept_at is None else found.kept_at
            times = [
                corrected_ms(t, shift=found.shift, received_at=received_at) for t in found.frame.t
            ]
            sent_at = sent_ms(found.sent_at, shift=found.shift, received_at=received_at)
        except (LookupError, TypeError, ValueError):
            continue
        if times and min(*times, received_at, sent_at) <= latest:
            columns = [
                [_typed(one, kind) for one in found.frame.fields.get(name, ())]
                for name, kind in sorted(fields.items())
            ]
            for t, *others in islice(zip_longest(times, *columns), len(times)):
                yield found.device, t, received_at, sent_at, *others


def _typed(value: Scalar, kind: FieldType) -> Scalar:
    """Convert a value as Spark reads it: numbers are doubles."""
    found = typed(value, kind)
    return float(found) if kind is FieldType.NUMBER and isinstance(found, int | float) else found


def _keep_oldest(found: dict[_Key, _Late], rules: Sequence[_Rule], rest: dict[int, int]) -> None:
    """Keep the oldest windows; of the others keep only the number.

    Those are never among the oldest again, whatever comes.
    """
    if len(found) <= WINDOWS_MAX:
        return
    oldest = set(nsmallest(WINDOWS_MAX, found))
    for key in [key for key in found if key not in oldest]:
        late = found.pop(key)
        for place in rules[key[2]].places:
            rest[place] += late.readings
