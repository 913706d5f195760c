"""Values of a result, finished from the slots of its parts."""

from __future__ import annotations

from edgewake.cloud.analysis.results import finish
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.results.batches import T0, registered, row, values


def test_values_are_finished_from_slots() -> None:
    query = registered(
        "count(*) AS readings, count(a) AS n, sum(a) AS total, avg(a) AS mean, min(a) AS low, "
        "max(a) AS high"
    )
    (found,) = values(query, [row(query, count_0=3, sum_0=0.1 + 0.2, min_0=-1.0, max_0=2.0)])
    assert found == {
        "query": "q", "window_start": T0, "window_end": T0 + 60_000, "device": "d1",
        "readings": 4, "n": 3, "total": 0.3, "mean": 0.1, "low": -1.0, "high": 2.0, "revision": 3,
        "final": False,
    }  # fmt: skip


def test_a_window_without_values_has_nulls_and_no_division_by_zero() -> None:
    query = registered("sum(a) AS total, avg(a) AS mean")
    (found,) = values(query, [row(query)])
    assert (found["total"], found["mean"]) == (None, None)


def test_slots_of_several_parts_come_together_in_one_result() -> None:
    query = registered("max(a) AS a, max(b) AS b, max(c) AS c")
    (found,) = values(query, [row(query, max_0=1.0, max_1=2.0), row(query, part=1, max_0=3.0)])
    assert (found["a"], found["b"], found["c"]) == (1.0, 2.0, 3.0)


def test_sketch_values_are_picked_by_rank_and_cut_to_k() -> None:
    query = registered(
        "approx_percentile(a, 0.9) AS p90, approx_count_distinct(device) AS d, "
        "approx_top_k(street, 2) AS top"
    )
    top = [
        {"item": "x", "count": 2},
        {"item": None, "count": 9},
        {"item": "b", "count": 5},
        {"item": "a", "count": 5},
    ]
    (found,) = values(query, [row(query, quantiles=[1.0, 2.0], distinct=17, top=top)])
    assert (found["p90"], found["d"]) == (2.0, 17)
    assert found["top"] == [{"item": "a", "count": 5}, {"item": "b", "count": 5}]


def test_the_mode_is_the_smallest_of_the_most_frequent_values() -> None:
    query = registered("mode(a * 1) AS a, mode(street) AS street")
    numbers = [{"item": "10", "count": 5}, {"item": "9", "count": 5}, {"item": None, "count": 9}]
    first, second = row(query, top=numbers), row(query, part=1, top=[{"item": None, "count": 9}])
    (found,) = values(query, [first, second])
    assert (found["a"], found["street"]) == (9, None)


def test_items_get_the_type_of_their_field_back() -> None:
    items = [{"item": "17", "count": 1}]
    assert finish.top_items(items, 1, FieldType.NUMBER) == [{"item": 17, "count": 1}]
    assert finish.top_items([{"item": "true", "count": 1}], 1, FieldType.BOOLEAN) == [
        {"item": True, "count": 1}
    ]


def test_what_is_no_finite_number_is_null() -> None:
    query = registered("max(a) AS high, min(a) AS low, sum(a) AS total, avg(b) AS mean")
    infinite = row(
        query,
        max_0=float("inf"),
        min_0=float("nan"),
        sum_0=float("nan"),
        sum_1=float("-inf"),
        count_1=1,
    )
    (found,) = values(query, [infinite])
    assert [found[name] for name in ("high", "low", "total", "mean")] == [None] * 4


def test_sums_of_whole_numbers_are_exact_and_others_have_fifteen_digits() -> None:
    assert float(finish.rounded(9_007_199_254_740_991.0)) == 9_007_199_254_740_991.0
    assert finish.rounded(0.1 + 0.2) == "0.3"
