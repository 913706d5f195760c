"""Nothing that is written is left out in silence: every part of every node is read, or refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlglot import exp

from edgewake.cloud.queries import query_file
from edgewake.cloud.queries.query import Query
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.syntax.consumed import PARTS
from edgewake.cloud.queries.terms.tree import fields_of
from edgewake.protocol.errors import QueryError
from tests.queries.test_language_words import READ, STREAMS

HEADER = "-- name: q\n"
LEFT_OUT = {
    "last of two": ("SELECT last(a, b) AS x FROM m GROUP BY device",
        "line 2:16: 'b' would be left out", "max_by(x, y)"),
    "first of two": ("SELECT first(a, b) AS x FROM m GROUP BY device",
        "line 2:17: 'b' would be left out", "min_by(x, y)"),
    "percentile of three": ("SELECT percentile(a, 0.5, 3) AS x FROM m GROUP BY device",
        "'3' would be left out", "takes two arguments"),
    "count of two": ("SELECT count(a, b) AS x FROM m GROUP BY device", "would be left out", ""),
    "count_if of two": ("SELECT count_if(a > 1, b) AS x FROM m GROUP BY device",
        "would be left out", ""),
    "length of a text type": ("SELECT cast(a AS varchar(3)) AS x FROM m", "'3' would be left out",
        ""),
    "pattern of unix_timestamp": ("SELECT unix_timestamp(event_time, 'yyyy') AS x FROM m",
        "'yyyy' would be left out", ""),
    "pattern of to_date": ("SELECT to_date(event_time, 'yyyy') AS x FROM m",
        "format would be left out", ""),
    "nulls in UNPIVOT": (
        "SELECT k, avg(v) AS x FROM m UNPIVOT INCLUDE NULLS (v FOR k IN (a, b)) GROUP BY k",
        "include nulls would be left out", "",
    ),
    "name in UNPIVOT": (
        "SELECT k, avg(v) AS x FROM m UNPIVOT (v FOR k IN (a AS 'z', b)) GROUP BY k",
        "UNPIVOT", "",
    ),
    "columns of WITH": ("WITH f(q) AS (SELECT * FROM m WHERE a > 1) SELECT a AS x FROM f",
        "columns would be left out", ""),
    "columns left out of *": ("SELECT a AS x FROM (SELECT * EXCEPT (b) FROM m) f",
        "would be left out", ""),
    "sample": ("SELECT a AS x FROM (SELECT * FROM m) TABLESAMPLE (10 PERCENT)", "would be left out",
        ""),
    "NULLS FIRST": (
        "SELECT device, count(*) AS n FROM m GROUP BY window(event_time, '1 minute'), device "
        "ORDER BY n NULLS FIRST LIMIT 3",
        "what has no value comes last", "",
    ),
    "log of one": ("SELECT log(a) AS x FROM m", "log10(x)", ""),
    "percentile_cont": (
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS x FROM m GROUP BY device",
        "approx_percentile(x, rank)", "`edgewake sql`",
    ),
    "cast to decimal": ("SELECT cast(a AS decimal(5, 2)) AS x FROM m", "round(x, 2)", ""),
    "cast to bigint": ("SELECT cast(a AS bigint) AS x FROM m", "floor(x), ceil(x), round(x)", ""),
    "cast to int": ("SELECT a::int AS x FROM m", "floor(x), ceil(x), round(x)", ""),
    "cast to float": ("SELECT cast(a AS float) AS x FROM m", "cast(x AS double)", ""),
    "digits": ("SELECT device FROM m WHERE a = 9007199254740993", "exact up to 2^53", ""),
    "too large": ("SELECT device FROM m WHERE a < 1e400", "too large", ""),
    "never": ("SELECT device FROM m GROUP BY device HAVING count(*) = 0", "absence_window", ""),
    "never, mirrored": (
        "SELECT sum(a) AS x FROM m GROUP BY device HAVING 1 > count(*) AND sum(a) > 3",
        "absence_window", "",
    ),
    "never, by a name": ("SELECT count(*) AS n FROM m GROUP BY device HAVING n <= 0 OR n < 1",
        "absence_window", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_would_be_read_otherwise_is_refused_with_the_way_that_there_is(case: str) -> None:
    sql, told, instead = LEFT_OUT[case]
    with pytest.raises(QueryError) as found:
        parse(HEADER + sql)
    assert told in str(found.value)
    assert instead in str(found.value)


@pytest.mark.parametrize(
    "having",
    [
        "count(*) = 1",
        "count(*) < 2",
        "count(*) > 0",
        "count(a) = 0",
        "n = 0 OR n = 3",
        "count(*) FILTER (WHERE a > 1) = 0",
        "sum(a) = 0",
    ],
)
def test_a_having_that_a_row_may_pass_is_read(having: str) -> None:
    parse(HEADER + f"SELECT count(*) AS n FROM m GROUP BY device HAVING {having}")


def test_an_offset_of_tumble_is_read() -> None:
    found = parse(
        HEADER + "SELECT count(*) AS n FROM m GROUP BY tumble(event_time, '1 day', '6 hours')"
    ).window
    same = parse(
        HEADER
        + "SELECT count(*) AS n FROM m GROUP BY window(event_time, '1 day', '1 day', '6 hours')"
    ).window
    assert found == same
    assert found.offset_ms == 6 * 3_600_000


def test_double_quotes_are_names_as_everywhere_else() -> None:
    assert parse(
        HEADER + "SELECT device FROM vehicle_position WHERE \"street\" = 'Main'", STREAMS
    ).fields == {"street"}
    with pytest.raises(QueryError, match=r"unknown field 'Main'.*in single quotes: 'Main'"):
        parse(HEADER + 'SELECT device FROM vehicle_position WHERE street = "Main"', STREAMS)


WRITTEN = (
    r"""
SELECT a, hour(event_time) AS h FROM m WHERE a > .5 AND b < 5. AND c = 1e3 AND d = 0.50 AND e = 1E-3
SELECT count(*) AS n FROM m GROUP BY window(event_time, INTERVAL '90' SECOND), device
SELECT count(*) AS n FROM m GROUP BY window(event_time, INTERVAL 5 MINUTES, INTERVAL 1 minute),
    device
SELECT count(*) AS n FROM m GROUP BY date_trunc('DAY', event_time), device
SELECT count(*) AS n FROM m GROUP BY date_trunc('week', event_time), device
SELECT count(*) AS n FROM m GROUP BY date_trunc('MONTH', event_time), device
SELECT a FROM m WHERE b = 'it''s' AND c = 'back\\slash' AND d = 'ß' AND e LIKE 'a\\%b'
SELECT a AS `my_name`, "b" AS "c" FROM m /* a comment with words */ -- and another one 5 'x'
SELECT percentile(x, array(0.1, 0.5)) AS p, approx_percentile(x, 0.95) AS q FROM m GROUP BY device
SELECT log10(x) AS a, log2(x) AS b, pow(x, 2) AS c, hypot(a, b) AS d, log(2, x) AS e FROM m
SELECT o.a, c.b FROM o JOIN c ON o.k = c.k AND abs(c.event_time - o.event_time) <= INTERVAL 10
    SECONDS
SELECT o.a, c.b FROM o JOIN c FOR SYSTEM_TIME AS OF event_time ON o.k = c.k
SELECT o.a, c.b FROM o JOIN c USING (k)
SELECT a, trend(x, '10 minutes') AS tt FROM m
SELECT count(*) AS n FROM m GROUP BY threshold_window(a > 1, a < 0, '30 seconds'), device
SELECT date_format(event_time, 'yyyy-MM-dd HH:mm') AS d, date_format(event_time, 'yyyy') AS y,
    to_date(event_time) AS z FROM m
SELECT count(*) AS n, device FROM m GROUP BY window(event_time, '1 minute'), 2 ORDER BY 1 DESC LIMIT
    5
SELECT a FROM m WHERE event_time > TIMESTAMP '2026-01-01 00:00:00' AND b IN ('x', 'y') AND c IS NOT
    NULL
SELECT unix_timestamp(event_time) AS u, cast(event_time AS date) AS d, year(event_time) AS y,
    date(event_time) AS e FROM m
WITH f AS (SELECT * FROM m WHERE a > 1) SELECT f.a FROM f
SELECT v.a FROM m v WHERE v.a > 1
SELECT window.start AS w, count(*) AS n FROM m GROUP BY window(event_time, '1 minute')
SELECT first(a) IGNORE NULLS AS f, any_value(b) AS g, first_value(a) AS h FROM m GROUP BY device
SELECT substring(a FROM 1 FOR 2) AS s, position('x' IN a) AS p, trim(a) AS tt, substr(a, 2) AS u,
    ltrim(a) AS v FROM m
SELECT CASE WHEN a > 1 THEN 'x' WHEN a > 2 THEN 'y' ELSE 'z' END AS c, if(a > 1, 1, 2) AS d, nvl(a,
    0) AS e FROM m
SELECT ifnull(a, 1) AS f, nvl2(a, 1, 2) AS g FROM m
SELECT a FROM m WHERE a BETWEEN 1 AND 2 OR NOT b OR c <=> 3 OR d IS DISTINCT FROM 4 OR e RLIKE
    '^x[0-9]+$'
SELECT k, avg(v) AS x FROM m UNPIVOT (v FOR k IN (a, b)) GROUP BY k
SELECT count(DISTINCT a) AS n, count_if(b > 1) AS c, sum(a) FILTER (WHERE b > 2) AS s FROM m GROUP
    BY device
SELECT a FROM (SELECT * FROM m UNION ALL SELECT * FROM n)
SELECT a, unix_millis(event_time) % 1000 AS ms, weekday(event_time) AS w, quarter(event_time) AS q,
    weekofyear(event_time) AS y FROM m
SELECT min_by(a, b) AS x, max_by(a, event_time) AS y, corr(a, b) AS c, regr_slope(a, b) AS r,
    regr_intercept(a, b) AS i, stddev_pop(a) AS s FROM m GROUP BY device
SELECT avg(a) AS x FROM m GROUP BY tumble(event_time, INTERVAL '1' DAY, INTERVAL '6' HOUR)
SELECT avg(a) AS x FROM m GROUP BY hop(event_time, INTERVAL '1' MINUTE, INTERVAL '1' HOUR)
SELECT a FROM `order` WHERE b = 1
SELECT a FROM "order" WHERE b = 1
SELECT cast(a AS string) AS s, cast(b AS double) AS d, a::string AS tt, cast(c > 1 AS int) AS e FROM
    m
SELECT m.a FROM m LEFT JOIN t ON m.k = t.k AND t.event_time BETWEEN m.event_time - INTERVAL 30
    SECONDS AND m.event_time
SELECT a FROM m WHERE a = -5 AND b = +3 AND c = - 2
""".strip()
    .replace("\n    ", " ")
    .splitlines()
)
"""Ways of writing, all of which are read; an indented line goes on with the one before."""


@pytest.mark.parametrize("sql", WRITTEN, ids=range(len(WRITTEN)))
def test_what_is_written_in_any_way_that_is_read_is_not_taken_for_left_out(sql: str) -> None:
    parse(HEADER + sql)


MARK = "zz_mark"
SAMPLES = [
    *READ.values(),
    "SELECT corr(lat, lon) AS a, covar_pop(lat, lon) AS b, regr_slope(lat, lon) AS c, "
    "bool_and(charging) AS d, regr_intercept(lat, lon) AS e FROM vehicle_position",
    "SELECT approx_percentile(lat, 0.5) AS a, median(lat) AS b, approx_top_k(street, 3) AS c, "
    "approx_count_distinct(street) AS d, mode(street) AS e"
    " FROM vehicle_position GROUP BY window(event_time, '1 minute')",
    "SELECT if(lat > 1, 1, 2) AS a, nvl2(lat, 1, 2) AS b, nullif(lat, 1) AS c, coalesce(lat, lon) "
    "AS d, least(lat, lon) AS e,"
    " round(lat, 1) AS f, trim(street) AS g, split_part(street, '-', 1) AS h, replace(street, "
    "'a', 'b') AS i FROM vehicle_position",
    "SELECT hour(event_time) AS h, extract(day FROM event_time) AS d, date_format(event_time, "
    "'yyyy') AS y, unix_millis(event_time) AS m,"
    " street IS NOT DISTINCT FROM device AS s, lat BETWEEN 1 AND 2 AS b, lat IN (1, 2) AS i, "
    "charging IS TRUE AS c FROM vehicle_position",
]


def mutations() -> Iterator[tuple[str, type[exp.Expr], str]]:
    """A query, and the kind and part of a node in it that nobody filled."""
    seen: set[tuple[type[exp.Expr], str]] = set()
    for sql in SAMPLES:
        try:
            tree = query_file._select(HEADER + sql)
        except QueryError:
            continue
        for node in tree.walk():
            for part in type(node).arg_types:
                if (
                    (type(node), part) not in seen
                    and isinstance(node, tuple(PARTS))
                    and node.args.get(part) in (None, [], False)
                ):
                    seen.add((type(node), part))
                    yield sql, type(node), part


@pytest.mark.parametrize(
    ("sql", "kind", "part"),
    [pytest.param(*one, id=f"{one[1].__name__}.{one[2]}") for one in mutations()],
)
def test_a_part_of_a_node_that_is_filled_is_read_or_refused(
    sql: str, kind: type[exp.Expr], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the parser may put there, also one of a later version."""
    before = parse(HEADER + sql)
    read = query_file._select

    def mutated(text: str) -> exp.Select:
        tree = read(text)
        node = next(
            one
            for one in tree.walk()
            if type(one) is kind and one.args.get(part) in (None, [], False)
        )
        many = part in ("expressions", "columns", "pivots", "ifs", "fields")
        node.set(part, [exp.column(MARK)] if many else exp.column(MARK))
        return tree

    monkeypatch.setattr(query_file, "_select", mutated)
    try:
        after = parse(HEADER + sql)
    except (QueryError, AttributeError, TypeError):  # the latter two: no parser makes such a tree
        return
    assert after != before
    assert MARK in names(after)


def names(query: Query) -> set[str]:
    return {
        *query.fields,
        *(name for output in query.outputs for name in fields_of(output.expression)),
    }
