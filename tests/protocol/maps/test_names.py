"""Names of devices and streams are made legal, and stay apart."""

from __future__ import annotations

import pytest

from edgewake.protocol.maps.applying import apply, device_of
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
