"""What a kind of query answers before there is a job of it: what can be computed again, and from
which reading on. Repairs and rebuilds ask nothing else (tests/analysis/repair).
"""

from __future__ import annotations

from typing import Final

import pytest

from edgewake.cloud.analysis.jobs.kinds import KINDS, job_type
from edgewake.cloud.queries.lane_kind import LaneKind, kind_of
from edgewake.cloud.queries.query import Query
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.support import T0

MINUTE: Final = 60_000
NUMBER, TEXT = FieldInfo(type=FieldType.NUMBER), FieldInfo(type=FieldType.STRING)
STREAMS: Final = {
    "s": Stream(name="s", fields={"x": NUMBER, "who": TEXT}),
    "people": Stream(name="people", fields={"who": TEXT, "level": NUMBER}),
}
WINDOW: Final = "GROUP BY window(event_time, '1 minute'), device"
PEOPLE: Final = "JOIN people ON s.who = people.device"
QUERIES: Final = {
    "windows": f"SELECT count(*) AS n FROM s {WINDOW}",
    "all": "SELECT count(*) AS n FROM s GROUP BY device",
    "rows": "SELECT x FROM s",
    "sessions": (
        "SELECT count(*) AS n FROM s GROUP BY session_window(event_time, '1 minute'), device"
    ),
    "change": "-- on_change: device\nSELECT who FROM s",
    "look-back": "SELECT x, robust_zscore(x, 5) AS score FROM s",
    "device": f"SELECT avg(x) AS a FROM s JOIN devices ON s.device = devices.device {WINDOW}",
    "pairs": (
        "SELECT s.x, p.level FROM s JOIN people p ON s.device = p.device AND "
        "p.event_time BETWEEN s.event_time - INTERVAL '10 seconds' AND s.event_time"
    ),
    "pairs in windows": (
        "SELECT count(*) AS n FROM s JOIN people p ON s.device = p.device AND "
        "p.event_time BETWEEN s.event_time - INTERVAL '10 seconds' AND s.event_time "
        "GROUP BY window(s.event_time, '1 minute'), s.device"
    ),
    "table": "-- table: device\nSELECT x FROM s",
}
"""One query of each kind that a repair treats in its own way."""


def query(name: str) -> Query:
    header, _, select = QUERIES[name].rpartition("\n")
    return parse(f"-- name: q\n{header}\n{select}", STREAMS)


def test_the_queries_are_of_all_jobs() -> None:
    assert {job_type(query(name)) for name in QUERIES} == {kind.job for kind in KINDS.values()}


@pytest.mark.parametrize("name", QUERIES)
def test_what_depends_on_earlier_readings_is_computed_from_the_first_one_on(name: str) -> None:
    needs_all = {"sessions", "change", "look-back", "device", "table"}
    assert job_type(query(name)).needs_all(query(name)) is (name in needs_all)


@pytest.mark.parametrize("name", QUERIES)
def test_only_what_tables_and_earlier_readings_decide_is_unknown_when_these_are_lost(
    name: str,
) -> None:
    assert job_type(query(name)).looks_back is (name in {"change", "look-back", "device", "table"})


@pytest.mark.parametrize(
    ("name", "repair", "rebuild"),
    [
        ("windows", None, None),
        ("all", "takes each reading, however late", None),
        ("rows", "emits each reading at once", "emits each reading at once"),
        ("sessions", "depend on what came before them", None),
        ("change", None, None),
        ("look-back", None, None),
        ("device", "keeps only the last row", "keeps only the last row"),
        ("pairs", None, None),
        ("pairs in windows", None, None),
        ("table", "latest reading of each key", None),
    ],
)
def test_what_cannot_be_computed_again_says_why(
    name: str, repair: str | None, rebuild: str | None
) -> None:
    for is_rebuild, why in ((False, repair), (True, rebuild)):
        found = job_type(query(name)).why_not(query(name), is_rebuild=is_rebuild)
        assert (found is None) == (why is None)
        assert (why or "") in (found or "")


def test_a_window_that_never_closes_is_computed_again_by_a_rebuild_where_the_driver_has_it() -> (
    None
):
    text = (
        "-- name: q\nSELECT count(*) AS n FROM s JOIN people p ON s.device = p.device AND "
        "p.event_time BETWEEN s.event_time - INTERVAL '10 seconds' AND s.event_time "
        "GROUP BY s.device"
    )
    found = parse(text, STREAMS)
    assert kind_of(found) is LaneKind.STREAM_JOIN
    assert "`query rebuild`" in (job_type(found).why_not(found, is_rebuild=False) or "")


def test_windows_are_closed_that_end_before_the_lateness() -> None:
    found = query("windows")
    top = T0 + 10 * MINUTE + found.lateness_ms
    first = job_type(found).first_open(found, top)
    assert first == T0 // MINUTE * MINUTE + 9 * MINUTE + 1
    assert job_type(found).first_open(found, None) == 0


@pytest.mark.parametrize("name", ["change", "look-back", "pairs"])
def test_a_row_of_one_reading_closes_when_nothing_can_complete_it_any_more(name: str) -> None:
    found = query(name)
    assert job_type(found).first_open(found, T0 + found.kept_ms + 1) == T0 + 1


def test_rows_of_spark_close_never() -> None:
    assert job_type(query("rows")).first_open(query("rows"), T0) == 0


def test_partners_are_no_table() -> None:
    assert job_type(query("device")).tables_of(query("device")) == (topics.DEVICES,)
    assert job_type(query("pairs")).tables_of(query("pairs")) == ()
    assert job_type(query("windows")).tables_of(query("windows")) == ()
