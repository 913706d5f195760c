"""Query files: what is read, and the sentence for what is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edgewake.cloud.queries.query import Aggregate, Key, Output, Unpivot
from edgewake.cloud.queries.query_file import (
    NUMBER_CHARS_MAX,
    UnknownStream,
    check_query_file,
    parse,
    stream_of,
)
from edgewake.cloud.queries.registry import built_in
from edgewake.cloud.queries.terms.tree import Call, Field, Literal
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream

NUMBER, TEXT = FieldInfo(type=FieldType.NUMBER), FieldInfo(type=FieldType.STRING)
STREAMS = {
    "host": Stream(
        name="host", fields={"cpu": NUMBER, "memory": NUMBER, "disk": NUMBER, "zone": TEXT}
    ),
    "more": Stream(name="more", fields={"cpu": NUMBER, "load": NUMBER}),
    "odd": Stream(name="odd", fields={"cpu": TEXT}),
}
HEADER = "-- name: q\n"
MINUTE = "window(event_time, '1 minute')"
BOTH = "(SELECT * FROM host UNION ALL SELECT * FROM more)"


def query(
    select: str, *, group: str = MINUTE, where: str = "", source: str = "host", header: str = HEADER
) -> str:
    return f"{header}SELECT {select} FROM {source} {where} GROUP BY {group}"


def test_a_comment_after_the_last_semicolon_is_no_statement() -> None:
    text = query("count(*) AS n")
    assert check_query_file(text + ";\n-- the end", STREAMS) == check_query_file(text, STREAMS)


def test_a_file_becomes_a_plan_of_keys_slots_and_columns() -> None:
    text = query(
        "device, metric, count(value) AS n, avg(value) AS mean, approx_percentile(value, 0.9) AS "
        "p90",
        header="-- name: load\n-- description: Load\n-- lateness: 2 minutes\n",
        source="host UNPIVOT (value FOR metric IN (cpu, memory))",
        where="WHERE value > 1",
        group="window(event_time, '1 minute', '10 seconds'), device, metric",
    )
    found = check_query_file(text, STREAMS)
    assert (found.name, found.description, found.stream, found.lateness_ms) == (
        "load",
        "Load",
        "host",
        120_000,
    )
    assert (found.window.size_ms, found.window.slide_ms, found.unpivot) == (
        60_000,
        10_000,
        Unpivot("value", "metric", ("cpu", "memory")),
    )
    assert found.keys == (Key("device", Field("device")), Key("metric", Field("metric")))
    assert found.where == Call(">", (Field("value"), Literal(1.0)))
    assert found.numbers == found.quantiles == (Field("value"),)
    assert found.aggregates == (
        Aggregate("#0", "count"),
        Aggregate("#1", "avg"),
        Aggregate("#2", "quantile", 0, (0.9,)),
    )
    assert found.outputs == (
        Output("n", Field("#0")),
        Output("mean", Field("#1")),
        Output("p90", Field("#2")),
    )
    assert found.fields == {"cpu", "memory"}


@pytest.mark.parametrize(
    "file",
    [
        "SELECT v.device, max(v.load) AS n FROM (SELECT * FROM host UNION ALL SELECT * FROM more) "
        "v WHERE v.cpu > 1 {}",
        "WITH v AS (SELECT * FROM host UNION ALL (SELECT * FROM more)) SELECT device, max(load) "
        "AS n FROM v WHERE cpu > 1 {}",
        "SELECT device, max(load) AS n FROM (SELECT * FROM (SELECT * FROM host UNION ALL SELECT * "
        "FROM more) WHERE cpu > 1) {}",
    ],
)
def test_several_streams_of_one_shape_are_read_as_one(file: str) -> None:
    text = HEADER + file.format(f"GROUP BY {MINUTE}, device")
    found = parse(text, STREAMS)
    assert (found.stream, found.others, found.fields) == ("host", ("more",), {"cpu", "load"})
    assert found.where == Call(">", (Field("cpu"), Literal(1.0)))
    assert stream_of(text) == "host"
    with pytest.raises(UnknownStream, match="unknown stream 'more'"):
        parse(text, {"host": STREAMS["host"]})


def test_equal_expressions_share_a_slot_and_others_do_not() -> None:
    found = parse(query("sum(cpu) AS a, avg(cpu) AS b, max(memory) AS c, count(*) AS d"), STREAMS)
    assert found.numbers == (Field("cpu"), Field("memory"))
    assert [(one.function, one.slot) for one in found.aggregates] == [
        ("sum", 0),
        ("avg", 0),
        ("max", 1),
        ("count_all", 0),
    ]


def test_a_key_may_be_an_expression_with_a_name() -> None:
    found = parse(query("floor(cpu / 10) AS tens, count(*) AS n", group=f"{MINUTE}, tens"), STREAMS)
    assert found.keys == (Key("tens", Call("floor", (Call("/", (Field("cpu"), Literal(10.0))),))),)


def test_text_can_be_counted_but_not_added() -> None:
    found = parse(query("count(zone) AS n"), STREAMS)
    assert found.numbers == (
        Call("case", (Call("is_null", (Field("zone"),)), Literal(None), Literal(1.0))),
    )


@pytest.mark.parametrize("name", built_in())
def test_the_queries_that_come_with_edgewake_are_read(name: str) -> None:
    assert parse(built_in()[name]).name == name


def test_the_stream_is_known_before_the_catalogue_is() -> None:
    assert stream_of(query("count(*) AS n", source="nobody")) == "nobody"
    with pytest.raises(UnknownStream, match="unknown stream 'hosts': did you mean 'host'"):
        parse(query("count(*) AS n", source="hosts"), STREAMS)


REFUSED = {
    "no name": (query("count(*) AS n", header=""), "expected a line `-- name: my_query`"),
    "unknown header": (
        query("count(*) AS n", header="-- name: q\n-- latness: 1 minute\n"),
        "line 2: unknown header key 'latness'; did you mean 'lateness'",
    ),
    "header twice": (query("count(*) AS n", header="-- name: q\n-- name: r\n"),
        "line 2: header key 'name' twice"),
    "bad name": (query("count(*) AS n", header="-- name: My Query\n"), "header name 'My Query'"),
    "bad lateness": (query("count(*) AS n", header="-- name: q\n-- lateness: soon\n"),
        "'soon': expected a number and a unit"),
    "two windows": (query("count(*) AS n", group=f"{MINUTE}, window(event_time, '2 minutes')"),
        "expected one window"),
    "too many rows": (query("count(*) AS n", group="window(event_time, '1 hour', '1 second')"),
        "more than 120 rows"),
    "join": ("-- name: q\nSELECT count(*) AS n FROM host JOIN b USING (device) GROUP BY c",
        "JOIN: unknown stream 'b'"),
    "comma join": ("-- name: q\nSELECT count(*) AS n FROM host, other GROUP BY device",
        "pairs each reading with every row"),
    "subquery in FROM": ("-- name: q\nSELECT count(*) AS n FROM (SELECT 1) GROUP BY device",
        "FROM: a subquery or WITH may only filter"),
    "subquery in WHERE": (query("count(*) AS n", where="WHERE cpu > (SELECT 1)"), "subquery"),
    "in subquery": (query("count(*) AS n", where="WHERE cpu IN (SELECT cpu FROM host)"),
        "subquery"),
    "exists": (query("count(*) AS n", where="WHERE EXISTS (SELECT 1)"), "subquery"),
    "with": (f"-- name: q\nWITH x AS (SELECT 1) SELECT count(*) AS n FROM host GROUP BY {MINUTE}",
        "WITH: a common table may only filter"),
    "union": (query("count(*) AS n") + " UNION SELECT 1", "expected one SELECT, found UNION"),
    "two statements": (query("count(*) AS n") + "; DROP TABLE host",
        "expected one SELECT, found SELECT, DROP"),
    "order": (query("count(*) AS n", group=f"{MINUTE} ORDER BY 1"),
        "ORDER BY: results are a stream and have no order; with LIMIT"),
    "long slide": (query("count(*) AS n", group="window(event_time, '1 minute', '2 minutes')"),
        "window slide '2 minutes': expected from"),
    "long window": (query("count(*) AS n", group="window(event_time, '60 days')"),
        "window size '60 days': expected from"),
    "filter that is none": (query("sum(cpu) FILTER (WHERE cpu) AS n"),
        "SELECT n: FILTER: expected a condition, found a number"),
    "unknown aggregate": (query("skewness(cpu) AS n"),
        "SELECT n: SKEWNESS(cpu): expected count, sum"),
    "sum of distinct": (query("sum(DISTINCT cpu) AS n"), "only possible in count(DISTINCT x)"),
    "mean of distinct": (query("mean(DISTINCT cpu) AS n"), "only possible in count(DISTINCT x)"),
    "every of distinct": (query("every(DISTINCT a) AS n"), "only possible in count(DISTINCT x)"),
    "aggregate within one": (query("max(avg(cpu)) AS n"),
        "aggregate 'AVG(cpu)' is only possible in SELECT, HAVING and ORDER BY"),
    "cast to an array": (query("max(cast(zone AS binary)) AS n"),
        "a string cannot be cast to BINARY; expected double, string"),
    "cast of a time": (query("max(cast(event_time AS double)) AS n"),
        "use unix_millis(event_time)"),
    "having that is none": (query("avg(cpu) AS m", group=f"{MINUTE} HAVING m"),
        "HAVING: expected a condition, found a number"),
    "having of a field": (query("avg(cpu) AS m", group=f"{MINUTE} HAVING cpu > 1"),
        "HAVING cpu: neither an aggregate nor in GROUP BY"),
    "no such zone": (query("count(*) AS n", header="-- name: q\n-- zone: Europe/Berlim\n"),
        "did you mean 'Europe/Berlin'?"),
    "regex of a repeated group": (query("count(*) AS n", where="WHERE zone RLIKE '^(a+)+$'"),
        "repeats a group"),
    "regex of a field": (query("count(*) AS n", where="WHERE zone RLIKE zone"),
        "RLIKE: expected a pattern in quotes"),
    "many open repeats": (query("count(*) AS n", where="WHERE zone RLIKE 'a.*b.*c'"),
        "more open repeats"),
    "pattern of a date": (query("date_format(event_time, 'EEEE') AS d, count(*) AS n",
        group=f"{MINUTE}, d"), "expected a pattern of yyyy"),
    "order of a list": (
        query("approx_percentile(cpu, array(0.5, 0.9)) AS p", group=f"{MINUTE} ORDER BY p LIMIT 2"),
        "ORDER BY: a list has no order",
    ),
    "list compared": (query("approx_top_k(zone, 3) AS p", group=f"{MINUTE} HAVING p > 3"),
        "compares a list with a number"),
    "escape of nothing": (query("count(*) AS n", where=r"WHERE zone LIKE 'a\\x'"),
        "after a \\ in the pattern"),
    "long pattern": (query("count(*) AS n", where=f"WHERE zone ILIKE '{'a' * 201}'"),
        "expected a pattern of at most 200 characters"),
    "random": (query("count(*) AS n", where="WHERE rand() < 0.5"),
        "a result must be the same when it is computed again"),
    "comma for both": ("-- name: q\nSELECT count(*) AS n FROM host, other GROUP BY device",
        "or for the readings of both: FROM (SELECT *"),
    "union of one": (query("count(*) AS n",
        source="(SELECT * FROM host UNION ALL SELECT * FROM host)"), "'host' twice"),
    "union distinct": (query("count(*) AS n",
        source="(SELECT * FROM host UNION SELECT * FROM other)"), "UNION ALL: only that"),
    "union of parts": (query("count(*) AS n",
        source="(SELECT cpu FROM host UNION ALL SELECT * FROM other)"), "expected whole streams"),
    "union with a filter": (query("count(*) AS n",
        source="(SELECT * FROM host UNION ALL SELECT * FROM b WHERE cpu > 1)"), "WHERE outside"),
    "union of many": (
        query("count(*) AS n",
            source=f"({' UNION ALL '.join(f'SELECT * FROM s{i}' for i in range(9))})"),
        "9 streams: expected at most 8",
    ),
    "union with an unknown one": (query("count(*) AS n", source=BOTH.replace("more", "hots")),
        "did you mean 'host'"),
    "union of two shapes": (
        query("count(*) AS n", source="(SELECT * FROM host UNION ALL SELECT * FROM odd)"),
        "UNION ALL: cpu is a number in host and a string in odd; register a query for each",
    ),
    "union with a look-back": (
        f"-- name: q\nSELECT robust_zscore(cpu, 5) AS z FROM {BOTH}",
        "UNION ALL: not with robust_zscore",
    ),
    "union with shed": (
        query("count(*) AS n", header="-- name: q\n-- shed: random above 60 seconds\n",
            source=BOTH),
        "header shed: not with UNION ALL",
    ),
    "subquery that groups": (query("count(*) AS n", source="(SELECT cpu FROM host GROUP BY cpu)"),
        "may only filter"),
    "limit": (query("count(*) AS n", group=f"{MINUTE} LIMIT 1"),
        "LIMIT: results are a stream and have no end"),
    "rollup": (query("count(*) AS n", group=f"ROLLUP(device), {MINUTE}"), "GROUP BY"),
    "over": (query("count(*) OVER (PARTITION BY device) AS n"), "OVER is not supported"),
    "reflect": (query("count(*) AS n",
        where="WHERE reflect('java.lang.System', 'exit', 1) IS NULL"),
        "function reflect() is not allowed"),
    "java_method": (query("max(java_method('a', 'b')) AS n"),
        "function java_method() is not allowed"),
    "unknown field": (query("max(cpuu) AS n"), "unknown field 'cpuu': did you mean 'cpu'"),
    "no catalogue names": (query("max(zzz) AS n"),
        "known are cpu, device, disk, event_time, memory, received_at, sent_at, zone"),
    "text added": (query("sum(zone) AS n"), "sum takes a number, found a string"),
    "text compared": (query("count(*) AS n", where="WHERE zone > 3"),
        "compares a number with a string"),
    "where no condition": (query("count(*) AS n", where="WHERE cpu"),
        "WHERE: expected a condition"),
    "not grouped": (query("device, count(*) AS n"), "neither an aggregate nor in GROUP BY"),
    "star of readings": ("-- name: q\nSELECT * FROM host",
        "SELECT *: expected the names of fields"),
    "unpivot of readings": ("-- name: q\nSELECT v FROM host UNPIVOT (v FOR k IN (cpu, disk))",
        "UNPIVOT: only with aggregates"),
    "star": (query("*"), "SELECT"),
    "count of nothing": (query("count() AS n"), "SELECT n: an argument is missing, as in count(*)"),
    "highest by nothing": (query("max_by(cpu) AS n"), "SELECT n: an argument is missing"),
    "year of nothing": (query("max(year()) AS n"), "SELECT n: an argument is missing"),
    "unpivot of nothing": (query("max(v) AS n", source="host UNPIVOT (v FOR k IN ())"),
        "FROM: expected `stream UNPIVOT"),
    "unit without a name": (
        query("count(*) AS n", group="date_trunc(JOIN host ON cpu, 'day', event_time)"),
        "SQL: Cannot convert empty name",
    ),
    "only keys": (query("device", group=f"{MINUTE}, device"), "at least one aggregate"),
    "name twice": (query("count(*) AS n, max(cpu) AS n"), "the name 'n' twice"),
    "reserved name": (query("count(*) AS revision"), "'revision' is reserved"),
    "bad rank": (query("approx_percentile(cpu, 1.5) AS n"), "a number from 0 to 1"),
    "bad k": (query("approx_top_k(zone, 100000) AS n"), "a number from 1 to 100"),
    "mode of nothing": (query("mode() AS n"), "mode takes one argument"),
    "mode that is told how": (query("mode(zone, true) AS n"), "mode takes one argument"),
    "mode of an order": (
        query("mode() WITHIN GROUP (ORDER BY zone) AS n"), "write mode(x)",
    ),
    "mode compared with another type": (
        query("mode(zone) AS n", group=f"{MINUTE} HAVING n > 3"), "compares a number with a string",
    ),
    "unpivot of two types": (query("max(v) AS n", source="host UNPIVOT (v FOR k IN (cpu, zone))"),
        "UNPIVOT: fields of several types"),
    "other database": (query("count(*) AS n", source="secret.host"), "FROM"),
    "no SQL": (HEADER + "hello, world", "SQL:"),
    "nothing": (HEADER, "expected one SELECT, found nothing"),
    "deep": (query(f"max({'(' * 200}cpu{')' * 200}) AS n"), "nested"),
    "long": (HEADER + " " * 30_000, "at most 20000"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_refused_with_a_clear_sentence(case: str) -> None:
    text, sentence = REFUSED[case]
    with pytest.raises(QueryError) as refusal:
        parse(text, STREAMS)
    assert sentence in str(refusal.value)


ALL_WRONG = """-- name: q
-- description: Größe über alles
-- lateness: soon
SELECT device, avrage(cpu) AS a,
  max(spood) AS b, sum(zone) AS c, cpu
FROM host
WHERE zonne = 'x' AND memory > 3 AND lower(cpu) = 'a'
GROUP BY window(event_time, '1 minut'), device
HAVING memory > 1"""


def test_all_that_is_wrong_is_told_at_once_each_with_its_place() -> None:
    with pytest.raises(QueryError) as refusal:
        parse(ALL_WRONG, STREAMS)
    assert str(refusal.value).splitlines() == [
        "header lateness 'soon': expected a number and a unit, e.g. '30 seconds', '1 minute', '1 "
        "hour'",
        "line 4:16: SELECT a: function avrage() is not allowed: did you mean avg?",
        "line 5:7: SELECT b: unknown field 'spood': known are cpu, device, disk, event_time, "
        "memory, received_at, sent_at, zone",
        "line 5:20: SELECT c: sum takes a number, found a string",
        "line 5:36: SELECT cpu: neither an aggregate nor in GROUP BY",
        "line 7:7: WHERE: unknown field 'zonne': did you mean 'zone'?",
        "line 7:38: WHERE: lower takes a string, found a number",
        "line 8:10: window size '1 minut': expected a number and a unit, e.g. '30 seconds', '1 "
        "minute', '1 hour'",
        "line 9:8: HAVING memory: neither an aggregate nor in GROUP BY",
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (HEADER + "SELECT max(cpu AS n FROM host", "line 2:16: SQL: Expecting ) near 'AS'"),
        (
            HEADER + "SELECT count(*) AS n FROM returning",
            "line 2:27: SQL: Expected table name near 'returning': it is a word of SQL; as a name "
            'write "returning"',
        ),
        (HEADER + "SELECT 'abc FROM host", "line 2:8: SQL: missing ' of what begins here"),
        (HEADER + "hello, world", "line 2:6: SQL: Invalid expression / Unexpected token near ','"),
    ],
)
def test_what_is_no_sql_is_told_with_line_and_column(text: str, first: str) -> None:
    with pytest.raises(QueryError) as refusal:
        parse(text, STREAMS)
    assert str(refusal.value) == first


def test_an_unknown_stream_is_waited_for_only_where_nothing_else_is_wrong() -> None:
    with pytest.raises(UnknownStream):
        parse(query("max(anything) AS n", source="hosts"), STREAMS)
    with pytest.raises(QueryError) as refusal:
        parse(query("maxx(anything) AS n", source="hosts"), STREAMS)
    assert not isinstance(refusal.value, UnknownStream)
    assert len(refusal.value.faults) == 2


def test_many_faults_are_counted_and_not_all_told() -> None:
    with pytest.raises(QueryError) as refusal:
        parse(query(", ".join(f"max(z{n}) AS a{n}" for n in range(50))), STREAMS)
    assert (len(refusal.value.faults), str(refusal.value).splitlines()[-1]) == (21, "and 30 more")


def test_a_query_says_how_long_a_final_window_is_opened_again() -> None:
    found = parse(
        query("count(*) AS n", header="-- name: q\n-- lateness: 1 minute\n-- reopen: 7 days\n")
    )
    assert (found.lateness_ms, found.reopen_ms, found.kept_ms) == (60_000, 604_800_000, 604_860_000)
    assert parse(query("count(*) AS n")).reopen_ms == 0
    with pytest.raises(QueryError, match="header reopen '9 days': expected at most 8 days"):
        parse(query("count(*) AS n", header="-- name: q\n-- reopen: 9 days\n"))
    with pytest.raises(QueryError, match="header lateness '2 days': expected at most 1 day"):
        parse(query("count(*) AS n", header="-- name: q\n-- lateness: 2 days\n"))


def test_checking_a_query_needs_no_spark() -> None:
    """The operations API does it, in a process of its own."""
    code = (
        "import sys, edgewake.cloud.queries.query_file; print(*sorted({'pyspark', 'pyarrow', "
        "'numpy'} & sys.modules.keys()))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == ""
    )


def test_a_stream_whose_name_is_a_word_of_sql_is_read_in_quotes() -> None:
    found = parse(query("count(*) AS n", source='"returning"'), {"returning": STREAMS["host"]})
    assert found.stream == "returning"


@pytest.mark.parametrize("digits", [NUMBER_CHARS_MAX + 1, 4400])
@pytest.mark.parametrize(
    "text",
    [
        query("device, count(*) AS n", group=f"{{}}, {MINUTE}"),
        query("device, count(*) AS n", group="device, count_window({})"),
        query("count(*) AS n", where="WHERE cpu > {}"),
        query("round(avg(cpu), {}) AS n"),
        query("approx_top_k(zone, {}) AS n"),
        query("count(*) AS n") + " ORDER BY n LIMIT {}",
        f"{HEADER}SELECT device, robust_zscore(cpu, {{}}) AS z FROM host",
        f"{HEADER}SELECT device, seen_before(cpu, {{}}) AS z FROM host",
        f"{HEADER}SELECT device, seen_before(cpu, 5000, {{}}) AS z FROM host",
        query(
            "count(*) AS n",
            header=f"{HEADER}-- shed: random above 60 seconds except where cpu > {{}}\n",
        ),
    ],
)
def test_a_number_that_is_too_long_is_refused_wherever_it_stands(text: str, digits: int) -> None:
    for number in ("1" * digits, "0" * (digits - 1) + "1"):
        with pytest.raises(QueryError, match=f"of {digits} characters: expected at most"):
            parse(text.format(number), STREAMS)
