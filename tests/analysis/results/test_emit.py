"""Partials to results: finished values, revisions, finality, late readings."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from edgewake.cloud.analysis.plan.late import LateWindow
from edgewake.cloud.analysis.results import emit, finish
from edgewake.cloud.analysis.results.emit import Batch
from edgewake.cloud.queries.query import Query, Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol.frames import record
from tests.analysis.results.batches import T0, TEXT, outputs, registered, row, values


def test_the_key_of_a_result_is_the_same_for_every_revision() -> None:
    query = registered("max(a) AS a")
    made = [
        outputs([row(query)], [query], Batch(revision=n, top_before=None, top=None)) for n in (1, 2)
    ]
    assert made[0][0].key == made[1][0].key
    assert made[0][0].value != made[1][0].value


def test_a_window_is_final_when_event_time_passed_its_end_and_the_lateness() -> None:
    query = registered("max(a) AS a")
    end = T0 + 60_000
    assert values(query, [row(query)], top=end + 29_999)[0]["final"] is False
    assert values(query, [row(query)], top=end + 30_000)[0]["final"] is True


def test_a_window_that_was_final_before_the_batch_is_not_emitted_again() -> None:
    query = registered("max(a) AS a")
    assert values(query, [row(query)], before=T0 + 90_000, top=T0 + 95_000) == []


def test_a_watermark_is_announced_once_for_each_step_of_the_window_grid() -> None:
    query = registered("max(a) AS a")
    end = T0 + 60_000
    moved = list(emit.watermarks([query], Batch(revision=4, top_before=end, top=end + 30_000)))
    assert [orjson.loads(output.value or b"") for output in moved] == [
        {"query": "q", "watermark": end, "revision": 4}
    ]
    assert (
        list(emit.watermarks([query], Batch(revision=5, top_before=end + 30_000, top=end + 40_000)))
        == []
    )


def test_a_final_window_is_opened_again_for_as_long_as_the_query_says() -> None:
    query = Registered(replace(registered("max(a) AS a").query, reopen_ms=3_600_000), 7)
    end = T0 + 60_000
    (again,) = values(query, [row(query)], before=end + 3_600_000, top=end + 3_600_001)
    assert again["final"] is True
    assert values(query, [row(query)], before=end + 3_630_000, top=end + 3_630_000) == []
    announced = emit.watermarks([query], Batch(revision=4, top_before=end, top=end + 30_000))
    assert [orjson.loads(output.value or b"")["watermark"] for output in announced] == [end]


def test_late_readings_are_counted_by_query_and_told_by_window() -> None:
    queries = [registered("max(a) AS a"), Registered(_slow(), 8)]
    batch = Batch(revision=6, top_before=T0 + 90_000, top=T0 + 99_000)
    windows = [
        LateWindow(0, T0, T0 + 60_000, 4, ('{"device":"d1"}',)),
        LateWindow(0, None, None, 5),
        LateWindow(1, T0, T0 + 60_000, 1),
    ]
    assert emit.late_readings(windows, queries) == {"q@7": 9, "slow@8": 1}
    outputs = list(emit.late_outputs(windows, queries, batch))
    assert [output.key for output in outputs] == [b"q", b"q", b"slow"]
    first, rest = (
        next(iter(record.readings(record.decode(output.value or b"")))) for output in outputs[:2]
    )
    assert (first["late_query"], first["late_stream"], first["t"]) == ("q", "s", T0 + 99_000)
    assert (first["window_begins"], first["window_ends"], first["readings"]) == (T0, T0 + 60_000, 4)
    assert first["examples"] == '[{"device":"d1"}]'
    assert ("window_begins" in rest, rest["readings"], rest["examples"]) == (False, 5, "[]")


def _slow() -> Query:
    return parse(
        TEXT.format("max(a) AS a").replace("name: q", "name: slow").replace("30 seconds", "1 hour")
    )


def test_a_query_whose_results_cannot_be_made_harms_no_other() -> None:
    broken, whole = registered("approx_top_k(sqrt(a), 3) AS top"), Registered(_slow(), 8)
    rows = [row(broken, top=[{"item": "NaN", "count": 1}]), row(whole, max_0=3.0)]
    why: emit.Broken = {}
    made = outputs(rows, [broken, whole], Batch(revision=1, top_before=None, top=None), why)
    assert [orjson.loads(output.value or b"")["query"] for output in made] == ["slow"]
    assert list(why) == ["q@7"]
    assert "JSONDecodeError" in why["q@7"]


def test_rows_of_windows_that_began_before_the_query_did_say_so() -> None:
    query = registered("max(a) AS a")
    early, whole = values(query, [row(query), row(query, start=T0 + 60_000)], complete_from=T0 + 1)
    assert early["complete"] is False
    assert "complete" not in whole


def test_more_rows_than_a_slice_come_out_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "SLICE_ROWS", 3)
    query = registered("max(a) AS a, max(b) AS b, max(c) AS c")
    rows = [
        row(query, part=part, start=T0 + 60_000 * i, max_0=float(i))
        for part in (0, 1)
        for i in (range(8) if part else range(7, -1, -1))
    ]
    assert [(one["a"], one["c"]) for one in values(query, rows)] == [
        (float(i), float(i)) for i in range(8)
    ]


def test_a_record_that_is_too_large_becomes_a_dead_letter() -> None:
    small, large = (
        emit.Output("ew.q.q.7", b"k", b"x" * size)
        for size in (emit.OUTPUT_BYTES_MAX - 1, emit.OUTPUT_BYTES_MAX)
    )
    assert emit.bounded(small, now_ms=5) is small
    letter = emit.bounded(large, now_ms=5)
    assert (letter.topic, letter.key, len(letter.value or b"")) == (
        "ew.dead",
        b"k",
        emit.DEAD_BYTES_MAX,
    )
    assert (letter.headers["reason"], letter.headers["topic"], letter.headers["received_at"]) == (
        b"oversize",
        b"ew.q.q.7",
        b"5",
    )


FIRST = (
    "-- name: q\nSELECT device, max(a) AS top, max(a) - min(a) AS spread FROM s GROUP BY "
    "window(event_time, '1 minute'), device"
    " ORDER BY top DESC LIMIT 1"
)


def test_after_a_restart_the_first_of_a_window_say_that_others_may_be_missing() -> None:
    query = Registered(parse(FIRST), 7)
    rows = [
        row(query, max_0=3.0, min_0=1.0),
        row(query, max_0=5.0, min_0=1.0) | {"key": '{"device":"d2"}'},
    ]
    fresh, after = (
        Batch(revision=3, top_before=None, top=None),
        Batch(revision=3, top_before=None, top=None, unknown_to={query.label: T0 + 1}),
    )
    first, second = (
        [orjson.loads(output.value or b"") for output in outputs(rows, [query], step)]
        for step in (fresh, after)
    )
    assert [
        (each["device"], each["top"], each["spread"], "complete" in each) for each in first
    ] == [("d2", 5.0, 4.0, False)]
    assert [(each["device"], each["complete"]) for each in second] == [("d2", False)]
    later = [
        orjson.loads(output.value or b"")
        for output in outputs(rows[:1], [query], replace(fresh, revision=4))
    ]
    assert later == [], "d1 is still not the first"
