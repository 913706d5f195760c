"""How long the store of summaries takes to answer, for a week of minutes of one series with all its
sketches.

A minute has 30 readings of a number. Asked are the figures of every minute of the week, to the JSON
that is sent, and one row of the week with distinct values and quantiles: from minutes alone, and
once hours and days are rolled up. Checked: every answer counts every reading. Then how many records
a second the store takes, and its size; and how many late parts, of which a day of minutes gets
LATE_PARTS each. `python -m tests.bench.bench_summaries [--runs 20] [--json FILE]`
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import orjson
from pydantic import TypeAdapter

from edgewake.cloud.summaries import answers, gather, plain_minutes, rollup
from edgewake.cloud.summaries.asking import Asked, Row, answered
from edgewake.cloud.summaries.late_part import maker
from edgewake.cloud.summaries.store import Reads, Store, View
from edgewake.cloud.summaries.summary import DAY_MS, MINUTE_MS, Step
from tests.bench.figures import Found, percentile, run
from tests.summaries.made import SERIES, minute

MINUTES: Final = 7 * 1440
READINGS: Final = 30
LATE_PARTS: Final = 4
T0: Final = 1_790_000_000_000 // DAY_MS * DAY_MS
NOW: Final = T0 + 8 * DAY_MS
ASKED: Final = Asked(distinct=True, ranks=(0.5, 0.99))
ROWS: Final = TypeAdapter(list[Row])
T = TypeVar("T")
LIMITS: Final = (
    "Reading and merging 10,080 sketches of each kind takes most of the time from minutes; that "
    "is what the roll-up saves."
)


def filled(path: Path) -> tuple[Store, float]:
    """A store with the week, and the seconds that it took."""
    rng = random.Random(1)
    made = [
        minute(T0, [round(rng.lognormvariate(3, 1), 2) for _ in range(READINGS)])
        for _ in range(100)
    ]
    week = [(made[i % 100], T0 + i * MINUTE_MS) for i in range(MINUTES)]
    records = [(Step.MINUTE, replace(one, start_ms=at, end_ms=at + MINUTE_MS)) for one, at in week]
    store, began = Store(path), time.perf_counter()
    for at in range(0, len(records), 500):
        store.keep(records[at : at + 500], {("t", 0): at}, now_ms=NOW)
    return store, time.perf_counter() - began


def roll_up(store: Store, path: Path) -> float:
    """Seconds for all hours and days."""
    began = time.perf_counter()
    while found := Reads(path).with_view(
        lambda view: list(rollup.rolled_up(store, view, now_ms=NOW + 200_000))
    ):
        store.keep(
            [(step, record) for step, _, _, record in found if record is not None], {}, now_ms=NOW
        )
        for step, series, start, _ in found:
            store.clean(step, [(series, start)])
    return time.perf_counter() - began


def late_parts(store: Store, path: Path) -> float:
    """Seconds for LATE_PARTS parts of a reading of each minute of a day, one transaction after the
    other.
    """
    began = time.perf_counter()
    for revision in range(LATE_PARTS):
        records = [
            replace(minute(T0 + i * MINUTE_MS, [float(i % 97)]), maker=maker(revision))
            for i in range(1440)
        ]
        for at in range(0, len(records), 500):
            store.keep([(Step.MINUTE, one) for one in records[at : at + 500]], {}, now_ms=NOW)
    took_s = time.perf_counter() - began
    assert Reads(path).with_view(whole_week) == MINUTES * READINGS + 1440 * LATE_PARTS
    return took_s


def figures_of_minutes(view: View) -> bytes:
    """The rows of an answer, as they are sent."""
    return orjson.dumps(plain_minutes.rows(view, SERIES, T0, T0 + 7 * DAY_MS))


def merged_minutes(view: View) -> bytes:
    """The same where some minutes have late parts."""
    rows = gather.by_step(view, SERIES, Step.MINUTE, T0, T0 + 7 * DAY_MS, ())
    return ROWS.dump_json(
        [answered(start, start + MINUTE_MS, one, Asked()) for start, one in rows.items()]
    )


def readings_of(rows: bytes) -> int:
    """Of all rows."""
    return sum(row["figures"]["readings"] for row in orjson.loads(rows))


def whole_week(view: View) -> int:
    """Readings of the one row."""
    one = gather.over(view, SERIES, T0, T0 + 7 * DAY_MS, ASKED.kinds)
    assert answers.distinct(one) is not None
    assert len(answers.quantiles(one, ASKED.ranks)) == 2
    return one.readings


def timed(
    path: Path, question: Callable[[View], T], readings: Callable[[T], int], runs: int
) -> list[float]:
    """Milliseconds of each."""
    found = []
    for _ in range(runs):
        began = time.perf_counter()
        answer = Reads(path).with_view(question)
        found.append((time.perf_counter() - began) * 1000)
        assert readings(answer) == MINUTES * READINGS
    return found


def measure(folder: Path, runs: int) -> Found:
    """See the module."""
    found: Found = defaultdict(list)
    path = folder / "summaries.db"
    store, filling_s = filled(path)
    found["summaries: records that the store takes", "records/s", 500].append(MINUTES / filling_s)
    found["summaries: a week of one series, minutes only", "MiB", None].append(
        path.stat().st_size / (1 << 20)
    )
    minutes = timed(path, figures_of_minutes, readings_of, runs)
    found["summaries: figures of each minute of a week, as JSON, p50", "ms", None].append(
        percentile(minutes, 50)
    )
    found["summaries: figures of each minute of a week, as JSON, p99", "ms", 50].append(
        percentile(minutes, 99)
    )
    merged = timed(path, merged_minutes, readings_of, 3)
    found["summaries: the same where some came late, p50", "ms", None].append(
        percentile(merged, 50)
    )
    found["summaries: one row of a week from minutes, p50", "ms", None].append(
        percentile(timed(path, whole_week, int, 3), 50)
    )
    found["summaries: roll-up of an hour", "ms", None].append(
        roll_up(store, path) * 1000 / (7 * 24 + 7)
    )
    rolled = timed(path, whole_week, int, runs)
    found["summaries: one row of a week, rolled up, p50", "ms", None].append(percentile(rolled, 50))
    found["summaries: one row of a week, rolled up, p99", "ms", 50].append(percentile(rolled, 99))
    found["summaries: late parts that the store adds", "records/s", None].append(
        1440 * LATE_PARTS / late_parts(store, path)
    )
    return found


if __name__ == "__main__":
    run(measure, __doc__)
