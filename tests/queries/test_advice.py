"""Who comes from another system is told what to write here, and what is told is a query that is
read.
"""

from __future__ import annotations

import re

import pytest

from edgewake.cloud.queries import advice
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.syntax import lookback_syntax
from edgewake.protocol.errors import QueryError

HEADER = "-- name: q\n"


def refusal(sql: str) -> str:
    with pytest.raises(QueryError) as found:
        parse(HEADER + sql)
    return str(found.value)


@pytest.mark.parametrize(
    "name",
    sorted(set(advice.FUNCTIONS) - set(lookback_syntax.FUNCTIONS)),
)
def test_a_function_of_others_is_refused_with_what_gives_it_here(name: str) -> None:
    """Those of a device's readings before are functions of ours, and are refused over results
    alone.
    """
    without = (
        "now",
        "current_timestamp",
        "current_date",
        "localtimestamp",
        "uuid",
        "rand",
        "row_number",
    )
    assert advice.FUNCTIONS[name] in refusal(
        f"SELECT {name}({'' if name in without else 'x'}) AS y FROM m"
    )


def test_a_function_of_the_readings_before_says_where_it_may_stand() -> None:
    assert advice.FUNCTIONS["trend"] in refusal(
        "SELECT device, trend(avg(x), '1 minute') AS y FROM m GROUP BY window(event_time, '1 "
        "minute'), device"
    )


SYNTAX = {
    "EMIT": ("SELECT device, count(*) AS n FROM m GROUP BY device EMIT CHANGES", "-- emit: final"),
    "window of sessions": (
        "SELECT count(*) AS n FROM m WINDOW SESSION (5 MINUTES) GROUP BY device EMIT CHANGES",
        "session_window(event_time",
    ),
    "tumbling window": (
        "SELECT count(*) AS n FROM m WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY device",
        "GROUP BY window(event_time, '1 minute')",
    ),
    "SAMPLE BY": (
        "SELECT avg(x) AS a FROM m SAMPLE BY 1h",
        "GROUP BY window(event_time, '1 minute'), device",
    ),
    "SELEC": ("SELEC device FROM m", "did you mean SELECT?"),
    "WIHT": ("WIHT a AS (SELECT * FROM m) SELECT device FROM a", "did you mean WITH?"),
    "LATEST ON": (
        "SELECT x FROM m LATEST ON event_time PARTITION BY device",
        "SELECT device, last(x) AS x",
    ),
    "FILL": (
        "SELECT avg(x) AS a FROM m GROUP BY window(event_time, '1 minute') FILL(previous)",
        "absence_window(event_time",
    ),
    "MATCH_RECOGNIZE": (
        "SELECT a FROM m MATCH_RECOGNIZE (PARTITION BY device PATTERN (A B))",
        "pattern_window('10 minutes'",
    ),
    "table function": (
        "SELECT a FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(event_time), INTERVAL 1 MINUTE)) x y z",
        "FROM stream GROUP BY window",
    ),
    "GRACE": (
        "SELECT count(*) AS n FROM m WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 1 HOUR) GROUP "
        "BY device",
        "window(event_time, '1 minute')",
    ),
    "AS OF": (
        "SELECT a FROM m AS OF TIMESTAMP '2026-01-01'",
        "the row that was the latest at the reading's time",
    ),
    "OVER": ("SELECT sum(x) OVER (ORDER BY event_time) AS s FROM m", "count_window(n, 1)"),
    "lag": (
        "SELECT device, x - lag(x) OVER (PARTITION BY device ORDER BY event_time) AS d FROM m",
        advice.PREVIOUS,
    ),
    "row_number": (
        "SELECT row_number() OVER (PARTITION BY device ORDER BY x) AS r FROM m",
        "ORDER BY x DESC LIMIT n",
    ),
    "AT TIME ZONE": (
        "SELECT hour(event_time AT TIME ZONE 'Europe/Berlin') AS h FROM m",
        "-- zone: Europe/Berlin",
    ),
    "LATERAL": ("SELECT a FROM m LATERAL VIEW explode(a) x", "use UNPIVOT for fields"),
    "explode of a list": ("SELECT a FROM m LATERAL VIEW explode(a) x", "`each` of a map"),
    "unnest in SELECT": ("SELECT unnest(a) AS item FROM m", "`explode` of an agent's chain"),
    "unnest in an aggregate": (
        "SELECT approx_top_k(unnest(a), 5) AS top FROM m GROUP BY window(event_time, '1 minute')",
        "a list is JSON text",
    ),
    "CROSS JOIN UNNEST": (
        "SELECT item FROM m CROSS JOIN UNNEST(a) AS t(item)",
        "`explode` of an agent's chain",
    ),
    "DOY": ("SELECT extract(DOY FROM event_time) AS d FROM m", "dayofyear(event_time)"),
    "epoch": ("SELECT extract(epoch FROM event_time) AS d FROM m", "unix_seconds(event_time)"),
    "another part": (
        "SELECT extract(century FROM event_time) AS d FROM m",
        "second, minute, hour, day",
    ),
    "subquery": ("SELECT device FROM m WHERE device IN (SELECT device FROM n)", "`edgewake sql`"),
    "DISTINCT": ("SELECT DISTINCT device FROM m", "`edgewake sql`"),
    "two joins": ("SELECT a FROM m JOIN n ON m.a = n.a JOIN o ON m.a = o.a", "`edgewake sql`"),
    "FULL JOIN": ("SELECT a FROM m FULL JOIN n ON m.a = n.a", "`edgewake sql`"),
    "QUALIFY": ("SELECT a FROM m QUALIFY row_number() OVER (ORDER BY a) = 1", "`edgewake sql`"),
}


@pytest.mark.parametrize("case", SYNTAX)
def test_what_others_write_is_refused_with_what_to_write_here(case: str) -> None:
    sql, instead = SYNTAX[case]
    assert instead in refusal(sql)


def test_no_hint_is_the_name_that_was_written() -> None:
    """`trim(BOTH 'x' FROM a)` was answered with "did you mean trim?"."""
    for sql in (
        "trim('x', a)",
        "floor(a, 2)",
        "instr(a, 'b', 2)",
        "replace(a, 'b')",
        "length(a, 'x')",
        "extract(DOY FROM event_time)",
    ):
        name = sql.partition("(")[0]
        assert f"did you mean {name}?" not in refusal(f"SELECT {sql} AS x FROM m")


@pytest.mark.parametrize("text", sorted({*advice.FUNCTIONS.values(), *advice.SYNTAX.values()}))
def test_what_an_advice_writes_is_read(text: str) -> None:
    for sql in re.findall(r"SELECT device.*?(?=;|$)", text):
        parse(HEADER + sql.replace("FROM stream", "FROM m"))
    for window in re.findall(r"\w+_window\((?:'|event_time)[^)]*\)", text):
        condition = "b, c" if "condition" in window else ""
        parse(
            HEADER + "SELECT count(*) AS n FROM m GROUP BY "
            f"{window.replace('first condition, second condition', condition)}, device"
        )
    for expression in re.findall(r"12742 \*.*?(?=;)", text):
        parse(HEADER + f"SELECT {expression} AS km FROM m WHERE {expression} < 5")


@pytest.mark.parametrize("instead", advice.EXTRACTS.values())
def test_a_part_of_a_time_that_has_another_name_is_read_by_that(instead: str) -> None:
    for expression in re.findall(r"\w+\(event_time\)[ %\d]*", instead):
        parse(HEADER + f"SELECT {expression} AS x FROM m")
