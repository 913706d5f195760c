"""What is said of a query before it runs: its class and its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.queries.explain import described
from edgewake.cloud.queries.lane_kind import LaneKind, kind_of
from edgewake.cloud.queries.plan_cost import TAG
from edgewake.cloud.queries.query_file import parse

ROOT = Path(__file__).parents[2]


def test_the_plan_says_step_by_step_what_becomes_of_a_reading_as_the_document_shows_it() -> None:
    text = (ROOT / "deploy/examples/fast_vehicles.sql").read_text("utf-8")
    found = described(parse(text))
    assert (found.name, found.stream, found.streams) == (
        "fast_vehicles",
        "vehicle_position",
        ("vehicle_position",),
    )
    lines = [
        f"{found.execution}: {found.why}",
        *(f"{i}. {step}" for i, step in enumerate(found.plan, 1)),
    ]
    assert "\n".join(lines) in (ROOT / "docs/queries.md").read_text("utf-8")


def test_all_that_a_query_asks_for_is_in_its_plan() -> None:
    found = described(
        parse(
            "-- name: q\n-- lateness: 1 minute\n-- reopen: 7 days\n-- shed: random above 60 "
            "seconds\nSELECT kind, approx_percentile(v, 0.5) AS m FROM s UNPIVOT (v FOR kind IN "
            "(a, b)) WHERE v > 1 GROUP BY window(received_at, '1 minute', '20 seconds'), kind "
            "HAVING count(*) > 2 ORDER BY m LIMIT 5"
        )
    )
    assert found.execution == "shared"
    assert found.rows == 6
    assert TAG < found.cost < found.cost_max
    assert found.why.endswith(
        "it may leave readings out, so it is computed separately from those that may not"
    )
    assert list(found.plan) == [
        "read s, as it is: a, b",
        "leave readings out while what comes next was received more than 1 minute ago",
        "keep the readings that pass WHERE",
        "put each into windows of 1 minute, a new one every 20 seconds by when a bridge had it of "
        "its group (kind): 6 rows",
        "aggregate quantile, count_all, as partials that merge",
        "emit a row again when a reading changes it; final 1 minute after its window's end, open "
        "it again for 7 days; then drop its state",
        "emit rows that pass HAVING; withdraw those that stop passing",
        "emit the first 5 rows of each window; withdraw those that are not among them",
    ]


@pytest.mark.parametrize(
    ("text", "kind", "steps"),
    [
        ("SELECT x FROM s", LaneKind.ROWS, ["emit each as a row at once, final"]),
        (
            "SELECT count(*) AS n FROM s",
            LaneKind.PLAIN,
            ["put each into the one row", "it is never final, and its state is kept for ever"],
        ),
        (
            "SELECT device, count(DISTINCT x) AS n FROM s GROUP BY device",
            LaneKind.DISTINCT,
            ["aggregate distinct"],
        ),
        (
            "SELECT max(x) AS n FROM s GROUP BY date_trunc('day', event_time)",
            LaneKind.PLAIN,
            ["put each into its day in UTC"],
        ),
        (
            "SELECT sum(x) AS n FROM s GROUP BY session_window(event_time, '5 minutes')",
            LaneKind.SEQUENCE,
            ["session that 5 minutes"],
        ),
        (
            "SELECT sum(x) AS n FROM s GROUP BY count_window(100, 10), device",
            LaneKind.SEQUENCE,
            ["100 readings", "final when it is full"],
        ),
        (
            "SELECT sum(x) AS n FROM s GROUP BY absence_window(event_time, '1 hour')",
            LaneKind.SEQUENCE,
            ["absence of readings"],
        ),
        (
            "SELECT sum(x) AS n FROM s GROUP BY threshold_window(x > 1)",
            LaneKind.SEQUENCE,
            ["the time in which the condition holds"],
        ),
        (
            "SELECT sum(x) AS n FROM s GROUP BY pattern_window('1 day', x > 1, x < 0)",
            LaneKind.SEQUENCE,
            ["succession within 1 day"],
        ),
        (
            "SELECT trend(x, '1 hour') AS u FROM s JOIN r ON s.k = r.k WHERE x > 1 AND r.y > 2",
            LaneKind.TABLE_JOIN,
            [
                "for trend",
                "row of r where k = r.k, that held at the reading's time; drop those without one",
                "the rest of WHERE",
            ],
        ),
        (
            "SELECT x, r.y FROM s LEFT JOIN r ON s.k = r.k AND r.event_time BETWEEN s.event_time "
            "- INTERVAL 5 SECONDS AND s.event_time",
            LaneKind.STREAM_JOIN,
            [
                "read s and r, as one: k, x",
                (
                    "pair with all readings of r where k = r.k, from 5 seconds before to the same "
                    "time; nulls"
                ),
            ],
        ),
    ],
)
def test_each_kind_of_query_says_how_it_is_computed(
    text: str, kind: LaneKind, steps: list[str]
) -> None:
    query = parse(f"-- name: q\n{text}")
    found = described(query)
    assert (kind_of(query), found.execution) == (
        kind,
        "shared" if kind in (LaneKind.ROWS, LaneKind.PLAIN, LaneKind.DISTINCT) else "dedicated",
    )
    for step in steps:
        assert any(step in one for one in found.plan), (step, found.plan)


def test_a_table_says_that_only_its_latest_rows_count() -> None:
    found = described(
        parse(
            "-- name: q\n-- table: device\nSELECT x, r.y FROM s LEFT JOIN r ON s.k = r.k WHERE "
            "r.y > 2"
        )
    )
    assert found.execution == "dedicated"
    assert list(found.plan) == [
        "read s and r, as one: k, x",
        "find the row of r where k = r.k, as it is now; nulls without one",
        "keep what passes WHERE",
        "keep the latest reading of each device; emit rows that are new, changed or withdrawn",
    ]
