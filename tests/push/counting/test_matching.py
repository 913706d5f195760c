"""The index of filters says what trying every filter would say."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.log.decode import DATA, GAP, Event
from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.cloud.push.counting.matching import Matcher, required_values
from edgewake.protocol.errors import FilterError

LITERALS = st.sampled_from(["1", "1.0", "0", "2", "'a'", "'b'", "'1'", "true", "false"])
FIELDS = st.sampled_from(["a", "b", "device"])
CONDITIONS = st.one_of(
    st.builds("{} = {}".format, FIELDS, LITERALS),
    st.builds("{} = {}".format, LITERALS, FIELDS),
    st.builds("{} IN ({}, {})".format, FIELDS, LITERALS, LITERALS),
    st.builds("{} > {}".format, FIELDS, LITERALS),
    st.builds("{} <> {}".format, FIELDS, LITERALS),
    st.builds("{} IS NULL".format, FIELDS),
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)
VALUES = st.sampled_from([1, 1.0, 0, 2, "a", "b", "1", True, False, None, [1], {"x": 1}])
EVENTS = st.dictionaries(FIELDS, VALUES)


def event(fields: dict[str, Any], kind: str = DATA) -> Event:
    return Event(kind, fields, orjson.dumps(fields))


def matcher(filters: set[str | None]) -> Matcher[str | None]:
    made: Matcher[str | None] = Matcher()
    for where in filters:
        made.add(where, where)
    return made


@given(st.sets(st.one_of(st.none(), FILTERS), max_size=8), EVENTS)
def test_the_index_finds_what_trying_every_filter_finds(
    filters: set[str | None], fields: dict[str, Any]
) -> None:
    expected = {where for where in filters if where is None or compile_where(where).passes(fields)}
    found = list(matcher(filters).matches(event(fields)))
    assert (set(found), len(found)) == (expected, len(expected))


@given(st.sets(FILTERS, max_size=8), st.data())
def test_what_was_removed_is_found_no_more(filters: set[str], data: st.DataObject) -> None:
    made = matcher(set(filters))
    gone = data.draw(st.sets(st.sampled_from(sorted(filters)))) if filters else set()
    for where in gone:
        made.remove(where)
    fields = data.draw(EVENTS)
    assert set(made.matches(event(fields))) == {
        where for where in filters - gone if compile_where(where).passes(fields)
    }
    assert len(made) == len(filters - gone)


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("device = 'a'", ("device", (("text", "a"),), True)),
        ("device = 'a' AND speed > 50", ("device", (("text", "a"),), False)),
        ("speed > 50 AND device IN ('a', 'b')", ("device", (("text", "a"), ("text", "b")), False)),
        ("device = 'a' OR speed > 50", None),
        ("NOT device = 'a'", None),
        ("speed > 50", None),
        ("device = NULL", None),
    ],
)
def test_the_values_that_a_filter_demands(where: str, found: object) -> None:
    assert required_values(parse_where(where)) == found


@pytest.mark.parametrize(
    "name",
    [
        "device",
        "d",
        "_x",
        "date",
        "user",
        "current_date",
        "true",
        "null",
        "not",
        "interval",
        "Device",
        "select",
        "in",
    ],
)
@given(text=st.text(max_size=20))
def test_the_short_way_for_plain_filters_says_what_the_parser_says(name: str, text: str) -> None:
    where = f"{name} = '{text}'"
    try:
        parsed = compile_where(where).passes
    except FilterError:
        return  # such a lease is refused before it comes here
    for value in (text, text + "x", text.upper(), 1, None):
        fields = {name: value}
        assert list(matcher({where}).matches(event(fields))) == ([where] if parsed(fields) else [])


def test_of_a_hundred_thousand_filters_only_those_of_the_device_are_tried() -> None:
    made: Matcher[int] = Matcher()
    for number in range(2000):
        made.add(f"device = 'd{number}' AND n > 1", number)
    assert made.scanned == 0
    assert list(made.matches(event({"device": "d7", "n": 2}))) == [7]


def test_a_gap_passes_every_filter_that_may_have_wanted_what_is_lost_and_no_other() -> None:
    made = matcher({"device = 'a'", "device = 'b'", "n > 3", None})
    assert set(made.matches(event({"scope": "device", "device": "a"}, GAP))) == {
        "device = 'a'",
        "n > 3",
        None,
    }


def test_an_event_that_breaks_a_filter_stops_no_other() -> None:
    made = matcher({"a < b", "n = 1"})
    assert set(made.matches(event({"a": [1], "b": [{}], "n": 1}))) == {"n = 1"}


def test_a_filter_that_is_refused_leaves_nothing_behind() -> None:
    made = matcher(set())
    with pytest.raises(FilterError):
        made.add("n >", "n >")
    assert (len(made), list(made.matches(event({"n": 1})))) == (0, [])
