"""Keys and texts of results as Spark's tasks make them: to the byte those that the driver makes."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.lanes.batch_rows import BatchRows
from edgewake.cloud.analysis.results import emit, finish, result_texts
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from tests.examples import examples

T0 = 1_790_000_040_000
SEED = 20_261_124
COLUMNS = (
    "query long, part int, window_start long, window_end long, key string, readings long, count_0 "
    "long, sum_0 double, min_0 double,"
    " max_0 double, count_1 long, sum_1 double, min_1 double, max_1 double, distinct long, "
    "variance double"
)
SELECTED = (
    "count(*) AS readings, count(a) AS n, sum(a) AS total, avg(a) AS mean, min(a) AS low, max(a) "
    "AS high, min(b) AS least, max(b) AS most,"
    " approx_count_distinct(a) AS different, var_pop(a) AS spread"
)


def registered(name: str, select: str, more: str = "", registered_at: int = 1) -> Registered:
    text = (
        f"-- name: {name}\nSELECT {select} FROM s GROUP BY window(event_time, '1 minute'), device "
        f"{more}"
    )
    return Registered(parse(text), registered_at)


def numbers() -> list[float]:
    """Of all sizes, and those that are hard to write: whole ones, halves of the last digit,
    neighbours of powers of two and ten.
    """
    pick = random.Random(SEED)
    exponents = [*range(-30, 31), -320, -308, 300, 308]
    tens = [float(f"1e{n}") for n in exponents]
    twos = [math.ldexp(1.0, n) for n in range(-100, 101)] + [
        math.ldexp(1.0, n) for n in range(-1074, 1024, 37)
    ]
    found = [
        0.0,
        -0.0,
        0.1,
        0.1 + 0.2,
        1 / 3,
        5e-324,
        1.7976931348623157e308,
        math.inf,
        -math.inf,
        math.nan,
        2.0**53,
        2.0**53 + 2,
    ]
    found += [
        0.5,
        1e15 - 0.125,
        999999999999999.9,
        9999999999999998.0,
        0.00009999999999999999,
        123456789012345.6,
        2.0e-3,
        2.2e-322,
        9.5,
    ]
    for number in tens + twos:
        found += [number, math.nextafter(number, 0), math.nextafter(number, math.inf), -number]
    for _ in range(examples(20_000)):
        found.append(struct.unpack("<d", pick.randbytes(8))[0])
        found.append(pick.uniform(-1, 1) * 10 ** pick.randint(-6, 18))
        found.append(round(pick.uniform(-1000, 1000), pick.randint(0, 6)))
        # 16 digits: their halves are between two of 15.
        found.append(pick.randrange(10**15, 10**16) / 10 ** pick.randint(1, 19))
        found.append((pick.randrange(2**50) + 0.5) / 2 ** pick.randint(0, 12))
    return found


def made(
    spark: SparkSession, folder: Path, rows: list[tuple[Any, ...]], queries: list[Registered]
) -> tuple[pa.Table, pa.Table]:
    """The rows as a micro-batch, with texts and without."""
    spark.createDataFrame(rows, COLUMNS).coalesce(1).write.parquet(str(folder / "source"))
    read = spark.readStream.schema(COLUMNS).parquet(str(folder / "source"))
    found: list[tuple[pa.Table, pa.Table]] = []

    def take(batch: DataFrame, _: int) -> None:
        found.append(
            (BatchRows(spark, queries).collected(batch), BatchRows(spark).collected(batch))
        )

    written = read.withColumn("sum_0", F.col("sum_0")).writeStream.foreachBatch(take)
    written.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination(120)
    ((with_texts, without),) = found
    return with_texts, without


def told(rows: pa.Table, queries: list[Registered], step: emit.Batch) -> list[emit.Output]:
    broken: emit.Broken = {}
    found = list(emit.each(finish.results(rows, queries, (), step, broken)))
    assert not broken
    return sorted(found)


@pytest.mark.parametrize("begins", [pytest.param(None, marks=pytest.mark.long), T0 + 60_000])
def test_every_number_is_written_as_the_driver_writes_it(
    spark: SparkSession, tmp_path: Path, begins: int | None
) -> None:
    query = registered("q", f"device, {SELECTED}")
    values = numbers()
    rows = [
        (
            *(
                query.id,
                0,
                T0 + i % 4 * 60_000,
                T0 + (i % 4 + 1) * 60_000,
                f'{{"device":"gerät {i}"}}',
            ),
            *(i, i % 3, value, -value, value, 1, value),
            *(value, -value, i, abs(value)),
        )
        for i, value in enumerate(values)
    ]
    ours, plain = made(spark, tmp_path, rows, [query])
    complete_from = {} if begins is None else {query.label: begins}
    step = emit.Batch(
        revision=7, top_before=T0 + 60_000, top=T0 + 150_000, complete_from=complete_from
    )

    found, expected = told(ours, [query], step), told(plain, [query], step)

    assert ours.column_names == ["query", "window_start", "window_end", "result_key", "result_text"]
    assert len(found) > len(values) // 2
    assert {b'"final":true' in (one.value or b"") for one in found} == {True, False}
    different = [(one, other) for one, other in zip(found, expected, strict=True) if one != other]
    assert different[:3] == []


def test_what_needs_more_than_its_row_is_made_by_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One query of each sort in a lane: those with texts have them, the others their columns."""
    queries = [
        registered("plain", "device, count(*) AS n", registered_at=1),
        registered("having", "device, max(a) AS high", "HAVING max(a) > 1", registered_at=2),
        registered("computed", "device, max(a) - min(a) AS spread", registered_at=3),
        registered(
            "limited", "device, max(a) AS high", "ORDER BY high DESC LIMIT 1", registered_at=4
        ),
        registered("wide", "device, max(a) AS a, max(b) AS b, max(c) AS c", registered_at=5),
    ]
    nothing = (0, None, None, None)
    rows = [
        (
            query.id,
            part,
            T0,
            T0 + 60_000,
            f'{{"device":"d{i}"}}',
            i + 1,
            2,
            3.0,
            float(i),
            i + 0.5,
            *nothing,
            None,
            None,
        )
        for query in queries
        for part in range(query.query.parts)
        for i in range(4)
    ]
    ours, plain = made(spark, tmp_path, rows, queries)

    found = {
        one.label: told(ours, [one], emit.Batch(revision=1, top_before=None, top=None))
        for one in queries
    }

    assert found == {
        one.label: told(plain, [one], emit.Batch(revision=1, top_before=None, top=None))
        for one in queries
    }
    assert [len(outputs) for outputs in found.values()] == [4, 3, 4, 1, 4]
    texts = ours.group_by("query").aggregate([("result_text", "count")]).to_pydict()
    assert dict(zip(texts["query"], texts["result_text_count"], strict=True)) == {
        one.id: 4 if one is queries[0] else 0 for one in queries
    }


def test_a_lane_without_such_queries_has_its_rows_as_they_are() -> None:
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    assert result_texts.plan([registered("q", "device, max(a) - min(a) AS spread")], names) is None


def test_a_group_of_nothing_has_no_columns(spark: SparkSession, tmp_path: Path) -> None:
    query = Registered(
        parse("-- name: q\nSELECT max(a) AS high FROM s GROUP BY window(event_time, '1 minute')"), 1
    )
    row = (query.id, 0, T0, T0 + 60_000, "{}", 1, 1, 2.5, 2.5, 2.5, 0, None, None, None, None, None)
    ours, plain = made(spark, tmp_path, [row], [query])
    step = emit.Batch(revision=1, top_before=None, top=None)
    assert told(ours, [query], step) == told(plain, [query], step) != []
