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
from edgewake.cloud.log.named import Named
from edgewake.cloud.push.counting.matching import Demand, Matcher, demand_of
from edgewake.protocol.errors import FilterError
from edgewake.protocol.ops.named_set import NamedSet

LITERALS = st.sampled_from(["1", "1.0", "0", "2", "'a'", "'b'", "'1'", "true", "false"])
FIELDS = st.sampled_from(["a", "b", "device"])
CONDITIONS = st.one_of(
    st.builds("{} = {}".format, FIELDS, LITERALS),
    st.builds("{} = {}".format, LITERALS, FIELDS),
    st.builds("{} IN ({}, {})".format, FIELDS, LITERALS, LITERALS),
    st.builds("{} > {}".format, FIELDS, LITERALS),
    st.builds("{} <> {}".format, FIELDS, LITERALS),
    st.builds("{} IS NULL".format, FIELDS),
    st.builds(
        "{} LIKE {}".format,
        FIELDS,
        st.sampled_from(["'a%'", "'a_'", "'ab'", "'%b'", "'a!%' ESCAPE '!'"]),
    ),
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
VALUES = st.sampled_from(
    [1, 1.0, 0, 2, "a", "b", "ab", "abc", "a%", "1", True, False, None, [1], {"x": 1}]
)
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
        ("device = 'a'", Demand("device", (("text", "a"),))),
        ("device = 'a' AND speed > 50", Demand("device", (("text", "a"),), is_whole=False)),
        (
            "speed > 50 AND device IN ('a', 'b')",
            Demand("device", (("text", "a"), ("text", "b")), is_whole=False),
        ),
        ("device IN SET('north')", Demand("device", named="north")),
        ("device IN SET('north') AND n > 1", Demand("device", named="north", is_whole=False)),
        (
            "line IN SET('north') AND device IN ('a', 'b')",
            Demand("device", (("text", "a"), ("text", "b")), is_whole=False),
        ),
        ("device IN SET('north') OR n > 1", None),
        ("device LIKE 'bus-%'", Demand("device", (("begins", "bus-"),), is_whole=False)),
        ("device LIKE 'bus'", Demand("device", (("text", "bus"),))),
        ("device LIKE '%bus'", None),
        (
            "device = 'a' OR device LIKE 'bus-%'",
            Demand("device", (("text", "a"), ("begins", "bus-")), is_whole=False),
        ),
        ("device = 'a' OR device = 'b'", Demand("device", (("text", "a"), ("text", "b")))),
        ("device = 'a' OR n = 1", None),
        ("device = 'a' OR speed > 50", None),
        ("NOT device = 'a'", None),
        ("speed > 50", None),
        ("device = NULL", None),
    ],
)
def test_the_values_that_a_filter_demands(where: str, found: Demand | None) -> None:
    assert demand_of(parse_where(where)) == found


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


def test_a_set_is_looked_into_as_it_is_when_an_event_comes() -> None:
    """Whatever it holds, its filters are found without being tried on what is not in it."""
    sets = Named()
    alone, narrow, other = (
        "device IN SET('north')",
        "device IN SET('north') AND n > 3",
        "device IN SET('south') AND device = 'a'",
    )
    made: Matcher[str] = Matcher(sets)
    for where in (alone, narrow, other):
        made.add(where, where)

    def found(device: object, n: int = 9, kind: str = DATA) -> set[str]:
        return set(made.matches(event({"device": device, "n": n}, kind)))

    assert (made.scanned, found("a")) == (0, set()), "there are no sets yet"
    sets.take_set("north", a_set("north", "a", "b"))
    sets.take_set("south", a_set("south", "a"))
    assert found("a") == {alone, narrow, other}
    assert (found("b", n=1), found("c"), found(7)) == ({alone}, set(), set())
    assert found("b", kind=GAP) == {alone, narrow}
    sets.take_set("north", a_set("north", "c"))
    assert (found("a"), found("c")) == ({other}, {alone, narrow})
    sets.take_set("north", None)
    assert found("c") == set()
    made.remove(alone)
    sets.take_set("north", a_set("north", "c"))
    assert found("c") == {narrow}


def a_set(name: str, *members: str) -> bytes:
    kept = NamedSet(name=name, members=members, version=1, changed_at=0, changed_by="a test")
    return kept.model_dump_json().encode()


def test_an_event_that_breaks_a_filter_stops_no_other() -> None:
    made = matcher({"a < b", "n = 1"})
    assert set(made.matches(event({"a": [1], "b": [{}], "n": 1}))) == {"n = 1"}


def test_a_filter_that_is_refused_leaves_nothing_behind() -> None:
    made = matcher(set())
    with pytest.raises(FilterError):
        made.add("n >", "n >")
    assert (len(made), list(made.matches(event({"n": 1})))) == (0, [])
