"""Frames that are summed up before they become rows: which queries take sums, and that every window
is what its readings say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.jobs.aggregate_job import AggregateJob
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.plan import frame_sums, tags
from edgewake.cloud.analysis.plan.clock_correction import correct
from edgewake.cloud.analysis.plan.decode import decode, readings
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    records,
    registered,
    results,
    sql,
    truth,
    windows,
)

TYPES: Final = {
    "speed": FieldType.NUMBER,
    "load": FieldType.NUMBER,
    "street": FieldType.STRING,
    "lit": FieldType.BOOLEAN,
}
STREAM: Final = Stream(
    name="s", fields={name: FieldInfo(type=kind) for name, kind in TYPES.items()}
)
SELECT: Final = "count(speed) AS n, sum(speed) AS total, min(load) AS low, max(speed) AS high"


@pytest.mark.parametrize(
    ("select", "group", "where", "takes"),
    [
        (SELECT, "window(event_time, '1 minute'), device", "", True),
        ("count(*) AS n", "window(event_time, '1 minute', '10 seconds')", "", True),
        (SELECT, "device", "", True),
        (SELECT, "window(received_at, '1 minute')", "WHERE device LIKE 'd%'", True),
        (SELECT, "date_trunc('day', event_time), device", "", True),
        (SELECT, "window(event_time, '1 minute'), device", "WHERE speed > 3", False),
        (SELECT, "window(event_time, '1 minute'), street", "", False),
        (SELECT, "window(event_time, '25 seconds', '10 seconds'), device", "", False),
        ("avg(speed * 2) AS mean", "window(event_time, '1 minute'), device", "", False),
        ("count(street) AS n", "window(event_time, '1 minute'), device", "", False),
        ("max(event_time) AS latest", "window(event_time, '1 minute'), device", "", False),
        (
            "count(*) FILTER (WHERE speed > 3) AS n",
            "window(event_time, '1 minute'), device",
            "",
            False,
        ),
        ("approx_count_distinct(speed) AS n", "window(event_time, '1 minute'), device", "", True),
        (
            "avg(load) AS mean, approx_count_distinct(street) AS n",
            "window(event_time, '1 minute'), device",
            "",
            True,
        ),
        ("approx_count_distinct(speed) AS n", "window(event_time, '1 minute')", "", False),
        (
            "approx_count_distinct(speed * 2) AS n",
            "window(event_time, '1 minute'), device",
            "",
            False,
        ),
        (
            "approx_count_distinct(event_time) AS n",
            "window(event_time, '1 minute'), device",
            "",
            False,
        ),
        ("approx_count_distinct(lit) AS n", "window(event_time, '1 minute'), device", "", False),
        (
            "approx_count_distinct(speed) AS n, max(speed) AS high",
            "window(event_time, '1 minute'), street",
            "",
            False,
        ),
        ("stddev(speed) AS spread", "window(event_time, '1 minute'), device", "", False),
        ("last(speed) AS at_last", "window(event_time, '1 minute'), device", "", False),
    ],
)
def test_a_query_takes_sums_where_it_looks_at_no_single_reading(
    select: str, group: str, where: str, takes: bool
) -> None:
    (query,) = registered(sql("s", select, group, where=where), streams=[STREAM])

    assert {tag.shape is not None for tag in tags.tags_of(query)} == {takes}


def value(t: Sequence[int], device: str = "d1", shift: int = 0, **fields: Sequence[Any]) -> bytes:
    body = frame.encode(
        frame.Frame(1, 1, 1, list(t), {name: list(column) for name, column in fields.items()})
    )
    made = record.encode(
        device=device,
        stream="s",
        mode=record.Mode.ACK,
        sent_at=None,
        received_at=T0 + 600_000,
        frame_bytes=body,
    )
    return record.with_clocks(made, shift=shift, kept_at=None)


def test_a_frame_within_its_windows_is_one_row(spark: SparkSession) -> None:
    queries = registered(
        *(
            sql("s", "count(*) AS n", f"window(event_time, '{size}')")
            for size in ("10 seconds", "1 minute")
        ),
        streams=[STREAM],
    )
    sums = tags.sums_for([tag for query in queries for tag in tags.tags_of(query)])
    assert sums is not None
    frames = correct(
        decode(
            records(
                spark,
                value([T0 + i for i in range(9)], "within"),
                value([T0 + 9_999, T0 + 10_000, T0 + 10_001], "over one end"),
                value([T0 + 9_998, T0 + 9_999], "moved over it", shift=1),
            ),
            {},
        )
    )

    each = readings(
        frame_sums.summed_up(frames, sums), {}, sums.columns, is_one_enough=sums.is_one_enough
    )

    assert {row["device"]: row["count"] for row in each.groupBy("device").count().collect()} == {
        "within": 1,
        "over one end": 3,
        "moved over it": 2,
    }


def sent() -> list[tuple[bytes, list[dict[str, Any]]]]:
    """Frames of all kinds, and their readings: within windows and over their ends, unsorted, with
    nulls, without a field.
    """
    rng = random.Random(11)
    found = []
    for i in range(120):
        long_ms = rng.choice((1, 900, 9_000, 30_000, 130_000))
        begin = T0 + rng.randrange(300_000)
        t = [begin + rng.randrange(long_ms) for _ in range(rng.choice((1, 2, 7, 40)))]
        shift = rng.choice((0, 0, -3_600_000))
        columns: dict[str, list[float | str | None]] = {
            name: [
                rng.choice((None, rng.randrange(-50, 50) / 4))
                if i % 3 == 0
                else float(rng.randrange(90))
                for _ in t
            ]
            for name in ("speed", "load")
            if rng.random() < 0.9
        }
        columns |= {"speed": [None] * len(t)} if i % 17 == 0 else {}
        columns |= {"street": [f"street {rng.randrange(30)}" for _ in t]} if i % 5 else {}
        device = f"d{i % 3}"
        rows = [
            {"device": device, "t": at + shift, "one": 1}
            | {name: column[j] for name, column in columns.items() if column[j] is not None}
            for j, at in enumerate(t)
        ]
        found.append((value(t, device, shift, **columns), rows))
    return found


def partials(
    spark: SparkSession, queries: Sequence[Registered], values: Sequence[bytes]
) -> dict[int, dict[tuple[Any, ...], Any]]:
    """Query's id → (window's start, device) → readings, then of both slots count, sum, least and
    greatest.
    """
    (job,) = jobs_of(queries, {"s": TYPES}).values()
    assert isinstance(job, AggregateJob)
    found: dict[int, dict[tuple[Any, ...], Any]] = {}
    for row in job.graph(records(spark, *values)).collect():
        slots = tuple(row[f"{what}_{i}"] for i in (0, 1) for what in ("count", "sum", "min", "max"))
        found.setdefault(row["query"], {})[row["window_start"], row["key"]] = (
            row["readings"],
            *slots,
        )
    return found


def expected(
    rows: Sequence[Mapping[str, Any]],
    size_ms: int,
    slide_ms: int,
    is_taken: Callable[[Mapping[str, Any]], bool],
) -> Any:
    taken = [row for row in rows if is_taken(row)]
    by_field = {
        name: windows(taken, size_ms, slide_ms, lambda row: (row["device"],), name)
        for name in ("one", "speed", "load")
    }
    return {
        (start, f'{{"device":"{device}"}}'): (
            len(ones),
            *_figures(by_field["speed"].get(place)),
            *_figures(by_field["load"].get(place)),
        )
        for place, ones in by_field["one"].items()
        for start, device in [place]
    }


def _figures(values: Sequence[float] | None) -> tuple[Any, ...]:
    return (len(values), sum(values), min(values), max(values)) if values else (0, None, None, None)


@pytest.mark.parametrize("beside", ["alone", "beside a query of single readings"])
def test_windows_of_summed_frames_are_those_of_their_readings(
    spark: SparkSession, beside: str
) -> None:
    frames = sent()
    select = "sum(speed) AS total, sum(load) AS loads"
    sizes = {
        ("10 seconds",): (10_000, 10_000),
        ("1 minute", "20 seconds"): (60_000, 20_000),
        ("5 minutes",): (300_000, 300_000),
    }
    groups = [f"window(event_time, {', '.join(map(repr, size))}), device" for size in sizes]
    texts = [sql("s", select, group) for group in groups]
    if beside != "alone":
        texts.append(sql("s", select, groups[0], where="WHERE speed > 10"))
    queries = registered(*texts, streams=[STREAM])

    found = partials(spark, queries, [one for one, _ in frames])

    rows = [row for _, of_frame in frames for row in of_frame]
    for query, (size_ms, slide_ms) in zip(queries, sizes.values(), strict=False):
        assert found[query.id] == expected(rows, size_ms, slide_ms, lambda _: True)
    if beside != "alone":
        assert found[queries[-1].id] == expected(
            rows, 10_000, 10_000, lambda row: row.get("speed", 0) > 10
        )


@pytest.mark.parametrize("beside", ["alone", "beside a query of single readings"])
@pytest.mark.parametrize("field", ["speed", "street"])
def test_different_values_of_whole_frames_are_those_of_their_readings(
    spark: SparkSession, field: str, beside: str
) -> None:
    """Frames within a window are sketched as they are, those over its end reading by reading:
    together as many as there are. All is exact while there are few.
    """
    frames = sent()
    select, group = (
        f"approx_count_distinct({field}) AS n, sum(load) AS loads",
        "window(event_time, '1 minute'), device",
    )
    texts = [
        sql("s", select, group),
        *([sql("s", select, group, where="WHERE speed > 10")] if beside != "alone" else []),
    ]
    queries = registered(*texts, streams=[STREAM])
    (job,) = jobs_of(queries, {"s": TYPES}).values()
    assert isinstance(job, AggregateJob)
    assert job.kind is LaneKind.DISTINCT

    made = job.graph(records(spark, *(one for one, _ in frames))).collect()

    rows = [row for _, of_frame in frames for row in of_frame]
    conditions: tuple[Callable[[dict[str, Any]], bool], ...] = (
        lambda _: True,
        lambda row: row.get("speed", 0) > 10,
    )
    for query, is_taken in zip(queries, conditions, strict=False):
        found = {
            (row["window_start"], row["key"]): (row["distinct"], row["readings"])
            for row in made
            if row["query"] == query.id
        }
        taken = [row for row in rows if is_taken(row)]
        counted = windows(taken, 60_000, 60_000, lambda row: (row["device"],), "one")
        values = windows(taken, 60_000, 60_000, lambda row: (row["device"],), field)
        assert found == {
            (start, f'{{"device":"{device}"}}'): (
                len(set(values.get((start, device), ()))),
                len(ones),
            )
            for (start, device), ones in counted.items()
        }


MANY: Final = 50
COMPILED_OR_FAILS: Final = "spark.sql.codegen.fallback"


@pytest.mark.long
def test_the_code_of_many_queries_is_compiled(spark: SparkSession) -> None:
    """Java takes a method of 64 KB; of a longer one Spark said so as an error in the log, and went
    on without compiling.
    """
    select, sizes = (
        "count(speed) AS n, avg(speed) AS mean, max(load) AS high",
        [f"{10 + i % 7} seconds" for i in range(MANY)],
    )
    queries = registered(
        *(sql("s", select, f"window(event_time, '{size}'), device") for size in sizes),
        streams=[STREAM],
    )
    spark.conf.set(COMPILED_OR_FAILS, "false")
    try:
        found = partials(spark, queries, [value([T0, T0 + 1], speed=[1, 99], load=[1, 2])])
    finally:
        spark.conf.unset(COMPILED_OR_FAILS)

    assert [list(found[query.id].values()) for query in queries] == [
        [(2, 2, 100, 1, 99, 2, 3, 1, 2)]
    ] * MANY


@pytest.mark.long
def test_a_state_goes_on_whatever_the_queries_beside_it_look_at(
    analysis: Analysis, feed: Feed
) -> None:
    group = "window(event_time, '1 minute'), device"
    sums, chosen, other = registered(
        sql(feed.name, "count(*) AS n, sum(speed) AS total", group),
        sql(feed.name, "count(*) AS n, sum(speed) AS total", group, where="WHERE speed > 2"),
        sql(feed.name, "count(*) AS n", group),
        streams=[feed.stream],
    )

    for i, queries in enumerate(([sums], [sums, chosen], [sums, other], [chosen, sums])):
        feed.send([T0 + i, T0 + 100 + i], speed=[1, 10 ** (i + 1)])
        analysis.run(queries, feed)

    (row,) = truth(results(feed.config, sums.query.name), "device").values()
    assert (row["n"], row["total"]) == (8, 11_114)
    (row,) = truth(results(feed.config, chosen.query.name), "device").values()
    assert (row["n"], row["total"]) == (2, 10_100)
