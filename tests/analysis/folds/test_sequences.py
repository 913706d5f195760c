"""Sessions and windows by count against an oracle that knows all readings: in any order, over
restarts from what was written down.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.folds import sequences
from edgewake.cloud.analysis.folds.sequences import (
    Changed,
    KeyState,
    Open,
    add,
    close,
    dump,
    load,
    record,
)
from edgewake.cloud.analysis.folds.slots import Slot
from edgewake.cloud.analysis.jobs.sequence_job import SequenceJob, SequenceStates
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.terms.windows import Window
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.support import is_result
from tests.examples import examples

SESSION = Window(size_ms=1, slide_ms=1, gap_ms=10)
Told = dict[int, tuple[int, int, float]]


def fold(window: Window, times: list[int]) -> tuple[KeyState, Told]:
    """What clients have in the end, with the state written down and read again after each
    reading.
    """
    state = KeyState()
    told: Told = {}
    for t in times:
        changed = Changed()
        add(state, window, t, [float(t), None], changed)
        for start in changed.withdrawn:
            del told[start]
        for one in changed.windows.values():
            one.is_emitted = True
        told |= {place: row(one) for place, one in changed.windows.items()}
        state = load(orjson.loads(orjson.dumps(dump(state))))
    return state, told


def row(one: Open) -> tuple[int, int, float]:
    assert isinstance(one.slots[0], Slot)
    assert isinstance(one.slots[1], Slot)
    assert (one.slots[1].count, one.slots[1].min) == (0, None)
    return one.last, one.readings, one.slots[0].sum


def sessions(times: list[int], gap: int) -> Told:
    """The oracle."""
    groups: list[list[int]] = []
    for t in sorted(times):
        if groups and t - groups[-1][-1] < gap:
            groups[-1].append(t)
        else:
            groups.append([t])
    return {group[0]: (group[-1], len(group), math.fsum(group)) for group in groups}


@given(st.lists(st.integers(0, 120), max_size=30))
def test_sessions_are_those_of_all_readings_in_whatever_order_they_come(times: list[int]) -> None:
    assert fold(SESSION, times)[1] == sessions(times, 10)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 7), st.integers(1, 7))
@settings(max_examples=examples(60))
def test_windows_by_count_hold_so_many_readings_in_the_order_of_the_log(
    times: list[int], count: int, step: int
) -> None:
    count = max(count, step)
    state, told = fold(Window(size_ms=1, slide_ms=1, count=count, step=step), times)
    expected = {}
    for number, begin in enumerate(range(0, len(times), step)):
        part = times[begin : begin + count]
        expected[number] = (max(part), len(part), math.fsum(part))
    assert told == expected
    assert len(state.windows) <= -(-count // step), "what is full is forgotten"
    assert close(state, Window(size_ms=1, slide_ms=1, count=count, step=step), 10**6) is bool(
        times
    ), "the count goes on"


@given(st.lists(st.integers(0, 50), max_size=40), st.sampled_from([(10, 10), (10, 5), (20, 5)]))
@settings(max_examples=examples(100))
def test_windows_by_time_hold_their_readings_in_whatever_order_they_come(
    times: list[int], lengths: tuple[int, int]
) -> None:
    size, slide = lengths
    state, told = fold(Window(size_ms=size, slide_ms=slide), times)
    held = {
        start: [t for t in times if start <= t < start + size] for start in range(-size, 60, slide)
    }
    assert told == {
        start: (start + size - 1, len(of), math.fsum(of)) for start, of in held.items() if of
    }
    assert [one.start for one in state.windows] == sorted(told), (
        "in order, so that a reading finds its own among ten thousand"
    )


def test_sessions_that_take_nothing_any_more_are_forgotten() -> None:
    state, _ = fold(SESSION, [0, 5, 30])
    assert close(state, SESSION, 15)
    assert [one.start for one in state.windows] == [30]
    assert not close(state, SESSION, 40)


def test_what_is_written_of_a_key_is_bounded_and_the_earliest_windows_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A week that a device sends at once may be ten thousand of them, which all stay open where a
    query says `reopen`.
    """
    state, many = KeyState(), 20_000
    for t in range(0, 20 * many, 20):
        add(state, SESSION, t, [float(t), None], Changed())
    assert len(state.windows) == many
    monkeypatch.setattr(sequences, "STATE_BYTES_MAX", emit.OUTPUT_BYTES_MAX)
    text, forgotten = record(state)
    assert len(text) == state.written <= emit.OUTPUT_BYTES_MAX
    assert dump(load(orjson.loads(text))) == dump(state)
    assert forgotten == 20 * (many - len(state.windows) - 1) + 1, (
        "rows of windows that begin before may lack readings"
    )
    assert [one.start for one in state.windows] == list(
        range(20 * (many - len(state.windows)), 20 * many, 20)
    )
    assert len(state.windows) > many // 2


def job_of(group: str, having: str = "") -> tuple[SequenceJob, SequenceStates]:
    catalogue = {"s": Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER)})}
    select = "SELECT device, count(*) AS n, max(speed) - min(speed) AS span"
    text = f"-- name: q\n-- lateness: 0 seconds\n{select} FROM s GROUP BY {group}, device {having}"
    query = Registered(parse(text, catalogue), 7)
    job = SequenceJob(LaneKind.SEQUENCE, ("s",), (("speed", FieldType.NUMBER),), (query,))
    return job, job.new_states()


def table(job: SequenceJob, times: list[int], first: int = 0) -> pa.Table:
    """What Spark gives of readings of one partition, one a record, from the offset `first` on; in
    no order.
    """
    rows = [
        {
            "query": job.queries[0].id,
            "partition": 0,
            "offset": first + i,
            "number": 0,
            "t": t,
            "key": '{"device":"a"}',
            "x": [float(t)],
            "extremes": [],
            "items": [],
        }
        for i, t in enumerate(times)
    ]
    return pa.Table.from_pylist(rows[::-1])


def told(
    job: SequenceJob, states: SequenceStates, rows: pa.Table, revision: int, **more: Any
) -> list[dict[str, Any]]:
    outputs = list(
        states.outputs(
            rows,
            emit.Batch(revision=revision, **{"top_before": None, "top": None} | more),
            {},
        )
    )
    return [orjson.loads(one.value or b"") for one in outputs if is_result(one)]


def test_a_batch_that_repeats_emitted_records_counts_them_once() -> None:
    job, states = job_of("count_window(3)")
    told(job, states, table(job, [10, 20]), 0)
    repeated = told(job, states, table(job, [10, 20, 30, 40]), 1, emitted={"ew.s.s": {0: 2}})
    assert [(row["window_number"], row["n"], row["span"], row["final"]) for row in repeated] == [
        (0, 3, 20.0, True),
        (1, 1, 0.0, False),
    ]


def test_of_two_streams_each_is_counted_from_where_it_was_emitted() -> None:
    job, _ = job_of("count_window(10)")
    job = replace(job, sources=("s", "r"))
    states = job.new_states()
    ours = table(job, [10, 20, 30])
    # Partition 0 of the other one.
    theirs = ours.set_column(
        ours.schema.get_field_index("partition"), "partition", pa.array([1] * 3)
    )
    rows = pa.concat_tables([ours, theirs])
    emitted = {"ew.s.s": {0: 1}, "ew.s.r": {0: 2}}
    (row,) = told(job, states, rows, 1, emitted=emitted)
    assert (row["n"], job.state_place) == (3, "s+r")


def test_a_session_is_final_when_event_time_passed_it_and_withdrawn_when_it_is_joined() -> None:
    job, states = job_of("session_window(event_time, '1 second')")
    first = told(job, states, table(job, [0, 500, 5000]), 0, top=3000)
    assert [(row["window_start"], row["window_end"], row["n"], row["final"]) for row in first] == [
        (0, 1500, 2, True),
        (5000, 6000, 1, False),
    ]
    joined = told(job, states, table(job, [400, 4200, 4800], 3), 1, top_before=3000, top=3000)
    assert [(row["window_start"], row.get("withdrawn"), row.get("n")) for row in joined] == [
        (5000, True, None),
        (4200, None, 3),
    ]


@given(
    st.lists(st.lists(st.integers(0, 60).map(lambda t: t * 100), max_size=4), max_size=8),
    st.integers(1, 4),
)
@settings(max_examples=examples(60))
def test_having_withdraws_what_was_told_and_nothing_else_over_restarts(
    batches: list[list[int]], most: int
) -> None:
    job, states = job_of("session_window(event_time, '1 second')", f"HAVING count(*) <= {most}")
    held: dict[int, int] = {}
    first = 0
    for revision, times in enumerate(batches):
        for row in told(job, states, table(job, times, first), revision) if times else ():
            if row.get("withdrawn"):
                del held[row["window_start"]]  # readers have it, else this fails
            else:
                held[row["window_start"]] = row["n"]
        first += len(times)
        for of_key in states.of.values():
            of_key |= {
                key: load(orjson.loads(orjson.dumps(dump(state)))) for key, state in of_key.items()
            }
    expected = sessions([t for times in batches for t in times], 1_000)
    assert held == {start: n for start, (_, n, _) in expected.items() if n <= most}


def test_what_such_windows_cannot_have_is_refused_in_words() -> None:
    for group, select, more, sentence in (
        ("count_window(0)", "count(*) AS n", "", "up to 10000 readings"),
        ("count_window(1000, 2)", "count(*) AS n", "", "at most 120 windows"),
        ("count_window('1 minute')", "count(*) AS n", "", "expected count_window(100[, 10])"),
        ("session_window(event_time, '8 days')", "count(*) AS n", "", "100 milliseconds to 7 days"),
        (
            "session_window(event_time)",
            "count(*) AS n",
            "",
            "expected session_window(event_time, '5 minutes')",
        ),
        (
            "count_window(10)",
            "approx_percentile(speed, 0.5) AS n",
            "",
            "have all aggregates but quantiles",
        ),
        (
            "count_window(10)",
            "count(*) AS n",
            "ORDER BY n LIMIT 3",
            "there is one row, no first of many",
        ),
    ):
        with pytest.raises(QueryError, match=re.escape(sentence)):
            parse(f"-- name: q\nSELECT device, {select} FROM s GROUP BY {group}, device {more}")
