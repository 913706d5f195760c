"""Whose values a query's columns have."""

from __future__ import annotations

import pytest

from edgewake.cloud.queries.measures import measures
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol.ops.query import units_of

WINDOW = "GROUP BY window(event_time, '1 minute')"


def of(select: str, *header: str) -> dict[str, tuple[str, ...]]:
    return dict(measures(parse("\n".join(["-- name: q", *header, select]))))


@pytest.mark.parametrize(
    "column",
    [
        "min(temp)", "max(temp)", "avg(temp)", "mean(temp)", "sum(temp)", "median(temp)",
        "approx_percentile(temp, 0.9)", "approx_percentile(temp, array(0.5, 0.9))",
        "first(temp)", "last(temp)", "mode(temp)", "max_by(temp, hum)",
        "round(avg(temp), 1)", "abs(min(temp))", "avg(round(temp, 2))",
        "avg(temp) FILTER (WHERE hum > 3)", "max(CASE WHEN hum > 3 THEN temp END)",
    ],
)  # fmt: skip
def test_a_column_that_has_values_of_one_field_is_of_that_field(column: str) -> None:
    assert of(f"SELECT {column} AS x FROM s {WINDOW}") == {"x": ("s.temp",)}


@pytest.mark.parametrize(
    "column",
    [
        "count(*)", "count(temp)", "count(DISTINCT temp)", "approx_count_distinct(temp)",
        "avg(temp * 9 / 5 + 32)", "avg(temp) - 273", "max(temp) - min(temp)", "variance(temp)",
        "max(CASE WHEN hum > 3 THEN temp ELSE 0 END)", "max(event_time)", "corr(temp, hum)",
        "approx_top_k(temp, 3)", "count(*) / 60",
    ],
)  # fmt: skip
def test_what_is_counted_or_computed_is_of_no_field(column: str) -> None:
    assert of(f"SELECT {column} AS x FROM s {WINDOW}") == {}


def test_a_row_of_a_reading_and_a_group_have_their_fields() -> None:
    assert of("SELECT temp, hum AS h, temp + 1 AS warmer FROM s") == {
        "temp": ("s.temp",),
        "h": ("s.hum",),
    }
    assert of(f"SELECT road, avg(speed) AS mean FROM s {WINDOW}, road") == {
        "road": ("s.road",),
        "mean": ("s.speed",),
    }


def test_a_union_an_unpivot_and_a_choice_have_several_fields() -> None:
    union = "SELECT avg(t1) AS x FROM (SELECT * FROM a UNION ALL SELECT * FROM b)"
    assert of(f"{union} {WINDOW}") == {"x": ("a.t1", "b.t1")}
    unpivot = "SELECT kind, max(v) AS x FROM s UNPIVOT (v FOR kind IN (inside, outside))"
    assert of(f"{unpivot} {WINDOW}, kind") == {"x": ("s.inside", "s.outside")}
    assert of("SELECT coalesce(inside, outside) AS x, least(inside, 4) AS y FROM s") == {
        "x": ("s.inside", "s.outside")
    }


def test_a_joined_streams_field_is_its_own_and_a_baseline_is_that_of_its_field() -> None:
    joined = "SELECT s.temp, w.wind AS wind FROM s JOIN w ON s.place = w.place"
    assert of(joined) == {"temp": ("s.temp",), "wind": ("w.wind",)}
    usual, rise = "seasonal_baseline(temp, 'day') AS usual", "trend(temp, '1 hour') AS rise"
    assert of(f"SELECT {usual}, {rise} FROM s") == {"usual": ("s.temp",)}


def test_a_unit_is_said_where_all_fields_of_a_column_have_it() -> None:
    units = {("a", "x"): "°C", ("b", "x"): "°C", ("b", "y"): "°F"}
    columns = {"one": ["a.x"], "both": ["a.x", "b.x"], "two": ["a.x", "b.y"]}
    columns["unknown"] = ["a.x", "c.z"]
    found = units_of(columns, lambda stream, field: units.get((stream, field), ""))
    assert found == {"one": "°C", "both": "°C"}
