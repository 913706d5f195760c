"""What `edgewake discover` proposes reads what was heard, whatever that is."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.maps import presets
from edgewake.protocol.maps.applying import apply
from edgewake.protocol.maps.compiling import compile_maps
from edgewake.protocol.maps.discovering import TOPICS_MAX, Found, Survey, proposed
from tests.payloads.corpus import messages, payload_of

NOW = 1_790_000_000_000
TEMPERATURES = {
    "home/bath/temperature": b"21.5",
    "home/bath/humidity": b"50 %",
    "home/hall/temperature": b"19",
}


def found(heard: dict[str, bytes] | list[tuple[str, bytes]]) -> Found:
    survey = Survey()
    for topic, payload in heard.items() if isinstance(heard, dict) else heard:
        survey.add(topic, payload)
    return proposed(survey, now_ms=NOW)


def readings(text: str, topic: str, payload: bytes) -> list[tuple[str, str, dict[str, object]]]:
    outcome = apply(compile_maps(text, needs_names=True), topic, payload, NOW)
    assert not outcome.refused
    return [(one.device, one.stream, one.body) for one in outcome.readings]


def test_topics_of_one_shape_become_one_map_with_device_and_value() -> None:
    seen = found(TEMPERATURES)
    assert [one.name for one in seen.proposals] == ["home/{device}/{value}"]
    assert readings(seen.text, "home/bath/temperature", b"21.5") == [
        ("bath", "home", {"temperature": 21.5})
    ]


def test_a_level_that_is_neither_device_nor_value_is_a_tag_and_a_time_is_found() -> None:
    seen = found(
        {
            "factory/a/press-1/report": b'{"ts": 1790000000, "force": 3}',
            "factory/b/press-2/report": b'{"ts": 1790000001, "force": 4}',
        }
    )
    assert readings(seen.text, "factory/b/press-2/report", b'{"ts": 1790000001, "force": 4}') == [
        ("press-2", "factory", {"force": 4, "t": 1790000001000, "part_1": "b"})
    ]


def test_a_list_of_objects_is_taken_apart_each_with_its_own_time() -> None:
    payload = b'{"gw": 7, "values": [{"ts": 1790000000, "v": 1}, {"ts": 1790000001, "v": 2}]}'
    seen = found({"dev/eui": payload})
    assert readings(seen.text, "dev/eui", payload) == [
        ("eui", "dev", {"v": 1, "t": 1790000000000}),
        ("eui", "dev", {"v": 2, "t": 1790000001000}),
    ]
    several = found({"dev/eui": b'{"a": [{"v": 1}], "b": [{"v": 2}]}'})
    assert "each" not in several.text, "which of them is a reading cannot be told"


@pytest.mark.parametrize(
    "more", [b'"temperature":21.5,"humidity":40', b'"main":{"power":7}', b'"is_open":true']
)
def test_values_beside_a_list_are_the_reading_with_their_time(more: bytes) -> None:
    payload = b'{"ts":1790000000,%s,"alarms":[{"id":1,"level":2}]}' % more
    seen = found({"dev/eui": payload})
    assert "each" not in seen.text
    ((_, _, fields),) = readings(seen.text, "dev/eui", payload)
    assert fields["t"] == 1790000000000
    assert len(fields) > 2, "values are kept, and the list as a text"


@pytest.mark.parametrize("more", [b'"gwId":7', b'"seq":7,"name":"hall"', b'"gw":{"id":7}'])
def test_a_time_beside_a_list_is_that_of_each_of_its_items(more: bytes) -> None:
    payload = b'{"ts":1790000000,%s,"values":[{"v":1},{"v":2}]}' % more
    assert readings(found({"dev/eui": payload}).text, "dev/eui", payload) == [
        ("eui", "dev", {"v": 1, "t": 1790000000000}),
        ("eui", "dev", {"v": 2, "t": 1790000000000}),
    ]


@pytest.mark.parametrize("preset", presets.names())
def test_each_preset_is_recognised_by_what_its_devices_send(preset: str) -> None:
    """Of several presets that read the same, another one may be chosen; none is left."""
    sent = [(one["topic"], payload_of(one)) for name, one in messages() if name == preset]
    seen = found(sent)
    names = {one.name for one in seen.proposals if not one.table}
    read = {topic for one in seen.proposals if not one.table for topic in one.topics}
    assert preset in names or read >= {topic for topic, _ in sent}


def test_own_topics_are_devices_and_binary_is_left() -> None:
    seen = found({"ew/v1/car-7/up/speed": b"{}", "sensors/x": b"\xff\x00", **TEMPERATURES})
    assert (seen.own, seen.left) == (("car-7",), ("sensors/x",))


def test_nodes_of_sparkplug_are_named_and_no_map_is_proposed_for_them() -> None:
    seen = found(
        {
            "spBv1.0/plant/NBIRTH/press": b"\x08\x01",
            "spBv1.0/plant/DDATA/press/valve": b"{}",
            "spBv1.0/STATE/scada": b'{"online": true, "timestamp": 1}',
        }
    )
    assert (seen.nodes, seen.proposals, seen.left) == (("plant/press",), (), ())


def test_what_is_remembered_is_bounded_and_the_rest_is_counted() -> None:
    survey = Survey()
    for number in range(TOPICS_MAX + 5):
        survey.add(f"a/{number}", b"1")
    assert (len(survey.topics), survey.unseen) == (TOPICS_MAX, 5)


LEVEL = st.text(
    st.characters(exclude_characters="/+#\0", exclude_categories=("Cs",)), min_size=0, max_size=6
)


@given(
    st.dictionaries(
        st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool),
        st.one_of(
            st.binary(max_size=20),
            st.integers().map(lambda n: str(n).encode()),
            st.dictionaries(st.text(max_size=5), st.integers(0, 9)).map(orjson.dumps),
        ),
        max_size=6,
    )
)
def test_whatever_is_heard_the_file_that_is_proposed_can_be_used(heard: dict[str, bytes]) -> None:
    seen = found(heard)
    if seen.text:
        compile_maps(seen.text)
    named = [topic for one in seen.proposals for topic in one.topics]
    assert len(named) == len(set(named))
    assert not set(named) & set(seen.left)
