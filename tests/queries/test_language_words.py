"""What a user of SQL tries first: 64 queries, each read as it is meant, or refused with a sentence
that says what to write instead.
"""

from __future__ import annotations

import pytest

from edgewake.cloud.queries.query_file import parse
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream

N, T, B = (FieldInfo(type=kind) for kind in (FieldType.NUMBER, FieldType.STRING, FieldType.BOOLEAN))
STREAMS = {
    "vehicle_position": Stream(
        name="vehicle_position",
        fields={
            **dict.fromkeys(("lat", "lon", "speed_kmh", "heading_deg", "battery_percent"), N),
            **dict.fromkeys(("street", "error_code", "ts_text"), T),
            "charging": B,
        },
    ),
    "host_metrics": Stream(
        name="host_metrics",
        fields=dict.fromkeys(("cpu_percent", "memory_percent", "disk_percent", "load_1m"), N),
    ),
    "orders": Stream(
        name="orders", fields={"order_id": T, "price": N, "qty": N, "sku": T, "customer": T}
    ),
    "clicks": Stream(name="clicks", fields=dict.fromkeys(("order_id", "url", "ua"), T)),
}
V = "FROM vehicle_position"
H = "FROM host_metrics"
W = "GROUP BY window(event_time, '1 minute')"

READ = {
    "filter and projection alone": f"SELECT device, speed_kmh {V} WHERE speed_kmh > 120",
    "latest value of a key": f"SELECT device, last(speed_kmh) AS v {V} {W}, device",
    "max_by": f"SELECT max_by(street, speed_kmh) AS where_fast {V} {W}",
    "first_value": f"SELECT device, first_value(battery_percent) AS a {V} {W}, device",
    "HAVING": f"SELECT device, avg(speed_kmh) AS s {V} {W}, device HAVING avg(speed_kmh) > 100",
    "stddev": f"SELECT device, stddev(cpu_percent) AS sd {H} {W}, device",
    "count distinct": f"SELECT count(DISTINCT device) AS n {V} {W}",
    "sum of CASE": (
        f"SELECT device, sum(CASE WHEN speed_kmh > 50 THEN 1 ELSE 0 END) AS fast {V} {W}, device"
    ),
    "count_if": f"SELECT device, count_if(speed_kmh > 50) AS fast {V} {W}, device",
    "FILTER": f"SELECT device, count(*) FILTER (WHERE speed_kmh > 50) AS fast {V} {W}, device",
    "ratio of aggregates": (
        f"SELECT device, sum(price * qty) / count(*) AS basket FROM orders {W}, device"
    ),
    "difference of aggregates": (
        f"SELECT device, max(battery_percent) - min(battery_percent) AS drop {V} {W}, device"
    ),
    "function of an aggregate": f"SELECT device, round(avg(speed_kmh), 1) AS s {V} {W}, device",
    "TUMBLE": (
        f"SELECT device, count(*) AS n {V} GROUP BY TUMBLE(event_time, INTERVAL '1' MINUTE), device"
    ),
    "slide that does not divide": (
        f"SELECT device, count(*) AS n {V} GROUP BY window(event_time, '5 minutes', '7 seconds'), "
        "device"
    ),
    "window with an offset": (
        f"SELECT device, count(*) AS n {V} GROUP BY window(event_time, '1 day', '1 day', '23 "
        "hours'), device"
    ),
    "week": f"SELECT device, count(*) AS n {V} GROUP BY window(event_time, '7 days'), device",
    "half a second": f"SELECT device, avg(speed_kmh) AS n {V} GROUP BY window(event_time, '500 "
    "milliseconds'), "
    "device",
    "alias of the table": (
        f"SELECT v.device, avg(v.speed_kmh) AS s {V} v GROUP BY window(v.event_time, '1 minute'), "
        "v.device"
    ),
    "common table that filters": (
        f"WITH fast AS (SELECT * {V} WHERE speed_kmh > 80) SELECT device, count(*) AS n FROM fast "
        f"{W}, device"
    ),
    "rounded keys": (
        f"SELECT round(lat, 2) AS la, round(lon, 2) AS lo, count(*) AS n {V} {W}, la, lo"
    ),
    "key without a name": (
        f"SELECT floor(speed_kmh / 10), count(*) AS n {V} {W}, floor(speed_kmh / 10)"
    ),
    "GROUP BY a number": f"SELECT device, count(*) AS n {V} {W}, 1",
    "concat": f"SELECT concat(device, '-', street) AS k, count(*) AS n {V} {W}, k",
    "substring": f"SELECT substring(device, 1, 3) AS fleet, avg(speed_kmh) AS s {V} {W}, fleet",
    "RLIKE": f"SELECT count(*) AS n {V} WHERE street RLIKE '^Main' {W}",
    "ILIKE": f"SELECT count(*) AS n {V} WHERE street ILIKE 'main%' {W}",
    "CAST": f"SELECT max(cast(ts_text AS double)) AS m {V} {W}",
    "hour of the day": (
        f"SELECT hour(event_time) AS h, count(*) AS n {V} GROUP BY window(event_time, '1 day'), h"
    ),
    "IS NOT NULL": f"SELECT count(*) AS n {V} WHERE charging AND error_code IS NOT NULL {W}",
    "= TRUE": f"SELECT count(*) AS n {V} WHERE charging = TRUE {W}",
    "IS TRUE": f"SELECT count(*) AS n {V} WHERE charging IS TRUE {W}",
    "<=>": f"SELECT count(*) AS n {V} WHERE street <=> 'a' {W}",
    "percentile_approx": f"SELECT percentile_approx(speed_kmh, 0.99) AS p {V} {W}",
    "array of percentiles": f"SELECT approx_percentile(speed_kmh, array(0.5, 0.99)) AS p {V} {W}",
    "median": f"SELECT median(speed_kmh) AS m {V} {W}",
    "approx_count_distinct with an error": (
        f"SELECT approx_count_distinct(device, 0.01) AS n {V} {W}"
    ),
    "corr": f"SELECT corr(cpu_percent, load_1m) AS c {H} {W}",
    "trigonometry": f"SELECT avg(acos(sin(radians(lat)))) AS a {V} {W}",
    "if": f"SELECT avg(if(speed_kmh > 0, speed_kmh, NULL)) AS a {V} {W}",
    "nullif": f"SELECT avg(nullif(speed_kmh, 0)) AS a {V} {W}",
    "window.start": f"SELECT window.start AS s, device, count(*) AS n {V} {W}, device",
    "INTERVAL": f"SELECT count(*) AS n {V} GROUP BY window(event_time, INTERVAL 1 MINUTE)",
    "time at the bridge": f"SELECT count(*) AS n {V} GROUP BY window(received_at, '1 minute')",
    "name in double quotes": f"SELECT count(*) AS n {V} WHERE \"street\" = 'Main' {W}",
    "session": (
        f"SELECT device, count(*) AS n {V} GROUP BY session_window(event_time, '5 minutes'), device"
    ),
    "no window": f"SELECT device, last(speed_kmh) AS s {V} GROUP BY device",
    "join with a registry": (
        f"SELECT d.version, avg(v.speed_kmh) AS s {V} v JOIN devices d ON v.device = d.device "
        f"{W}, d.version"
    ),
    "join of streams within a time": (
        "SELECT o.sku, c.url FROM orders o JOIN clicks c ON o.order_id = c.order_id AND "
        "c.event_time BETWEEN o.event_time AND o.event_time + INTERVAL 1 HOUR"
    ),
    "comment after the end": f"SELECT count(*) AS n {V} {W}; -- done",
}

REFUSED = {
    "TUMBLE as a table": (
        "SELECT device, count(*) AS n FROM TABLE(TUMBLE(TABLE vehicle_position, "
        f"DESCRIPTOR(event_time), INTERVAL '1' MINUTE)) {W}",
        "GROUP BY window(event_time, '1 minute')",
    ),
    "360 windows a reading": (
        f"SELECT device, avg(speed_kmh) AS n {V} GROUP BY window(event_time, '1 hour', '10 "
        "seconds'), device",
        "use a longer slide",
    ),
    "lag": (
        "SELECT device, speed_kmh - lag(speed_kmh) OVER (PARTITION BY device ORDER BY "
        f"event_time) AS d {V} {W}, device",
        "count_window(2, 1), device HAVING count(*) = 2",
    ),
    "row_number": (
        f"SELECT * FROM (SELECT *, row_number() OVER (ORDER BY speed_kmh DESC) r {V}) WHERE r <= 3",
        "(SELECT * FROM stream WHERE …)",
    ),
    "two levels": (
        f"SELECT avg(s) AS m FROM (SELECT device, max(speed_kmh) AS s {V} {W}, device) GROUP BY "
        "window(window_end, '10 minutes')",
        "register a query of its own for the rest",
    ),
    "UNION ALL": (
        f"SELECT device, count(*) AS n {V} {W}, device UNION ALL SELECT device, count(*) {H} {W}, "
        "device",
        "register a query for each",
    ),
    "MATCH_RECOGNIZE": (
        f"SELECT * {V} MATCH_RECOGNIZE (PARTITION BY device ORDER BY event_time MEASURES "
        "A.event_time AS t PATTERN (A) DEFINE A AS 1)",
        "GROUP BY pattern_window(",
    ),
    "window_time with a reserved name": (
        f"SELECT window_time(window) AS t, count(*) AS n {V} {W}",
        "give it another with AS",
    ),
    "collect_set": (f"SELECT collect_set(street) AS streets {V} {W}", "use approx_top_k(x, k)"),
    "time of computing": (
        f"SELECT count(*) AS n {V} GROUP BY window(current_timestamp(), '1 minute')",
        "use event_time, received_at or sent_at",
    ),
    "wrong function": (
        f"SELECT avrage(speed_kmh) AS n {V} {W}",
        "line 2:8: SELECT n: function avrage() is not allowed: did you mean avg?",
    ),
    "wrong field": (
        f"SELECT avg(sped_kmh) AS n {V} {W}",
        "line 2:12: SELECT n: unknown field 'sped_kmh': did you mean 'speed_kmh'?",
    ),
    "missing comma": (
        f"SELECT device count(*) AS n {V} {W}, device",
        "line 2:20: SQL: Invalid expression / Unexpected token near '('",
    ),
    "open bracket": (
        f"SELECT device, avg(speed_kmh AS n {V} {W}, device",
        "line 2:30: SQL: Expecting ) near 'AS'",
    ),
}


def test_the_list_has_64_queries_and_at_least_45_work() -> None:
    assert len(READ) + len(REFUSED) == 64
    assert len(READ) >= 45


@pytest.mark.parametrize("case", READ)
def test_what_a_user_of_sql_tries_first_is_read(case: str) -> None:
    found = parse("-- name: q\n" + READ[case], STREAMS)
    assert found.stream in STREAMS
    assert found.aggregates or found.is_rows


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_write_instead(case: str) -> None:
    text, sentence = REFUSED[case]
    with pytest.raises(QueryError) as refusal:
        parse("-- name: q\n" + text, STREAMS)
    assert sentence in str(refusal.value)
