"""Which kept rows answer a question: each reading once, in as few rows as there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.summaries import gather
from edgewake.cloud.summaries.summary import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Record,
    Series,
    Step,
    Summary,
)
from edgewake.protocol.sketches.sketch import Numbers, SketchKind
from tests.summaries.made import SERIES

MIDNIGHT = 1_790_000_000_000 // DAY_MS * DAY_MS


def row(start_ms: int, step: Step, readings: int, *, maker: str = "") -> Record:
    summary = Summary(readings, Numbers.of([1.0] * readings))
    return Record(SERIES, start_ms, start_ms + step.ms, summary, maker)


@dataclass
class Kept:
    """Rows as a store would give them, in the order of their starts and makers."""

    kept: dict[Step, list[Record]]
    dirty_hours: set[int] = field(default_factory=set)

    def rows(
        self,
        series: Series,
        step: Step,
        start_ms: int,
        end_ms: int,
        kinds: Collection[SketchKind],
        *,
        late: bool | None = None,
    ) -> Iterable[Record]:
        if late:
            return []
        found = [one for one in self.kept.get(step, []) if start_ms <= one.start_ms < end_ms]
        return sorted(found, key=lambda one: (one.start_ms, one.maker))

    def dirty(self, series: Series, step: Step, start_ms: int, end_ms: int) -> set[int]:
        return self.dirty_hours if step is Step.HOUR else set()


def minutes(of_minute: dict[int, int]) -> list[Record]:
    return [
        row(MIDNIGHT + minute * MINUTE_MS, Step.MINUTE, count)
        for minute, count in sorted(of_minute.items())
    ]


def hours(of_minute: dict[int, int], which: Collection[int]) -> list[Record]:
    """Roll-ups of these hours, of what is in their minutes."""
    counts = {hour: sum(n for m, n in of_minute.items() if m // 60 == hour) for hour in which}
    return [
        row(MIDNIGHT + hour * HOUR_MS, Step.HOUR, count)
        for hour, count in sorted(counts.items())
        if count
    ]


of_minutes = st.dictionaries(st.integers(0, 5 * 60 - 1), st.integers(1, 9), max_size=40)
some_hours = st.sets(st.integers(0, 4))


@given(of_minutes, some_hours, some_hours)
def test_each_reading_counts_once_whichever_hours_are_rolled_up_or_changed_since(
    of_minute: dict[int, int], rolled_up: set[int], changed: set[int]
) -> None:
    view = Kept(
        {Step.MINUTE: minutes(of_minute), Step.HOUR: hours(of_minute, rolled_up)},
        {MIDNIGHT + hour * HOUR_MS for hour in changed},
    )
    end = MIDNIGHT + 5 * HOUR_MS
    found = gather.gathered(view, SERIES, Step.HOUR, MIDNIGHT, end, ())
    assert sum(one.summary.readings for one in found) == sum(of_minute.values())
    by_step = gather.by_step(view, SERIES, Step.HOUR, MIDNIGHT, end, ())
    assert {start: one.readings for start, one in by_step.items()} == {
        one.start_ms: one.summary.readings for one in hours(of_minute, range(5))
    }


@given(of_minutes, some_hours, st.integers(0, 299), st.integers(1, 299))
def test_any_time_is_covered_from_hours_in_its_middle_and_minutes_at_its_ends(
    of_minute: dict[int, int], rolled_up: set[int], begin: int, length: int
) -> None:
    view = Kept({Step.MINUTE: minutes(of_minute), Step.HOUR: hours(of_minute, rolled_up)})
    start, end = MIDNIGHT + begin * MINUTE_MS, MIDNIGHT + (begin + length) * MINUTE_MS
    found = gather.over(view, SERIES, start, end, ())
    assert found.readings == sum(n for m, n in of_minute.items() if begin <= m < begin + length)


def test_a_whole_hour_is_read_as_one_row() -> None:
    of_minute = dict.fromkeys(range(60), 1)
    view = Kept({Step.MINUTE: minutes(of_minute), Step.HOUR: hours(of_minute, [0])})
    end = MIDNIGHT + HOUR_MS
    assert len(gather.gathered(view, SERIES, Step.HOUR, MIDNIGHT, end, ())) == 1
    view.dirty_hours = {MIDNIGHT}
    assert len(gather.gathered(view, SERIES, Step.HOUR, MIDNIGHT, end, ())) == 60


def test_sketches_that_a_device_made_of_the_same_readings_are_one_row() -> None:
    rows = [row(MIDNIGHT, Step.MINUTE, 3, maker=f"d1|{end}") for end in ("7", "7|x")]
    assert [one.summary.readings for one in gather.joined(rows[:1])] == [3]
    of_others = [row(MIDNIGHT, Step.MINUTE, 3, maker=maker) for maker in ("d1|7|a", "d2|7|a")]
    assert len(gather.joined(of_others)) == 2
    same = [row(MIDNIGHT, Step.MINUTE, 3, maker=maker) for maker in ("d1|7|a", "d1|7|b")]
    (joined,) = gather.joined(same)
    assert joined.summary.readings == 3
