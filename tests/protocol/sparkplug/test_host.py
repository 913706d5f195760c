"""The host application's side of Sparkplug B 3.0, assertion by assertion (its TCK's ids)."""

from __future__ import annotations

import json
import re
import sys
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
LIFE = "contract.py::it_says_that_it_is_there_and_when_it_leaves"
WILL = "contract.py::its_will_speaks_when_it_is_cut_off"
ASKS = "contract.py::it_asks_nodes_for_their_births"
FIRST = (
    "../../edge/sources/mqtt/test_sparkplug.py"
    "::test_what_it_says_first_to_a_broker_is_in_the_order_that_nodes_rely_on"
)
QUALITY = "test_payload.py::test_a_value_that_its_node_calls_bad_or_stale_is_no_measurement"
_APPLICATION, _DEATH = "operational-behavior-host-application", "host-topic-phid-death"
_ENDED = "operational-behavior-edge-node-termination-host-action"
_SERVERS = "operational-behavior-primary-application-state-with-multiple-servers"

CHECKLIST: Final = {
    "topic-structure": "test_topics",
    "topic-structure-namespace-a": "test_topics",
    "topic-structure-namespace-device-id-associated-message-types": "test_topics",
    "topic-structure-namespace-device-id-non-associated-message-types": "test_topics",
    "payloads-sequence-num-incrementing": "test_messages_are_taken_in_order",
    "operational-behavior-host-reordering-param": "test_a_gap_ends_in_a_rebirth",
    "operational-behavior-host-reordering-start": "test_a_gap_ends_in_a_rebirth",
    "operational-behavior-host-reordering-rebirth": "test_a_gap_ends_in_a_rebirth",
    "operational-behavior-host-reordering-success": "test_messages_are_taken_in_order",
    "payloads-alias-birth-requirement": "test_an_alias_stands_for_its_name",
    "payloads-alias-data-cmd-requirement": "test_an_alias_stands_for_its_name",
    "payloads-alias-uniqueness": "test_an_alias_of_two_is_said",
    "payloads-nbirth-seq": "test_a_birth_without_its_number_is_asked_for_again",
    "payloads-nbirth-bdseq": "test_a_death_belongs_to_a_birth",
    "payloads-ndeath-bdseq": "test_a_death_belongs_to_a_birth",
    "payloads-propertyset-quality-value-type": QUALITY,
    "payloads-propertyset-quality-value-value": QUALITY,
    f"{_ENDED}-ndeath-node-offline": "test_a_node_takes_its_devices_with_it",
    f"{_ENDED}-ndeath-devices-offline": "test_a_node_takes_its_devices_with_it",
    f"{_ENDED}-ddeath-devices-offline": "test_a_device_dies_alone",
    "topics-ncmd-topic": "test_a_gap_ends_in_a_rebirth",
    "topics-ncmd-mqtt": ASKS,
    "topics-ncmd-timestamp": "test_a_request_says_what_is_wanted",
    "topics-ncmd-payload": "test_a_request_says_what_is_wanted",
    "payloads-ncmd-timestamp": "test_a_request_says_what_is_wanted",
    "payloads-ncmd-seq": "test_a_request_says_what_is_wanted",
    "payloads-ncmd-qos": ASKS,
    "payloads-ncmd-retain": ASKS,
    "payloads-name-cmd-requirement": "test_a_request_says_what_is_wanted",
    "operational-behavior-data-commands-ncmd-rebirth-verb": ASKS,
    "operational-behavior-data-commands-ncmd-rebirth-name": ASKS,
    "operational-behavior-data-commands-ncmd-rebirth-value": ASKS,
    "intro-sparkplug-host-state": LIFE,
    "components-ph-state": LIFE,
    "conformance-primary-host": LIFE,
    "principles-birth-certificates-order": FIRST,
    "host-topic-phid-birth-payload": "test_what_is_said_of_the_host",
    "host-topic-phid-birth-message": FIRST,
    "host-topic-phid-birth-qos": LIFE,
    "host-topic-phid-birth-retain": LIFE,
    "host-topic-phid-birth-topic": LIFE,
    "host-topic-phid-birth-required": LIFE,
    "host-topic-phid-birth-sub-required": FIRST,
    "host-topic-phid-birth-payload-timestamp": WILL,
    f"{_DEATH}-payload": "test_what_is_said_of_the_host",
    f"{_DEATH}-payload-timestamp-connect": FIRST,
    f"{_DEATH}-payload-timestamp-disconnect-clean": LIFE,
    f"{_DEATH}-qos": WILL,
    f"{_DEATH}-retain": WILL,
    f"{_DEATH}-topic": WILL,
    f"{_DEATH}-required": WILL,
    f"{_APPLICATION}-connect-will": WILL,
    f"{_APPLICATION}-connect-will-topic": WILL,
    f"{_APPLICATION}-connect-will-payload": WILL,
    f"{_APPLICATION}-connect-will-qos": WILL,
    f"{_APPLICATION}-connect-will-retained": WILL,
    f"{_APPLICATION}-connect-birth": LIFE,
    f"{_APPLICATION}-connect-birth-topic": LIFE,
    f"{_APPLICATION}-connect-birth-payload": WILL,
    f"{_APPLICATION}-connect-birth-qos": LIFE,
    f"{_APPLICATION}-connect-birth-retained": LIFE,
    f"{_APPLICATION}-multi-server-timestamp": FIRST,
    f"{_APPLICATION}-termination": LIFE,
    f"{_APPLICATION}-death-topic": LIFE,
    f"{_APPLICATION}-death-payload": WILL,
    f"{_APPLICATION}-death-qos": LIFE,
    f"{_APPLICATION}-death-retained": LIFE,
    f"{_APPLICATION}-disconnect-intentional": LIFE,
    f"{_SERVERS}-state": FIRST,
    f"{_SERVERS}-state-subs": LIFE,
    "message-flow-phid-sparkplug-clean-session-50": FIRST,
    "message-flow-phid-sparkplug-subscription": FIRST,
    "message-flow-phid-sparkplug-state-publish": FIRST,
    "message-flow-phid-sparkplug-state-publish-payload": FIRST,
    "message-flow-phid-sparkplug-state-publish-payload-timestamp": FIRST,
    "message-flow-hid-sparkplug-state-message-delivered": LIFE,
    "payloads-state-will-message": WILL,
    "payloads-state-will-message-payload": WILL,
    "payloads-state-will-message-qos": WILL,
    "payloads-state-will-message-retain": WILL,
    "payloads-state-subscribe": FIRST,
    "payloads-state-birth": FIRST,
    "payloads-state-birth-payload": WILL,
}
"""Assertion of a host application → the test that shows it, here or in another file."""
_STALE = (
    "not done: the death is the presence of the device and a reading with its time; a value is of "
    "its time, and none is called stale afterwards"
)
_COMMANDS = "not done: nodes and devices are sent no command but the request for a birth"
_NODES = "what an edge node or a device says; the host reads it"
OF_OTHERS: Final = {
    rf"{_ENDED}-.*-tags-stale": _STALE,
    r".*-dcmd-.*": _COMMANDS,
    r"operational-behavior-data-commands-ncmd-(verb|metric-name|metric-value)": _COMMANDS,
    r"message-flow-phid-sparkplug-clean-session-311": "it speaks MQTT 5 alone",
    rf"{_DEATH}-payload-timestamp-disconnect-with-no-disconnect-packet":
        "whoever leaves says DISCONNECT",
    rf"{_APPLICATION}-host-id": "the operator chooses it; two of one name put each other right",
    rf"{_SERVERS}-(single-server|walk)": "edge nodes choose their server",
    r"conformance-mqtt-.*": "the broker's",
    r"operational-behavior-edge-node-termination-host-offline.*": "edge nodes watch for the host",
    r"message-flow-(edge-node|device)-(birth|ncmd)-.*": _NODES,
    r"operational-behavior-(data-publish|device|edge-node-(birth|intentional))-.*": _NODES,
    r"operational-behavior-data-commands-rebirth-.*": _NODES,
    r"(topics|payloads)-[nd](birth|data|death)-.*": _NODES,
    r"payloads-(dataset|template|metric|propertyset|name|timestamp|sequence-num)-.*": _NODES,
    r"intro-(group|edge-node|device)-id-.*": _NODES,
    r"topic-structure-namespace-(valid|unique|duplicate)-.*": _NODES,
    r"principles-(persistence|rbe)-.*": _NODES,
    r"case-sensitivity-.*": _NODES,
}  # fmt: skip
"""Pattern of other assertions → why no test here shows them."""


def test_each_assertion_of_the_specification_has_a_test_or_a_reason() -> None:
    folder = Path(__file__).parent
    ids = json.loads((folder / "assertions.json").read_text())["ids"]
    names = {one.removeprefix("tck-id-") for one in ids}
    assert CHECKLIST.keys() <= names
    left = names - CHECKLIST.keys()
    assert [one for one in sorted(left) if not _patterns_of(one)] == []
    used = {pattern for one in left for pattern in _patterns_of(one)}
    assert used == OF_OTHERS.keys()
    own = vars(sys.modules[__name__])
    for name in set(CHECKLIST.values()) - own.keys():
        file, _, test = name.partition("::")
        assert f"def {test}(" in (folder / file).read_text(), name


def _patterns_of(name: str) -> list[str]:
    return [pattern for pattern in OF_OTHERS if re.fullmatch(pattern, name)]


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
    assert [(one.thing, one.t, one.values) for one in events if isinstance(one, Reading)] == [
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
    """Births of devices without end, and names without end in the births of one."""
    monkeypatch.setattr(hosts, "DEVICES_MAX", 3)
    monkeypatch.setattr(hosts, "NODE_METRICS_MAX", 20)
    host = Host(1.0)
    host.message("spBv1.0/g/NBIRTH/n", birth(0, 0, X), T, 0.0)
    devices = [host.message(f"spBv1.0/g/DBIRTH/n/d{n}", message(n, X), T, 0.0) for n in range(1, 6)]
    assert [bool(presences(one)) for one in devices] == [True] * 3 + [False] * 2
    assert all(isinstance(one, Odd) and one.is_lost for one in devices[-1])
    names = [
        host.message("spBv1.0/g/DBIRTH/n/d1", message(n, X | {"name": f"x{n}"}), T, 0.0)
        for n in range(6, 60)
    ]
    assert sum(bool(values(one)) for one in names) == 20 - 3 - 3
    other = host.message("spBv1.0/g/NBIRTH/other", birth(0, 0, X), T, 0.0)
    assert values(other) == [{"x": 0.5}], "others have their own"
    host.message("spBv1.0/g/NBIRTH/n", birth(0, 1, X), T, 0.0)
    again = host.message("spBv1.0/g/DBIRTH/n/d9", message(1, X), T, 0.0)
    assert presences(again) == [("g/n/d9", True)], "its next birth begins anew"
