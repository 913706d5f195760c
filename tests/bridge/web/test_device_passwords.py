"""Who a device is at the bridge's door, by the password that it has at the broker."""

from __future__ import annotations

import base64
import os
import resource
import tomllib
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud import passwords
from edgewake.cloud.bridge.http_config import HttpConfig
from edgewake.cloud.bridge.web.device_passwords import FILE_BYTES_MAX, DevicePasswords
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.device_tokens import Holder
from edgewake.protocol.maps.http_forms import Head, Reply, shown_login
from edgewake.protocol.maps.http_identity import identified
from tests.bridge.web.conftest import PASSWORD


def head(target: str = "/any", **headers: str) -> Head:
    return Head.of("POST", target, headers)


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    "shows",
    [
        head(authorization=basic(f"boiler:{PASSWORD}")),
        head(authorization=f"Bearer boiler:{PASSWORD}"),
        head("/api/v2/write?bucket=b", authorization=f"Token boiler:{PASSWORD}"),
        head(f"/write?db=d&u=boiler&p={PASSWORD}"),
        head(f"/api/v1/boiler:{PASSWORD}/telemetry"),
        head(f"/api/v1/boiler%3A{PASSWORD}/telemetry"),
    ],
)
def test_each_client_shows_name_and_password_where_it_can(file: Path, shows: Head) -> None:
    found = identified(shows, None, None, DevicePasswords(file))
    assert isinstance(found, Head)
    assert found.device == "boiler"
    name, password = shown_login(shows)
    assert (name, password) == ("boiler", PASSWORD)


@pytest.mark.parametrize(
    "shows",
    [
        head(),
        head(authorization=basic(f"boiler:{PASSWORD}x")),
        head(authorization=basic(f"oven:{PASSWORD}")),
        head(authorization=basic("boiler:")),
        head(authorization=basic("boiler")),
        head(authorization="Basic %%%"),
        head(authorization=f"Bearer {PASSWORD}"),
        head(authorization=f"Digest boiler:{PASSWORD}"),
        head(f"/write?db=d&p={PASSWORD}"),
        # What a proxy would log is no way in where the client shows something else.
        head(f"/write?u=boiler&p={PASSWORD}", authorization=basic("boiler:x")),
    ],
)
def test_who_shows_anything_else_is_not_let_in(file: Path, shows: Head) -> None:
    found = identified(shows, None, None, DevicePasswords(file))
    assert isinstance(found, Reply)
    assert found.status == 401


def test_what_changed_in_the_file_is_right_after_a_look(file: Path) -> None:
    here = DevicePasswords(file)
    assert here.holder_of("boiler", PASSWORD) == Holder("boiler")
    entries = passwords.parse(file.read_text())
    file.write_text(passwords.text_of({"oven": passwords.entry("other", os.urandom)}))
    here.look()
    assert here.holder_of("boiler", PASSWORD) is None
    assert here.holder_of("oven", "other") == Holder("oven")
    file.write_bytes(b"\xff" * 10)  # not a text: those of before stay
    here.look()
    assert here.holder_of("oven", "other") == Holder("oven")
    file.write_text("#" * (FILE_BYTES_MAX + 1))
    here.look()
    assert here.holder_of("oven", "other") == Holder("oven")
    file.unlink()
    here.look()
    assert here.holder_of("oven", "other") is None
    file.write_text(passwords.text_of(entries))
    here.look()
    assert here.holder_of("boiler", PASSWORD) == Holder("boiler")


def test_a_file_that_could_not_be_opened_is_tried_again(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = DevicePasswords(file)
    file.write_text(passwords.text_of({"oven": passwords.entry("other", os.urandom)}))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))  # no file more may be open
        for _ in range(3):
            assert here.holder_of("oven", "other") is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    (said,) = caplog.records
    assert "Too many open files" in said.getMessage()
    assert here.holder_of("oven", "other") == Holder("oven")


def test_a_file_that_is_wrong_is_read_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who tries passwords does not make the bridge read eight megabytes each time."""
    here = DevicePasswords(file)
    file.write_text("#" * (FILE_BYTES_MAX + 1))
    read = mock.Mock(wraps=here._read)
    monkeypatch.setattr(here, "_read", read)
    for _ in range(3):
        assert here.holder_of("boiler", "wrong") is None
    assert read.call_count == 1
    assert here.holder_of("boiler", PASSWORD) == Holder("boiler"), "those of before"


def test_a_file_that_is_not_there_yet_lets_nobody_in(tmp_path: Path) -> None:
    assert DevicePasswords(tmp_path / "none").holder_of("boiler", PASSWORD) is None
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="password_file"):
        DevicePasswords(tmp_path / "folder")


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_is_more_than_a_wrong_password(name: str, password: str) -> None:
    entry = passwords.entry(PASSWORD, lambda count: b"s" * count)
    shows = head(authorization=basic(f"{name}:{password}"))
    shown = shown_login(shows)
    assert shown == (name.partition(":")[0], f"{name}:{password}".partition(":")[2])
    assert passwords.is_of(shown[1], entry) == (shown[1] == PASSWORD)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('host = "0.0.0.0"', "set tokens_file or password_file"),
        ('also_hosts = ["192.168.1.5"]', "set tokens_file or password_file"),
        ('also_hosts = ["shed"]', "also_hosts: expected an address"),
        ('local = true\ntrusted_proxies = ["10.0.0.0/8"]', "local: a proxy asks for others"),
    ],
)
def test_a_door_that_nobody_guards_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        parse(HttpConfig, tomllib.loads(text), "bridge.toml")
    guarded = 'also_hosts = ["192.168.1.5"]\npassword_file = "x"\nlocal = true'
    assert parse(HttpConfig, tomllib.loads(guarded), "bridge.toml").also_hosts == ("192.168.1.5",)


def test_a_device_that_was_just_let_in_is_known_without_a_look(file: Path) -> None:
    here = DevicePasswords(file)
    assert here.holder_of("new", "secret") is None
    file.write_text(file.read_text() + passwords.text_of({"new": passwords.entry("secret", bytes)}))
    assert here.holder_of("new", "secret") == Holder("new")
