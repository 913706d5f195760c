"""Nothing that is written is left out in silence: every part of every node is read, or refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlglot import exp

from edgewake.cloud.queries import query_file
from edgewake.cloud.queries.consumed import PARTS
from edgewake.cloud.queries.expressions import fields_of
from edgewake.cloud.queries.query import Query
from edgewake.cloud.queries.query_file import parse
from edgewake.protocol.errors import QueryError
from tests.queries.test_language_words import READ, STREAMS

HEADER = "-- name: q\n"
LEFT_OUT = {
    "last of two": ("SELECT last(a, b) AS x FROM m GROUP BY device", "line 2:16: 'b' would be left out", "max_by(x, y)"),
    "first of two": ("SELECT first(a, b) AS x FROM m GROUP BY device", "line 2:17: 'b' would be left out", "min_by(x, y)"),
    "percentile of three": ("SELECT percentile(a, 0.5, 3) AS x FROM m GROUP BY device", "'3' would be left out", "takes two arguments"),
    "count of two": ("SELECT count(a, b) AS x FROM m GROUP BY device", "would be left out", ""),
    "count_if of two": ("SELECT count_if(a > 1, b) AS x FROM m GROUP BY device", "would be left out", ""),
    "length of a text type": ("SELECT cast(a AS varchar(3)) AS x FROM m", "'3' would be left out", ""),
    "pattern of unix_timestamp": ("SELECT unix_timestamp(event_time, 'yyyy') AS x FROM m", "'yyyy' would be left out", ""),
    "pattern of to_date": ("SELECT to_date(event_time, 'yyyy') AS x FROM m", "format would be left out", ""),
    "nulls in UNPIVOT": (
        "SELECT k, avg(v) AS x FROM m UNPIVOT INCLUDE NULLS (v FOR k IN (a, b)) GROUP BY k", "include nulls would be left out", "",
    ),
    "name in UNPIVOT": ("SELECT k, avg(v) AS x FROM m UNPIVOT (v FOR k IN (a AS 'z', b)) GROUP BY k", "UNPIVOT", ""),
    "columns of WITH": ("WITH f(q) AS (SELECT * FROM m WHERE a > 1) SELECT a AS x FROM f", "columns would be left out", ""),
    "columns left out of *": ("SELECT a AS x FROM (SELECT * EXCEPT (b) FROM m) f", "would be left out", ""),
    "sample": ("SELECT a AS x FROM (SELECT * FROM m) TABLESAMPLE (10 PERCENT)", "would be left out", ""),
    "NULLS FIRST": (
        "SELECT device, count(*) AS n FROM m GROUP BY window(event_time, '1 minute'), device ORDER BY n NULLS FIRST LIMIT 3",
        "what has no value comes last", "",
    ),
    "log of one": ("SELECT log(a) AS x FROM m", "log10(x)", ""),
    "percentile_cont": (
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS x FROM m GROUP BY device", "approx_percentile(x, rank)", "`edgewake sql`",
    ),
    "cast to decimal": ("SELECT cast(a AS decimal(5, 2)) AS x FROM m", "round(x, 2)", ""),
    "cast to bigint": ("SELECT cast(a AS bigint) AS x FROM m", "floor(x), ceil(x), round(x)", ""),
    "cast to int": ("SELECT a::int AS x FROM m", "floor(x), ceil(x), round(x)", ""),
    "cast to float": ("SELECT cast(a AS float) AS x FROM m", "cast(x AS double)", ""),
    "digits": ("SELECT device FROM m WHERE a = 9007199254740993", "exact up to 2^53", ""),
    "too large": ("SELECT device FROM m WHERE a < 1e400", "too large", ""),
    "never": ("SELECT device FROM m GROUP BY device HAVING count(*) = 0", "absence_window", ""),
    "never, mirrored": ("SELECT sum(a) AS x FROM m GROUP BY device HAVING 1 > count(*) AND sum(a) > 3", "absence_window", ""),
    "never, by a name": ("SELECT count(*) AS n FROM m GROUP BY device HAVING n <= 0 OR n < 1", "absence_window", ""),
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
    ["count(*) = 1", "count(*) < 2", "count(*) > 0", "count(a) = 0", "n = 0 OR n = 3", "count(*) FILTER (WHERE a > 1) = 0", "sum(a) = 0"],
)
def test_a_having_that_a_row_may_pass_is_read(having: str) -> None:
    parse(HEADER + f"SELECT count(*) AS n FROM m GROUP BY device HAVING {having}")


def test_an_offset_of_tumble_is_read() -> None:
    found = parse(HEADER + "SELECT count(*) AS n FROM m GROUP BY tumble(event_time, '1 day', '6 hours')").window
    same = parse(HEADER + "SELECT count(*) AS n FROM m GROUP BY window(event_time, '1 day', '1 day', '6 hours')").window
    assert found == same
    assert found.offset_ms == 6 * 3_600_000


def test_double_quotes_are_names_as_everywhere_else() -> None:
    assert parse(HEADER + "SELECT device FROM vehicle_position WHERE \"street\" = 'Main'", STREAMS).fields == {"street"}
    with pytest.raises(QueryError, match=r"unknown field 'Main'.*in single quotes: 'Main'"):
        parse(HEADER + 'SELECT device FROM vehicle_position WHERE street = "Main"', STREAMS)


MARK = "zz_mark"
SAMPLES = [
    *READ.values(),
    "SELECT corr(lat, lon) AS a, covar_pop(lat, lon) AS b, regr_slope(lat, lon) AS c, bool_and(charging) AS d FROM vehicle_position",
    "SELECT approx_percentile(lat, 0.5) AS a, median(lat) AS b, approx_top_k(street, 3) AS c, approx_count_distinct(street) AS d"
    " FROM vehicle_position GROUP BY window(event_time, '1 minute')",
    "SELECT if(lat > 1, 1, 2) AS a, nvl2(lat, 1, 2) AS b, nullif(lat, 1) AS c, coalesce(lat, lon) AS d, least(lat, lon) AS e,"
    " round(lat, 1) AS f, trim(street) AS g, split_part(street, '-', 1) AS h, replace(street, 'a', 'b') AS i FROM vehicle_position",
    "SELECT hour(event_time) AS h, extract(day FROM event_time) AS d, date_format(event_time, 'yyyy') AS y, unix_millis(event_time) AS m,"
    " street IS NOT DISTINCT FROM device AS s, lat BETWEEN 1 AND 2 AS b, lat IN (1, 2) AS i, charging IS TRUE AS c FROM vehicle_position",
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
                if (type(node), part) not in seen and isinstance(node, tuple(PARTS)) and node.args.get(part) in (None, [], False):
                    seen.add((type(node), part))
                    yield sql, type(node), part


@pytest.mark.parametrize(("sql", "kind", "part"), [pytest.param(*one, id=f"{one[1].__name__}.{one[2]}") for one in mutations()])
def test_a_part_of_a_node_that_is_filled_is_read_or_refused(
    sql: str, kind: type[exp.Expr], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the parser may put there, also one of a later version."""
    before = parse(HEADER + sql)
    read = query_file._select

    def mutated(text: str) -> exp.Select:
        tree = read(text)
        node = next(one for one in tree.walk() if type(one) is kind and one.args.get(part) in (None, [], False))
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
    return {*query.fields, *(name for output in query.outputs for name in fields_of(output.expression))}
