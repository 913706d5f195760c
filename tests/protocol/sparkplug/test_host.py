"""The host application's side of Sparkplug B 3.0, assertion by assertion (its TCK's ids)."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.sparkplug import host as hosts
from edgewake.protocol.sparkplug import payload as payloads
from edgewake.protocol.sparkplug.host import (
    NODES_MAX,
    REBIRTH_S,
    Event,
    Host,
    Odd,
    Reading,
    Rebirth,
    ThingPresence,
    address_of,
    is_death,
    state,
)
from edgewake.protocol.sparkplug.payload import decoded

T: Final = 1_772_352_930_000
NODE, DEVICE = "spBv1.0/g/{}/n", "spBv1.0/g/{}/n/d"
RUN_BY = (
    "tests/edge/sources/mqtt/test_sparkplug.py",
    "tests/bridge/sparkplug/test_host_session.py",
)
"""The agent and the bridge hold to the same contract."""
ROWS: Final = json.loads((Path(__file__).parent / "assertions.json").read_text())["rows"]
"""Each assertion of the specification → its tests, by node id, or why it is not a host's."""
ASSERTIONS: Final = 299
"""Statements that version 3.0.0 of the specification marks as testable."""


def test_each_assertion_of_the_specification_has_a_test_or_a_reason() -> None:
    assert len(ROWS) == ASSERTIONS
    wrong = [name for name, row in ROWS.items() if not row.get("tests") and not row.get("not_ours")]
    assert wrong == []


def test_each_test_that_an_assertion_names_is_there() -> None:
    named = {test for row in ROWS.values() for test in row.get("tests", ())}
    known: dict[str, set[str]] = {}
    for test in named:
        file, _, name = test.partition("::")
        if file not in known:
            tree = ast.parse((Path(__file__).parents[3] / file).read_text())
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
            known[file] = {one.name for one in tree.body if isinstance(one, kinds)}
        assert name.startswith("test_"), test
        assert name in known[file], test


def test_the_docs_say_how_many_assertions_are_shown() -> None:
    shown = sum("tests" in row for row in ROWS.values())
    said = (Path(__file__).parents[3] / "docs/devices/sparkplug.md").read_text()
    assert f"{shown} of the {ASSERTIONS} statements" in said


def test_agent_and_bridge_hold_to_the_whole_contract() -> None:
    promises = re.findall(
        r"(?m)^async def (\w+)\(", (Path(__file__).parent / "contract.py").read_text()
    )
    assert len(promises) >= 4
    for file in RUN_BY:
        text = (Path(__file__).parents[3] / file).read_text()
        assert [one for one in promises if f"contract.{one}(" not in text] == [], file


def message(seq: int | None, *metrics: dict[str, Any], t: int | None = T) -> bytes:
    found = payloads._Payload()
    if t is not None:
        found.timestamp = t
    if seq is not None:
        found.seq = seq
    for metric in metrics:
        found.metrics.add(**metric)
    data: bytes = found.SerializeToString()
    return data


def birth(seq: int = 0, bd_seq: int = 0, *metrics: dict[str, Any]) -> bytes:
    own = {"name": "bdSeq", "datatype": 4, "long_value": bd_seq}
    rebirth = {"name": "Node Control/Rebirth", "datatype": 11, "boolean_value": False}
    return message(seq, own, rebirth, *metrics)


X = {"name": "x", "alias": 1, "datatype": 10, "double_value": 0.5}


class Heard:
    def __init__(self, reorder_s: float = 2.0) -> None:
        self.host = Host(reorder_s)
        self.now_s = 100.0

    def __call__(self, kind: str, data: bytes) -> list[Event]:
        topic = (DEVICE if kind.startswith("D") else NODE).format(kind)
        return self.host.message(topic, data, T + 999, self.now_s)

    def born(self) -> Heard:
        self("NBIRTH", birth(0, 0, X))
        self("DBIRTH", message(1, X | {"name": "y", "alias": 2}))
        return self


def values(events: list[Event]) -> list[dict[str, Any]]:
    return [one.values for one in events if isinstance(one, Reading)]


def rebirths(events: list[Event]) -> list[str]:
    return [one.topic for one in events if isinstance(one, Rebirth)]


def presences(events: list[Event]) -> list[tuple[str, bool]]:
    return [(one.thing, one.is_online) for one in events if isinstance(one, ThingPresence)]


def test_topics() -> None:
    assert address_of("spBv1.0/g/NBIRTH/n") == ("g", "NBIRTH", "n", "")
    assert address_of("spBv1.0/g/DDATA/n/d") == ("g", "DDATA", "n", "d")
    for wrong in ("spAv1.0/g/NBIRTH/n", "spBv1.0/g/NBIRTH/n/d", "spBv1.0/g/DDATA/n",
                  "spBv1.0/STATE/host", "spBv1.0/g/OTHER/n", "spBv1.0//NBIRTH/n"):  # fmt: skip
        assert address_of(wrong) is None
        (one,) = Host(1).message(wrong, b"", T, 0.0)
        assert isinstance(one, Odd)


def test_a_real_edge_node_and_its_device() -> None:
    recorded = json.loads((Path(__file__).parent / "recorded.json").read_text())["messages"]
    host = Host(2.0)
    events = [
        event
        for one in recorded
        for event in host.message(one["topic"], bytes.fromhex(one["payload"]), T, 0.0)
    ]
    measured = [one for one in events if isinstance(one, Reading) and not one.is_stale]
    assert [(one.thing, one.t, one.values) for one in measured] == [
        ("plant/gw-1", T, {"Properties/Version": "1.2", "Speed": -5, "Load": 0.5}),
        ("plant/gw-1/boiler", T, {"Temperature": 21.5, "Running": True, "Total": 2**60,
                                  "Offset": -7}),
        ("plant/gw-1", T + 1000, {"Speed": -6}),
        ("plant/gw-1/boiler", T + 2000, {"Temperature": 22.5, "Running": False}),
    ]  # fmt: skip
    assert presences(events) == [
        ("plant/gw-1", True), ("plant/gw-1/boiler", True), ("plant/gw-1/boiler", False),
        ("plant/gw-1", False),
    ]  # fmt: skip
    assert not [one for one in events if isinstance(one, Odd)]
    stale = [one for one in events if isinstance(one, Reading) and one.is_stale]
    assert [(one.thing, *one.values) for one in stale] == [
        ("plant/gw-1/boiler", "Temperature", "Running", "Total", "Offset"),
        ("plant/gw-1", "Properties/Version", "Speed", "Load"),
    ]  # fmt: skip


def test_what_a_dead_node_or_device_measured_is_stale() -> None:
    """At the time that a device's death says, and at ours for a node and its devices."""
    one = Heard().born()
    found = one("DDEATH", message(2, t=T + 7))
    assert found == [
        Reading("g/n/d", T + 7, {"y": None}, False, is_stale=True),
        ThingPresence("g/n/d", False, T + 7),
    ]
    one("DBIRTH", message(3, X | {"name": "y", "alias": 2}))
    own = {"name": "bdSeq", "datatype": 4, "long_value": 0}
    assert one("NDEATH", message(None, own, t=5)) == [
        Reading("g/n/d", T + 999, {"y": None}, False, is_stale=True),
        ThingPresence("g/n/d", False, T + 999),
        Reading("g/n", T + 999, {"x": None}, False, is_stale=True),
        ThingPresence("g/n", False, T + 999),
    ]


def test_messages_are_taken_in_order() -> None:
    one = Heard().born()
    assert one("NDATA", message(3, {"alias": 1, "double_value": 3.0})) == []
    assert one("NDATA", message(4, {"alias": 1, "double_value": 4.0})) == []
    found = one("NDATA", message(2, {"alias": 1, "double_value": 2.0}))
    assert values(found) == [{"x": 2.0}, {"x": 3.0}, {"x": 4.0}]
    one.now_s += 60
    assert one.host.due(one.now_s) == [], "the timer is off"
    (again,) = one("NDATA", message(4, {"alias": 1, "double_value": 4.0}))
    assert isinstance(again, Odd)
    for seq in range(5, 300):
        found = one("NDATA", message(seq % 256, {"alias": 1, "double_value": float(seq)}))
        assert values(found) == [{"x": float(seq)}], "over 255 as well"


def test_a_gap_ends_in_a_rebirth() -> None:
    one = Heard(reorder_s=2.0).born()
    assert one("NDATA", message(3, {"alias": 1, "double_value": 3.0})) == []
    assert one.host.due(one.now_s + 1.9) == []
    found = one.host.due(one.now_s + 2.0)
    assert rebirths(found) == ["spBv1.0/g/NCMD/n"]
    assert [event.is_lost for event in found if isinstance(event, Odd)] == [True]
    assert one.host.due(one.now_s + 9) == [], "once"
    assert values(one("NBIRTH", birth(7, 0, X))) == [{"x": 0.5}]
    assert values(one("NDATA", message(8, {"alias": 1, "double_value": 8.0}))) == [{"x": 8.0}]


@pytest.mark.parametrize("kind", ["NDATA", "DDATA", "DBIRTH", "DDEATH"])
@pytest.mark.parametrize("seq", [None, 256])
def test_a_message_without_its_number_is_lost(kind: str, seq: int | None) -> None:
    one = Heard().born()
    (odd,) = one(kind, message(seq, X))
    assert odd == Odd(f"{kind} without a seq of 0 to 255", is_lost=True)


def test_a_birth_or_death_of_a_device_is_in_the_order_of_its_nodes_messages() -> None:
    one = Heard()
    one("NBIRTH", birth(255, 0, X))
    assert one("DDEATH", message(1)) == [], "it waits"
    born = one("DBIRTH", message(0, X | {"name": "y", "alias": 2}))
    assert presences(born) == [("g/n/d", True), ("g/n/d", False)]


def test_a_death_is_taken_with_a_number_too() -> None:
    own = {"name": "bdSeq", "datatype": 4, "long_value": 0}
    assert presences(Heard().born()("NDEATH", message(9, own)))[-1] == ("g/n", False)


def test_a_birth_without_bd_seq_is_told_and_any_death_belongs_to_it() -> None:
    """Such a node was online for ever, however often its will was heard."""
    own = {"name": "bdSeq", "datatype": 4, "long_value": 7}
    for death in (message(None), message(None, own)):
        one = Heard()
        born = one("NBIRTH", message(0, X))
        assert values(born) == [{"x": 0.5}]
        assert Odd("NBIRTH without a bdSeq: each death counts as the last birth's") in born
        assert presences(one("NDEATH", death))[-1] == ("g/n", False)
        assert one("NDEATH", death) == [], "it is dead already"


def test_a_birth_without_bd_seq_after_a_lost_message_dies_too() -> None:
    one = Heard()
    one("NBIRTH", message(0, X))
    one("NDATA", message(5, X))
    assert rebirths(one.host.due(one.now_s + 3)), "it waits for the birth asked for"
    assert presences(one("NDEATH", message(None)))[-1] == ("g/n", False)


def test_a_death_without_bd_seq_belongs_to_no_birth_with_one() -> None:
    (odd,) = Heard().born()("NDEATH", message(None))
    assert odd == Odd("deaths that belong to an earlier birth")


def test_a_value_has_its_own_time_or_its_messages_or_ours() -> None:
    one = Heard().born()
    later = {"name": "x", "double_value": 2.0, "timestamp": T + 5}
    said = [
        *one("NDATA", message(2, X, later, t=T + 1)),
        *one("NDATA", message(3, X, t=None)),
    ]
    times = [(event.t, event.values) for event in said if isinstance(event, Reading)]
    assert times == [(T + 1, {"x": 0.5}), (T + 5, {"x": 2.0}), (T + 999, {"x": 0.5})]


def test_a_metric_that_is_null_is_null() -> None:
    null = {"name": "x", "alias": 1, "datatype": 10, "is_null": True}
    assert values(Heard()("NBIRTH", birth(0, 0, null))) == [{"x": None}]
    (empty,) = [
        event for event in Heard()("NBIRTH", birth(0, 0, X | {"name": "y"}, {"name": "x"}))
        if isinstance(event, Odd)
    ]  # fmt: skip
    assert empty == Odd("x: unsupported data type 0"), "neither a value nor that it is null"


def test_a_metric_is_known_by_the_name_and_type_of_its_birth() -> None:
    one = Heard()
    nameless = {"alias": 7, "datatype": 10, "double_value": 1.0}
    speed = {"name": "speed", "datatype": 3, "int_value": 2**32 - 5}
    found = one("NBIRTH", birth(0, 0, nameless, speed))
    assert Odd("metrics without a name in a birth") in found
    assert values(found) == [{"speed": -5}]
    assert values(one("NDATA", message(1, {"name": "speed", "int_value": 2**32 - 6}))) == [
        {"speed": -6}
    ]
    found = one("NDATA", message(2, {"name": "Speed", "int_value": 1}))
    assert rebirths(found) == ["spBv1.0/g/NCMD/n"], "not in the birth; letters count by their case"


def test_a_data_type_that_is_none_costs_no_other_metric() -> None:
    odd = {"name": "odd", "datatype": 99, "int_value": 7}
    assert values(Heard()("NBIRTH", birth(0, 0, odd, X))) == [{"odd": 7, "x": 0.5}]


def test_what_controls_a_node_is_no_measurement() -> None:
    named = {"name": "Node Control/Rebirth", "alias": 9, "datatype": 11, "boolean_value": False}
    one = Heard()
    assert values(one("NBIRTH", birth(0, 0, X, named))) == [{"x": 0.5}]
    assert values(one("NDATA", message(1, {"alias": 9, "boolean_value": True}))) == []


def test_ids_are_any_text_and_tell_groups_nodes_and_devices_apart() -> None:
    host = Host(1.0)
    topics = [
        f"spBv1.0/{group}/NBIRTH/{node}"
        for group in ("Werk Ä", "werk ä") for node in ("1", "ß.2")
    ]  # fmt: skip
    found = [event for topic in topics for event in host.message(topic, birth(0, 0, X), T, 0.0)]
    for topic in topics:
        device = topic.replace("NBIRTH", "DBIRTH") + "/d"
        found += host.message(device, message(1, X | {"name": "y", "alias": 2}), T, 0.0)
    things = [event.thing for event in found if isinstance(event, Reading)]
    nodes = ["Werk Ä/1", "Werk Ä/ß.2", "werk ä/1", "werk ä/ß.2"]
    assert things == nodes + [f"{node}/d" for node in nodes]


def test_births_come_before_data_and_a_device_after_its_node() -> None:
    one = Heard()
    assert rebirths(one("DBIRTH", message(1, X))) == ["spBv1.0/g/NCMD/n"]
    one.now_s += REBIRTH_S
    one("NBIRTH", birth(0, 0, X))
    assert rebirths(one("DDATA", message(1, X))) == ["spBv1.0/g/NCMD/n"]
    assert presences(one("DBIRTH", message(2, X | {"name": "y", "alias": 2}))) == [("g/n/d", True)]


def test_a_node_that_is_born_again_in_its_session_goes_on() -> None:
    """As one that was asked for its birth: with the same bdSeq, and all its devices after it."""
    one = Heard().born()
    assert presences(one("NBIRTH", birth(2, 0, X))) == [("g/n/d", False), ("g/n", True)]
    device = X | {"name": "y", "alias": 2}
    assert presences(one("DBIRTH", message(3, device))) == [("g/n/d", True)]
    assert values(one("DDATA", message(4, {"alias": 2, "double_value": 2.0}))) == [{"y": 2.0}]
    own = {"name": "bdSeq", "datatype": 4, "long_value": 0}
    assert presences(one("NDEATH", message(None, own)))[-1] == ("g/n", False)


def test_what_is_no_payload_is_lost_and_said() -> None:
    for kind in ("NBIRTH", "DBIRTH", "NDATA", "DDATA", "NDEATH", "DDEATH"):
        (odd,) = Heard()(kind, b"\xff{}")
        assert isinstance(odd, Odd)
        assert odd.is_lost


def test_keys_and_values_of_properties_that_do_not_match_cost_no_value() -> None:
    told = {"keys": ["Quality", "engUnit", "more"], "values": [{"int_value": 192}]}
    (found,) = [
        event for event in Heard()("NBIRTH", birth(0, 0, X | {"properties": told}))
        if isinstance(event, Reading)
    ]  # fmt: skip
    assert (found.values, dict(found.units)) == ({"x": 0.5}, {})


def test_a_unit_is_said_with_its_metric() -> None:
    one = Heard()
    told = {"keys": ["engLow", "engUnit"], "values": [{}, {"string_value": "degC"}]}
    (found,) = [
        event for event in one("NBIRTH", birth(0, 0, X | {"properties": told}))
        if isinstance(event, Reading)
    ]  # fmt: skip
    assert (found.values, dict(found.units)) == ({"x": 0.5}, {"x": "degC"})
    (found,) = [
        event for event in one("NDATA", message(1, {"alias": 1, "double_value": 2.0}))
        if isinstance(event, Reading)
    ]  # fmt: skip
    assert dict(found.units) == {}


def test_an_alias_stands_for_its_name() -> None:
    one = Heard().born()
    found = one("DDATA", message(2, {"alias": 2, "double_value": 1.5, "timestamp": T + 5}))
    assert found == [Reading("g/n/d", T + 5, {"y": 1.5}, False)]
    found = one("DDATA", message(3, {"alias": 1, "double_value": 1.5}))
    assert (values(found), rebirths(found)) == ([], ["spBv1.0/g/NCMD/n"]), "the node's, not its"
    one.now_s += REBIRTH_S
    found = one("NDATA", message(4, {"alias": 99, "double_value": 1.5}))
    assert rebirths(found) == ["spBv1.0/g/NCMD/n"]


def test_an_alias_of_two_is_said() -> None:
    found = Heard()("NBIRTH", birth(0, 0, X, X | {"name": "z"}))
    assert Odd("aliases that two metrics share") in found


PRESSURE: Final = X | {"name": "pressure", "alias": 2}


@pytest.mark.parametrize("dies", [True, False])
def test_an_alias_means_what_the_devices_last_birth_says(dies: bool) -> None:
    """A pressure was stored as the temperature whose alias it has since the last birth."""
    one = Heard().born()
    if dies:
        one("DDEATH", message(2))
    number = 3 if dies else 2
    born = one("DBIRTH", message(number, PRESSURE, X | {"name": "y", "alias": 3}))
    assert [event for event in born if isinstance(event, Odd)] == []
    new = {"alias": 2, "double_value": 1013.0}, {"alias": 3, "double_value": 21.0}
    found = one("DDATA", message(number + 1, *new))
    assert values(found) == [{"pressure": 1013.0, "y": 21.0}]
    assert values(one("NDATA", message(number + 2, {"alias": 1, "double_value": 2.0}))) == [
        {"x": 2.0}
    ], "the node's own metrics stay"


def test_a_dead_devices_alias_is_free_for_another_device() -> None:
    one = Heard().born()
    one("DDEATH", message(2))
    other = "spBv1.0/g/{}/n/e"
    one.host.message(other.format("DBIRTH"), message(3, PRESSURE), T, one.now_s)
    data = message(4, {"alias": 2, "double_value": 1013.0})
    found = one.host.message(other.format("DDATA"), data, T, one.now_s)
    assert (values(found), rebirths(found)) == ([{"pressure": 1013.0}], [])


def test_a_metric_that_the_last_birth_lacks_is_unknown_and_not_counted() -> None:
    one = Heard().born()
    for seq in range(2, 200):
        one("DBIRTH", message(seq, X | {"name": f"z{seq}", "alias": seq + 10}))
    assert one.host._metrics == 4, "bdSeq, rebirth, x, and the last z"
    found = one("DDATA", message(200, {"name": "z2", "datatype": 10, "double_value": 1.0}))
    assert (values(found), len(rebirths(found))) == ([], 1)


def test_a_birth_without_its_number_is_asked_for_again() -> None:
    one = Heard()
    found = one("NBIRTH", message(None, X))
    assert (values(found), rebirths(found)) == ([], ["spBv1.0/g/NCMD/n"])
    assert rebirths(one("NBIRTH", message(256, X))) == [], "not so soon again"


def test_what_comes_before_a_birth_is_lost_and_asked_for_once() -> None:
    one = Heard()
    found = one("NDATA", message(5, {"alias": 1, "double_value": 1.0}))
    assert rebirths(found) == ["spBv1.0/g/NCMD/n"]
    assert rebirths(one("NDATA", message(6, {"alias": 1, "double_value": 1.0}))) == []
    one.now_s += REBIRTH_S
    assert rebirths(one("DDATA", message(7, X))) == ["spBv1.0/g/NCMD/n"]
    born = Heard()
    born("NBIRTH", birth(0, 0, X))
    found = born("DDATA", message(1, X))
    assert rebirths(found) == ["spBv1.0/g/NCMD/n"], "a device that was never born"


def test_a_death_belongs_to_a_birth() -> None:
    one = Heard()
    one("NBIRTH", birth(0, 254, X))
    one("NBIRTH", birth(0, 255, X))
    late = {"name": "bdSeq", "datatype": 4, "long_value": 254}
    (odd,) = one("NDEATH", message(None, late))
    assert isinstance(odd, Odd), "the will of the connection before"
    assert values(one("NDATA", message(1, {"alias": 1, "double_value": 1.0}))) == [{"x": 1.0}]
    own = {"name": "bdSeq", "datatype": 4, "long_value": 255}
    assert presences(one("NDEATH", message(None, own))) == [("g/n", False)]
    assert one("NDEATH", message(None, own)) == []


def test_a_node_takes_its_devices_with_it() -> None:
    one = Heard().born()
    own = {"name": "bdSeq", "datatype": 4, "long_value": 0}
    found = one("NDEATH", message(None, own, t=5))
    assert presences(found) == [("g/n/d", False), ("g/n", False)]
    assert {event.t for event in found if isinstance(event, ThingPresence)} == {T + 999}, "our time"
    assert rebirths(one("NDATA", message(2, {"alias": 1, "double_value": 1.0})))


def test_a_device_dies_alone() -> None:
    one = Heard().born()
    assert presences(one("DDEATH", message(2, t=T + 7))) == [("g/n/d", False)]
    assert values(one("NDATA", message(3, {"alias": 1, "double_value": 1.0}))) == [{"x": 1.0}]
    assert rebirths(one("DDATA", message(4, {"alias": 2, "double_value": 1.0})))


def test_a_request_says_what_is_wanted() -> None:
    found = decoded(payloads.rebirth(T))
    assert (found.t, found.seq) == (T, None)
    (metric,) = found.metrics
    assert (metric.name, metric.datatype, metric.value) == ("Node Control/Rebirth", 11, True)


def test_what_is_said_of_the_host() -> None:
    assert json.loads(state(True, T)) == {"online": True, "timestamp": T}
    assert json.loads(state(False, T)) == {"online": False, "timestamp": T}
    assert is_death(state(False, T))
    assert is_death(b"OFFLINE")
    assert not is_death(state(True, T))


def test_moments_and_history_are_kept_apart() -> None:
    one = Heard().born()
    old = {"alias": 1, "double_value": 1.0, "timestamp": T - 5000, "is_historical": True}
    found = one("NDATA", message(2, old, {"alias": 1, "double_value": 2.0, "timestamp": T + 1}))
    assert found == [
        Reading("g/n", T - 5000, {"x": 1.0}, True),
        Reading("g/n", T + 1, {"x": 2.0}, False),
    ]


@given(st.lists(st.tuples(st.sampled_from(["NBIRTH", "NDATA", "NDEATH", "DBIRTH", "DDATA",
    "DDEATH"]), st.integers(0, 3), st.binary(max_size=20)), max_size=30))  # fmt: skip
def test_no_order_of_messages_and_no_bytes_raise(
    sent: list[tuple[str, int, bytes]],
) -> None:
    one = Heard()
    for kind, seq, tail in sent:
        one(kind, message(seq, X, {"alias": 7, "datatype": 33, "bytes_value": tail}))
        one(kind, tail)
        one.now_s += 1
        one.host.due(one.now_s)


def test_more_nodes_than_the_bound_are_refused() -> None:
    host = Host(1.0)
    for number in range(NODES_MAX):
        host.message(f"spBv1.0/g/NBIRTH/n{number}", birth(0, 0, X), T, 0.0)
    (one,) = host.message("spBv1.0/g/NBIRTH/more", birth(0, 0, X), T, 0.0)
    assert isinstance(one, Odd)
    assert one.is_lost


def test_a_node_that_is_offline_makes_room_for_another() -> None:
    host = Host(1.0)
    for number in range(NODES_MAX):
        host.message(f"spBv1.0/g/NBIRTH/n{number}", birth(0, 0, X), T, 0.0)
    own = {"name": "bdSeq", "datatype": 4, "long_value": 0}
    host.message("spBv1.0/g/NDEATH/n7", message(None, own), T, 0.0)
    found = host.message("spBv1.0/g/NBIRTH/more", birth(0, 0, X), T, 0.0)
    assert presences(found) == [("g/more", True)]


def test_what_one_node_and_all_nodes_may_have_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Births of devices without end, and more and more names in the births of one."""
    monkeypatch.setattr(hosts, "DEVICES_MAX", 3)
    monkeypatch.setattr(hosts, "NODE_METRICS_MAX", 20)
    host = Host(1.0)
    host.message("spBv1.0/g/NBIRTH/n", birth(0, 0, X), T, 0.0)
    devices = [host.message(f"spBv1.0/g/DBIRTH/n/d{n}", message(n, X), T, 0.0) for n in range(1, 6)]
    assert [bool(presences(one)) for one in devices] == [True] * 3 + [False] * 2
    assert all(isinstance(one, Odd) and one.is_lost for one in devices[-1])
    many = [
        [X | {"name": f"x{n}.{count}", "alias": 10 + count} for count in range(n)]
        for n in range(6, 60)
    ]
    names = [
        host.message("spBv1.0/g/DBIRTH/n/d1", message(n, *metrics), T, 0.0)
        for n, metrics in enumerate(many, 6)
    ]
    assert max(len(one[0]) for one in map(values, names) if one) == 20 - 3 - 2
    other = host.message("spBv1.0/g/NBIRTH/other", birth(0, 0, X), T, 0.0)
    assert values(other) == [{"x": 0.5}], "others have their own"
    host.message("spBv1.0/g/NBIRTH/n", birth(0, 1, X), T, 0.0)
    again = host.message("spBv1.0/g/DBIRTH/n/d9", message(1, X), T, 0.0)
    assert presences(again) == [("g/n/d9", True)], "its next birth begins anew"
