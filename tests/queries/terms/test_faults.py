"""The faults of a query file: all of them, once each, in the order of their places."""

from __future__ import annotations

import pytest
import sqlglot

from edgewake.cloud.queries.terms.faults import FAULTS_MAX, Faults, UnknownStream, place_of
from edgewake.protocol.errors import QueryError

TEXT = "SELECT a,\n       b\nFROM s"


def column(name: str) -> sqlglot.exp.Expr:
    tree = sqlglot.parse_one(TEXT, dialect="spark")
    (found,) = (one for one in tree.find_all(sqlglot.exp.Column) if one.name == name)
    return found


def test_lines_and_columns_count_from_one() -> None:
    assert [place_of(TEXT, offset) for offset in (0, 7, 9, 10, TEXT.index("b"))] == [
        (1, 1),
        (1, 8),
        (1, 10),
        (2, 1),
        (2, 8),
    ]


def test_a_reader_goes_on_after_a_fault_and_all_are_said_by_place() -> None:
    faults = Faults(TEXT)
    for name in ("b", "a"):
        with faults.within(column(name)):
            raise QueryError(f"no {name}")
    assert str(faults.error()) == "line 1:8: no a\nline 2:8: no b"
    assert len(faults) == 2


def test_a_fault_keeps_the_inner_place() -> None:
    faults = Faults(TEXT)
    with faults.within(column("a")), faults.within(column("b")):
        raise QueryError("wrong")
    assert str(faults.error()) == "line 2:8: wrong"


def test_a_fault_that_is_found_twice_is_said_once() -> None:
    faults = Faults(TEXT)
    for _ in range(2):
        with faults.within(column("a")):
            raise QueryError("wrong")
    assert len(faults) == 1


def test_of_many_faults_the_first_are_said_and_the_rest_is_counted() -> None:
    faults = Faults(TEXT)
    for number in range(FAULTS_MAX + 3):
        faults.add(QueryError(f"fault {number}"))
    said = str(faults.error())
    assert f"fault {FAULTS_MAX - 1}" in said
    assert f"fault {FAULTS_MAX}" not in said
    assert "3 more" in said


def test_only_where_nothing_else_is_wrong_a_stream_may_still_come() -> None:
    """Such a query waits for its stream; one with another fault is refused."""
    faults = Faults(TEXT)
    faults.add(UnknownStream("unknown stream 's'"))
    assert isinstance(faults.error(), UnknownStream)
    faults.add(QueryError("wrong"))
    assert not isinstance(faults.error(), UnknownStream)


def test_only_faults_of_the_file_are_collected() -> None:
    faults = Faults(TEXT)
    with pytest.raises(ZeroDivisionError), faults.within(column("a")):
        raise ZeroDivisionError
    assert not len(faults)
