"""Every built-in query, and every window that a query may have, over eleven recorded sets: what
DuckDB says of the files, to the last row.

The sets are moved in time so that each begins at T0, and their devices stand beside one another in
one stream; what is a speed to a query is a pressure in one set and a price of power in another. No
code of ours is in the oracle: it is SQL over a table of what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from edgewake.cloud.queries.lane_kind import kind_of
from edgewake.cloud.queries.query import Registered
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.recordings import RECORDINGS
from tests.analysis.support import T0, Analysis, Feed, data_file, registered, results, unique

MOST: Final = 60
"""Readings of a set."""
HERE: Final = Path(__file__).parents[2]
NewFeed = Callable[[Mapping[str, FieldType]], Feed]
NUMBERS: Final = (
    *(
        "speed_kmh",
        "cpu_percent",
        "memory_percent",
        "disk_percent",
        "load_1m",
        "net_sent_bytes_s",
        "net_recv_bytes_s",
        "process_count",
    ),
)
"""Fields that built-in queries read; each is the first or the second number of a recorded
reading."""
METRICS: Final = NUMBERS[1:4]


def tumbling(
    select: str,
    size: int,
    keys: str = "device",
    where: str = "true",
    *,
    time: str = "t",
    source: str = "r",
) -> str:
    """Windows one after the other."""
    return (
        f"SELECT {time} // {size} * {size} AS window_start, {keys + ', ' if keys else ''}{select} "
        f"FROM {source} WHERE {where} GROUP BY ALL"
    )


def hopping(select: str, size: int, slide: int) -> str:
    """Windows that overlap."""
    return (
        f"SELECT (t // {slide} - h) * {slide} AS window_start, device, {select} FROM r, "
        f"range({size // slide}) AS hops(h)"
        f" WHERE (t // {slide} - h) * {slide} + {size} > t GROUP BY ALL"
    )


def unpivoted(fields: tuple[str, ...]) -> str:
    """Fields as rows."""
    values = ", ".join(fields)
    return (
        f"(SELECT t, device, unnest({list(fields)}) AS metric, unnest([{values}]) AS value FROM "
        "r) WHERE value IS NOT NULL"
    )


def metrics(fields: tuple[str, ...], size: int) -> str:
    """What the built-in queries of machines ask."""
    select = "count(value) AS readings, avg(value) AS mean, min(value) AS min, max(value) AS max"
    return (
        f"SELECT t // {size} * {size} AS window_start, device, metric, {select} FROM "
        f"{unpivoted(fields)} GROUP BY ALL"
    )


def islands(begins: str, having: str = "true", *, time: str = "t", order: str = "place") -> str:
    """Readings of a device from one that `begins` (SQL; of the one before there are `past_t` and
    `past_speed`) to the next such.
    """
    past = (
        f"lag({time}) OVER w AS past_t, lag(speed_kmh) OVER w AS past_speed FROM r WINDOW w AS "
        f"(PARTITION BY device ORDER BY {order})"
    )
    numbered = f"SELECT *, CASE WHEN {begins} THEN 1 ELSE 0 END AS b FROM (SELECT *, {past})"
    of_island = (
        f"SELECT *, sum(b) OVER (PARTITION BY device ORDER BY {order}) AS island FROM ({numbered})"
    )
    select = f"min({time}) AS window_start, device, count(*) AS n, max(speed_kmh) AS top"
    return f"SELECT {select} FROM ({of_island}) GROUP BY device, island HAVING {having}"


def counted(size: int, step: int) -> str:
    """The last so many readings of a device, with every so many."""
    return (
        "SELECT device, w AS window_number, count(*) AS n, sum(speed_kmh) AS total"
        " FROM (SELECT *, row_number() OVER (PARTITION BY device ORDER BY place) - 1 AS i FROM "
        "r), range(1000) AS windows(w)"
        f" WHERE i >= w * {step} AND i < w * {step} + {size} GROUP BY ALL"
    )


WINDOWS: Final = {
    "tumbling": (
        "SELECT device, count(*) AS n, sum(speed_kmh) AS total FROM s GROUP BY window(event_time, "
        "'1 hour'), device",
        tumbling("count(*) AS n, sum(speed_kmh) AS total", 3_600_000),
    ),
    "hopping": (
        "SELECT device, max(speed_kmh) AS top FROM s GROUP BY window(event_time, '1 hour', '20 "
        "minutes'), device",
        hopping("max(speed_kmh) AS top", 3_600_000, 1_200_000),
    ),
    "of receipt": (
        "SELECT device, count(*) AS n FROM s GROUP BY window(received_at, '6 hours'), device",
        tumbling("count(*) AS n", 21_600_000, time="received_at"),
    ),
    "of sending": (
        "SELECT device, count(*) AS n, max(speed_kmh) AS top FROM s GROUP BY window(sent_at, '10 "
        "seconds'), device",
        tumbling("count(*) AS n, max(speed_kmh) AS top", 10_000, time="sent_at"),
    ),
    "sessions of sending": (
        "SELECT device, count(*) AS n, max(speed_kmh) AS top FROM s GROUP BY "
        "session_window(sent_at, '2 hours'), device",
        islands(
            "past_t IS NULL OR sent_at - past_t >= 7200000", time="sent_at", order="sent_at, place"
        ),
    ),
    "of the calendar": (
        "SELECT device, count(*) AS n, avg(speed_kmh) AS mean FROM s GROUP BY date_trunc('month', "
        "event_time), device",
        "SELECT epoch_ms(date_trunc('month', make_timestamp(t * 1000))::TIMESTAMP) AS "
        "window_start, device, count(*) AS n,"
        " avg(speed_kmh) AS mean FROM r GROUP BY ALL",
    ),
    "session": (
        "SELECT device, count(*) AS n, max(speed_kmh) AS top FROM s GROUP BY "
        "session_window(event_time, '2 hours'), device",
        islands("past_t IS NULL OR t - past_t >= 7200000"),
    ),
    "by count": (
        "SELECT device, count(*) AS n, sum(speed_kmh) AS total FROM s GROUP BY count_window(10), "
        "device",
        counted(10, 10),
    ),
    "sliding by count": (
        "SELECT device, count(*) AS n, sum(speed_kmh) AS total FROM s GROUP BY count_window(12, "
        "4), device",
        counted(12, 4),
    ),
    "last value": (
        "SELECT device, last(speed_kmh) AS latest, count(*) AS n FROM s GROUP BY device",
        "SELECT device, max_by(speed_kmh, (t, speed_kmh)) AS latest, count(*) AS n FROM r GROUP "
        "BY ALL",
    ),
    "of a threshold": (
        "SELECT device, count(*) AS n, max(speed_kmh) AS top FROM s GROUP BY "
        "threshold_window(speed_kmh > 20), device",
        islands("(speed_kmh > 20) IS DISTINCT FROM (past_speed > 20)", "bool_and(speed_kmh > 20)"),
    ),
    "rows": (
        "SELECT device, speed_kmh FROM s WHERE speed_kmh > 20",
        "SELECT t AS window_start, device, speed_kmh FROM r WHERE speed_kmh > 20",
    ),
}
"""Query over the stream `s` → what DuckDB says of it."""
BUILT_IN: Final = {
    "host_10s": metrics(METRICS, 10_000),
    "host_minute": metrics(NUMBERS[1:], 60_000),
    "host_sliding": hopping(
        "count(*) AS readings, avg(cpu_percent) AS cpu_mean, max(cpu_percent) AS cpu_max, "
        "avg(memory_percent) AS memory_mean",
        60_000,
        10_000,
    ),
    "vehicles_10s": tumbling(
        "count(speed_kmh) AS readings, avg(speed_kmh) AS mean, min(speed_kmh) AS min, "
        "max(speed_kmh) AS max",
        10_000,
    ),
    "vehicles_distinct": tumbling(
        "count(DISTINCT device) AS vehicles, count(*) AS readings", 60_000, keys=""
    ),
    "speed_quantiles": tumbling(
        "count(speed_kmh) AS readings, list(speed_kmh) AS speeds", 60_000, keys=""
    ),
    "top_streets": (
        "SELECT window_start, list({'item': street, 'count': n} ORDER BY n DESC) AS streets FROM "
        "(SELECT t // 60000 * 60000 AS window_start, street, count(*) AS n FROM r GROUP BY ALL) "
        "GROUP BY ALL"
    ),
    "fast_vehicles": tumbling(
        "count(*) AS times, max(speed_kmh) AS fastest", 10_000, where="speed_kmh > 50"
    ),
}
SHORT: Final = ("hopping", "of sending", "session", "by count")
"""Kinds of windows that `make test` asks for."""
FILES: Final = (
    *sorted((HERE / "cloud/queries/built_in").glob("*.sql")),
    HERE / "deploy/examples/fast_vehicles.sql",
)


def test_no_built_in_query_is_left_out() -> None:
    assert {path.stem for path in FILES} == BUILT_IN.keys()


def send_sets(feed: Feed) -> None:
    """All sets, in the order of their times, each from T0 on."""
    found: list[tuple[int, str, list[float]]] = []
    devices: set[str] = set()
    for recording in RECORDINGS:
        readings = recording.readings(MOST)
        begin = min(one.t for one in readings)
        of_place: dict[tuple[int, str], list[float]] = {}
        for one in readings:
            values = [one.values[name] for name in recording.fields if name in one.values]
            if values:
                of_place[T0 + one.t - begin, f"{recording.name}.{one.device}"[:60]] = values
        found += [(t, device, values) for (t, device), values in of_place.items()]
    for t, device, values in sorted(found):
        columns: dict[str, list[Any]] = {
            name: [values[i % len(values)]] for i, name in enumerate(NUMBERS)
        }
        sent_at, received_at = way(t, len(feed.sent), is_first=device not in devices)
        devices.add(device)
        street = [f"{device.partition('.')[0]} {round(values[0]) % 7}"]
        feed.send(
            [t],
            device=device,
            partition=0,
            sent_at=sent_at,
            received_at=received_at,
            street=street,
            **columns,
        )
        feed.sent[-1] |= {
            "received_at": received_at,
            "sent_at": received_at if sent_at is None else sent_at,
        }


def way(t: int, number: int, *, is_first: bool) -> tuple[int | None, int]:
    """When a reading of that time is sent and received: up to two hours later, and of each seventh
    no device says when it was sent.

    It is under way for less than from where on a clock counts as wrong.
    """
    if is_first:
        return t, t
    waits, is_under_way = number * 7_919_000 % 7_200_000, number * 104_729 % 9_000
    return (None if number % 7 == 0 else t + waits), t + waits + is_under_way


def told_by(feed: Feed) -> duckdb.DuckDBPyConnection:
    """What was sent, as a table in the order of the log."""
    db = duckdb.connect()
    numbers = ", ".join(f"{name} DOUBLE" for name in NUMBERS)
    db.execute(
        "CREATE TABLE r (place BIGINT, device VARCHAR, t BIGINT, received_at BIGINT, sent_at "
        f"BIGINT, street VARCHAR, {numbers})"
    )
    columns = ("device", "t", "received_at", "sent_at", "street", *NUMBERS)
    rows = [[place, *(one.get(name) for name in columns)] for place, one in enumerate(feed.sent)]
    db.executemany(f"INSERT INTO r VALUES ({', '.join('?' * (len(columns) + 1))})", rows)
    return db


def compared(
    db: duckdb.DuckDBPyConnection, oracle: str, rows: list[dict[str, Any]], keys: tuple[str, ...]
) -> None:
    """Are the latest revisions the oracle's rows, none missing and none besides?"""
    cursor = db.execute(oracle)
    names = [column[0] for column in cursor.description]
    same = tuple(name for name in (*keys, "window_start") if name in names)
    expected = {
        tuple(row[name] for name in same): row
        for row in (dict(zip(names, one, strict=True)) for one in cursor.fetchall())
    }
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        place = tuple(row[name] for name in same)
        if place not in found or row["revision"] >= found[place]["revision"]:
            found[place] = row
    found = {place: row for place, row in found.items() if not row.get("withdrawn")}
    assert len(expected) > 10
    assert found.keys() == expected.keys()
    for place, row in expected.items():
        for name, value in row.items():
            if isinstance(value, float):
                assert found[place][name] == pytest.approx(value, rel=1e-12, abs=1e-9), (
                    place,
                    name,
                )
            elif name == "streets":
                assert [one["count"] for one in found[place][name]] == [
                    one["count"] for one in value[:5]
                ], place
            elif name == "speeds":
                for rank in (50, 90, 99):
                    quantile, slack = found[place][f"p{rank}"], 1 / len(value) + 0.0133
                    below, most = (
                        sum(test) / len(value)
                        for test in zip(
                            *[(one < quantile, one <= quantile) for one in value], strict=True
                        )
                    )
                    assert below - slack <= rank / 100 <= most + slack, (place, rank)
            else:
                assert found[place][name] == value, (place, name)


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(tuple(WINDOWS), id="all", marks=pytest.mark.long),
    ],
)
def test_built_in_queries_and_window_kinds_over_eleven_recorded_sets_match_duckdb(
    analysis: Analysis, new_feed: NewFeed, kinds: tuple[str, ...]
) -> None:
    if not data_file("liverpool_bus").exists():
        pytest.skip("no recorded data at ../shared/data")
    feed = new_feed(dict.fromkeys(NUMBERS, FieldType.NUMBER) | {"street": FieldType.STRING})
    texts: dict[str, tuple[str, str]] = {}
    for path in FILES:
        text = (
            path.read_text("utf-8")
            .replace("FROM host_metrics", f"FROM {feed.name}")
            .replace("FROM vehicle_position", f"FROM {feed.name}")
        )
        lines = [line for line in text.splitlines() if not line.startswith("-- lateness")]
        texts[path.stem] = (
            "\n".join(["-- lateness: 1 day", "-- reopen: 8 days", *lines]),
            BUILT_IN[path.stem],
        )
    for kind in kinds:
        text, oracle = WINDOWS[kind]
        name = "w_" + kind.replace(" ", "_")
        texts[name] = (
            f"-- name: {name}\n-- lateness: 1 day\n-- reopen: 8 "
            f"days\n{text.replace('FROM s ', f'FROM {feed.name} ')}",
            oracle,
        )
    names = {name: unique("q") for name in texts}
    files = [
        text.replace(f"-- name: {name}\n", f"-- name: {names[name]}\n")
        for name, (text, _) in texts.items()
    ]
    queries = dict(zip(texts, registered(*files, streams=[feed.stream]), strict=True))
    lanes: dict[Any, list[Registered]] = {}
    for one in queries.values():
        lanes.setdefault(kind_of(one.query), []).append(one)
    send_sets(feed)
    feed.flush()
    for of_lane in lanes.values():
        analysis.run(of_lane, feed)
    db = told_by(feed)
    for name, one in queries.items():
        rows = results(feed.config, one.query.name)
        compared(db, texts[name][1], rows, one.query.key_names)
        fewer = [
            row
            for row in rows
            if (row["window_start"], row.get("device"))
            != (rows[0]["window_start"], rows[0].get("device"))
        ]
        with pytest.raises(AssertionError):
            # The control: one row is missing.
            compared(db, texts[name][1], fewer, one.query.key_names)
