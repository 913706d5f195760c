"""Firmware of ThingsBoard's devices: which files are offered, and in which pieces."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest

from edgewake.cloud.bridge.thingsboard import firmware
from edgewake.cloud.bridge.thingsboard.firmware import Firmware, chunk
from edgewake.cloud.bridge.web import provisioning

DATA = bytes(range(256)) * 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "boiler").mkdir()
    (tmp_path / "boiler" / "2.0").write_bytes(DATA)
    return tmp_path


def test_a_device_is_told_size_and_checksum(folder: Path) -> None:
    files = Firmware(folder)
    files.look()
    asked = {"fw_title": "boiler", "fw_version": "2.0", "interval": 5}
    assert files.described(asked) == {
        **asked,
        "fw_size": len(DATA),
        "fw_checksum": hashlib.sha256(DATA).hexdigest(),
        "fw_checksum_algorithm": "SHA256",
    }
    assert files.described({"interval": 5}) == {"interval": 5}
    with pytest.raises(ValueError, match=r"no 'boiler' '3\.0' in firmware_dir"):
        files.described({"fw_title": "boiler", "fw_version": "3.0"})


def test_the_pieces_are_the_file(folder: Path) -> None:
    files = Firmware(folder)
    files.look()
    image = files.of("fw", {"fw_title": "boiler", "fw_version": "2.0"})
    assert image is not None
    for size in (1, 100, 1280, 5000):
        count = -(-len(DATA) // size)
        assert b"".join(chunk(image, size, n) for n in range(count)) == DATA
        assert chunk(image, size, count) == b""
    assert (chunk(image, 0, 0), chunk(image, 0, 1)) == (DATA, b"")


def test_a_piece_beyond_the_file_is_empty_and_one_over_its_end_is_what_is_left(
    folder: Path,
) -> None:
    files = Firmware(folder)
    files.look()
    image = files.of("fw", {"fw_title": "boiler", "fw_version": "2.0"})
    assert image is not None
    huge = 9_999_999_999
    assert chunk(image, huge, huge) == b""
    assert chunk(image, huge, 0) == DATA


def test_a_file_that_cannot_be_read_costs_the_others_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "boiler" / "1.0").symlink_to("/proc/self/mem")  # reading its beginning fails
    files = Firmware(folder)
    for _ in range(2):
        files.look()
    assert files.of("fw", {"fw_title": "boiler", "fw_version": "2.0"}) is not None
    assert files.of("fw", {"fw_title": "boiler", "fw_version": "1.0"}) is None
    (said,) = caplog.messages
    assert "1.0" in said


def test_a_file_that_changes_is_offered_anew_and_a_large_one_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Firmware(folder)
    files.look()
    monkeypatch.setattr(firmware, "FILE_BYTES_MAX", 2000)
    (folder / "boiler" / "2.0").write_bytes(b"other")
    (folder / "boiler" / "3.0").write_bytes(b"x" * 2001)
    (folder / ".secret").mkdir()
    (folder / ".secret" / "key").write_bytes(b"no")
    files.look()
    image = files.of("sw", {"sw_title": "boiler", "sw_version": "2.0"})
    assert image is not None
    assert image.checksum == hashlib.sha256(b"other").hexdigest()
    assert files.of("fw", {"fw_title": "boiler", "fw_version": "3.0"}) is None
    assert files.of("fw", {"fw_title": ".secret", "fw_version": "key"}) is None
    assert files.of("fw", {"fw_title": "..", "fw_version": "boiler"}) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"deviceName": "a", "provisionDeviceSecret": "c"}, ""),
        ({"provisionDeviceSecret": "c"}, "deviceName is missing"),
        ({"deviceName": 3, "provisionDeviceSecret": "c"}, "deviceName is missing"),
        ({"deviceName": "a"}, "provisionDeviceSecret is missing"),
        ({"deviceName": "a", "provisionDeviceSecret": "c", "token": "x"}, "credentials of its own"),
        (
            {
                "deviceName": "a",
                "provisionDeviceSecret": "c",
                "credentialsType": "X509_CERTIFICATE",
            },
            "credentials of its own",
        ),
        ({"deviceName": "a", "provisionDeviceSecret": "c", "gateway": True}, "a gateway"),
    ],
)
def test_what_is_asked_for_is_checked_before_a_code_is_used(
    said: dict[str, object], why: str
) -> None:
    found = provisioning.why_not(said)
    assert found.startswith(why) if why else found == ""


def test_the_operations_apis_answer_is_told_in_thingsboards_words() -> None:
    given = {"items": [{"device": "a", "password": "p"}]}
    assert orjson.loads(provisioning.read(200, given))["credentialsValue"] == "a:p"
    refused = orjson.loads(provisioning.read(403, {"detail": "this code is not known"}))
    assert (refused["status"], refused["errorMsg"]) == ("FAILURE", "this code is not known")
    for body in ([], {"items": []}, "text"):
        assert orjson.loads(provisioning.read(200, body))["status"] == "FAILURE"
