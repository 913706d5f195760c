"""Two streams joined within a time: what may be written, and what is refused with what to write."""

from __future__ import annotations

import re

import pytest

from edgewake.cloud.queries.query import Query, Within
from edgewake.cloud.queries.query_file import UnknownStream, parse
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream

N, T = FieldInfo(type=FieldType.NUMBER), FieldInfo(type=FieldType.STRING)
STREAMS = {
    "orders": Stream(name="orders", fields={"id": T, "price": N}),
    "clicks": Stream(name="clicks", fields={"id": T, "price": N, "url": T}),
}
BOUND = (
    "c.event_time BETWEEN o.event_time - INTERVAL 3 SECONDS AND o.event_time + INTERVAL 5 SECONDS"
)
JOIN = f"FROM orders o LEFT JOIN clicks c ON o.id = c.id AND {BOUND}"


def query(text: str, header: str = "") -> Query:
    return parse(f"-- name: q\n{header}{text}", STREAMS)


@pytest.mark.parametrize(
    ("condition", "earliest", "latest"),
    [
        (
            "c.event_time BETWEEN o.event_time - INTERVAL 10 SECONDS AND o.event_time + INTERVAL "
            "1 HOUR",
            -10_000,
            3_600_000,
        ),
        ("o.event_time BETWEEN c.event_time - INTERVAL '1' MINUTE AND c.event_time", 0, 60_000),
        (
            "c.event_time >= o.event_time AND c.event_time < o.event_time + INTERVAL '5 minutes'",
            0,
            299_999,
        ),
        (
            "o.event_time < c.event_time AND c.event_time - o.event_time <= INTERVAL 5 SECONDS",
            1,
            5_000,
        ),
        ("abs(o.event_time - c.event_time) < INTERVAL 2 SECONDS", -1_999, 1_999),
        (
            "-INTERVAL 5 SECONDS <= (c.event_time - o.event_time) AND o.event_time + INTERVAL 1 "
            "SECOND > c.event_time",
            -5_000,
            999,
        ),
        ("c.event_time = o.event_time + INTERVAL 1 DAY", 86_400_000, 86_400_000),
        (f"{BOUND} AND c.event_time >= o.event_time", 0, 5_000),
    ],
)
def test_a_time_is_written_as_users_of_sql_write_it(
    condition: str, earliest: int, latest: int
) -> None:
    found = query(
        f"SELECT o.price, c.url FROM orders o JOIN clicks c ON o.id = c.id AND {condition}"
    )
    assert found.join is not None
    assert (found.join.within, found.join.keys) == (Within(earliest, latest), (("id", "id"),))
    assert found.lateness_ms == 30_000 + max(0, latest), "windows wait for partners, too"
    assert found.waits_ms == 30_000
    assert found.key_names == ("device", "reading", "partner")


def test_what_is_wrong_is_told_all_at_once_with_its_place_and_the_nearest_name() -> None:
    with pytest.raises(QueryError) as refusal:
        query(
            "SELECT o.prise, c.ur\nFROM orders o JOIN clicks c\nON o.id = c.id AND c.event_time < "
            "o.event_time"
        )
    assert [line.partition(", from both")[0] for line in str(refusal.value).splitlines()] == [
        "line 2:10: SELECT: unknown field 'prise': did you mean 'price'?",
        "line 2:19: SELECT: unknown field 'clicks.ur': did you mean 'clicks.url'?",
        "line 4:22: JOIN clicks: streams are joined within a time",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"SELECT price FROM orders o JOIN clicks c ON {BOUND}", "[LEFT] JOIN table ON"),
        (
            "SELECT price FROM orders o JOIN clicks c ON o.id = c.id AND c.event_time > "
            "o.event_time",
            "from both sides",
        ),
        (
            "SELECT price FROM orders o JOIN clicks c ON o.id = c.id AND c.event_time = "
            "o.event_time + 5",
            "joined within a time",
        ),
        (
            "SELECT price FROM orders o JOIN clicks c ON o.id = c.id AND c.received_at = "
            "o.event_time",
            "joined within a time",
        ),
        (
            "SELECT price FROM orders o JOIN clicks c ON o.id = c.id AND c.event_time = "
            "c.event_time",
            "joined within a time",
        ),
        (f"SELECT price {JOIN} AND o.price > 3", "conditions on values belong into WHERE"),
        (
            f"SELECT price {JOIN} AND c.event_time > o.event_time + INTERVAL 9 SECONDS",
            "no reading of it is at least 9001 ms",
        ),
        (
            "SELECT price FROM orders o JOIN clicks c ON o.id = c.id AND abs(c.event_time - "
            "o.event_time) < INTERVAL 1 DAY",
            "at most a day apart",
        ),
        (
            f"SELECT median(price) AS m {JOIN} GROUP BY device",
            "JOIN: a query with it has all aggregates but quantiles",
        ),
        (
            f"SELECT count(*) AS n {JOIN} GROUP BY session_window(event_time, '1 minute')",
            "pairs of readings have no order",
        ),
        (f"SELECT trend(price, '1 minute') AS t {JOIN}", "not with trend"),
        (f"SELECT price AS partner {JOIN}", "the name 'partner' twice"),
        (
            f"SELECT price FROM orders o FULL JOIN clicks c ON o.id = c.id AND {BOUND}",
            "write FROM stream LEFT JOIN table",
        ),
        (
            "SELECT price FROM orders o JOIN devices d ON o.device = d.device AND d.event_time = "
            "o.event_time",
            "a table's row is the one",
        ),
        (
            "SELECT price FROM orders o JOIN orders c ON o.id = c.id",
            "a stream joined with itself needs a time",
        ),
    ],
)
def test_what_such_a_join_cannot_be_is_refused_with_what_to_write_instead(
    text: str, sentence: str
) -> None:
    with pytest.raises(QueryError, match=re.escape(sentence)):
        query(text)


@pytest.mark.parametrize("rest", ["", "GROUP BY window(event_time, '1 minute')"])
def test_a_query_waits_for_late_readings_as_long_as_it_reopens_windows(rest: str) -> None:
    found = query(
        f"SELECT {'count(*) AS n' if rest else 'o.price'} {JOIN} {rest}",
        "-- lateness: 4 seconds\n-- reopen: 1 hour\n",
    )
    assert (found.waits_ms, found.kept_ms) == (3_604_000, 3_609_000)


def test_a_query_whose_other_stream_is_not_there_yet_waits_for_it() -> None:
    with pytest.raises(UnknownStream, match="did you mean 'clicks'"):
        query(f"SELECT price FROM orders o JOIN clics c ON o.id = c.id AND {BOUND}")
