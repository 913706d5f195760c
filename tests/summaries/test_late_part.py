"""What comes late counts once in its minute, hour and day, whenever it comes and whatever is still
kept.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.summaries import gather, late_part, rollup
from edgewake.cloud.summaries.intake import taken
from edgewake.cloud.summaries.store import Reads, Store
from edgewake.cloud.summaries.summary import (
    DAY_MS,
    HOUR_MS,
    KEPT_MS,
    MINUTE_MS,
    Record,
    Step,
    Summary,
)
from edgewake.protocol.sketches.sketch import DeviceSketch, Numbers, SketchKind
from tests.summaries.made import SERIES, minute, summary

MIDNIGHT = 1_790_000_000_000 // DAY_MS * DAY_MS
NOW = MIDNIGHT + 3 * DAY_MS
EVERY = tuple(SketchKind)


def numbers(start_ms: int, *values: float) -> Record:
    return Record(
        SERIES, start_ms, start_ms + MINUTE_MS, Summary(len(values), Numbers.of(list(values)))
    )


class Follower:
    """Takes what the analysis writes, and rolls up, as the operations API does."""

    def __init__(self, path: Path) -> None:
        self.path, self.store, self.now_ms = path, Store(path), NOW

    def take(self, records: list[tuple[Step, Record]]) -> None:
        self.store.keep(records, {}, now_ms=self.now_ms)

    def take_late(self, records: list[Record], revision: int, *, oldest: int = 0) -> None:
        parts = late_part.parts(records, Step.MINUTE, late_part.maker(revision))
        steps = {Step.MINUTE: oldest, Step.HOUR: 0, Step.DAY: 0}
        self.take(
            [
                (step, Record.decode(one.encode()))
                for step, one in late_part.filed(parts, {SERIES.stream: steps})
            ]
        )

    def roll_up(self) -> None:
        """Until nothing is left to do."""
        while True:
            found = Reads(self.path).with_view(
                lambda view: list(
                    rollup.rolled_up(self.store, view, now_ms=self.now_ms, quiet_ms=-1)
                )
            )
            if not found:
                return
            self.take([(step, record) for step, _, _, record in found if record is not None])
            for step, series, start, _ in found:
                self.store.clean(step, [(series, start)])

    def answers(self, step: Step) -> dict[int, tuple[int, float, float, float]]:
        """Start → count, sum, min, max."""
        found = Reads(self.path).with_view(
            lambda view: gather.by_step(view, SERIES, step, MIDNIGHT, MIDNIGHT + 2 * DAY_MS, ())
        )
        return {
            start: (s.readings, s.numbers.sum, s.numbers.min, s.numbers.max)
            for start, s in found.items()
        }

    def over(self, start_ms: int, end_ms: int) -> Summary:
        return Reads(self.path).with_view(
            lambda view: gather.over(view, SERIES, start_ms, end_ms, EVERY)
        )


def exact(
    readings: list[tuple[int, float]], step: Step
) -> dict[int, tuple[int, float, float, float]]:
    values = defaultdict(list)
    for at, value in readings:
        values[step.floor(at)].append(value)
    return {
        start: (len(ones), sum(ones), min(ones), max(ones))
        for start, ones in sorted(values.items())
    }


Batch = list[tuple[int, float]]
batches = st.lists(
    st.lists(st.tuples(st.integers(0, 2 * 1440 - 1).map(lambda i: i - i % 173),
        st.integers(-9, 9).map(float)), min_size=1, max_size=6),
    min_size=1, max_size=6,
)  # fmt: skip


@given(batches, st.sets(st.integers(0, 5)), st.sets(st.integers(1, 5)), st.integers(0, 6))
def test_minutes_hours_and_days_are_exact_however_late_their_readings_came(
    found: list[Batch], rolled: set[int], old: set[int], pruned: int
) -> None:
    """The first batch is in time.

    From the batch `pruned` on the minutes of before are kept no more; of those in `old` it is not
    sure.
    """
    readings: Batch = []
    with TemporaryDirectory() as folder:
        follower = Follower(Path(folder) / "summaries.db")
        for revision, batch in enumerate(found):
            at = [(MIDNIGHT + i * MINUTE_MS, value) for i, value in batch]
            readings += at
            if revision and revision == pruned:
                follower.roll_up()
                follower.now_ms += KEPT_MS[Step.MINUTE] + 1
                follower.store.prune(follower.now_ms)
            records = [
                numbers(start, *(value for other, value in at if other == start))
                for start in dict(at)
            ]
            if revision:
                is_old = revision >= pruned > 0 or revision in old
                follower.take_late(records, revision, oldest=MIDNIGHT + 5 * DAY_MS if is_old else 0)
            else:
                follower.take([(Step.MINUTE, record) for record in records])
            if revision in rolled:
                follower.roll_up()
        if not 0 < pruned < len(found) and not any(revision < len(found) for revision in old):
            assert follower.answers(Step.MINUTE) == exact(readings, Step.MINUTE)
        for step in (Step.HOUR, Step.DAY):
            assert follower.answers(step) == exact(readings, step)
        whole = follower.over(MIDNIGHT, MIDNIGHT + 2 * DAY_MS)
        assert (whole.readings, whole.numbers.sum) == (
            len(readings),
            sum(value for _, value in readings),
        )
        follower.store.close()


def test_a_minute_has_one_row_of_late_readings_with_all_their_sketches(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "summaries.db")
    follower.take([(Step.MINUTE, minute(MIDNIGHT, [1.0, 2.0]))])
    for revision in range(20):
        follower.take_late([minute(MIDNIGHT, [float(revision)])], revision)
    rows = Reads(follower.path).with_view(
        lambda view: list(view.rows(SERIES, Step.MINUTE, MIDNIGHT, NOW, EVERY))
    )
    assert [(row.maker, row.summary.readings) for row in rows] == [("", 2), ("late:", 20)]
    found = follower.over(MIDNIGHT, MIDNIGHT + HOUR_MS)
    assert {kind: sketch.seen for kind, sketch in found.sketches.items()} == dict.fromkeys(
        found.sketches, 22
    )
    assert len(found.sketches) == 6


@pytest.mark.parametrize(("length_ms", "after_days", "steps"), [
    (MINUTE_MS, 6, {Step.MINUTE: 5, Step.HOUR: 5, Step.DAY: 5}),
    (MINUTE_MS, 10, {Step.HOUR: 5, Step.DAY: 5}),
    (HOUR_MS, 10, {Step.HOUR: 5, Step.DAY: 5}),
    (DAY_MS, 10, {Step.HOUR: 2, Step.DAY: 5}),
    (MINUTE_MS, 500, {Step.DAY: 5}),
])  # fmt: skip
def test_sketches_that_a_device_brings_after_weeks_count_in_hour_and_day(
    tmp_path: Path, length_ms: int, after_days: int, steps: dict[Step, int]
) -> None:
    follower = Follower(tmp_path / "summaries.db")
    follower.now_ms = MIDNIGHT + 2 * DAY_MS
    follower.take([(Step.MINUTE, minute(MIDNIGHT, [1.0, 2.0]))])
    follower.roll_up()
    follower.now_ms = MIDNIGHT + length_ms + after_days * DAY_MS
    follower.store.prune(follower.now_ms)
    for kind, sketch in summary([7.0, 8.0, 9.0], narrow=True).sketches.items():
        found = DeviceSketch(
            SERIES.stream, SERIES.field, kind, MIDNIGHT, MIDNIGHT + length_ms, 3, sketch.data
        )
        for _ in range(2):  # sent twice
            follower.take(taken({"device": "d", "received_at": follower.now_ms, **found.fields()}))
    for _ in range(2):
        answers = {step: follower.answers(step) for step in Step}
        assert {step: found[MIDNIGHT][0] for step, found in answers.items() if found} == steps
        follower.roll_up()


def test_a_part_that_cannot_be_read_is_counted_and_takes_nothing_with_it(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "summaries.db")
    bad = Record.decode(minute(MIDNIGHT, [1.0]).encode().replace(b'"hll":"', b'"hll":"AAAA'))
    follower.take_late([minute(MIDNIGHT, [1.0])], 1)
    follower.take_late([bad], 2)
    follower.take_late([minute(MIDNIGHT, [2.0])], 3)
    assert (follower.store.refused, follower.over(MIDNIGHT, MIDNIGHT + HOUR_MS).readings) == (1, 2)
