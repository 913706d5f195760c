"""Windows that conditions decide: thresholds, successions, absences; against oracles that know all
readings, and on real parts.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.folds import patterns
from edgewake.cloud.analysis.folds.sequences import Changed, KeyState, close, dump, load
from edgewake.cloud.analysis.jobs.sequence_job import SequenceJob
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse, stream_of
from edgewake.cloud.queries.terms.evaluate import evaluated
from edgewake.cloud.queries.terms.windows import Rule, Window
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    catch_up,
    data_file,
    is_result,
    lose_last_batch,
    registered,
    results,
    truth,
    unique,
)
from tests.examples import examples
from tests.services import wait_until

Reading = tuple[int, list[bool | None]]
Told = dict[int, tuple[int, int, bool]]
"""Start → latest time, readings, is it over."""
CONDITION = st.sampled_from([True, False, None])


def folded(
    window: Window, readings: Sequence[Reading], *, looks: bool = True
) -> tuple[KeyState, Told]:
    """What clients have in the end; the state is written down and read again after each reading, or
    forgotten where it is nothing.

    `looks`: does a batch end before each reading, where absences are told?
    """
    state, told = KeyState(), Told()
    for t, met in readings:
        changed = Changed()
        if looks and patterns.is_absent(state, window, t):
            patterns.raise_absence(state, changed)
            told |= rows(changed)
        patterns.add(state, window, t, met, [float(t)], changed)
        told |= rows(changed)
        state = (
            load(orjson.loads(orjson.dumps(dump(state))))
            if close(state, window, None)
            else KeyState()
        )
    return state, told


def rows(changed: Changed) -> Told:
    return {
        start: (one.last, one.readings, start in changed.over)
        for start, one in changed.windows.items()
    }


def timed(met: Sequence[Sequence[bool | None]], steps: Sequence[int]) -> list[Reading]:
    """Readings in ascending order, each of a time of its own."""
    times = itertools.accumulate(steps)
    return [(t, list(one)) for t, one in zip(times, met, strict=False)]


def thresholds(readings: Sequence[Reading], for_ms: int) -> Told:
    """The oracle, by pattern matching over letters: h holds, c clears (or does not hold before), x
    changes nothing.
    """
    found, at = Told(), 0
    while at < len(readings):
        rest = readings[at:]
        letters = "".join("h" if when else "n" if when is False else "x" for _, (when, _) in rest)
        clears = "".join("c" if clear else "x" for _, (_, clear) in rest)
        spans = [
            (match.start() + i, match.start() + j)
            for match in re.finditer("h[hx]*", letters)
            for i in [0]
            for j in range(match.end() - match.start())
            if letters[match.start() + j] == "h"
            and rest[match.start() + j][0] - rest[match.start()][0] >= for_ms
        ]
        if not spans:
            return found
        begin, active = spans[0]
        over = clears.find("c", active + 1)
        last = len(rest) if over < 0 else over
        # a reading whose condition is not known is not in the window: of `when` before it is
        # active, of the clearing one after
        inside = [
            t
            for k, (t, (when, clear)) in enumerate(rest[:last])
            if k >= begin and (when if k <= active else clear is not None)
        ]
        found[rest[begin][0]] = (max(inside), len(inside), over >= 0)
        if over < 0:
            return found
        at += over + 1
    return found


@given(
    st.lists(st.tuples(CONDITION, CONDITION), max_size=25),
    st.lists(st.integers(1, 4), min_size=25, max_size=25),
    st.integers(0, 6),
)
@settings(max_examples=examples(100))
def test_thresholds_are_those_of_all_readings(
    met: list[tuple[bool | None, bool | None]], steps: list[int], for_ms: int
) -> None:
    window = Window(size_ms=1, slide_ms=1, rule=Rule.THRESHOLD, for_ms=for_ms)
    readings = timed(met, steps)
    state, told = folded(window, readings)
    assert told == thresholds(readings, for_ms)
    assert len(state.windows) <= 1


def successions(readings: Sequence[Reading], within_ms: int) -> Told:
    """The oracle: after the last match the earliest end that any choice of readings has, from the
    latest begin of those.
    """
    found, at = Told(), 0
    while at < len(readings):
        rest = readings[at:]
        matches = [
            (places[-1], rest[places[0]][0], places[0])
            for places in itertools.combinations(range(len(rest)), len(rest[0][1]))
            if all(rest[place][1][i] is True for i, place in enumerate(places))
            and rest[places[-1]][0] - rest[places[0]][0] <= within_ms
        ]
        if not matches:
            return found
        end = min(matches)[0]
        start, first = max((start, first) for last, start, first in matches if last == end)
        found[start] = (rest[end][0], end - first + 1, True)
        at += end + 1
    return found


@given(
    st.lists(st.tuples(CONDITION, CONDITION, CONDITION), max_size=14),
    st.lists(st.integers(1, 4), min_size=14, max_size=14),
)
@settings(max_examples=examples(100))
def test_successions_are_those_of_all_readings(
    met: list[tuple[bool | None, ...]], steps: list[int]
) -> None:
    window = Window(size_ms=1, slide_ms=1, rule=Rule.SUCCESSION, within_ms=8)
    readings = timed(met, steps)
    state, told = folded(window, readings)
    assert told == successions(readings, 8)
    assert len(state.windows) <= 2, "only the latest beginnings are kept"


@given(st.lists(st.integers(0, 30), max_size=20), st.booleans())
def test_absences_are_the_gaps_between_readings_also_within_one_batch(
    steps: list[int], looks: bool
) -> None:
    times = list(itertools.accumulate(steps))
    _, told = folded(
        Window(size_ms=1, slide_ms=1, rule=Rule.ABSENCE, within_ms=10),
        [(t, []) for t in times],
        looks=looks,
    )
    distinct = sorted(set(times))
    assert told == {a: (b - 1, 1, True) for a, b in itertools.pairwise(distinct) if b - a >= 10}


def test_an_absence_is_told_once_and_lasts_until_somebody_is_heard() -> None:
    window, state = Window(size_ms=1, slide_ms=1, rule=Rule.ABSENCE, within_ms=10), KeyState()
    patterns.add(state, window, 100, [], [], Changed())
    assert [patterns.is_absent(state, window, passed) for passed in (None, 109, 110)] == [
        False,
        False,
        True,
    ]
    changed = Changed()
    patterns.raise_absence(state, changed)
    assert rows(changed) == {100: (109, 1, False)}
    assert not patterns.is_absent(load(orjson.loads(orjson.dumps(dump(state)))), window, 10**9)
    patterns.add(state, window, 90, [], [], changed := Changed())
    assert rows(changed) == {}, "what is older was no sign of life"
    patterns.add(state, window, 150, [], [], changed)
    assert rows(changed) == {100: (149, 1, True)}


STREAMS = {
    "s": Stream(
        name="s",
        fields={"v": FieldInfo(type=FieldType.NUMBER), "open": FieldInfo(type=FieldType.BOOLEAN)},
    )
}


@pytest.mark.parametrize(
    ("group", "more", "sentence"),
    [
        (
            "pattern_window(v > 1, open)",
            "",
            "line 2:44: GROUP BY PATTERN_WINDOW(v > 1, open): expected pattern_window('10 "
            "minutes', ",
        ),
        (
            "pattern_window('10 minutes', open)",
            "",
            "expected pattern_window('10 minutes', first condition, second condition, …)",
        ),
        ("pattern_window('8 days', open, open)", "", "from 1 millisecond to 7 days"),
        ("threshold_window(v)", "", "line 2:61: GROUP BY: expected a condition, found a number"),
        ("threshold_window(w > 2)", "", "line 2:61: GROUP BY: unknown field 'w'"),
        (
            "threshold_window('1 minute')",
            "",
            "expected threshold_window(temperature > 80[, temperature < 75][, '30 seconds'])",
        ),
        (
            "absence_window(received_at, '1 minute')",
            "",
            "expected absence_window(event_time, '5 minutes')",
        ),
        (
            "absence_window(event_time, '1 minute')",
            "ORDER BY m LIMIT 1",
            "there is one row, no first of many",
        ),
    ],
)
def test_what_a_pattern_cannot_be_is_refused_with_how_it_is_written(
    group: str, more: str, sentence: str
) -> None:
    with pytest.raises(QueryError, match=re.escape(sentence)):
        parse(
            f"-- name: q\nSELECT device, max(v) AS m FROM s GROUP BY {group}, device {more}",
            STREAMS,
        )


@pytest.mark.long
def test_patterns_on_real_parts_are_told_over_a_restart_and_absences_in_silence(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot, stop, quiet = unique("hot"), unique("stop"), unique("quiet")
    head = "-- lateness: 0 seconds\nSELECT device, count(*) AS n, max(speed) AS top"
    queries = registered(
        f"-- name: {hot}\n{head} FROM {feed.name} GROUP BY threshold_window(speed > 80, speed < "
        "60, '2 seconds'), device",
        f"-- name: {stop}\n{head} FROM {feed.name} GROUP BY pattern_window('10 seconds', `on`, "
        "speed > 80, speed = 0), device",
        f"-- name: {quiet}\n{head} FROM {feed.name} GROUP BY absence_window(event_time, '30 "
        "seconds'), device",
        streams=[feed.stream],
    )
    times = [T0 + 1_000 * i for i in range(8)]
    feed.send(times[:4], speed=[70.0, 90.0, 85.0, 95.0], on=[True, False, False, False])
    feed.send(times[:1], device="d2", speed=[5.0], on=[False])
    with analysis.running(queries, feed) as lane:
        pass
    lose_last_batch(lane.checkpoint)
    assert [(row["window_start"], row["n"], row["final"]) for row in results(feed.config, hot)] == [
        (times[1], 3, False)
    ]
    assert results(feed.config, stop) == []

    feed.send(times[4:7], speed=[70.0, 50.0, 0.0], on=[False, False, False])
    with analysis.with_config(idle_s=0.1).running(queries, feed) as lane:
        (row,) = truth(results(feed.config, hot), "device").values()
        assert (row["window_start"], row["window_end"], row["n"], row["top"], row["final"]) == (
            times[1],
            times[4] + 1,
            4,
            95.0,
            True,
        )
        (row,) = results(feed.config, stop)
        assert (row["window_start"], row["window_end"], row["n"], row["final"]) == (
            times[0],
            times[6] + 1,
            7,
            True,
        )

        feed.send([T0 + 31_000], device="d2", speed=[6.0], on=[False])
        catch_up(lane, feed)

        def absent() -> Any:
            lane.advance_in_silence()
            return {
                place: row["final"]
                for place, row in truth(results(feed.config, quiet), "device").items()
            }

        expected = {(T0, "d2"): True, (times[6], "d1"): False}
        wait_until(
            lambda: expected.items() <= absent().items(),
            "the absence of d1 is told though nobody sends",
        )

        feed.send([T0 + 600_000, T0 + 603_000], speed=[95.0, 96.0], on=[False, False])
        catch_up(lane, feed)
    with monkeypatch.context() as control:
        control.setattr(SequenceJob, "restored", lambda job, *_: job.new_states())
        feed.send([T0 + 604_000], speed=[50.0], on=[False])
        analysis.run(queries, feed)
    row = truth(results(feed.config, hot), "device")[T0 + 600_000, "d1"]
    assert (row["n"], row["final"]) == (2, False), (
        "control: without what is kept nobody knows that it began"
    )


# --- the queries that are shipped as examples, on recorded sets


NUMBER = re.compile(r"-?[0-9.]+(e-?[0-9]+)?")


def ms(text: str, pattern: str) -> int:
    return int(datetime.strptime(text, pattern).replace(tzinfo=UTC).timestamp() * 1000)


def example(name: str, *fields: str) -> SequenceJob:
    """The lane of a shipped query. `fields`: of its stream, all numbers."""
    text = (Path(__file__).parents[3] / "deploy" / "examples" / f"{name}.sql").read_text("utf-8")
    stream = stream_of(text)
    query = parse(
        text,
        {
            stream: Stream(
                name=stream, fields={one: FieldInfo(type=FieldType.NUMBER) for one in fields}
            )
        },
    )
    return SequenceJob(
        LaneKind.SEQUENCE,
        (stream,),
        tuple((one, FieldType.NUMBER) for one in sorted(fields)),
        (Registered(query, 7),),
    )


def told_of(
    job: SequenceJob, readings: Sequence[tuple[int, dict[str, float]]]
) -> dict[int, dict[str, Any]]:
    """Start → the last row of it, with the readings in five batches."""
    (registered,) = job.queries
    query = registered.query
    at = {name: i for i, (name, _) in enumerate(job.fields)}
    compute = [evaluated(expression, at) for expression in (*query.conditions, *query.numbers)]
    values = [[values[name] for name, _ in job.fields] for _, values in readings]
    xs = [
        [None if (found := one(row)) is None else float(found) for one in compute] for row in values
    ]
    states, told = job.new_states(), {}
    for revision, batch in enumerate(range(0, len(readings), -(-len(readings) // 5))):
        table = [
            {
                "query": registered.id,
                "partition": 0,
                "offset": i,
                "number": 0,
                "t": readings[i][0],
                "key": '{"device":"a"}',
                "x": xs[i],
                "extremes": [],
                "items": [],
            }
            for i in range(batch, min(len(readings), batch - (-len(readings) // 5)))
        ]
        rows = pa.Table.from_pylist(table)
        for output in states.outputs(
            rows, emit.Batch(revision=revision, top_before=None, top=None), {}
        ):
            if is_result(output):
                row = orjson.loads(output.value or b"")
                told[row["window_start"]] = row
    return told


def episodes(
    readings: Sequence[tuple[int, dict[str, float]]],
    when: Callable[..., bool],
    clear: Callable[..., bool],
    for_ms: int,
) -> list[list[int]]:
    """The oracle: places of the readings of each threshold, over or not."""
    found: list[list[int]] = []
    inside: list[int] = []
    active = False
    for i, (t, values) in enumerate(readings):
        if active and clear(**values):
            found.append(inside)
            inside, active = [], False
        elif active or when(**values):
            inside.append(i)
            active = active or t - readings[inside[0]][0] >= for_ms
        else:
            inside = []
    return [*found, inside] if active else found


@pytest.mark.skipif(
    not data_file("wind_turbine_scada").exists(), reason="the recorded sets are not here"
)
def test_the_turbine_that_gives_too_little_is_found_in_a_year_of_a_real_one() -> None:
    names = {"power_kw": "LV ActivePower (kW)", "curve_kw": "Theoretical_Power_Curve (KWh)"}
    with gzip.open(
        data_file("wind_turbine_scada", "T1.csv.gz"), "rt", encoding="utf-8-sig"
    ) as lines:
        rows = [
            row
            for row in itertools.islice(csv.DictReader(lines), 6_000)
            if all(NUMBER.fullmatch(row[name]) for name in names.values())
        ]
    readings = [
        (
            ms(row["Date/Time"], "%d %m %Y %H:%M"),
            {name: float(row[column]) for name, column in names.items()},
        )
        for row in rows
    ]
    expected = episodes(
        readings,
        lambda power_kw, curve_kw: curve_kw > 200 and power_kw < 0.5 * curve_kw,
        lambda power_kw, curve_kw: power_kw > 0.8 * curve_kw or curve_kw < 100,
        30 * 60_000,
    )
    told = told_of(example("turbine_below_curve", *names), readings)
    assert len(expected) > 3
    assert {start: (row["readings"], row["final"]) for start, row in told.items()} == {
        readings[places[0]][0]: (len(places), places[-1] + 1 < len(readings)) for places in expected
    }
    for places in expected:
        row = told[readings[places[0]][0]]
        assert row["power"] == pytest.approx(
            sum(readings[i][1]["power_kw"] for i in places) / len(places)
        )


@pytest.mark.skipif(
    not data_file("household_power").exists(), reason="the recorded sets are not here"
)
def test_the_voltage_of_a_transformer_is_watched_as_that_of_a_real_house() -> None:
    (path,) = data_file("household_power").glob("*.txt.gz")
    with gzip.open(path, "rt", encoding="utf-8-sig") as lines:
        rows = [
            row
            for row in itertools.islice(csv.DictReader(lines, delimiter=";"), 8_000)
            if row["Voltage"] != "?"
        ]
    readings = [
        (
            ms(f"{row['Date']} {row['Time']}", "%d/%m/%Y %H:%M:%S"),
            {"voltage": float(row["Voltage"]), "current": float(row["Global_intensity"])},
        )
        for row in rows
    ]
    expected = episodes(
        readings,
        lambda voltage, current: voltage > 245,
        lambda voltage, current: voltage < 243,
        5 * 60_000,
    )
    told = told_of(example("transformer_voltage", "voltage", "current"), readings)
    assert len(expected) > 3
    assert {start: (row["minutes"], row["most"]) for start, row in told.items()} == {
        readings[places[0]][0]: (len(places), max(readings[i][1]["voltage"] for i in places))
        for places in expected
    }


def test_a_bicycle_that_falls_is_told_with_how_fast_it_was_and_one_that_brakes_is_not() -> None:
    def ride(start: int, *steps: tuple[float, float]) -> list[tuple[int, dict[str, float]]]:
        return [
            (start + 5_000 * i, {"speed_kmh": speed, "lean_deg": lean})
            for i, (speed, lean) in enumerate(steps)
        ]

    readings = [
        *ride(T0, (22, 5), (18, -70), (24, 3), (0.2, 10), (0, -85), (0, -85)),
        # Lies down half a minute after it stopped.
        *ride(T0 + 60_000, (25, 4), (0.5, 2), (0, 3), (0, 2), (0, 1), (0, 2), (0, 2), (0, 80)),
    ]
    told = told_of(example("bicycle_fall", "speed_kmh", "lean_deg"), readings)
    assert {
        start: (row["speed_before"], row["readings"], row["final"]) for start, row in told.items()
    } == {T0 + 10_000: (24.0, 3, True)}
