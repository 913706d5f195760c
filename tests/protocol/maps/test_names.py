"""Names of devices and streams are made legal, and stay apart."""

from __future__ import annotations

import pytest

from edgewake.protocol.maps.applying import apply, device_of
from edgewake.protocol.maps.compiling import compile_presets
from edgewake.protocol.maps.names import device_name, stream_name
from tests.protocol.maps.test_applying import HEAD, NOW_MS, maps


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("lamp-1", "lamp-1"),
        ("kitchen/lamp", "kitchen.lamp"),
        ("AA:BB:CC", "AA-BB-CC"),
        ("Küche Lampe", "Kueche_Lampe-62160530"),
    ],
)
def test_names_of_devices_are_made_legal(name: str, legal: str) -> None:
    assert device_name(name) == legal


def test_two_names_that_look_alike_stay_two() -> None:
    assert device_name("Küche 1") != device_name("Küche_1") != device_name("Kueche_1")
    assert len(device_name("ü" * 500)) <= 64
    assert stream_name("Living Room/Temp") == "living_room_temp"
    assert stream_name("1st") == "s_1st"


def test_names_may_be_given_and_have_a_prefix() -> None:
    found = maps(f'{HEAD}\n[devices]\n"d 1" = "hall"\n')
    assert apply(found, "a/d 1", b"1", NOW_MS, prefix="zb-").readings[0].device == "zb-hall"
    assert device_of(found, "a/d 1", "zb-") == "zb-hall"


@pytest.mark.parametrize(
    ("topic", "device"),
    [
        ("kitchen/lamp", "kitchen.lamp"),  # a map before it takes single values
        ("lamp", "lamp"),
        ("lamp/availability", "lamp"),
        ("lamp/set", ""),
        ("lamp/set/brightness", ""),
    ],
)
def test_a_topic_names_the_device_of_the_map_that_needs_no_look_into_the_payload(
    topic: str, device: str
) -> None:
    found = compile_presets(["zigbee2mqtt"], needs_names=True)
    assert device_of(found, f"zigbee2mqtt/{topic}") == device


def test_where_every_map_looks_into_the_payload_the_first_that_names_a_device_counts() -> None:
    found = compile_presets(["shelly-gen2"], needs_names=True)
    assert device_of(found, "shelly-1/events/rpc") == "shelly-1"
