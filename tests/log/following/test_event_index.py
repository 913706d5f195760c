"""The index finds whose filter an event may pass."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.decode import DATA, GAP, WATERMARK
from edgewake.cloud.log.filters.filter_keys import Keys
from edgewake.cloud.log.following.event_index import ENTRIES_MAX, EventIndex
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.scope import Part, Scope
from tests.examples import examples
from tests.log.following.strategies import (
    NAMES,
    a_plan,
    chosen_of,
    conditions,
    event_of,
    events,
    scopes,
)


@given(st.lists(st.tuples(st.none() | conditions, scopes, chosen_of), max_size=8), st.lists(events))
@settings(max_examples=examples(400))
def test_the_index_finds_all_who_are_shown_an_event(
    readers: list[tuple[str | None, Scope | None, dict[str, Any]]],
    sent: list[tuple[str, dict[str, Any]]],
) -> None:
    index: EventIndex[int] = EventIndex()
    plans = [a_plan(where, scope, NAMES[:1], more) for where, scope, more in readers]
    keyed = {i: found.keys[0] for i, found in enumerate(plans) if found.keys is not None}
    for i, keys in keyed.items():
        assert index.add(i, keys)
    for kind, content in sent:
        event = event_of(kind, content)
        found = Counter(index.find(event))
        assert set(found.values()) <= {1}
        shown = {i for i in keyed if plans[i].show(event) is not None}
        assert shown <= set(found)
    for i, keys in keyed.items():
        index.remove(i, keys)
    assert not index
    assert index._entries == 0
    assert not index._by_field


def test_an_event_is_looked_for_in_the_filters_that_can_pass_it_and_in_no_others() -> None:
    index: EventIndex[int] = EventIndex()
    for i in range(1000):
        keys = a_plan(f"device = 'car-{i}' AND n > 1", None).keys
        assert keys is not None
        index.add(i, keys[0])
    assert list(index.find(event_of(DATA, {"device": "car-7"}))) == [7]
    assert list(index.find(event_of(DATA, {"device": ["car-7"]}))) == []
    assert list(index.find(event_of(GAP, {"device": "car-8"}))) == [8]
    assert len(list(index.find(event_of(WATERMARK, {})))) == 1000


def test_how_a_text_begins_is_looked_for_once_for_each_length() -> None:
    """LIKE, `starts_with` and the patterns of a right; a reader is found once, by whatever."""
    index: EventIndex[int] = EventIndex()
    readers: list[tuple[str | None, Scope | None]] = [
        *((f"device LIKE 'line-{i:03d}-%'", None) for i in range(500)),
        ("starts_with(device, 'line-007-') OR device = 'line-007-a'", None),
        (None, Scope((Part(Names.of(["line-007*", "line-0*", "car-1"]), None),))),
        ("device LIKE 'line-007-a' AND n > 1", None),
    ]
    for i, (where, scope) in enumerate(readers):
        keys = a_plan(where, scope).keys
        assert keys is not None
        index.add(i, keys[0])
    event = event_of(DATA, {"device": "line-007-a"})
    assert Counter(index.find(event)) == Counter([7, 500, 501, 502])
    assert list(index.find(event_of(DATA, {"device": "car-1"}))) == [501]
    assert list(index.find(event_of(DATA, {"device": "line-9"}))) == []
    assert Counter(index.find(event_of(GAP, {"device": "line-008-b"}))) == Counter([8, 501])
    assert a_plan("device LIKE '%-a'", None).keys is None
    assert a_plan(None, Scope((Part(Names.of(["*-a"]), None),))).keys is None


def test_a_set_that_many_use_is_kept_once_and_what_finds_no_room_is_not_taken() -> None:
    index: EventIndex[int] = EventIndex()
    half = Keys("device", frozenset(f"car-{i}" for i in range(ENTRIES_MAX // 2 + 1)))
    other = Keys("device", frozenset(f"bus-{i}" for i in range(ENTRIES_MAX // 2 + 1)))
    assert all(index.add(i, half) for i in range(1000))
    assert not index.add(1000, other)
    assert len(list(index.find(event_of(DATA, {"device": "car-1"})))) == 1000
    for i in range(1000):
        index.remove(i, half)
    assert index.add(1000, other)
