"""What is seen of an event through a right: decided without I/O."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.log.decode import DATA, GAP, Event
from edgewake.cloud.log.subscription import Source, plan
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import (
    Action,
    Grant,
    Kind,
    Principal,
    Proof,
)
from edgewake.cloud.rights.scope import Part, Scope
from edgewake.protocol.leases.lease import Subscription

READ = frozenset({Action.READ})
READING = {
    "stream": "s", "device": "car-7", "epoch": 1, "seq": 4, "t": 5, "received_at": 6,
    "speed": 70, "lat": 1.5,
}  # fmt: skip


def someone(*grants: Grant) -> Principal:
    return Principal("someone", grants, Proof(Kind.KEY, b"1"))


def seen(
    principal: Principal,
    fields: dict[str, object],
    *,
    where: str | None = None,
    query: bool = False,
) -> dict[str, object] | None:
    """What a subscription of `s` shows of an event, read back from its bytes."""
    sources = [Source("s", "ew.s.s", query, "id", 1)]
    opened = plan(
        Subscription(streams=("s",), where=where), sources, [principal.scope(Action.READ, "s")]
    )
    shown = opened.show(Event(DATA, fields, orjson.dumps(fields)), 0)
    return None if shown is None else orjson.loads(shown.data)


def grant(*devices: str, fields: tuple[str, ...] | None = None, streams: str = "s") -> Grant:
    return Grant(
        READ,
        Names.of([streams]),
        Names.of(devices) if devices else None,
        None if fields is None else Names.of(fields),
    )


def test_names_and_patterns() -> None:
    found = Names.of(["car-7", "bus-*", "a.c"])
    assert [name in found for name in ("car-7", "bus-", "bus-1", "a.c")] == [True] * 4
    assert [name in found for name in ("car-70", "xbus-1", "abc", "", None, 7)] == [False] * 6
    assert "" not in Names.of([])
    assert "x" not in Names.of([])
    assert Names.of(["b*", "a"]) == Names.of(["a", "b*", "a"])


def test_all_of_a_stream_is_the_event_itself() -> None:
    assert someone(grant()).scope(Action.READ, "s") is None
    assert seen(someone(grant()), READING) == READING


def test_devices_and_fields() -> None:
    assert seen(someone(grant("car-7")), READING) == READING
    assert seen(someone(grant("car-*")), READING) == READING
    assert seen(someone(grant("car-8")), READING) is None
    cut = seen(someone(grant("car-7", fields=("speed",))), READING)
    assert cut == {name: value for name, value in READING.items() if name != "lat"}
    assert cut is not None
    assert list(cut) == [name for name in READING if name != "lat"]


def test_what_grants_say_adds_up() -> None:
    both = someone(grant("car-7"), grant(fields=("lat",)))
    assert seen(both, READING) == READING
    other = seen(both, READING | {"device": "car-8"})
    assert other is not None
    assert "lat" in other
    assert "speed" not in other


def test_a_filter_tells_nothing_of_what_is_hidden() -> None:
    """Without the cut before it, `speed > 60` would tell of each reading whether it is."""
    slow, fast = READING | {"speed": 50}, READING
    blind = someone(grant("car-7", fields=("lat",)))
    for where in ("speed > 60", "NOT (speed > 60)", "speed = 70", "coalesce(speed, 0) > 60"):
        assert (seen(blind, slow, where=where) is None) == (seen(blind, fast, where=where) is None)
        control = someone(grant("car-7"))
        told = [seen(control, one, where=where) is None for one in (slow, fast)]
        assert told[0] != told[1], where
    assert seen(blind, fast, where="speed IS NULL") is not None
    assert seen(someone(grant("car-8")), fast, where="device = 'car-7' OR 1 = 1") is None


def test_a_result_that_names_no_device_needs_the_right_to_all() -> None:
    result = {"query": "s", "window_start": 1, "window_end": 2, "revision": 3, "n": 9}
    assert seen(someone(grant("car-*")), result, query=True) is None
    assert seen(someone(grant("*")), result, query=True) is None
    assert seen(someone(grant(fields=("n",))), result, query=True) == result


def test_gaps_of_other_devices_are_not_told() -> None:
    opened = plan(
        Subscription(streams=("s",)),
        [Source("s", "ew.s.s", False, "id", 1)],
        [someone(grant("car-7")).scope(Action.READ, "s")],
    )
    for device, is_told in (("car-7", True), ("car-8", False)):
        gap = Event(GAP, {"stream": "s", "device": device, "lost": 3}, b"{}")
        assert (opened.show(gap, 0) is not None) is is_told


def test_warnings_name_no_field_that_is_hidden() -> None:
    reader = someone(grant("car-7", fields=("lat",)))
    opened = plan(
        Subscription(streams=("s",), where="spede > 1"),
        [Source("s", "ew.s.s", False, "id", 1)],
        [reader.scope(Action.READ, "s")],
    )
    told = opened.warnings(lambda _: {"speed": "float", "lat": "float"})
    assert told
    assert "speed" not in " ".join(warning.detail for warning in told)
    assert not [warning for warning in told if warning.near and "speed" in warning.near]


def test_views_are_shared_among_those_who_see_the_same() -> None:
    subscription = Subscription(streams=("s",))
    sources = [Source("s", "ew.s.s", False, "id", 1)]
    sights = [
        plan(subscription, sources, [someone(*grants).scope(Action.READ, "s")]).sight
        for grants in (
            (grant("a", "b"),),
            (grant("b", "a"), grant("a", "b")),
            (grant("a"),),
            (grant(),),
        )
    ]
    assert sights[0] == sights[1]
    assert hash(sights[0]) == hash(sights[1])
    assert len(set(sights)) == 3
    assert [sight.is_common for sight in sights] == [False, False, False, True]


_DEVICES = ("car-1", "car-2", "car-*", "bus-*", "*-1", "*")
_FIELDS = ("speed", "lat", "l*", "*")


def _names(words: tuple[str, ...]) -> st.SearchStrategy[Names | None]:
    return st.none() | st.sets(st.sampled_from(words), max_size=3).map(Names.of)


_SCOPES = st.lists(st.builds(Part, _names(_DEVICES), _names(_FIELDS)), max_size=3).map(
    lambda parts: Scope(tuple(parts))
)


@given(_SCOPES, _SCOPES)
def test_a_scope_covers_another_where_it_shows_all_that_the_other_one_does(
    one: Scope, other: Scope
) -> None:
    """Looked at with devices and fields, some of which only a pattern, or nothing, names."""
    devices = ("car-1", "car-2", "car-x", "bus-1", "bus-x", "x-1", "x", None)
    fields = ("speed", "lat", "lx", "x")

    def shown(scope: Scope) -> set[tuple[object, str]]:
        events = [{"device": device, **dict.fromkeys(fields)} for device in devices]
        return {
            (event["device"], name)
            for event in events
            for name in scope.cut(event, is_result=False) or {}
        }

    assert one.covers(other) is (shown(one) >= shown(other))


def test_what_the_catalogue_says_of_a_field_names_no_device_to_who_sees_some() -> None:
    told = {"type": "number", "first_device": "car-2", "first_via": "", "other_unit": "m by car-2"}
    assert Scope((Part(Names.of(["car-1"]), None),)).cut_told(told) == {"type": "number"}
    assert Scope((Part(None, Names.of(["speed"])),)).cut_told(told) == told


def test_a_field_of_one_grant_is_no_total_of_another() -> None:
    """A summary over all devices is seen through parts that have all devices."""
    scope = Scope((Part(Names.of(["car-1"]), Names.of(["speed"])), Part(None, Names.of(["lat"]))))
    seen = {
        (device, field)
        for device in (None, "car-1", "car-2")
        for field in ("speed", "lat")
        if scope.sees_value(device, field)
    }
    assert seen == {("car-1", "speed"), ("car-1", "lat"), ("car-2", "lat"), (None, "lat")}
