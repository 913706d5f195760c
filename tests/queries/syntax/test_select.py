"""A SELECT: what its names mean, which columns a result has, and what each clause may not say."""

from __future__ import annotations

import re

import pytest

from edgewake.cloud.queries.query import Key, Order, Output, Query
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.syntax.select import LIMIT_MAX, TAGS_MAX
from edgewake.cloud.queries.terms.tree import Call, Field, Literal
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream

STREAMS = {
    "host": Stream(
        name="host",
        fields={
            "cpu": FieldInfo(type=FieldType.NUMBER),
            "mem": FieldInfo(type=FieldType.NUMBER),
            "zone": FieldInfo(type=FieldType.STRING),
            "ok": FieldInfo(type=FieldType.BOOLEAN),
        },
    )
}
MINUTE = "window(event_time, '1 minute')"


def read(select: str, *, group: str | None = "device", more: str = "", header: str = "") -> Query:
    """`group`: beside the window; None: no GROUP BY."""
    grouped = "" if group is None else f"GROUP BY {', '.join(filter(None, [MINUTE, group]))}"
    return parse(f"-- name: q\n{header}SELECT {select} FROM host {grouped} {more}", STREAMS)


def refusal(select: str, *, group: str | None = "device", more: str = "", header: str = "") -> str:
    with pytest.raises(QueryError) as caught:
        read(select, group=group, more=more, header=header)
    return str(caught.value)


def test_keys_and_window_times_are_in_each_result_whether_named_or_not() -> None:
    found = read("device, window_start, window.end, count(*) AS n")
    assert found.keys == (Key("device", Field("device")),)
    assert found.outputs == (Output("n", Field("#0")),)
    assert found.columns == ("window_start", "window_end", "device", "n")


def test_a_key_under_another_name_is_a_column_more() -> None:
    found = read("device AS machine, count(*) AS n")
    assert found.keys == (Key("device", Field("device")),)
    assert found.outputs == (Output("machine", Field("device")), Output("n", Field("#0")))


@pytest.mark.parametrize(
    ("select", "group", "key"),
    [
        ("count(*) AS n", "zone", Key("zone", Field("zone"))),
        ("zone AS z, count(*) AS n", "z", Key("z", Field("zone"))),
        ("zone AS z, count(*) AS n", "1", Key("z", Field("zone"))),
        ("floor(cpu) AS f, count(*) AS n", "f", Key("f", Call("floor", (Field("cpu"),)))),
        ("count(*) AS n", "floor(cpu)", Key("floor_cpu", Call("floor", (Field("cpu"),)))),
        ("floor(cpu) AS f, count(*) AS n", "floor(cpu)", Key("f", Call("floor", (Field("cpu"),)))),
        ("zone AS zone, count(*) AS n", "zone", Key("zone", Field("zone"))),
    ],
)
def test_a_key_is_a_field_a_number_or_a_name_of_select(select: str, group: str, key: Key) -> None:
    assert read(select, group=group).keys == (key,)


@pytest.mark.parametrize(
    ("select", "group"),
    [
        ("floor(cpu / 10) AS cpu, count(*) AS n", "cpu"),
        ("count(*) AS device", "device"),
        ("zone AS device, count(*) AS n", "device"),
        ("floor(cpu / 10) AS cpu, count(*) AS n", "1"),
    ],
)
def test_a_name_that_means_a_field_and_another_column_is_refused(select: str, group: str) -> None:
    """SQL groups by the field, and here the column was taken: other groups, without a word."""
    assert "give one of them another with AS" in refusal(select, group=group) or (
        "neither an aggregate nor in GROUP BY" in refusal(select, group=group)
    )


@pytest.mark.parametrize("clause", ["GROUP BY", "ORDER BY"])
def test_a_text_in_quotes_is_no_column(clause: str) -> None:
    """It is alike for all rows: one group, and any rows as the first ones."""
    if clause == "GROUP BY":
        found = refusal("count(*) AS n", group="'device'")
    else:
        found = refusal("count(*) AS n", more="ORDER BY 'n' LIMIT 3")
    assert re.search(f"{clause} '\\w+': a constant is the same for every row", found)


def test_names_of_select_are_known_in_having_and_order_by_and_not_in_select_itself() -> None:
    found = read("avg(cpu) AS cpu", more="HAVING cpu > 3 ORDER BY cpu DESC, device LIMIT 5")
    assert found.having == Call(">", (Field("#0"), Literal(3.0)))
    assert found.order == (Order(Field("#0"), True), Order(Field("device"), False))
    assert found.limit == 5
    assert "unknown field 'n'" in refusal("count(*) AS n, n + 1 AS m")


@pytest.mark.parametrize(
    ("select", "more", "why"),
    [
        ("count(*) AS n, sum(cpu) AS n", "", "'n' twice"),
        ("*", "", "expected GROUP BY columns and aggregates with names"),
        ("device", "", "expected at least one aggregate"),
        ("cpu + count(*) AS n", "", "SELECT cpu: neither an aggregate nor in GROUP BY"),
        ("max(avg(cpu)) AS n", "", "not within another one"),
        ("count(*) AS window_start", "", "reserved"),
        ("count(*) AS n", "HAVING n", "HAVING: expected a condition, found a number"),
        ("count(*) AS n", "HAVING n = 0", "HAVING: no row passes"),
        ("count(*) AS n", "ORDER BY n", "have no order; with LIMIT n"),
        ("count(*) AS n", "LIMIT 3", "have no end; ORDER BY"),
        ("count(*) AS n", "ORDER BY n LIMIT 0", f"from 1 to {LIMIT_MAX}"),
        ("count(*) AS n", f"ORDER BY n LIMIT {LIMIT_MAX + 1}", f"from 1 to {LIMIT_MAX}"),
        ("count(*) AS n", "ORDER BY n LIMIT 2.5", f"from 1 to {LIMIT_MAX}"),
        (
            "count(*) AS n",
            "ORDER BY 2 LIMIT 3",
            "expected the number of a column of SELECT, 1 to 1",
        ),
        ("count(*) AS n", "ORDER BY n LIMIT 3 OFFSET 1", "OFFSET: not supported"),
        ("count(*) AS n", "QUALIFY n > 1", "QUALIFY: not supported"),
        ("approx_top_k(zone, 3) AS top", "ORDER BY top LIMIT 3", "a list has no order"),
    ],
)
def test_what_a_clause_may_not_say_is_refused_with_what_it_may(
    select: str, more: str, why: str
) -> None:
    assert why in refusal(select, more=more)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("WHERE cpu", "WHERE: expected a condition, found a number"),
        ("WHERE count(*) > 1", "only possible in SELECT, HAVING and ORDER BY"),
        ("WHERE n > 1", "unknown field 'n'"),
    ],
)
def test_where_is_over_readings(where: str, why: str) -> None:
    text = f"-- name: q\nSELECT count(*) AS n FROM host {where} GROUP BY {MINUTE}"
    with pytest.raises(QueryError, match=re.escape(why)):
        parse(text, STREAMS)


def test_without_aggregates_each_reading_is_a_row() -> None:
    found = read("device, zone, cpu * 2 AS double", group=None)
    assert found.is_rows
    assert (found.keys, found.window.size_ms) == ((), 1)
    assert found.outputs == (
        Output("zone", Field("zone")),
        Output("double", Call("*", (Field("cpu"), Literal(2.0)))),
    )


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("*", "SELECT *: expected the names of fields"),
        ("zone AS device", "'device' twice"),
        ("cpu AS event_time", "reserved"),
        ("zone AS reading", "'reading' twice|reserved"),
    ],
)
def test_a_row_s_own_columns_keep_their_names(select: str, why: str) -> None:
    assert re.search(re.escape(why).replace(r"\|", "|"), refusal(select, group=None))


def test_a_reading_becomes_no_more_rows_than_the_bound() -> None:
    def hopping(hops: int) -> Query:
        return parse(
            "-- name: q\nSELECT count(*) AS n FROM host GROUP BY "
            f"window(event_time, '{hops} seconds', '1 second')",
            STREAMS,
        )

    assert hopping(TAGS_MAX).window.hops == TAGS_MAX
    with pytest.raises(QueryError, match=f"more than {TAGS_MAX} rows"):
        hopping(TAGS_MAX + 1)


def test_the_fields_of_an_unpivot_count_as_rows_too() -> None:
    def unpivoted(hops: int) -> Query:
        return parse(
            "-- name: q\nSELECT metric, avg(v) AS a FROM host UNPIVOT (v FOR metric IN (cpu, mem)) "
            f"GROUP BY window(event_time, '{hops} seconds', '1 second'), metric",
            STREAMS,
        )

    assert unpivoted(TAGS_MAX // 2).unpivot is not None
    with pytest.raises(QueryError, match="use a longer slide or fewer fields"):
        unpivoted(TAGS_MAX // 2 + 1)


@pytest.mark.parametrize(
    ("select", "more", "why"),
    [
        ("count(*) AS n", "ORDER BY n LIMIT 3", "LIMIT: each session"),
        ("approx_percentile(cpu, 0.5) AS p", "", "all aggregates but quantiles"),
        ("mode(zone) AS m", "", "all aggregates but quantiles, mode"),
    ],
)
def test_sessions_are_of_one_group_and_have_no_quantiles(select: str, more: str, why: str) -> None:
    text = (
        f"-- name: q\nSELECT {select} FROM host "
        f"GROUP BY session_window(event_time, '5 minutes'), device {more}"
    )
    with pytest.raises(QueryError, match=why):
        parse(text, STREAMS)


@pytest.mark.parametrize(
    ("header", "select", "group", "why"),
    [
        ("-- on_change: zone\n", "cpu", None, "expected device among the columns"),
        ("-- on_change: device, event_time\n", "cpu", None, "differs from reading to reading"),
        ("-- on_change: device\n", "event_time AS at", None, "no column that can stay the same"),
        ("-- on_change: device\n", "count(*) AS n", "device", "without GROUP BY"),
        ("-- table: device\n", "count(*) AS n", "device", "emitted as they are, without GROUP BY"),
        ("-- table: event_time\n", "cpu", None, "differs from reading to reading"),
    ],
)
def test_headers_that_compare_readings_say_what_they_need(
    header: str, select: str, group: str | None, why: str
) -> None:
    assert why in refusal(select, group=group, header=header)


def test_all_faults_of_a_select_are_said_at_once_with_their_places() -> None:
    found = refusal("avg(cup) AS a, sum(zone) AS b", more="ORDER BY a LIMIT 0")
    assert [line.split(":")[0] for line in found.splitlines()] == ["line 2"] * 3
    assert "unknown field 'cup'" in found
    assert "LIMIT: expected a number" in found
