"""What people write who come from other systems → what to write here.

Tables; each row is tried by a test.

Where a continuous query has no way, `edgewake sql` often does: it asks what is stored, once, in
DuckDB's SQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from sqlglot import exp

PREVIOUS: Final = (
    "the value before: SELECT device, first(x) AS before, last(x) AS now FROM stream"
    " GROUP BY count_window(2, 1), device HAVING count(*) = 2"
)
STORED: Final = "of what is stored, `edgewake sql` answers it"
_COUNTER: Final = (
    "of a counter: SELECT device, CASE WHEN last(x) >= first(x) THEN last(x) - first(x) ELSE "
    "last(x) END AS more FROM stream"
    " GROUP BY count_window(2, 1), device HAVING count(*) = 2; ELSE is for a counter that restarted"
)
_PLACES: Final = (
    "km between two places: 12742 * asin(sqrt(pow(sin(radians(lat - 53.3) / 2), 2) + "
    "cos(radians(lat)) * cos(radians(53.3)) *"
    " pow(sin(radians(lon + 6.2) / 2), 2))); a box: lat BETWEEN 53.2 AND 53.4 AND lon BETWEEN "
    "-6.4 AND -6.1"
)
_WINDOWS: Final = "GROUP BY window(event_time, '1 minute')"
_LISTS: Final = (
    "a reading's fields are numbers, texts and booleans, and a list is JSON text: take it apart "
    "where it comes in, with `each` of a map (docs/maps.md) or `explode` of an agent's chain "
    "(docs/processing.md); UNPIVOT makes rows of several fields; "
    f"{STORED} with unnest(from_json(list, '[\"VARCHAR\"]'))"
)
_FIRST_OF_EACH: Final = (
    "the first n rows of each window: ORDER BY x DESC LIMIT n; the row with the largest x of "
    f"each group: max_by(y, x); {STORED}"
)
_GAPS: Final = (
    "a window without readings has no row; for silent devices: absence_window(event_time, '5 "
    f"minutes'); {STORED}"
)
_NOW: Final = (
    "the time of a result would depend on when it is computed; use event_time, received_at or "
    "sent_at"
)
_OF_READINGS: Final = (
    "it is of readings: use it in WHERE, within an aggregate or a pattern's condition, or in a "
    "query without GROUP BY"
)

FUNCTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("lag", "lead", "previous", "prev"), f"{PREVIOUS}; {STORED}"),
    **dict.fromkeys(
        (
            "rate",
            "irate",
            "increase",
            "delta",
            "idelta",
            "deriv",
            "derivative",
            "non_negative_derivative",
        ),
        _COUNTER,
    ),
    **dict.fromkeys(
        ("difference", "changed_cols", "had_changed", "changes"),
        f"{PREVIOUS} AND first(x) <> last(x)",
    ),
    **dict.fromkeys(
        (
            "st_within",
            "st_contains",
            "st_distance",
            "st_dwithin",
            "st_point",
            "st_intersects",
            "haversine",
            "geo_distance",
            "great_circle",
        ),
        _PLACES,
    ),
    **dict.fromkeys(
        (
            "explode",
            "unnest",
            "flatten",
            "posexplode",
            "json_extract",
            "get_json_object",
            "from_json",
        ),
        _LISTS,
    ),
    **dict.fromkeys(
        ("row_number", "rank", "dense_rank", "ntile", "percent_rank", "cume_dist", "nth_value"),
        _FIRST_OF_EACH,
    ),
    **dict.fromkeys(
        ("time_bucket", "date_bin", "time_slice", "toStartOfInterval".lower()),
        f"windows of time: {_WINDOWS}",
    ),
    **dict.fromkeys(("time_bucket_gapfill", "locf", "interpolate", "fill"), _GAPS),
    **dict.fromkeys(
        ("time_weight", "integral", "twa", "time_weighted_avg"),
        f"not in a continuous query; {STORED}",
    ),
    **dict.fromkeys(
        ("listagg", "string_agg", "group_concat"),
        f"it keeps every value; approx_top_k(x, k) keeps the most frequent; {STORED}",
    ),
    "collect_set": (
        "it keeps every value for ever; use approx_top_k(x, k) or approx_count_distinct(x)"
    ),
    "collect_list": (
        "it keeps every value for ever; the readings themselves are in the stream, or use "
        "approx_top_k(x, k)"
    ),
    **dict.fromkeys(("current_timestamp", "now", "current_date", "localtimestamp"), _NOW),
    "rand": (
        "a result must be the same when it is computed again; use a hash-like condition on a field"
    ),
    "uuid": "a result must be the same when it is computed again",
    **dict.fromkeys(
        ("latest_by_offset", "last_row", "latest"), "the value at the latest event time: last(x)"
    ),
    **dict.fromkeys(
        ("earliest_by_offset", "earliest"), "the value at the earliest event time: first(x)"
    ),
    **dict.fromkeys(
        (
            "robust_zscore",
            "trend",
            "seasonal_baseline",
            "seasonal_zscore",
            "seen_before",
            "seen_before_by_anyone",
        ),
        _OF_READINGS,
    ),
    **dict.fromkeys(
        ("moving_average", "moving_avg", "movingaverage"),
        "the mean of the last ten: avg(x) … GROUP BY count_window(10, 1), device HAVING count(*) "
        "= 10",
    ),
}
"""Function, in small letters → what to write."""

NODES: Final[Mapping[type[exp.Expr], str]] = {
    exp.ArrayUniqueAgg: FUNCTIONS["collect_set"],
    exp.ArrayAgg: FUNCTIONS["collect_list"],
    exp.AtTimeZone: (
        "the header `-- zone: Europe/Berlin` says where it is which hour and day, for all "
        "functions of time"
    ),
    exp.Explode: _LISTS,
    exp.Posexplode: _LISTS,
    exp.GroupConcat: FUNCTIONS["listagg"],
    exp.Lag: FUNCTIONS["lag"],
    exp.Lead: FUNCTIONS["lead"],
}
"""What the parser has a kind of node of its own for."""

OVER: Final = f"OVER is not supported; group by window(…) or count_window(n, 1) and a key; {STORED}"
EXTRACTS: Final[Mapping[str, str]] = {
    "doy": "dayofyear(event_time)",
    "dow": "dayofweek(event_time), Sunday is 1",
    "isodow": "weekday(event_time), Monday is 0",
    "epoch": "unix_seconds(event_time), or unix_millis(event_time)",
    "millisecond": "unix_millis(event_time) % 1000",
}
"""Parts of a time that EXTRACT has elsewhere → what has them here."""
PARTS: Final = (
    "extract(PART FROM event_time) has second, minute, hour, day, week, month, quarter and year"
)

SYNTAX: Final[Mapping[str, str]] = {
    r"\bMATCH_RECOGNIZE\b": (
        "MATCH_RECOGNIZE: write GROUP BY pattern_window('10 minutes', first condition, second "
        "condition), device"
    ),
    r"\bTABLE\s*\(": f"windows are written FROM stream {_WINDOWS}",
    r"\bWINDOW\s+SESSION\b": (
        "sessions are written GROUP BY session_window(event_time, '5 minutes'), device"
    ),
    r"\bWINDOW\s+(TUMBLING|HOPPING|SLIDING)\b": f"windows are written {_WINDOWS},"
    " sliding ones window(event_time, '1 minute', '10 seconds')",
    r"\bEMIT\s+(CHANGES|FINAL|AFTER|ON|STREAM|WITHOUT)\b": (
        "a row is emitted again whenever a reading changes it; with the header `-- emit: final` "
        "once, when its window is final"
    ),
    r"\bSAMPLE\s+BY\b": f"windows are written {_WINDOWS}, device",
    r"\bLATEST\s+(ON|BY)\b": (
        "the latest row of each device: SELECT device, last(x) AS x FROM stream GROUP BY device"
    ),
    r"\bASOF\b": (
        "JOIN table ON stream.key = table.key: it finds the row that was the latest at the "
        "reading's time"
    ),
    r"\bAS\s+OF\b|\bSYSTEM_TIME\b": (
        "JOIN table ON stream.key = table.key: it finds the row that was the latest at the "
        "reading's time"
    ),
    r"\bFILL\s*\(": _GAPS,
    r"\bGRACE\s+PERIOD\b": (
        "how late readings may come stands in the header: `-- lateness: 30 seconds`"
    ),
    r"\bWITHIN\s+\d": "two streams within a time: ON a.key = b.key AND b.event_time BETWEEN"
    " a.event_time AND a.event_time + INTERVAL 5 MINUTES",
    r"\bPARTITION\s+BY\b": f"groups are written GROUP BY; {STORED}",
}
"""Syntax of others that is not Spark SQL (a pattern) → what to write here."""
_BEGINS: Final = ("SELECT", "WITH")


def of_syntax(text: str) -> str:
    """What to write in place of a text that cannot be parsed; empty where nobody knows."""
    body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    first = re.match(r"\s*([A-Za-z]+)", body)
    if first is not None and first[1].upper() not in _BEGINS:
        close = get_close_matches(first[1].upper(), _BEGINS, n=1)
        if close:
            return f"did you mean {close[0]}?"
    found = [
        advice for pattern, advice in SYNTAX.items() if re.search(pattern, body, re.IGNORECASE)
    ]
    found += [
        FUNCTIONS[name.lower()]
        for name in re.findall(r"(\w+)\s*\(", body)
        if name.lower() in FUNCTIONS
    ]
    return found[0] if found else ""


def of_node(node: exp.Expr) -> str | None:
    """What to write in place of a function or operator that there is not."""
    if isinstance(node, exp.Window):
        return of_node(node.this) or OVER
    if isinstance(node, exp.Extract):
        return EXTRACTS.get(str(node.this).lower(), PARTS)
    if type(node) in NODES:
        return NODES[type(node)]
    return FUNCTIONS.get(function_name(node).lower())


def function_name(node: exp.Expr) -> str:
    """The name of a called function, "" for any other node."""
    if isinstance(node, exp.Anonymous):
        return str(node.this)
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""
