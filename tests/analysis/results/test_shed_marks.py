"""Corrected counts and sums against the exact ones: no bias, margins that hold, and what a row says
of itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import fmean
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.jobs.aggregate_job import AggregateJob
from edgewake.cloud.analysis.jobs.job import Dials
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.results import finish
from edgewake.cloud.analysis.results.emit import Batch, each
from edgewake.cloud.analysis.results.shed_marks import marks
from edgewake.cloud.analysis.results.shed_report import left_out
from edgewake.cloud.queries.query import Query, Registered, Shed
from edgewake.cloud.queries.query_file import QueryError, parse
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.plan.test_late import frame_of
from tests.analysis.support import T0, records

HEAD = "-- name: q\n-- shed: {}\nSELECT device, {} FROM s GROUP BY {}"
SUMS = "count(*) AS n, sum(speed) AS total"
MINUTE = "window(event_time, '1 minute'), device"
STREAMS = {
    "s": Stream(
        name="s",
        fields={
            "speed": FieldInfo(type=FieldType.NUMBER),
            "street": FieldInfo(type=FieldType.STRING),
        },
    )
}


def thinned(select: str, shed: str = "random above 60 seconds", group: str = MINUTE) -> Query:
    return parse(HEAD.format(shed, select, group), STREAMS)


def partials(values: list[float], weights: list[int], rng: random.Random) -> dict[str, Any] | None:
    """One row of partials (partials.aggregate) of readings of which each is taken with the chance 1
    / weight; None where none is.
    """
    taken = [(x, w) for x, w in zip(values, weights, strict=True) if rng.random() < 1 / w]
    if not taken:
        return None
    return {
        "readings": sum(w for _, w in taken),
        "taken": len(taken),
        "weight": max(w for _, w in taken),
        "count_0": sum(w for _, w in taken),
        "sum_0": sum(x * w for x, w in taken),
        "min_0": min(x for x, _ in taken),
        "max_0": max(x for x, _ in taken),
    }


def always(weight: int) -> Callable[[int, int], list[int]]:
    return lambda n, _: [weight] * n


def rising(n: int, _: int) -> list[int]:
    """The level rises while the window is open."""
    return [1 if i < n // 4 else 2 if i < n // 2 else 8 for i in range(n)]


def some_always(n: int, i: int) -> list[int]:
    """A condition keeps every fifth."""
    return [1 if (i + j) % 5 == 0 else 16 for j in range(n)]


VALUES: dict[str, Callable[[random.Random, int], float]] = {
    "normal": lambda rng, _: rng.gauss(50, 12),
    "skewed": lambda rng, _: rng.expovariate(1 / 20),
    "of both signs": lambda rng, _: rng.gauss(0, 5),
    "rising with time": lambda rng, i: i / 3 + rng.random(),
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(
    "weigh",
    [always(2), always(4), always(16), rising, some_always],
    ids=["2", "4", "16", "rising", "some"],
)
def test_corrected_counts_and_sums_have_no_bias_and_their_margins_hold(
    values: str, weigh: Callable[[int, int], list[int]]
) -> None:
    """Groups of 1 to 400 readings, each thinned anew and again; a group of which none was taken has
    no row, and counts as nothing.
    """
    rng, query = random.Random(values), thinned("count(*) AS count, sum(speed) AS sum")
    off, variance = {"count": 0.0, "sum": 0.0}, {"count": 0.0, "sum": 0.0}
    held: dict[str, list[bool]] = {"count": [], "sum": []}
    for n in (1, 3, 10, 40, 400):
        for i in range(30):
            xs, weights = [VALUES[values](rng, j) for j in range(n)], weigh(n, i)
            row = partials(xs, weights, rng)
            exact = {"count": float(n), "sum": sum(xs)}
            found = (
                {"count": 0.0, "sum": 0.0}
                if row is None
                else {"count": row["count_0"], "sum": row["sum_0"]}
            )
            variance["count"] += sum(w - 1 for w in weights)
            variance["sum"] += sum((w - 1) * x * x for x, w in zip(xs, weights, strict=True))
            margins = None if row is None or row["weight"] == 1 else said(query, row)["margins"]
            for name in exact:
                off[name] += found[name] - exact[name]
                if margins is not None:
                    held[name].append(abs(found[name] - exact[name]) <= margins[name])
    for name in off:
        assert abs(off[name]) <= 3 * variance[name] ** 0.5, (
            "the differences of all groups together are those of chance"
        )
        assert fmean(held[name]) >= 0.95, (name, fmean(held[name]))


def said(query: Query, row: dict[str, Any]) -> dict[str, Any]:
    (text,) = marks(query, [pa.Table.from_pylist([row])])
    found: dict[str, Any] = orjson.loads("{" + text[1:] + "}")
    return found


ROW = {
    "readings": 64,
    "taken": 16,
    "weight": 4,
    "count_0": 64,
    "sum_0": 640.0,
    "min_0": 9.0,
    "max_0": 11.0,
}


def test_a_row_says_what_is_corrected_and_what_is_of_the_readings_that_are_kept() -> None:
    query = thinned(
        "count(*) AS n, sum(speed) AS total, avg(speed) AS mean, max(speed) AS most, max(speed) - "
        "avg(speed) AS above"
    )
    found = said(query, ROW)
    assert (found["kept"], found["of_kept"], set(found["margins"])) == (
        0.25,
        ["most", "above"],
        {"n", "total"},
    )
    assert 20 < found["margins"]["n"] < 50
    assert 200 < found["margins"]["total"] < 500


def test_a_complete_row_has_no_mark_and_a_row_without_values_has_no_margin() -> None:
    query = thinned("count(*) AS n, sum(speed) AS total")
    assert marks(query, [pa.Table.from_pylist([ROW | {"weight": 1}])]) == [""]
    assert marks(query, [pa.Table.from_pylist([ROW | {"weight": 1, "readings": 16}, ROW])])[0] == ""
    empty = said(query, ROW | {"count_0": 0, "sum_0": None, "min_0": None, "max_0": None})
    assert set(empty["margins"]) == {"n"}


def test_the_header_is_read_with_its_condition() -> None:
    assert thinned("count(*) AS n").shed == Shed(60_000)
    query = thinned(
        "count(*) AS n", "random above 2 minutes except where speed > 100 OR street = 'a'"
    )
    assert query.shed is not None
    assert query.shed.above_ms == 120_000
    assert query.fields == {"speed", "street"}
    assert (
        parse(
            "-- name: q\nSELECT count(*) AS n FROM s GROUP BY window(event_time, '1 minute')"
        ).shed
        is None
    )


@pytest.mark.parametrize(
    ("select", "shed", "group", "expected"),
    [
        ("count(*) AS n", "sometimes", MINUTE, "expected `random above 60 seconds`"),
        ("count(*) AS n", "random above a lot", MINUTE, "expected a number and a unit"),
        ("count(*) AS n", "random above 10 milliseconds", MINUTE, "expected 1 second to 1 day"),
        (
            "count(*) AS n",
            "random above 60 seconds except where sped > 1",
            MINUTE,
            "line 2:47: header shed: unknown field 'sped': did you mean 'speed'?",
        ),
        (
            "count(*) AS n",
            "random above 60 seconds except where speed",
            MINUTE,
            "expected a condition, found a number",
        ),
        ("count(*) AS n", "random above 60 seconds except where speed >", MINUTE, "line 2:53"),
        ("count(*) AS n", "random above 60 seconds", "device", "without a window"),
        (
            "count(*) AS n",
            "random above 60 seconds",
            "session_window(event_time, '1 minute'), device",
            "need every reading",
        ),
        (
            "avg(trend(speed, '1 minute')) AS n",
            "random above 60 seconds",
            MINUTE,
            "what came before",
        ),
        ("count(*) AS kept", "random above 60 seconds", MINUTE, "give 'kept' another name"),
    ],
)
def test_what_cannot_be_thinned_is_refused_in_words(
    select: str, shed: str, group: str, expected: str
) -> None:
    with pytest.raises(QueryError) as refused:
        thinned(select, shed, group)
    assert expected in str(refused.value)


def test_a_query_of_readings_as_they_are_is_refused() -> None:
    with pytest.raises(QueryError, match="choose them with WHERE"):
        parse("-- name: q\n-- shed: random above 60 seconds\nSELECT device, speed FROM s", STREAMS)


def test_readings_taken_by_a_hash_of_their_places_give_every_group_without_bias(
    spark: SparkSession,
) -> None:
    """By Spark, one of four, of 60 groups of 20 to 200 readings; what is left out and what is taken
    is everything, by window.
    """
    rng = random.Random(5)
    query = Registered(
        thinned(f"{SUMS}, max(speed) AS most", "random above 60 seconds except where speed > 99"), 1
    )
    frames = [
        frame_of(
            [
                (T0 + minute * 60_000 + j, 99.5 if j == device else rng.uniform(0, 99), None)
                for j in range(20 * part)
            ],
            f"d{device}",
        )
        for minute in range(3)
        for device in range(20)
        for part in (1, 9)[: 1 + device % 2]
    ]
    types = {"s": {"speed": FieldType.NUMBER, "street": FieldType.STRING}}
    (job,) = jobs_of([query], types).values()
    assert isinstance(job, AggregateJob)
    step = Batch(revision=1, top_before=None, top=None)

    thin = job.graph(records(spark, *frames), 1, Dials({query.label: F.lit(2)})).toArrow()
    whole = job.graph(records(spark, *frames)).toArrow()
    found, exact = (
        {
            (row["window_start"], row["device"]): row
            for row in (orjson.loads(value or b"") for value in told)
        }
        for told in (
            [output.value for output in each(finish.results(rows, [query], (), step, {}))]
            for rows in (thin, whole)
        )
    )

    assert all("kept" not in row for row in exact.values())
    assert {place: row["n"] for place, row in exact.items()} == {
        (T0 + minute * 60_000, f"d{device}"): (20, 200)[device % 2]
        for minute in range(3)
        for device in range(20)
    }
    assert found.keys() == exact.keys(), "of each group there is one that is never left out"
    assert {row["most"] for row in found.values()} == {99.5}
    off = sum(row["n"] - exact[place]["n"] for place, row in found.items())
    assert abs(off) <= 3 * (3 * sum(row["n"] for row in exact.values())) ** 0.5
    for name in ("n", "total"):
        assert (
            fmean(
                abs(row[name] - exact[place][name]) <= row["margins"][name]
                for place, row in found.items()
            )
            >= 0.95
        )
    for start in {start for start, _ in exact}:
        taken = sum(
            round(row["n"] * row["kept"]) for place, row in found.items() if place[0] == start
        )
        (lacking,) = [one.readings for one in left_out(thin, query, step) if one.start == start]
        assert taken + lacking == sum(row["n"] for place, row in exact.items() if place[0] == start)
    assert left_out(whole, query, step) == []
