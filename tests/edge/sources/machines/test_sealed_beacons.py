"""Encrypted advertisements: those of BTHome's specification, and of Xiaomi's sensors as their
owners wrote them down with their keys (the tests of `xiaomi-ble` have them).
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.machines.beacons import BTHOME, XIAOMI, decoded
from edgewake.edge.sources.machines.sealed_beacons import (
    BTHOME_UUID,
    MI_ASSOCIATED,
    TAG_BYTES,
    BeaconKeys,
)
from edgewake.protocol.errors import Rejected, RejectReason

PLACE = "54:48:E6:8F:80:A5"
KEY = "231d39c1d7cc1ab1aee224cd096db932"
EXAMPLE = bytes.fromhex("41a47266c95f730011223378237214")
"""https://bthome.io/encryption: temperature and humidity, number 0x33221100."""
RECORDED = [
    (BTHOME, PLACE, KEY, EXAMPLE.hex(), {"temperature": 25.06, "humidity": 50.55}),
    (XIAOMI, "A4:C1:38:56:53:84", "a115210eed7a88e50ad52662e732a9fb",
     "5858e4162c84535638c1a42b6ef2e9120000" "6c884d9e", {"humidity": 58, "number": 0x2C}),
    (XIAOMI, "58:2D:34:12:20:89", "a3bfe9853dd85a620debe3620caaa351",
     "58586f0607892012342d585f176dd54f020000" "2fa453fa", {"temperature": 22.6, "number": 7}),
    (XIAOMI, "5A:58:2D:34:12:5F", "814aac74c4f17b6c1581e1ab87816b99",
     "5858480b685f12342d585a0b1841e2aa000e00" "a4964fb5", {"humidity": 59.6, "number": 0x68}),
    # Newer firmware: the address is not in it, and values are floats.
    (XIAOMI, "A4:C1:38:0E:FD:78", "19b1c678ab0a8bc3dc77765f059188d4",
     "4858422529" "202d8c7a76b756a82a00" "78b8224e", {"temperature": 26.1, "number": 0x29}),
    (XIAOMI, "A4:C1:38:0E:FD:78", "19b1c678ab0a8bc3dc77765f059188d4",
     "585842258878fd0e38c1a405f6538aa72a00" "62b1a966", {"humidity": 38, "number": 0x88}),
]  # fmt: skip


def bthome(number: int, values: str = "02CA0903BF13", key: str = KEY) -> bytes:
    """What a sensor with the key says, encrypted."""
    counter = number.to_bytes(4, "little")
    nonce = bytes.fromhex(PLACE.replace(":", "")) + BTHOME_UUID + b"\x41" + counter
    sealed = AESCCM(bytes.fromhex(key), tag_length=TAG_BYTES).encrypt(
        nonce, bytes.fromhex(values), None
    )
    return b"\x41" + sealed[:-TAG_BYTES] + counter + sealed[-TAG_BYTES:]


def taken(keys: BeaconKeys, data: bytes, service: str = BTHOME, address: str = PLACE) -> object:
    """The values that come of it; None: nothing."""
    found = decoded({}, keys.opened(address, {service: data}))
    return None if found is None else found[1]


def test_the_sensor_of_the_specification_is_the_one_that_these_tests_encrypt_as() -> None:
    assert bthome(0x33221100) == EXAMPLE


@pytest.mark.parametrize(("service", "address", "key", "data", "values"), RECORDED)
def test_a_key_opens_what_its_sensor_says(
    service: str, address: str, key: str, data: str, values: dict[str, object]
) -> None:
    keys = BeaconKeys({address: key})
    assert taken(keys, bytes.fromhex(data), service, address) == values
    assert taken(keys, bytes.fromhex(data), service, address) is None, "it is repeated"
    assert decoded({}, {service: bytes.fromhex(data)}) is None, "control: without a key"


@pytest.mark.parametrize(("service", "address", "key", "data", "values"), RECORDED)
def test_another_key_and_a_changed_byte_open_nothing(
    service: str, address: str, key: str, data: str, values: object
) -> None:
    wrong = BeaconKeys({address: "00" * 16})
    with pytest.raises(Rejected, match="does not open"):
        taken(wrong, bytes.fromhex(data), service, address)
    assert taken(wrong, bytes.fromhex(data), service, address) is None, "counted once"
    keys, at = BeaconKeys({address: key}), len(data) // 2 - 8
    changed = bytearray.fromhex(data)
    changed[at] ^= 1
    with pytest.raises(Rejected, match="does not open"):
        taken(keys, bytes(changed), service, address)
    assert taken(keys, bytes.fromhex(data), service, address) == values, "it cost only itself"


def test_a_replay_is_refused_and_costs_nothing_else() -> None:
    keys = BeaconKeys({PLACE: KEY})
    assert taken(keys, bthome(5000)) == {"temperature": 25.06, "humidity": 50.55}
    assert taken(keys, bthome(5001, "02CB09")) == {"temperature": 25.07}
    with pytest.raises(Rejected) as refused:
        taken(keys, bthome(5000))
    assert refused.value.reason is RejectReason.FOREIGN_DEVICE
    assert taken(keys, bthome(5002, "02CC09")) == {"temperature": 25.08}


def test_a_sensor_with_a_new_battery_counts_from_the_beginning() -> None:
    keys = BeaconKeys({PLACE: KEY})
    for number in (5000, 3, 4, 120):
        assert taken(keys, bthome(number, "02CA09")) == {"temperature": 25.06}


def test_a_sensor_with_a_key_is_not_taken_in_the_clear() -> None:
    keys = BeaconKeys({PLACE: KEY})
    with pytest.raises(Rejected, match="not encrypted, though it has a key"):
        taken(keys, bytes.fromhex("4002CA09"))
    # Xiaomi's sensors say who they are without values, and without encryption.
    assert taken(keys, bytes.fromhex("3058e416b384535638c1a408"), XIAOMI) is None


@pytest.mark.parametrize("data", ["41a47266c95f7300", "585842", "58584225885678", "5830b603d28b"])
def test_what_is_cut_off_or_of_a_format_without_a_check_is_refused(data: str) -> None:
    keys = BeaconKeys({PLACE: KEY})
    service = BTHOME if data.startswith("41") else XIAOMI
    with pytest.raises(Rejected, match="cannot be read"):
        taken(keys, bytes.fromhex(data), service)
    assert taken(keys, bthome(1, "02CA09")) == {"temperature": 25.06}


@given(st.binary(max_size=40), st.sampled_from([BTHOME, XIAOMI]))
def test_no_advertisement_raises_anything_else(data: bytes, service: str) -> None:
    keys = BeaconKeys({PLACE: KEY})
    try:
        found = keys.opened(PLACE, {service: data})
    except Rejected:
        return
    decoded({}, found)


def test_encrypted_as_xiaomi_does_it_comes_back() -> None:
    """Several objects in one, with the capability that says more of the sensor."""
    head = bytes.fromhex("7858") + b"\x42\x25\x07" + bytes.fromhex(PLACE.replace(":", ""))[::-1]
    head += b"\x08"
    objects = bytes.fromhex("014c040000b841024c0129034c0164")
    high = b"\x01\x02\x00"
    nonce = head[5:11] + head[2:5] + high
    sealed = AESCCM(bytes.fromhex(KEY), tag_length=TAG_BYTES).encrypt(nonce, objects, MI_ASSOCIATED)
    data = head + sealed[:-TAG_BYTES] + high + sealed[-TAG_BYTES:]
    assert taken(BeaconKeys({PLACE: KEY}), data, XIAOMI) == {
        "temperature": 23.0, "humidity": 41, "battery": 100, "number": 7,
    }  # fmt: skip


def test_without_keys_nothing_of_cryptography_is_imported() -> None:
    """Neither by an agent without this source nor by one whose sensors are open."""
    program = """
import sys
from edgewake.edge.sources.config import kind
from edgewake.edge.sources.machines.ble import Heard
keys = {"type": "ble", "stream": "s"}
Heard(kind("ble").checked(keys))
assert "cryptography" not in sys.modules
Heard(kind("ble").checked(keys | {"keys": {"C1:45:12:AA:BB:CC": "00" * 16}}))
assert "cryptography" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
