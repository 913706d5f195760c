"""Several streams of one shape in one query."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from edgewake.cloud.queries.syntax.union import STREAMS_MAX, agreed, others_of, unite
from edgewake.cloud.queries.terms.faults import Faults
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.field_type import FieldType

NUMBER, TEXT = FieldType.NUMBER, FieldType.STRING


def united(sql: str) -> tuple[str, list[str]]:
    """The stream in FROM after it, and the others. Raises QueryError."""
    select = sqlglot.parse_one(sql, read="spark")
    assert isinstance(select, exp.Select)
    faults = Faults(sql)
    unite(select, faults)
    faults.check()
    return select.args["from_"].this.sql(), [one.name for one in others_of(select)]


def of(*streams: str) -> str:
    return " UNION ALL ".join(f"SELECT * FROM {name}" for name in streams)


def test_the_first_stream_takes_the_place_of_all() -> None:
    assert united(f"SELECT a FROM ({of('vans', 'trucks', 'cars')})") == ("vans", ["trucks", "cars"])


def test_a_name_or_a_common_table_for_all_is_kept() -> None:
    assert united(f"SELECT a FROM ({of('vans', 'trucks')}) AS fleet")[1] == ["trucks"]
    found = united(f"WITH fleet AS ({of('vans', 'trucks')}) SELECT a FROM fleet")
    assert found == ("vans AS fleet", ["trucks"])


def test_a_query_of_one_stream_is_left_alone() -> None:
    assert united("SELECT a FROM vans") == ("vans", [])


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        ("SELECT * FROM a UNION SELECT * FROM b", "only that"),
        ("SELECT * FROM a EXCEPT SELECT * FROM b", "only that"),
        (of("a", "b", "a"), "'a' twice"),
        ("SELECT x FROM a UNION ALL SELECT * FROM b", "expected whole streams"),
        ("SELECT * FROM a WHERE x > 1 UNION ALL SELECT * FROM b", "WHERE outside of it"),
        (of(*(f"s{i}" for i in range(STREAMS_MAX + 1))), f"at most {STREAMS_MAX}"),
    ],
)
def test_what_is_not_whole_streams_once_each_is_refused(inner: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        united(f"SELECT a FROM ({inner})")


def test_as_many_streams_as_the_bound_are_read() -> None:
    names = [f"s{i}" for i in range(STREAMS_MAX)]
    assert united(f"SELECT a FROM ({of(*names)})") == ("s0", names[1:])


def test_streams_agree_on_what_both_have() -> None:
    assert agreed("vans", {"a": NUMBER}, "trucks", {"a": NUMBER, "b": TEXT}) == {
        "a": NUMBER,
        "b": TEXT,
    }
    with pytest.raises(QueryError, match=f"a is a {NUMBER} in vans and a {TEXT} in trucks"):
        agreed("vans", {"a": NUMBER}, "trucks", {"a": TEXT})
