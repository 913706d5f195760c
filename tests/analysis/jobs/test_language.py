"""Each class of what the query language can say, run on Spark from Kafka to Kafka, against an
oracle in plain Python.
"""

from __future__ import annotations

import math
import random
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from edgewake.cloud.analysis.repair.preview import preview
from edgewake.protocol.clock import SystemClock
from tests.analysis.recordings import RECORDINGS, Recorded
from tests.analysis.support import (
    BOTH_STORES,
    T0,
    Analysis,
    Feed,
    catch_up,
    data_file,
    late_readings,
    registered,
    results,
    truth,
    unique,
)

MINUTE = 60_000
W = "window(event_time, '1 minute')"
Readings = Sequence[Mapping[str, Any]]
Oracle = Callable[[Readings], Any]


def fill(feed: Feed) -> None:
    """Three devices over five minutes, in frames of ten readings, some fields missing; texts of
    every kind.
    """
    rng = random.Random(5)
    streets = ["Main Street", "main", "Elm-Street-7", "Größe", "12.5", None]
    for i in range(60):
        times = [T0 + (i // 12) * MINUTE + rng.randrange(MINUTE) for _ in range(10)]
        feed.send(
            times,
            device=f"car-{i % 3}",
            received_at=T0 + 5 * MINUTE,
            speed=[rng.choice([None, 0.0, 55.5, round(rng.gauss(60, 25), 3)]) for _ in times],
            load=[round(rng.random(), 4) for _ in times],
            street=[rng.choice(streets) for _ in times],
            on=[rng.choice([True, False, None]) for _ in times],
        )


def of(name: str) -> Callable[[Readings], list[Any]]:
    return lambda readings: [r[name] for r in readings if name in r]


speeds, loads, streets, ons = of("speed"), of("load"), of("street"), of("on")


def pairs(readings: Readings) -> list[tuple[float, float]]:
    return [(r["speed"], r["load"]) for r in readings if "speed" in r]


def covariance(found: Sequence[tuple[float, float]]) -> float:
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*found, strict=True))
    return math.fsum((x - mean_x) * (y - mean_y) for x, y in found) / len(found)


def line(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and intercept of the line through pairs (y, x)."""
    y, x = zip(*found, strict=True)
    slope, intercept = statistics.linear_regression(x, y)
    return slope, intercept


def latest(readings: Readings, name: str) -> Any:
    return max(((r["t"], r[name]) for r in readings if name in r), default=(0, None))[1]


PLAIN: dict[str, Oracle] = {
    "count(*)": len,
    "count(speed)": lambda r: len(speeds(r)),
    "sum(CASE WHEN speed > 50 THEN 1 ELSE 0 END)": lambda r: sum(s > 50 for s in speeds(r)),
    "count_if(speed > 50)": lambda r: sum(s > 50 for s in speeds(r)),
    "count(*) FILTER (WHERE `on`)": lambda r: sum(ons(r)),
    "sum(speed) FILTER (WHERE `on` IS NOT TRUE)": lambda r: math.fsum(
        x["speed"] for x in r if "speed" in x and x.get("on") is not True
    ),
    "sum(speed * load) / count(*)": lambda r: math.fsum(s * x for s, x in pairs(r)) / len(r),
    "max(speed) - min(speed)": lambda r: max(speeds(r)) - min(speeds(r)),
    "round(avg(speed), 1)": lambda r: round(statistics.fmean(speeds(r)), 1),
    "avg(nullif(speed, 0))": lambda r: statistics.fmean(s for s in speeds(r) if s),
    "avg(if(speed > 0, speed, NULL))": lambda r: statistics.fmean(s for s in speeds(r) if s > 0),
    "max(cast(street AS double))": lambda r: 12.5 if "12.5" in streets(r) else None,
    "max(length(concat(street, '-', device)))": lambda r: max(len(s) for s in streets(r)) + 6,
    "count_if(street RLIKE '^[Mm]ain')": lambda r: sum(
        s.lower().startswith("main") for s in streets(r)
    ),
    "count_if(street ILIKE 'MAIN%' OR street LIKE '%-_')": lambda r: sum(
        s != "Größe" and s != "12.5" for s in streets(r)
    ),
    "count_if(street IN ('main', 'Größe') AND speed BETWEEN 10 AND 90)": lambda r: sum(
        x.get("street") in ("main", "Größe") and 10 <= x.get("speed", -1) <= 90 for x in r
    ),
    "avg(sin(radians(load)) + pow(load, 2))": lambda r: statistics.fmean(
        math.sin(math.radians(x)) + x**2 for x in loads(r)
    ),
    "max(coalesce(speed, -1)) * 2 + 1": lambda r: max(speeds(r)) * 2 + 1,
    "CASE WHEN avg(load) > 0.5 THEN 'high' ELSE 'low' END": lambda r: (
        "high" if statistics.fmean(loads(r)) > 0.5 else "low"
    ),
    "bool_or(`on`)": lambda r: any(ons(r)),
    "bool_and(`on`)": lambda r: all(ons(r)),
    "max(event_time)": lambda r: max(x["t"] for x in r),
    "count_if(second(event_time) < 30)": lambda r: sum(x["t"] % MINUTE < 30_000 for x in r),
    "max(hour(event_time))": lambda r: (
        datetime.fromtimestamp(T0 / 1000, ZoneInfo("Asia/Kolkata")).hour
    ),
    "concat(upper(device), '/', cast(count(*) AS string))": lambda r: (
        f"{r[0]['device'].upper()}/{len(r)}"
    ),
}
MORE: dict[str, Oracle] = {
    "stddev(speed)": lambda r: statistics.stdev(speeds(r)),
    "var_pop(load)": lambda r: statistics.pvariance(loads(r)),
    "stddev(speed + 1e9)": lambda r: statistics.stdev(speeds(r)),
    "corr(speed, load)": lambda r: (
        covariance(pairs(r))
        / math.sqrt(math.prod(statistics.pvariance(c) for c in zip(*pairs(r), strict=True)))
    ),
    "regr_slope(speed, load)": lambda r: line(pairs(r))[0],
    "regr_intercept(speed, load)": lambda r: line(pairs(r))[1],
    "covar_samp(speed, load)": lambda r: covariance(pairs(r)) * len(pairs(r)) / (len(pairs(r)) - 1),
    "last(speed)": lambda r: latest(r, "speed"),
    "last(street)": lambda r: latest(r, "street"),
    "first_value(`on`)": lambda r: min((x["t"], x["on"]) for x in r if "on" in x)[1],
    "max_by(street, speed)": lambda r: max(
        (x["speed"], x["street"]) for x in r if "speed" in x and "street" in x
    )[1],
    "min_by(speed, load)": lambda r: min((x["load"], x["speed"]) for x in r if "speed" in x)[1],
    "min_by(event_time, load)": lambda r: min((x["load"], x["t"]) for x in r)[1],
    "min(street)": lambda r: min(streets(r)),
    "count(DISTINCT street)": lambda r: len(set(streets(r))),
    "count(DISTINCT speed) FILTER (WHERE `on`)": lambda r: len(
        {x["speed"] for x in r if "speed" in x and x.get("on")}
    ),
    "approx_percentile(speed, array(0, 1))": lambda r: [min(speeds(r)), max(speeds(r))],
    "median(speed)": lambda r: sorted(speeds(r))[(len(speeds(r)) - 1) // 2],
    "mode(street)": lambda r: most_frequent(streets(r)),
    "mode(floor(speed / 10))": lambda r: most_frequent([s // 10 for s in speeds(r)]),
    "mode(`on`)": lambda r: most_frequent([x["on"] for x in r if "on" in x]),
    "mode(date_trunc('minute', event_time))": lambda r: most_frequent(
        [x["t"] - x["t"] % MINUTE for x in r]
    ),
    "upper(mode(street) FILTER (WHERE speed < 0))": lambda _: None,
}


def most_frequent(values: Sequence[Any]) -> Any:
    """The smallest of those that occur most often."""
    counts = Counter(values)
    return min(value for value, count in counts.items() if count == max(counts.values()))


def by_window(
    readings: Readings, size_ms: int = MINUTE
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for reading in readings:
        found.setdefault((reading["t"] - reading["t"] % size_ms, reading["device"]), []).append(
            reading
        )
    return found


def near(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, int | float):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)
    return bool(found == expected)


@pytest.mark.parametrize(
    "oracles",
    [
        pytest.param(PLAIN, id="numbers"),
        pytest.param(MORE, id="moments, extremes, sketches", marks=pytest.mark.long),
    ],
)
def test_every_aggregate_and_function_gives_what_python_gives(
    analysis: Analysis, feed: Feed, oracles: Mapping[str, Oracle]
) -> None:
    fill(feed)
    select = ", ".join(f"{text} AS c{i}" for i, text in enumerate(oracles))
    name = unique("q")
    text = (
        f"-- name: {name}\n-- zone: Asia/Kolkata\nSELECT device, {select} FROM {feed.name} v "
        f"GROUP BY {W}, v.device"
    )
    analysis.run(registered(text, streams=[feed.stream]), feed)

    rows = truth(results(feed.config, name), "device")
    groups = by_window(feed.sent)
    assert rows.keys() == groups.keys()
    assert len(rows) == 15
    wrong = [
        (place, text, row[f"c{i}"], oracle(groups[place]))
        for place, row in rows.items()
        for i, (text, oracle) in enumerate(oracles.items())
        if not near(row[f"c{i}"], oracle(groups[place]))
    ]
    assert wrong == []


@pytest.mark.long
def test_keys_may_be_any_expressions(analysis: Analysis, feed: Feed) -> None:
    fill(feed)
    name = unique("q")
    text = (
        f"-- name: {name}\nWITH fast AS (SELECT * FROM {feed.name} WHERE speed > 50)\n"
        "SELECT substring(f.device, 1, 3) AS fleet, floor(speed / 10), minute(event_time) % 2 AS "
        "odd, count(*) FROM fast f\n"
        f"WHERE load < 0.5 GROUP BY window(event_time, '5 minutes'), 1, 2, odd"
    )
    analysis.run(registered(text, streams=[feed.stream]), feed)
    expected: dict[tuple[Any, ...], int] = {}
    for r in feed.sent:
        if r.get("speed", 0) > 50 and r["load"] < 0.5:
            start = r["t"] - r["t"] % (5 * MINUTE)
            place = (start, "car", r["speed"] // 10, r["t"] // MINUTE % 2)
            expected[place] = expected.get(place, 0) + 1
    rows = truth(results(feed.config, name), "fleet", "floor_speed_10", "odd")
    assert {place: row["count"] for place, row in rows.items()} == expected


def local_day(t: int, zone: str, unit: str) -> tuple[int, int]:
    at = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=t)).astimezone(ZoneInfo(zone))
    day = at.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    begin = {"day": day, "week": day - timedelta(days=day.weekday()), "month": day.replace(day=1)}[
        unit
    ]
    end = {
        "day": begin + timedelta(days=1),
        "week": begin + timedelta(days=7),
        "month": (begin + timedelta(days=32)).replace(day=1),
    }[unit]
    return int(begin.timestamp() * 1000), int(end.timestamp() * 1000)


def test_windows_of_the_calendar_follow_their_zone(analysis: Analysis, feed: Feed) -> None:
    """Over both changes of the clocks of a year, and a leap day."""
    rng = random.Random(3)
    days = [
        datetime(2027, 3, 27, tzinfo=UTC),
        datetime(2027, 10, 30, tzinfo=UTC),
        datetime(2028, 2, 28, tzinfo=UTC),
    ]
    times = sorted(
        int(day.timestamp() * 1000) + rng.randrange(4 * 86_400_000)
        for day in days
        for _ in range(200)
    )
    for at in range(0, len(times), 50):
        feed.send(times[at : at + 50], received_at=times[-1], speed=[1.0] * 50)
    zones = ("Europe/Berlin", "America/New_York", "Asia/Kolkata")
    names = {(unit, zone): unique("q") for unit in ("day", "week", "month") for zone in zones}
    texts = [
        f"-- name: {name}\n-- zone: {zone}\nSELECT count(*) AS n FROM {feed.name} GROUP BY "
        f"date_trunc('{unit}', event_time)"
        for (unit, zone), name in names.items()
    ]
    analysis.run(registered(*texts, streams=[feed.stream]), feed)
    for (unit, zone), name in names.items():
        expected: dict[tuple[int, int], int] = {}
        for t in times:
            place = local_day(t, zone, unit)
            expected[place] = expected.get(place, 0) + 1
        rows = truth(results(feed.config, name))
        assert {
            (row["window_start"], row["window_end"]): row["n"] for row in rows.values()
        } == expected, (unit, zone)
    lengths = {
        row["window_end"] - row["window_start"]
        for row in truth(results(feed.config, names["day", "Europe/Berlin"])).values()
    }
    assert lengths == {23 * 3_600_000, 24 * 3_600_000, 25 * 3_600_000}


@pytest.mark.long
def test_windows_may_hop_by_any_step_begin_elsewhere_and_count_the_time_at_the_bridge(
    analysis: Analysis, feed: Feed
) -> None:
    fill(feed)
    odd, offset, received = unique("q"), unique("q"), unique("q")
    groups = {
        odd: "window(event_time, '1 minute', '7 seconds')",
        offset: "window(event_time, '1 minute', '1 minute', '17 seconds')",
        received: "window(received_at, '100 milliseconds')",
    }
    texts = [
        f"-- name: {name}\nSELECT count(*) AS n FROM {feed.name} GROUP BY {group}"
        for name, group in groups.items()
    ]
    analysis.run(registered(*texts, streams=[feed.stream]), feed)

    def counted(size_ms: int, slide_ms: int, offset_ms: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for start in range(
            (T0 - size_ms) // slide_ms * slide_ms + offset_ms, T0 + 6 * MINUTE, slide_ms
        ):
            n = sum(start <= r["t"] < start + size_ms for r in feed.sent)
            found |= {start: n} if n else {}
        return found

    def told(name: str) -> dict[int, int]:
        return {row["window_start"]: row["n"] for row in truth(results(feed.config, name)).values()}

    assert told(odd) == counted(MINUTE, 7_000, 0)
    assert told(offset) == counted(MINUTE, MINUTE, 17_000)
    assert told(received) == {T0 + 5 * MINUTE: len(feed.sent)}


@pytest.mark.long
@BOTH_STORES
def test_having_withdraws_what_it_let_through_before(analysis: Analysis, feed: Feed) -> None:
    name = unique("q")
    text = (
        f"-- name: {name}\nSELECT device, avg(speed) AS mean FROM {feed.name} GROUP BY {W}, "
        "device HAVING mean > 50 AND count(*) >= 2"
    )
    queries = registered(text, streams=[feed.stream])
    feed.send([T0, T0 + 1], device="fast", speed=[60.0, 80.0])
    feed.send([T0, T0 + 1], device="slow", speed=[10.0, 20.0])
    feed.send([T0], device="once", speed=[90.0])
    analysis.run(queries, feed)
    assert [(row["device"], row["mean"]) for row in results(feed.config, name)] == [("fast", 70.0)]

    feed.send([T0 + 2], device="fast", speed=[-110.0])
    feed.send([T0 + 2], device="once", speed=[30.0])
    analysis.run(queries, feed)  # another lane: it must withdraw what it does not remember
    rows = truth(results(feed.config, name), "device")
    assert {
        place[1]: row.get("mean") for place, row in rows.items() if not row.get("withdrawn")
    } == {"once": 60.0}
    assert rows[T0, "fast"]["withdrawn"] is True


def test_limit_gives_the_first_rows_of_each_window(analysis: Analysis, feed: Feed) -> None:
    name = unique("q")
    text = (
        f"-- name: {name}\nSELECT device, sum(speed) AS way FROM {feed.name} GROUP BY {W}, device"
        " HAVING count(*) > 0 ORDER BY way DESC, device LIMIT 2"
    )
    queries = registered(text, streams=[feed.stream])

    def first() -> dict[int, list[str]]:
        rows = truth(results(feed.config, name), "device").values()
        left = sorted(
            (-row["way"], row["device"], row["window_start"])
            for row in rows
            if not row.get("withdrawn")
        )
        return {
            start: [device for _, device, at in left if at == start] for start in (T0, T0 + MINUTE)
        }

    lane = analysis.lane(queries, [feed.stream])
    lane.start()
    try:
        for i, (device, way) in enumerate([("a", 5.0), ("b", 3.0), ("c", 4.0), ("d", 4.0)]):
            feed.send([T0 + i, T0 + MINUTE + i], device=device, speed=[way, -way])
        catch_up(lane, feed)
        assert first() == {T0: ["a", "c"], T0 + MINUTE: ["b", "c"]}
        feed.send([T0 + 10], device="a", speed=[-4.0])
        catch_up(lane, feed)
        assert first() == {T0: ["c", "d"], T0 + MINUTE: ["b", "c"]}
        feed.send([T0 + 11], device="b", speed=[9.0])
        catch_up(lane, feed)
        assert first() == {T0: ["b", "c"], T0 + MINUTE: ["b", "c"]}
    finally:
        lane.stop()
    assert all(row.get("complete", True) for row in results(feed.config, name))


def test_a_query_without_aggregates_gives_each_reading_that_passes_once(
    analysis: Analysis, feed: Feed
) -> None:
    fast, all_of = unique("q"), unique("q")
    texts = [
        f"-- name: {fast}\nSELECT v.device, speed, upper(street) AS street, hour(event_time) FROM "
        f"{feed.name} v WHERE speed > 50 AND `on`",
        f"-- name: {all_of}\nSELECT round(load * 2, 3) AS twice FROM {feed.name}",
    ]
    queries = registered(*texts, streams=[feed.stream])
    fill(feed)
    analysis.run(queries, feed)
    feed.send([T0 - 86_400_000], device="late", speed=[99.0], street=['a"b'], on=[True])
    feed.send([T0, T0], device="twins", speed=[51.0, 51.0], on=[True, True])
    analysis.run(queries, feed)

    rows = [
        (row["window_start"], row["device"], row["speed"], row["street"], row["hour_event_time"])
        for row in results(feed.config, fast)
    ]
    expected = [
        (
            r["t"],
            r["device"],
            r["speed"],
            r["street"].upper() if "street" in r else None,
            float(r["t"] // 3_600_000 % 24),
        )
        for r in feed.sent
        if r.get("speed", 0) > 50 and r.get("on")
    ]
    assert sorted(map(str, rows)) == sorted(map(str, expected))
    assert len({(row["device"], row["reading"]) for row in results(feed.config, all_of)}) == len(
        feed.sent
    )
    assert all(
        row["final"] and row["window_end"] == row["window_start"] + 1
        for row in results(feed.config, all_of)
    )
    assert sorted(row["twice"] or 0 for row in results(feed.config, all_of)) == sorted(
        round(r.get("load", 0) * 2, 3) for r in feed.sent
    )


def test_a_preview_gives_what_a_registered_query_gives_and_writes_nothing(
    analysis: Analysis, feed: Feed
) -> None:
    fill(feed)
    feed.flush()
    name = unique("q")
    text = (
        f"-- name: {name}\nSELECT device, count(*) AS n, stddev(speed) AS sd FROM {feed.name} "
        f"GROUP BY {W}, device HAVING n > 5"
    )
    kafka, now_ms = analysis.config.kafka, SystemClock().now_ms()
    found = list(
        preview(
            analysis.session,
            kafka,
            text,
            {feed.name: feed.stream},
            since_ms=now_ms - 600_000,
            now_ms=now_ms,
        )
    )
    assert results(feed.config, name) == []
    assert {row.pop("complete") for row in found} == {False}, (
        "its windows are of a time long before"
    )

    queries = registered(text, streams=[feed.stream])
    analysis.run(queries, feed)
    told = truth(results(feed.config, name), "device")
    values = ("n", "sd", "window_start", "window_end")
    assert {place: [row[v] for v in values] for place, row in truth(found, "device").items()} == {
        place: [row[v] for v in values] for place, row in told.items()
    }
    assert (
        list(
            preview(
                analysis.session,
                kafka,
                text,
                {feed.name: feed.stream},
                since_ms=now_ms + 600_000,
                now_ms=now_ms,
            )
        )
        == []
    )


@BOTH_STORES
def test_without_a_window_a_row_holds_everything_however_late_it_comes(
    analysis: Analysis, feed: Feed
) -> None:
    """Totals and last values by device and of all, over a restart of the lane; another query's
    windows close meanwhile.
    """
    fill(feed)
    last, total, windows = unique("last"), unique("total"), unique("windows")
    texts = (
        f"-- name: {last}\nSELECT device, count(*) AS n, sum(load) AS sum, last(speed) AS last "
        f"FROM {feed.name} GROUP BY device",
        f"-- name: {total}\nSELECT count(*) AS n, max(load) AS high FROM {feed.name}",
        f"-- name: {windows}\n-- lateness: 0 seconds\nSELECT max_by(load, speed) AS n FROM "
        f"{feed.name} GROUP BY {W}",
    )
    queries = registered(*texts, streams=[feed.stream])
    sketches, plain = [queries[0], queries[2]], [queries[1]]
    for late in (0, 3 * MINUTE):
        feed.send(
            [T0 + 30 * MINUTE - late, T0 + 1],
            device="car-1",
            received_at=T0 + 30 * MINUTE,
            speed=[9.5, 1.5],
            load=[0.5, 0.25],
        )
        for some in (sketches, plain):
            analysis.run(some, feed)
    devices = {
        device: [r for r in feed.sent if r["device"] == device]
        for device in ("car-0", "car-1", "car-2")
    }
    rows = truth(results(feed.config, last), "device")
    assert rows.keys() == {(0, device) for device in devices}
    for (_, device), row in rows.items():
        assert row["n"] == len(devices[device])
        assert math.isclose(row["sum"], math.fsum(loads(devices[device])))
        assert row["last"] == latest(devices[device], "speed")
        assert (row["final"], row["window_end"]) == (False, 253_402_300_800_000)
    (row,) = truth(results(feed.config, total)).values()
    assert (row["n"], row["high"]) == (len(feed.sent), max(loads(feed.sent)))
    assert late_readings(feed.config, last) == []
    assert late_readings(feed.config, windows), "the control has late readings"


def sessions_of(readings: Readings, gap_ms: int) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """(start, device) → readings: the oracle."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for device in {r["device"] for r in readings}:
        place: tuple[Any, ...] = ()
        before = -gap_ms
        for r in sorted((r for r in readings if r["device"] == device), key=itemgetter("t")):
            if r["t"] - before >= gap_ms:
                place = (r["t"], device)
            before = r["t"]
            found.setdefault(place, []).append(r)
    return found


def by_count(
    readings: Readings, count: int, step: int
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """(number, device) → readings in the order of the log: the oracle."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for device in {r["device"] for r in readings}:
        own = [r for r in readings if r["device"] == device]
        found |= {
            (number, device): own[begin : begin + count]
            for number, begin in enumerate(range(0, len(own), step))
        }
    return found


def assert_numbers(
    rows: Mapping[tuple[Any, ...], Mapping[str, Any]], expected: Mapping[tuple[Any, ...], Readings]
) -> None:
    assert rows.keys() == expected.keys()
    for place, part in expected.items():
        row, values = rows[place], speeds(part)
        assert (row["n"], row["low"], row["high"]) == (
            len(part),
            min(values, default=None),
            max(values, default=None),
        ), place
        assert near(row["mean"], statistics.fmean(values) if values else None), place
        first = min(
            ((r["t"], r["speed"]) for r in part if r.get("speed") is not None), default=(0, None)
        )
        assert near(row["begin"], first[1]), place
        assert row["speeds"] == len(set(values)), place
        assert row["fastest"] == (part[0]["device"] if values else None), place
        assert near(row["spread"], statistics.pstdev(values) if values else None), place


@pytest.mark.long
def test_sessions_and_windows_by_count_of_recorded_runs_over_restarts_and_a_lost_checkpoint(
    analysis: Analysis, feed: Feed
) -> None:
    """Runners with a pulse belt, in frames that come out of order; each restart goes on from what
    stands on ew.windows.
    """
    runs = recorded_runs() if data_file("running_gps_hr").exists() else made_up()
    select = "device, count(*) AS n, avg(speed) AS mean, min(speed) AS low, max(speed) AS high"
    select += (
        ", stddev_pop(speed) AS spread, first(speed) AS begin, max_by(device, speed) AS fastest, "
        "count(DISTINCT speed) AS speeds"
    )
    groups = {
        unique("sessions"): "session_window(event_time, '15 seconds')",
        unique("tumbling"): "count_window(50)",
        unique("sliding"): "count_window(30, 7)",
    }
    session, tumbling, sliding = groups
    texts = [
        f"-- name: {name}\n-- lateness: 1 day\n-- reopen: 8 days\nSELECT {select} FROM "
        f"{feed.name} GROUP BY {group}, device"
        for name, group in groups.items()
    ]
    queries = registered(*texts, streams=[feed.stream])
    frames = [runs[i : i + 20] for i in range(0, len(runs), 20)]
    random.Random(4).shuffle(frames)
    end = max(r.t for r in runs)
    for turn in range(3):
        for frame in frames[turn::3]:
            for device in sorted({r.device for r in frame}):
                own = [r for r in frame if r.device == device]
                feed.send(
                    [r.t for r in own],
                    device=device,
                    received_at=end,
                    speed=[r.values.get("speed") for r in own],
                )
        if turn == 2:
            shutil.rmtree(analysis.config.data_dir / "checkpoints")
        analysis.with_config(batch_records_max=20).run(queries, feed)

    told = results(feed.config, session)
    rows = {place: row for place, row in truth(told, "device").items() if not row.get("withdrawn")}
    late = sum(one["readings"] for one in late_readings(feed.config, session))
    expected = sessions_of(feed.sent, 15_000)
    assert (len(rows) > 20, late) == (True, 0)
    assert any(row.get("withdrawn") for row in told), "sessions were joined"
    assert_numbers(rows, expected)
    ends = {place: max(r["t"] for r in part) + 15_000 for place, part in expected.items()}
    assert {place: row["window_end"] for place, row in rows.items()} == ends
    for name, count, step in ((tumbling, 50, 50), (sliding, 30, 7)):
        latest_rows = {
            (row["window_number"], row["device"]): row
            for row in sorted(results(feed.config, name), key=itemgetter("revision"))
        }
        expected = by_count(feed.sent, count, step)
        assert_numbers(latest_rows, expected)
        assert all(
            row["final"] is (len(expected[place]) == count) for place, row in latest_rows.items()
        )


def recorded_runs() -> list[Recorded]:
    """Those of the first eight days: so long a session takes late readings here."""
    (runs,) = [one.readings(4000) for one in RECORDINGS if one.name == "running_gps_hr"]
    begin = min(r.t for r in runs)
    return [r for r in runs if r.t < begin + 8 * 86_400_000]


def made_up() -> list[Recorded]:
    """Where no recordings are: runs of two devices with pauses."""
    rng = random.Random(8)
    return [
        Recorded(f"d{i % 2}", T0 + i * 5_000 + (i // 100) * 5 * MINUTE, {"speed": rng.random()})
        for i in range(1500)
    ]


@pytest.mark.long
def test_what_is_too_late_for_a_session_is_late_and_told(analysis: Analysis, feed: Feed) -> None:
    name = unique("q")
    group = "session_window(event_time, '1 minute'), device"
    text = (
        f"-- name: {name}\n-- lateness: 0 seconds\nSELECT device, count(*) AS n FROM {feed.name} "
        f"GROUP BY {group}"
    )
    queries = registered(text, streams=[feed.stream])
    with analysis.running(queries, feed) as lane:
        feed.send([T0, T0 + 30_000], device="a", speed=[1.0, 1.0])
        feed.send([T0 + 10 * MINUTE], device="b", received_at=T0 + 10 * MINUTE, speed=[1.0])
        catch_up(lane, feed)
        feed.send([T0 + 40_000], device="a", received_at=T0 + 10 * MINUTE, speed=[1.0])
        catch_up(lane, feed)
    rows = truth(results(feed.config, name), "device")
    assert {place: row["n"] for place, row in rows.items()} == {
        (T0, "a"): 2,
        (T0 + 10 * MINUTE, "b"): 1,
    }
    assert sum(one["readings"] for one in late_readings(feed.config, name)) == 1
