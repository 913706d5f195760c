"""What a device's readings before say of the next one, against NumPy, over restarts; and how
queries write it.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.folds import enriched
from edgewake.cloud.analysis.folds.enriched import Histories
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.jobs.table_join_job import TableJoinJob
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import History, Query, Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.terms import lookback
from edgewake.cloud.queries.terms.lookback import POINTS_MAX, SEASON_MIN, Past
from edgewake.protocol import topics
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.sketches.seen import Seen
from tests.analysis.support import T0, data_file, is_result
from tests.examples import examples

STREAMS = {
    "s": Stream(
        name="s",
        fields={"v": FieldInfo(type=FieldType.NUMBER), "street": FieldInfo(type=FieldType.STRING)},
    )
}
VALUE = st.one_of(st.none(), st.integers(-20, 20), st.floats(-100, 100))
HOUR_MS = 3_600_000


def results(past: Past, readings: Sequence[tuple[int, object]]) -> list[Any]:
    """With the state written down and read again after each reading."""
    state, found = None, []
    for t, value in readings:
        state, result = past.step(state, t, value)
        state = orjson.loads(orjson.dumps(state))
        found.append(result)
    return found


def same(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None or not np.isfinite(expected):
        return found is None and (expected is None or not np.isfinite(expected))
    return found == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(VALUE, max_size=30), st.integers(5, 9))
@settings(max_examples=examples(100))
def test_a_robust_zscore_is_that_of_the_values_before(
    values: list[float | None], size: int
) -> None:
    found = results(Past("robust_zscore", size), list(enumerate(values)))
    for i, value in enumerate(values):
        before = np.array([float(one) for one in values[:i] if one is not None][-size:])
        expected = None
        if value is not None and 2 * len(before) >= size:
            middle = np.median(before)
            deviation = 1.4826 * np.median(np.abs(before - middle))
            with np.errstate(over="ignore"):  # then there is no number to tell
                expected = (
                    (value - middle) / deviation
                    if deviation
                    else (0.0 if value == middle else None)
                )
        assert same(found[i], expected)


@given(st.lists(st.tuples(st.integers(0, 400), VALUE), max_size=25))
@settings(max_examples=examples(100))
def test_a_trend_is_the_slope_of_the_last_readings(steps: list[tuple[int, float | None]]) -> None:
    times = list(itertools.accumulate(step for step, _ in steps))
    readings = [(T0 + t, value) for t, (_, value) in zip(times, steps, strict=True)]
    found = results(Past("trend", 1_000), readings)
    for i, (t, value) in enumerate(readings):
        near = [
            ((at - T0) / 1000, one)
            for at, one in readings[: i + 1]
            if one is not None and at > t - 1_000
        ]
        expected = None
        if value is not None and len(near) >= 3 and len({at for at, _ in near}) > 1:
            expected = float(np.polyfit(*np.array(near, dtype=float).T, 1)[0])
        assert same(found[i], expected) or abs((found[i] or 0.0) - (expected or 0.0)) < 1e-4 * (
            1 + abs(expected or 0.0)
        )


def test_a_trend_keeps_no_more_readings_than_its_bound() -> None:
    state: Any = None
    for i in range(POINTS_MAX + 10):
        state, slope = Past("trend", 10**6).step(state, i, 2.0 * i)
    assert len(state) == POINTS_MAX
    assert slope == pytest.approx(2_000.0)


@pytest.mark.skipif(
    not data_file("household_power").exists(), reason="the recorded sets are not here"
)
@pytest.mark.parametrize("season", [24, 168])
def test_a_seasonal_baseline_of_a_real_house_is_that_of_all_readings_before(season: int) -> None:
    (path,) = data_file("household_power").glob("*.txt.gz")
    with gzip.open(path, "rt", encoding="utf-8-sig") as lines:
        rows = [
            row
            for row in itertools.islice(csv.DictReader(lines, delimiter=";"), 0, 14_000, 5)
            if row["Voltage"] != "?"
        ]
    times = [
        datetime.strptime(f"{row['Date']} {row['Time']}", "%d/%m/%Y %H:%M:%S").replace(tzinfo=UTC)
        for row in rows
    ]
    power = np.array([float(row["Global_active_power"]) for row in rows])
    local = [at.astimezone(ZoneInfo("Europe/Paris")) for at in times]
    slots = np.array([at.hour + (0 if season == 24 else 24 * at.weekday()) for at in local])
    readings = [
        (int(at.timestamp() * 1000), value) for at, value in zip(times, power.tolist(), strict=True)
    ]
    baselines = results(Past("seasonal_baseline", season, "Europe/Paris"), readings)
    scores = results(Past("seasonal_zscore", season, "Europe/Paris"), readings)
    assert sum(one is not None for one in baselines) > 100
    for i, value in enumerate(power):
        before = power[:i][slots[:i] == slots[i]]
        mean, deviation = (
            (before.mean(), before.std(ddof=1)) if len(before) >= SEASON_MIN else (None, None)
        )
        assert same(baselines[i], mean)
        assert same(scores[i], (value - mean) / deviation if deviation else None)


@given(
    st.sampled_from(["robust_zscore", "trend", "seasonal_baseline", "seasonal_zscore"]),
    st.lists(st.one_of(VALUE, st.booleans(), st.just("x"))),
)
def test_what_is_no_number_is_no_value(function: str, values: list[object]) -> None:
    past = Past(function, 24)
    numbers = [
        (i, value)
        for i, value in enumerate(values)
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    everything = results(past, list(enumerate(values)))
    assert [everything[i] for i, _ in numbers] == results(past, numbers)
    assert past.step(None, 0, float("inf")) == past.step(None, 0, float("nan")) == (None, None)


def test_a_season_forgets_what_it_was_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookback, "SEASON_WEIGHT_MAX", 20)
    found = results(
        Past("seasonal_baseline", 24),
        [(T0, float(i % 2)) for i in range(40)] + [(T0, 10.0 + i % 2) for i in range(200)],
    )
    assert found[40] == pytest.approx(0.5, abs=0.1)
    assert found[-1] == pytest.approx(10.5, abs=0.1)
    scores = results(Past("seasonal_zscore", 24), [(T0, float(i % 2)) for i in range(4_000)])
    assert abs(scores[-1] or 0) == pytest.approx(1.0, abs=0.1)


def test_histories_are_bounded_and_the_longest_silent_device_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enriched, "DEVICES_MAX", 2)
    histories = Histories((query("SELECT trend(v, '1 minute') AS x FROM s").history[0],))
    for i, device in enumerate(("a", "b", "a", "c")):
        histories.step(device, i, [1.0])
    assert set(histories.of) == {"a", "c"}
    assert histories.dump()["~b"] is None
    assert histories.dump() == {}


# --- queries


def query(text: str) -> Query:
    return parse(f"-- name: q\n-- lateness: 0 seconds\n{text}", STREAMS)


class Lane:
    """A lane without Spark and Kafka: what was told, and what stands on `ew.windows`, from which it
    may begin again.
    """

    def __init__(self, text: str) -> None:
        registered = Registered(query(text), 7)
        ((_, job),) = jobs_of(
            [registered], {"s": {"v": FieldType.NUMBER, "street": FieldType.STRING}}
        ).items()
        assert isinstance(job, TableJoinJob)
        self.job, self.states, self.kept = job, job.new_states(), dict[str, bytes]()
        self.told: list[dict[str, Any]] = []
        self._offset = 0

    def read(
        self, *readings: tuple[str, int, float | None], top: int | None = None
    ) -> dict[str, int]:
        """One batch: device, time and value of each reading.

        Returns which windows may lack readings now (emit.Batch).
        """
        rows = []
        for device, t, value in readings:
            reading = orjson.dumps(
                {"device": device, "t": t, "received_at": t, "sent_at": t, "v": value}
            ).decode()
            place = {"partition": 0, "offset": self._offset, "number": 0}
            rows.append({"query": self.job.queries[0].id, **place, "reading": reading})
            self._offset += 1
        step = emit.Batch(revision=self._offset, top_before=None, top=top)
        for output in self.states.outputs(pa.Table.from_pylist(rows), step, broken := {}):
            if output.topic == topics.WINDOWS:
                self.kept |= {output.key.decode(): output.value or b""}
            elif is_result(output):
                self.told.append(orjson.loads(output.value or b""))
        assert not broken
        return step.lacks_before

    def restart(self) -> None:
        """Go on from what was written down."""
        self.states = self.job.restored(
            {key: value for key, value in self.kept.items() if value},
            LaneRecord(stream="s", lane=LaneKind.TABLE_JOIN),
        )


@pytest.mark.parametrize("group", ["", "GROUP BY window(event_time, '1 minute')"])
def test_a_device_that_begins_anew_because_there_are_too_many_is_said(
    monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setattr(enriched, "DEVICES_MAX", 2)
    trend = "trend(v, '1 minute')"
    lane = Lane(f"SELECT {f'max({trend})' if group else trend} AS x FROM s {group}")
    assert lane.read(("a", T0, 1.0), ("b", T0, 1.0), top=T0) == {}
    assert lane.read(("a", T0 + 1, 1.0), ("c", T0 + 1, 1.0), top=T0 + 1) == {"q@7": T0 + 1}
    assert lane.read(("a", T0 + 2, 1.0), ("c", T0 + 2, 1.0), top=T0 + 2) == {}, "said once"


def test_an_outlier_of_each_device_is_found_over_a_restart() -> None:
    lane = Lane(
        "SELECT v, round(robust_zscore(v, 10), 3) AS z FROM s WHERE v IS NOT NULL AND "
        "abs(robust_zscore(v, 10)) > 3.5"
    )
    values = [1.0, 2.0, 1.5, 2.5, 1.0, 2.0]
    lane.read(
        *[("a", T0 + i, v) for i, v in enumerate(values)],
        *[("b", T0 + i, 100 * v) for i, v in enumerate(values)],
    )
    assert lane.told == []
    lane.restart()
    lane.read(("a", T0 + 10, 120.0), ("b", T0 + 10, 120.0))
    middle = np.median(values)
    z = (120.0 - middle) / (1.4826 * np.median(np.abs(np.array(values) - middle)))
    assert [(row["device"], row["v"], row["z"]) for row in lane.told] == [
        ("a", 120.0, pytest.approx(z, abs=1e-3))
    ]


def test_only_a_value_that_the_device_never_had_passes_over_restarts() -> None:
    lane = Lane("SELECT v FROM s WHERE NOT seen_before(v)")
    for device, v in [("a", 1.0), ("b", 1.0), ("a", 1.0), ("a", 2.0), ("b", 2.0), ("b", 1.0)]:
        lane.read((device, T0, v))
        lane.restart()
    lane.read(("a", T0, None))
    assert [(row["device"], row["v"]) for row in lane.told] == [
        ("a", 1.0), ("b", 1.0), ("a", 2.0), ("b", 2.0)]  # fmt: skip


def test_seen_by_anyone_is_of_all_devices_over_restarts() -> None:
    lane = Lane(
        "SELECT v, seen_before(v) AS own, seen_before_by_anyone(v, '1 minute', 100, 0.001) AS any "
        "FROM s"
    )
    came = [("a", 0, 1.0), ("b", 10, 1.0), ("b", 20, 1.0), ("c", 40, None), ("c", 200, 1.0)]
    for device, s, v in came:
        lane.read((device, T0 + 1_000 * s, v))
        lane.restart()
    assert [(row["own"], row["any"]) for row in lane.told] == [
        (False, False), (False, True), (True, True), (None, None), (False, False)]  # fmt: skip


def test_what_belongs_to_all_is_no_device_that_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enriched, "DEVICES_MAX", 2)
    lane = Lane("SELECT v FROM s WHERE seen_before(v) OR seen_before_by_anyone(v)")
    lane.read(*[(f"d{i}", T0, float(i % 3)) for i in range(9)])
    lane.restart()
    lane.read(("d9", T0, 0.0), ("d10", T0, 7.0))
    assert [row["v"] for row in lane.told] == [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0]
    assert set(lane.states.histories[lane.job.queries[0].label].of) == {"", "d9", "d10"}


def test_which_values_are_one_and_what_is_remembered() -> None:
    found = query("SELECT seen_before(street, '2 hours', 500, 0.001) AS x FROM s").history[0].past
    assert found.seen == Seen(500, 0.001, 7_200_000)
    assert query("SELECT seen_before(v > 1) AS x FROM s").history[0].past.seen == Seen()
    assert results(found, [(0, value) for value in ("1", 1.0, 1, True, "true", None, "x")]) == [
        False, True, True, False, True, None, False]  # fmt: skip


def test_a_trend_decides_where_a_threshold_begins_and_ends() -> None:
    slope = "trend(v, '10 seconds')"
    lane = Lane(
        f"SELECT device, max(v) AS top, count(*) AS n FROM s GROUP BY threshold_window({slope} > "
        f"1.5, {slope} < 0), device"
    )
    values = [0, 0, 0, 0, 2, 6, 12, 20, 26, 24, 12, 0]
    for i, v in enumerate(values):
        lane.read(("a", T0 + 2_000 * i, float(v)))
        lane.restart()
    slopes = []
    for i in range(len(values)):
        near = list(range(max(0, i - 4), i + 1))
        slopes.append(
            np.polyfit([2.0 * k for k in near], [values[k] for k in near], 1)[0]
            if len(near) > 2
            else 0.0
        )
    begin = next(i for i, one in enumerate(slopes) if one > 1.5)
    end = next(i for i, one in enumerate(slopes) if i > begin and one < 0)
    last = lane.told[-1]
    assert (last["window_start"], last["n"], last["top"], last["final"]) == (
        T0 + 2_000 * begin,
        end - begin,
        float(max(values[begin:end])),
        True,
    )


def test_equal_calls_are_one_and_different_ones_are_bounded() -> None:
    found = query(
        "SELECT max(seasonal_zscore(v, 'day')) AS z, min(seasonal_zscore(v, 'day')) AS y FROM s "
        "GROUP BY window(event_time, '1 hour')"
    )
    assert found.history == (History(Past("seasonal_zscore", 24), found.history[0].expression),)
    assert found.fields == {"v"}
    with pytest.raises(QueryError, match="at most 8 different calls"):
        query(
            "SELECT "
            + ", ".join(f"robust_zscore(v, {n}) AS z{n}" for n in range(5, 15))
            + " FROM s"
        )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "SELECT robust_zscore(v) AS z FROM s",
            "line 3:8: ROBUST_ZSCORE(v): expected robust_zscore(x, 60)",
        ),
        ("SELECT robust_zscore(v, 3) AS z FROM s", "how many values before it count, 5 to 500"),
        (
            "SELECT robust_zscore(street, 30) AS z FROM s",
            "robust_zscore: expected a number, found a string",
        ),
        (
            "SELECT trend(v, '8 days') AS z FROM s",
            "expected trend(x, '10 minutes'): x and the time that counts, up to 7 days",
        ),
        ("SELECT trend(v, 'long') AS z FROM s", "trend 'long': expected a number and a unit"),
        (
            "SELECT seasonal_zscore(v, 'year') AS z FROM s",
            "seasonal_zscore(x, 'day'): x, and 'day' or 'week'",
        ),
        (
            "SELECT robust_zscore(trend(v, '1 hour'), 30) AS z FROM s",
            "expected an expression over the reading's own fields",
        ),
        (
            "SELECT trend(avg(v), '1 hour') AS z FROM s GROUP BY window(event_time, '1 minute')",
            "it is of readings: use it in WHERE",
        ),
        *(
            (f"SELECT seen_before({wrong}) AS z FROM s", "expected seen_before(x, '1 day', 1000")
            for wrong in (
                "",
                "v, 9",
                "v, 10001",
                "v, 10.5",
                "v, 100, 0.9",
                "v, 100, 0.0001",
                "v, '0 seconds'",
                "v, '367 days'",
                "v, 100, '1 day'",
                "v, 100, 0.1, 5",
                "v, v",
            )
        ),
        (
            "SELECT seen_before(event_time) AS z FROM s",
            "expected a number, a text or a boolean, found a time",
        ),
        (
            "SELECT seen_before(max(v)) AS z FROM s GROUP BY window(event_time, '1 minute')",
            "it is of readings",
        ),
        (
            "SELECT median(trend(v, '1 hour')) AS z FROM s GROUP BY device",
            "trend: a query with it has all aggregates but quantiles",
        ),
        (
            "SELECT count(*) AS n FROM s WHERE trend(v, '1 hour') > 1 GROUP BY "
            "absence_window(event_time, '1 hour')",
            "not with absence_window",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_how_it_is_written(text: str, sentence: str) -> None:
    with pytest.raises(QueryError, match=re.escape(sentence)):
        query(text)
