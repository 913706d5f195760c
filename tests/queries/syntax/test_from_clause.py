"""FROM: one stream with its fields, and UNPIVOT behind it."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from edgewake.cloud.queries.query import Unpivot
from edgewake.cloud.queries.syntax.from_clause import (
    table_of,
    types_of,
    unpivot_kinds,
    unpivot_of,
)
from edgewake.cloud.queries.terms.faults import Faults, UnknownStream
from edgewake.cloud.queries.terms.functions import STRING, Kind
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream

NUMBER, TEXT = FieldType.NUMBER, FieldType.STRING
TYPES: dict[str, Kind] = {"a": NUMBER, "b": NUMBER, "name": TEXT}


def read(from_: str) -> exp.Expr:
    return sqlglot.parse_one(f"SELECT * FROM {from_}", read="spark")


def unpivot(from_: str, types: dict[str, Kind] | None = TYPES) -> Unpivot | None:
    faults = Faults(from_)
    found = unpivot_of(table_of(read(from_)), types, faults)
    faults.check()
    return found


def test_one_stream_is_read() -> None:
    assert table_of(read("host_metrics")).name == "host_metrics"


@pytest.mark.parametrize(
    ("from_", "why"),
    [
        ("(SELECT * FROM m)", "a subquery"),
        ("a.m", "db: expected a stream's name alone"),
        ("m AS other", "alias: expected a stream's name alone"),
        ("m TABLESAMPLE (10 ROWS)", "expected a stream's name alone"),
    ],
)
def test_what_is_no_stream_is_refused(from_: str, why: str) -> None:
    with pytest.raises(QueryError, match=r"^FROM") as error:
        table_of(read(from_))
    assert why in str(error.value)


def test_a_query_without_from_is_told_an_example() -> None:
    with pytest.raises(QueryError, match="FROM host_metrics"):
        table_of(sqlglot.parse_one("SELECT 1", read="spark"))


def test_the_fields_of_a_stream_have_its_types() -> None:
    stream = Stream(name="m", fields={"a": FieldInfo(type=NUMBER), "name": FieldInfo(type=TEXT)})
    assert types_of("m", {"m": stream}) == {"a": NUMBER, "name": TEXT}


@pytest.mark.parametrize(
    ("name", "known", "why"),
    [
        ("host_metric", ["host_metrics"], "did you mean 'host_metrics'"),
        ("other", ["b", "a"], "known are a, b"),
        ("other", [], "known are none yet"),
    ],
)
def test_an_unknown_stream_is_told_what_is_known(name: str, known: list[str], why: str) -> None:
    with pytest.raises(UnknownStream, match=why):
        types_of(name, {one: Stream(name=one, fields={}) for one in known})


def test_unpivot_makes_rows_of_fields() -> None:
    assert unpivot("m") is None
    found = unpivot("m UNPIVOT (value FOR metric IN (a, b))")
    assert found == Unpivot("value", "metric", ("a", "b"))
    assert unpivot_kinds(found, TYPES) == {"value": NUMBER, "metric": STRING}
    assert unpivot_kinds(found, None) == {"value": None, "metric": STRING}
    assert unpivot_kinds(None, TYPES) == {}


@pytest.mark.parametrize(
    ("from_", "why"),
    [
        ("m UNPIVOT (value FOR metric IN (a, name))", "fields of several types"),
        ("m UNPIVOT (value FOR metric IN (a, c))", "'c'"),
        ("m PIVOT (sum(a) FOR name IN ('x'))", "expected `stream UNPIVOT"),
        ("m UNPIVOT ((x, y) FOR metric IN ((a, b)))", "expected `stream UNPIVOT"),
    ],
)
def test_another_form_of_unpivot_is_refused(from_: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        unpivot(from_)


def test_before_the_stream_is_known_fields_of_any_name_may_be_named() -> None:
    found = unpivot("m UNPIVOT (value FOR metric IN (x, y))", None)
    assert found == Unpivot("value", "metric", ("x", "y"))
