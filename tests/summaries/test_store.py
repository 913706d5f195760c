"""The store: any range by series and time, rolled up when it is over and quiet, the same answer
before and after.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edgewake.cloud.summaries import answers, gather, rollup, store
from edgewake.cloud.summaries.intake import taken
from edgewake.cloud.summaries.store import Reads, Store, TooMuch
from edgewake.cloud.summaries.summary import (
    DAY_MS,
    HOUR_MS,
    KEPT_MS,
    MINUTE_MS,
    Record,
    Series,
    Step,
    Summary,
)
from edgewake.protocol.errors import Rejected, Unavailable
from edgewake.protocol.sketches.sketch import DeviceSketch, Numbers, SketchKind
from tests.summaries.made import SERIES, minute, summary

MIDNIGHT = 1_790_000_000_000 // DAY_MS * DAY_MS
NOW = MIDNIGHT + 3 * DAY_MS
EVERY = tuple(SketchKind)
COVERED = (Step.HOUR, Step.DAY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "summaries.db"


def filled(path: Path, records: list[Record], *, now_ms: int = NOW) -> Store:
    kept = Store(path)
    kept.keep(
        [(Step.MINUTE, record) for record in records],
        {("ew.summaries.minute", 0): len(records)},
        now_ms=now_ms,
    )
    return kept


def over(path: Path, start_ms: int, end_ms: int) -> Summary:
    return Reads(path).with_view(lambda view: gather.over(view, SERIES, start_ms, end_ms, EVERY))


def roll(kept: Store, path: Path, *, now_ms: int) -> list[tuple[Step, int]]:
    """What the follower does in a turn."""
    found = Reads(path).with_view(lambda view: list(rollup.rolled_up(kept, view, now_ms=now_ms)))
    kept.keep(
        [(step, record) for step, _, _, record in found if record is not None], {}, now_ms=now_ms
    )
    for step, series, start, _ in found:
        kept.clean(step, [(series, start)])
    return [(step, start) for step, _, start, record in found if record is not None]


def figures(found: Summary) -> dict[str, float | None]:
    """Without the last digits, which depend on the order of merging."""
    return {
        name: value and round(value, 9)
        for name, value in answers.figures(found).model_dump().items()
    }


def day_of_minutes(every: int = 30) -> list[Record]:
    """Two days with a minute now and then."""
    return [
        minute(MIDNIGHT + i * every * MINUTE_MS, [float(i), float(i % 7)])
        for i in range(2 * 1440 // every)
    ]


def test_any_range_says_the_same_before_and_after_the_roll_up(path: Path) -> None:
    records = day_of_minutes()
    kept = filled(path, records)
    ranges = [
        (0, 2 * DAY_MS),
        (HOUR_MS // 2, DAY_MS + 3 * HOUR_MS),
        (DAY_MS, 2 * DAY_MS),
        (90 * MINUTE_MS, 91 * MINUTE_MS),
        (5, 5),
    ]
    before = [figures(over(path, MIDNIGHT + start, MIDNIGHT + end)) for start, end in ranges]
    rolled = []
    while turn := roll(kept, path, now_ms=NOW + 200_000):
        rolled += turn
        assert [
            figures(over(path, MIDNIGHT + start, MIDNIGHT + end)) for start, end in ranges
        ] == before
    assert {step: len({start for of, start in rolled if of is step}) for step in COVERED} == {
        Step.HOUR: 48,
        Step.DAY: 2,
    }
    assert before[0]["readings"] == 2 * len(records)
    rows = Reads(path).with_view(lambda view: list(view.rows(SERIES, Step.DAY, MIDNIGHT, NOW, ())))
    assert [row.summary.readings for row in rows] == [96, 96]


def test_what_comes_late_counts_at_once_and_is_rolled_up_again(path: Path) -> None:
    kept = filled(path, day_of_minutes())
    while roll(kept, path, now_ms=NOW + 200_000):
        pass
    kept.keep(
        [(Step.MINUTE, minute(MIDNIGHT + 61 * MINUTE_MS, [9.0] * 5))], {}, now_ms=NOW + 300_000
    )
    assert over(path, MIDNIGHT, NOW).readings == 197
    assert roll(kept, path, now_ms=NOW + 300_000) == [], "it may not be all yet"
    assert roll(kept, path, now_ms=NOW + 400_000) == [
        (Step.HOUR, MIDNIGHT + HOUR_MS),
        (Step.DAY, MIDNIGHT),
    ]
    assert over(path, MIDNIGHT, NOW).readings == 197


def test_a_minute_that_is_told_again_replaces_itself(path: Path) -> None:
    kept = filled(path, [minute(MIDNIGHT, [1.0]), minute(MIDNIGHT, [1.0, 2.0])])
    assert over(path, MIDNIGHT, NOW).readings == 2
    kept.close()
    assert Store(path).places() == {("ew.summaries.minute", 0): 2}


def test_a_roll_up_never_shrinks_when_its_minutes_are_gone(path: Path) -> None:
    kept = filled(path, day_of_minutes())
    while roll(kept, path, now_ms=NOW + 200_000):
        pass
    much_later = NOW + KEPT_MS[Step.MINUTE] + 1
    kept.prune(much_later)
    kept.keep([(Step.MINUTE, minute(MIDNIGHT, [5.0]))], {}, now_ms=much_later)
    roll(kept, path, now_ms=much_later + 100_000)
    assert over(path, MIDNIGHT, NOW).readings == 192


def test_a_minute_computed_again_from_a_cut_log_does_not_shrink(path: Path) -> None:
    filled(path, [minute(MIDNIGHT, [1.0, 2.0, 3.0]), minute(MIDNIGHT, [3.0])])
    assert over(path, MIDNIGHT, NOW).readings == 3


def test_a_store_that_is_not_there_yet_is_a_matter_of_waiting(path: Path) -> None:
    with pytest.raises(Unavailable):
        over(path, MIDNIGHT, NOW)


def test_a_locked_file_is_left_as_it_is(path: Path) -> None:
    filled(path, day_of_minutes()).close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError):
        Store(path, patience_s=0.1)
    other.close()
    assert Store(path).places()


def test_a_damaged_file_is_made_anew(path: Path) -> None:
    filled(path, day_of_minutes()).close()
    path.write_bytes(b"no database at all" * 1000)
    assert Store(path).places() == {}, "everything is read from the topics again"


def test_a_question_that_would_read_too_much_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path, day_of_minutes())
    monkeypatch.setattr(store, "BYTES_MAX", 10_000)
    with pytest.raises(TooMuch, match="ask for less"):
        over(path, MIDNIGHT, NOW)
    assert (
        answers.figures(
            Reads(path).with_view(lambda view: gather.over(view, SERIES, MIDNIGHT, NOW, ()))
        ).readings
        == 192
    )


def test_many_hours_that_are_due_at_once_are_rolled_up_and_one_too_large_stops_none(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A recorded week is replayed within minutes; a turn of the follower then reads all of it."""
    large = [minute(MIDNIGHT + 5 * HOUR_MS + i * MINUTE_MS, [1.0]) for i in range(60)]
    kept = filled(path, day_of_minutes() + large)
    monkeypatch.setattr(store, "ROWS_MAX", 50)
    rolled = []
    while turn := roll(kept, path, now_ms=NOW + 200_000):
        rolled += turn
    assert {start for step, start in rolled if step is Step.HOUR} == {
        MIDNIGHT + hour * HOUR_MS for hour in range(48) if hour != 5
    }
    assert "is not rolled up" in caplog.text


def test_an_hour_that_has_become_too_large_is_not_told_as_it_was_and_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes = [minute(MIDNIGHT + i * MINUTE_MS, [1.0]) for i in range(60)]
    kept = filled(path, minutes[:40])
    now_ms = NOW + 200_000
    roll(kept, path, now_ms=now_ms)
    kept.keep([(Step.MINUTE, late) for late in minutes[40:]], {}, now_ms=now_ms)
    with monkeypatch.context() as bound:
        bound.setattr(store, "ROWS_MAX", 50)
        now_ms += 200_000
        assert roll(kept, path, now_ms=now_ms) == []
        with pytest.raises(TooMuch):
            over(path, MIDNIGHT, MIDNIGHT + HOUR_MS)
    assert roll(kept, path, now_ms=now_ms + MINUTE_MS) == [], "the others come first"
    now_ms += rollup.TOO_LARGE_AGAIN_MS + 200_000
    assert roll(kept, path, now_ms=now_ms) == [(Step.HOUR, MIDNIGHT), (Step.DAY, MIDNIGHT)]
    assert over(path, MIDNIGHT, MIDNIGHT + HOUR_MS).readings == 60


def test_one_series_too_many_is_counted_and_left_out(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SERIES_MAX", 1)
    kept = filled(path, [minute(MIDNIGHT, [1.0]), minute(MIDNIGHT, [1.0], Series("shop", "other"))])
    assert kept.refused == 1


def sent(
    kind: SketchKind, data: bytes, readings: int, *, start_ms: int, end_ms: int
) -> dict[str, object]:
    return {
        "device": "box-1",
        "received_at": end_ms,
        **DeviceSketch("shop", "price", kind, start_ms, end_ms, readings, data).fields(),
    }


def test_sketches_of_a_device_join_those_of_the_cloud(path: Path) -> None:
    """An hour of a device beside minutes of the cloud; its kinds are of the same readings, which
    count once.
    """
    cloud = [minute(MIDNIGHT + i * MINUTE_MS, [float(i), 1.0]) for i in range(30)]
    own = summary([100.0, 200.0, 300.0], narrow=True)
    hour = {"start_ms": MIDNIGHT, "end_ms": MIDNIGHT + HOUR_MS}
    readings = [sent(kind, sketch.data, 3, **hour) for kind, sketch in own.sketches.items()]
    readings.append(sent(SketchKind.NUMBERS, Numbers.of([100.0, 200.0, 300.0]).encode(), 3, **hour))
    kept = filled(path, cloud)
    for _ in range(2):  # sent twice
        kept.keep([one for reading in readings for one in taken(reading)], {}, now_ms=NOW)
    before = over(path, MIDNIGHT, MIDNIGHT + DAY_MS)
    while roll(kept, path, now_ms=NOW + 200_000):
        pass
    for found in (before, over(path, MIDNIGHT, MIDNIGHT + DAY_MS)):
        assert (found.readings, found.numbers.count, found.numbers.max) == (63, 63, 300.0)
        assert [sketch.seen for sketch in found.sketches.values()] == [63] * 6
        distinct = answers.distinct(found)
        assert distinct is not None
        assert distinct.value == 33
    assert over(path, MIDNIGHT, MIDNIGHT + HOUR_MS // 2).readings == 60, "its hour is in no minute"


def test_a_device_that_lies_about_its_bytes_is_refused() -> None:
    hour = {"start_ms": MIDNIGHT, "end_ms": MIDNIGHT + HOUR_MS}
    with pytest.raises(Rejected, match="kll"):
        taken(sent(SketchKind.KLL, summary([1.0, 2.0]).sketches[SketchKind.KLL].data, 3, **hour))


def test_what_is_removed_is_gone_its_bytes_too_and_what_it_was_part_of_is_rolled_up_anew(
    path: Path,
) -> None:
    kept = Store(path)
    other = Series("shop", "weight")
    minutes = [minute(HOUR_MS + n * MINUTE_MS, ["secret-value"] * 3) for n in range(3)]
    kept.keep(
        [(Step.MINUTE, one) for one in (*minutes, minute(HOUR_MS, [1.0], other))], {}, now_ms=1
    )
    kept.clean(Step.HOUR, [(SERIES, HOUR_MS)])
    assert b"secret-value" in _bytes(path)
    kept.forget([(Step.MINUTE, SERIES, minutes[0].start_ms, "")])
    due = kept.due(Step.HOUR, ended_before_ms=9 * HOUR_MS, changed_before_ms=9, limit=9)
    assert (SERIES, HOUR_MS) in due
    kept.forget([(Step.MINUTE, SERIES, one.start_ms, "") for one in minutes])
    assert Reads(path).with_view(lambda view: view.known(limit=9)) == [other]
    assert b"secret-value" not in _bytes(path)
    kept.clean(Step.HOUR, [(SERIES, HOUR_MS)])
    kept.keep([(Step.MINUTE, minutes[0])], {}, now_ms=2)
    assert len(Reads(path).with_view(lambda view: view.known(limit=9))) == 2
    kept.close()


def _bytes(path: Path) -> bytes:
    return b"".join(one.read_bytes() for one in path.parent.glob(path.name + "*"))
