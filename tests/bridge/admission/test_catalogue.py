"""Streams and fields are learnt from what arrives, and the topic's order decides before anything of
a new type is accepted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.bridge.admission import catalogue as bounds
from edgewake.cloud.bridge.admission.catalogue import (
    AwaitsCatalogueError,
    Catalogue,
    NotNow,
    OtherTypesError,
)
from edgewake.protocol.downlink.downlink import ANSWERS, REQUESTS
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.ack import LaterReason
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Kinds
from edgewake.protocol.frames.stream import STREAMS_MAX, FieldInfo, NameKind, Stream

NUMBERS: Kinds = {"speed": frozenset({float, int, type(None)})}
STRINGS: Kinds = {"speed": frozenset({str})}


def row(name: str = "s", **fields: FieldType) -> bytes:
    return (
        Stream(name=name, fields={field: FieldInfo(type=kind) for field, kind in fields.items()})
        .model_dump_json()
        .encode()
    )


class Topic:
    """`ew.streams`: what each bridge publishes, read by all in one order."""

    def __init__(self, *bridges: Catalogue) -> None:
        self.bridges = bridges
        self.rows: list[Stream] = []

    def publish(self, bridge: Catalogue) -> int:
        """Put on the topic what one bridge has for it; how many rows."""
        rows = bridge.unpublished()
        self.rows += rows
        return len(rows)

    def deliver(self) -> None:
        """All read all, until nobody has anything to add."""
        seen = 0
        for _ in range(20):
            for stream in self.rows[seen:]:
                for bridge in self.bridges:
                    bridge.follow(stream.name, stream.model_dump_json().encode())
            seen = len(self.rows)
            if not sum(map(self.publish, self.bridges)):
                return
        raise AssertionError("they publish for ever")


def a_catalogue(now: Callable[[], float] = lambda: 0.0) -> Catalogue:
    return Catalogue(now)


def awaits(catalogue: Catalogue, kinds: Kinds, *, device: str = "d", stream: str = "s") -> None:
    """The message has something new and must wait."""
    with pytest.raises(AwaitsCatalogueError):
        catalogue.check(device, stream, kinds)


def learnt(catalogue: Catalogue, kinds: Kinds, *, device: str = "d", stream: str = "s") -> None:
    """Something new, published, come back, and accepted."""
    awaits(catalogue, kinds, device=device, stream=stream)
    for proposed in catalogue.unpublished():
        catalogue.follow(proposed.name, proposed.model_dump_json().encode())
    catalogue.check(device, stream, kinds)


def test_a_new_stream_is_proposed_once_and_accepted_when_its_record_came_back() -> None:
    catalogue = a_catalogue()
    awaits(catalogue, NUMBERS)
    awaits(catalogue, NUMBERS)
    (proposed,) = catalogue.unpublished()
    assert proposed.fields["speed"].type is FieldType.NUMBER
    assert catalogue.unpublished() == []
    awaits(catalogue, NUMBERS)
    assert catalogue.is_waiting("s")
    catalogue.follow("s", proposed.model_dump_json().encode())
    catalogue.check("d", "s", NUMBERS)
    assert not catalogue.is_waiting("s")


def test_units_are_proposed_once_for_learnt_fields_that_have_none() -> None:
    """A map's units were shown when it was tried, and never reached a stream."""
    catalogue = a_catalogue()
    catalogue.learn_units("d", "s", {"speed": "km/h"})
    assert catalogue.unpublished() == [], "the stream is not there yet"
    decided = FieldInfo(type=FieldType.NUMBER, unit_revision=1)
    fields = {name: FieldInfo(type=FieldType.NUMBER) for name in ("speed", "Inlet_Temp", "x")}
    one = Stream(name="s", fields=fields | {"decided": decided})
    catalogue.follow("s", one.model_dump_json().encode())
    said = {"speed": "km/h", "Inlet/Temp": "°C", "decided": "m", "new": "m", "x": "x" * 33}
    catalogue.learn_units("d", "s", said)
    (proposed,) = catalogue.unpublished()
    units = {name: info.unit for name, info in proposed.fields.items()}
    assert units == {"speed": "km/h", "Inlet_Temp": "°C", "x": "", "decided": ""}
    catalogue.learn_units("d", "s", said)
    assert catalogue.unpublished() == []


def test_the_first_says_a_unit_and_another_one_of_it_is_a_problem_that_an_operator_ends() -> None:
    """Any device set the unit of a field that another one sends."""
    catalogue = a_catalogue()
    mine = FieldInfo(type=FieldType.NUMBER, first_device="d", first_via="gw")
    mapped = mine.model_copy(update={"first_via": "*"})
    one = Stream(name="s", fields={"a": mine, "b": mine, "mapped": mapped})
    catalogue.follow("s", one.model_dump_json().encode())
    catalogue.learn_units("e", "s", {"a": "K", "b": "K"})
    catalogue.learn_units("e", "s", {"mapped": "K"}, gateway="*")
    assert catalogue.unpublished() == [], "theirs is not known"
    catalogue.learn_units("d", "s", {"a": "Cel", "mapped": "m"})
    catalogue.learn_units("thing", "s", {"b": "%"}, gateway="gw")
    (said,) = catalogue.unpublished()
    units = {name: info.unit for name, info in said.fields.items()}
    assert units == {"a": "°C", "b": "%", "mapped": "m"}
    catalogue.follow("s", said.model_dump_json().encode())
    catalogue.learn_units("e", "s", {"a": "degC", "b": "%RH"})
    assert catalogue.unpublished() == [], "another spelling of the same unit"
    for _ in range(2):
        catalogue.learn_units("e", "s", {"a": "K", "b": "%"})
    (other,) = catalogue.unpublished()
    assert (other.fields["a"].unit, other.fields["a"].other_unit) == ("°C", "K by e")
    assert other.fields["b"].other_unit == ""
    catalogue.follow("s", other.model_dump_json().encode())
    unit = {"unit": "K", "unit_revision": 1, "other_unit": ""}
    decided = other.fields["a"].model_copy(update=unit)
    catalogue.follow("s", Stream(name="s", fields={"a": decided}).model_dump_json().encode())
    fresh = a_catalogue()
    fresh.follow("s", Stream(name="s", fields={"a": decided}).model_dump_json().encode())
    fresh.learn_units("d", "s", {"a": "Cel"})
    assert fresh.unpublished() == [], "an operator has the last word"


def test_what_an_agent_says_of_fields_is_taken_of_those_that_were_learnt_from_it() -> None:
    catalogue = a_catalogue()
    said = {"s": {"a_b": {"path": "a-b", "unit": "Cel"}, "theirs": {"path": "x"}, "new": {}}}
    catalogue.learn_fields("d", {**said, "other": {"v": {"unit": "m"}}})
    assert catalogue.unpublished() == []
    known = FieldInfo(type=FieldType.NUMBER, first_device="d")
    behind = known.model_copy(update={"first_device": "thing", "first_via": "d"})
    theirs = known.model_copy(update={"first_device": "e"})
    one = Stream(name="s", fields={"a_b": known, "theirs": theirs, "thing": behind})
    catalogue.follow("s", one.model_dump_json().encode())
    said["s"]["thing"] = {"unit": "m"}
    catalogue.learn_fields("d", said)
    (proposed,) = catalogue.unpublished()
    found = {name: (info.path, info.unit) for name, info in proposed.fields.items()}
    assert found == {"a_b": ("a-b", "°C"), "theirs": ("", ""), "thing": ("", "m")}
    catalogue.learn_fields("d", said)
    assert catalogue.unpublished() == []


def test_a_new_field_is_added_beside_the_known_ones() -> None:
    catalogue = a_catalogue()
    catalogue.follow("s", row(speed=FieldType.NUMBER))
    awaits(catalogue, {"street": frozenset({str})})
    (proposed,) = catalogue.unpublished()
    assert list(proposed.fields) == ["speed", "street"]


def test_another_type_than_the_first_one_is_not_refused_for_ever_while_no_operator_decided() -> (
    None
):
    """The device is told to wait; one that cannot be told gets a dead letter."""
    catalogue = a_catalogue()
    learnt(catalogue, NUMBERS)
    with pytest.raises(NotNow, match="expected a number, found a string") as refused:
        catalogue.check("d", "s", STRINGS)
    assert refused.value.later.reason is LaterReason.FIELD_TYPE
    assert refused.value.refusal.reason is RejectReason.FIELD_TYPE


def test_after_an_operator_s_type_change_the_waiting_device_is_in_and_the_first_refused() -> None:
    catalogue = a_catalogue()
    learnt(catalogue, STRINGS, device="liar")
    with pytest.raises(NotNow):
        catalogue.check("honest", "s", NUMBERS)
    decided = Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER, revision=1)})
    catalogue.follow("s", decided.model_dump_json().encode())
    catalogue.check("honest", "s", NUMBERS)
    with pytest.raises(OtherTypesError, match="expected a number, found a string") as refused:
        catalogue.check("liar", "s", STRINGS | {"street": frozenset({str})})
    assert refused.value.decided == {"speed": FieldType.NUMBER}


def test_an_operators_decision_is_not_overturned_by_a_bridges_older_row() -> None:
    catalogue = a_catalogue()
    learnt(catalogue, STRINGS)
    catalogue.follow(
        "s",
        Stream(name="s", fields={"speed": FieldInfo(type=FieldType.NUMBER, revision=1)})
        .model_dump_json()
        .encode(),
    )
    catalogue.follow("s", row(speed=FieldType.STRING, street=FieldType.STRING))
    catalogue.check("d", "s", NUMBERS | {"street": frozenset({str})})
    (repaired,) = catalogue.unpublished()
    assert repaired.fields["speed"].type is FieldType.NUMBER


def test_a_column_of_several_types_is_refused() -> None:
    with pytest.raises(Rejected, match="mixes float and str"):
        a_catalogue().check("d", "s", {"speed": frozenset({float, str})})


def test_a_column_of_nulls_says_nothing_of_its_type() -> None:
    catalogue = a_catalogue()
    learnt(catalogue, {"speed": frozenset({type(None)})})
    learnt(catalogue, STRINGS)


def test_two_bridges_learn_a_field_at_once_and_the_first_on_the_topic_decides_for_both() -> None:
    one, other = a_catalogue(), a_catalogue()
    topic = Topic(one, other)
    awaits(one, NUMBERS)
    awaits(other, STRINGS)
    topic.publish(one)
    topic.publish(other)
    topic.deliver()
    assert one.sendable("s") == other.sendable("s")
    one.check("d", "s", NUMBERS)
    with pytest.raises(NotNow, match="expected a number, found a string"):
        other.check("d", "s", STRINGS)


def test_one_bridge_alone_never_lets_its_own_late_record_overturn_a_type() -> None:
    """a, then a and b (a number), then the first record comes back: b as text must not pass."""
    catalogue = a_catalogue()
    awaits(catalogue, {"a": frozenset({int})})
    (first,) = catalogue.unpublished()
    awaits(catalogue, {"a": frozenset({int}), "b": frozenset({int})})
    (second,) = catalogue.unpublished()
    catalogue.follow("s", first.model_dump_json().encode())
    awaits(catalogue, {"a": frozenset({int}), "b": frozenset({str})})
    assert catalogue.unpublished() == []
    catalogue.follow("s", second.model_dump_json().encode())
    with pytest.raises(NotNow):
        catalogue.check("d", "s", {"a": frozenset({int}), "b": frozenset({str})})


def test_a_row_that_lacks_a_field_is_put_on_the_topic_anew_so_that_compaction_forgets_nothing() -> (
    None
):
    one, other = a_catalogue(), a_catalogue()
    topic = Topic(one, other)
    awaits(one, NUMBERS)
    awaits(other, {"street": frozenset({str})})
    topic.publish(one)
    topic.publish(other)
    topic.deliver()
    after_compaction = a_catalogue()
    after_compaction.follow("s", topic.rows[-1].model_dump_json().encode())
    after_compaction.check("d", "s", NUMBERS | {"street": frozenset({str})})


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(["check", "publish", "deliver"]),
            st.sampled_from("ab"),
            st.sampled_from([int, str]),
        ),
        max_size=60,
    )
)
def test_whatever_the_order_no_two_types_of_a_field_are_ever_accepted(
    steps: list[tuple[int, str, str, type]],
) -> None:
    """Three bridges; each reads the one topic at its own pace."""
    bridges = [a_catalogue() for _ in range(3)]
    rows: list[Stream] = []
    unread = [deque[Stream]() for _ in bridges]
    accepted: dict[str, set[type]] = {"a": set(), "b": set()}
    for who, what, field, kind in steps:
        bridge = bridges[who]
        if what == "check":
            try:
                bridge.check("d", "s", {field: frozenset({kind})})
            except (AwaitsCatalogueError, NotNow):
                continue
            accepted[field].add(kind)
        elif what == "publish":
            published = bridge.unpublished()
            rows += published
            for queue in unread:
                queue.extend(published)
        elif unread[who]:
            stream = unread[who].popleft()
            bridge.follow(stream.name, stream.model_dump_json().encode())
    assert all(len(kinds) <= 1 for kinds in accepted.values())


def test_units_and_description_survive_a_new_field() -> None:
    declared = Stream(
        name="s",
        description="cars",
        fields={"speed": FieldInfo(type=FieldType.NUMBER, unit="km/h")},
    )
    catalogue = a_catalogue()
    catalogue.follow("s", declared.model_dump_json().encode())
    awaits(catalogue, {"street": frozenset({str})})
    (proposed,) = catalogue.unpublished()
    assert (proposed.description, proposed.fields["speed"].unit) == ("cars", "km/h")


def test_the_name_of_a_query_is_refused_whoever_comes_first() -> None:
    claim = Stream(name="top", kind=NameKind.QUERY, claim="7").model_dump_json().encode()
    before, after = a_catalogue(), a_catalogue()
    before.follow("top", claim)
    awaits(after, NUMBERS, stream="top")
    after.follow("top", claim)
    for catalogue in (before, after):
        with pytest.raises(Rejected, match="name of a query") as refused:
            catalogue.check("d", "top", NUMBERS)
        assert refused.value.reason is RejectReason.NAME


def test_a_stream_keeps_its_name_against_a_query_that_claims_it_later() -> None:
    catalogue = a_catalogue()
    learnt(catalogue, NUMBERS, stream="top")
    catalogue.follow(
        "top", Stream(name="top", kind=NameKind.QUERY, claim="7").model_dump_json().encode()
    )
    catalogue.check("d", "top", NUMBERS)
    (repaired,) = catalogue.unpublished()
    assert repaired.kind is NameKind.STREAM


@pytest.mark.parametrize("name", ["part_status", "ew_anything"])
def test_what_the_system_says_of_itself_cannot_be_sent_by_a_device(name: str) -> None:
    catalogue = a_catalogue()
    catalogue.follow(name, row(name, speed=FieldType.NUMBER))
    with pytest.raises(Rejected, match="reserved for the system") as refused:
        catalogue.check("d", name, NUMBERS)
    assert refused.value.reason is RejectReason.NAME


def test_one_device_cannot_use_up_the_streams_of_all() -> None:
    catalogue = a_catalogue()
    for i in range(bounds.DEVICE_STREAMS_MAX):
        learnt(catalogue, NUMBERS, device="greedy", stream=f"s{i}")
    with pytest.raises(NotNow, match="one more than 32 that device 'greedy'") as refused:
        catalogue.check("greedy", "one_more", NUMBERS)
    assert refused.value.later.reason is LaterReason.QUOTA
    assert refused.value.refusal.reason is RejectReason.QUOTA
    assert catalogue.unpublished() == []
    learnt(catalogue, NUMBERS, device="modest", stream="one_more")
    catalogue.check("greedy", "one_more", NUMBERS)


def test_a_share_counts_what_has_not_come_back_yet() -> None:
    catalogue = a_catalogue()
    for i in range(bounds.DEVICE_STREAMS_MAX):
        awaits(catalogue, NUMBERS, device="greedy", stream=f"s{i}")
    with pytest.raises(NotNow):
        catalogue.check("greedy", "one_more", NUMBERS)


def test_a_removed_stream_gives_its_share_back() -> None:
    catalogue = a_catalogue()
    for i in range(bounds.DEVICE_STREAMS_MAX):
        learnt(catalogue, NUMBERS, stream=f"s{i}")
    catalogue.follow("s0", None)
    learnt(catalogue, NUMBERS, stream="one_more")


def test_one_device_cannot_use_up_the_fields_of_all() -> None:
    catalogue = a_catalogue()
    for i in range(bounds.DEVICE_FIELDS_MAX):
        learnt(catalogue, {f"f{i}": frozenset({int})}, device="greedy", stream=f"s{i % 4}")
    with pytest.raises(NotNow, match="expected at most 256"):
        catalogue.check("greedy", "s", {"one_more": frozenset({int})})
    learnt(catalogue, {"one_more": frozenset({int})}, device="modest", stream="s0")


def test_one_gateway_cannot_use_up_the_streams_and_fields_of_all_by_names_of_things() -> None:
    """Each thing is below the bound of one device. A bridge that restarted knows it, too."""
    times = bounds.GATEWAY_TIMES
    rows = [
        Stream(name=f"s{n}", first_device=f"meter-{n}", first_via="gateway")
        for n in range(times * bounds.DEVICE_STREAMS_MAX)
    ]
    catalogue = a_catalogue()
    for one in rows:
        catalogue.follow(one.name, one.model_dump_json().encode())
    with pytest.raises(NotNow, match="devices named by gateway 'gateway'"):
        catalogue.check("meter-new", "one_more", NUMBERS, gateway="gateway")
    with pytest.raises(AwaitsCatalogueError):
        catalogue.check("meter-new", "one_more", NUMBERS, gateway="other")
    with pytest.raises(AwaitsCatalogueError):
        catalogue.check("meter-new", "two_more", NUMBERS)
    (other, by_itself) = catalogue.unpublished()
    assert (other.first_via, other.fields["speed"].first_via) == ("other", "other")
    assert by_itself.first_via == ""

    half = bounds.STREAM_FIELDS_MAX // 2
    fields = {
        f"f{n}": FieldInfo(type=FieldType.NUMBER, first_device=f"meter-{n}", first_via="hall")
        for n in range(half)
    }
    catalogue.follow("wide", Stream(name="wide", fields=fields).model_dump_json().encode())
    one_more: Kinds = {"more": frozenset({int})}
    with pytest.raises(NotNow, match=f"expected at most {half}"):
        catalogue.check("meter-new", "wide", one_more, gateway="hall")
    with pytest.raises(AwaitsCatalogueError):
        catalogue.check("honest", "wide", one_more)


def test_fields_of_a_stream_are_bounded() -> None:
    catalogue = a_catalogue()
    for i in range(0, bounds.STREAM_FIELDS_MAX, 64):
        learnt(catalogue, {f"f{i + k}": frozenset({int}) for k in range(64)}, device=f"d{i // 256}")
    with pytest.raises(NotNow, match="expected at most 1024"):
        catalogue.check("another", "s", {"one_more": frozenset({int})})


def test_streams_are_bounded_in_all_and_in_a_second() -> None:
    now_s = 0.0
    catalogue = a_catalogue(lambda: now_s)
    for i in range(bounds.NEW_STREAMS_BURST):
        learnt(catalogue, NUMBERS, device=f"d{i}", stream=f"s{i}")
    with pytest.raises(NotNow, match="faster than 5 a second") as refused:
        catalogue.check("d", "one_more", NUMBERS)
    assert refused.value.later.retry_after_ms >= 1000
    for i in range(bounds.NEW_STREAMS_BURST, STREAMS_MAX):
        now_s += 1.0
        learnt(catalogue, NUMBERS, device=f"d{i}", stream=f"s{i}")
    with pytest.raises(NotNow, match="one more than 1000"):
        catalogue.check("d", "one_more", NUMBERS)


@pytest.mark.parametrize(
    "value", [b"x", b"{}", b'{"name":"other"}', b'{"name":"s","fields":{"a":{"type":"date"}}}']
)
def test_a_record_that_cannot_be_read_changes_nothing(value: bytes) -> None:
    catalogue = a_catalogue()
    with pytest.raises(ValueError, match="s"):
        catalogue.follow("s", value)
    assert catalogue.sendable("s") is None


def test_a_stream_has_fields_for_odd_values_as_long_as_its_row_has_one() -> None:
    catalogue = a_catalogue()
    catalogue.follow("s", row(speed=FieldType.NUMBER))
    assert not catalogue.has_odd("s")
    catalogue.follow("s", row(speed_odd=FieldType.STRING))
    assert catalogue.has_odd("s")
    catalogue.follow("s", None)
    assert not catalogue.has_odd("s")
    assert catalogue.sendable("s") is None


def test_a_deleted_stream_is_forgotten_also_while_something_of_it_is_on_its_way() -> None:
    catalogue = a_catalogue()
    learnt(catalogue, NUMBERS)
    awaits(catalogue, {"street": frozenset({str})})
    catalogue.follow("s", None)
    assert not catalogue.is_waiting("s")
    learnt(catalogue, STRINGS)


def test_fields_of_answers_and_requests_are_given_so_no_device_decides_their_types() -> None:
    bridge = Catalogue(lambda: 0.0)
    for stream in (ANSWERS, REQUESTS):
        for wrong in ({"id": frozenset({int})}, {"more": frozenset({str})}):
            with pytest.raises(Rejected, match="expected the fields"):
                bridge.check("hostile", stream, wrong)
    with pytest.raises(AwaitsCatalogueError):
        bridge.check(
            "car", ANSWERS, {"id": frozenset({str}), "exit_code": frozenset({int, type(None)})}
        )


def test_what_a_field_was_called_is_kept_with_it_and_asked_for_once() -> None:
    catalogue = Catalogue(lambda: 0.0)
    asked: list[int] = []

    def renamed() -> dict[str, str]:
        asked.append(1)
        return {"DS18B20_1": "DS18B20-1"}

    kinds = {"DS18B20_1": frozenset({float}), "x": frozenset({float})}
    with pytest.raises(AwaitsCatalogueError):
        catalogue.check("d", "s", kinds, renamed)
    (row,) = catalogue.unpublished()
    assert {name: info.path for name, info in row.fields.items()} == {
        "DS18B20_1": "DS18B20-1",
        "x": "",
    }
    catalogue.follow("s", row.model_dump_json().encode())
    catalogue.check("d", "s", kinds, renamed)
    assert len(asked) == 1
