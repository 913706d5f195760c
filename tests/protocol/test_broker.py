"""How devices and bridges get into a broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgewake.cloud.bridge.config import MqttConfig
from edgewake.protocol.broker import (
    CLIENT_ID_CHARS_MAX,
    BrokerConfig,
    client_id_of,
    password_of,
    tls_of,
)
from edgewake.protocol.errors import ConfigError
from tests.edge.mtls import certificates


@pytest.mark.parametrize("model", [BrokerConfig, MqttConfig])
def test_a_certificate_needs_its_key_and_an_authority(model: type[BrokerConfig]) -> None:
    with pytest.raises(ValueError, match="cert_file and key_file belong together"):
        model(ca_file=Path("ca"), cert_file=Path("crt"))
    with pytest.raises(ValueError, match="cert_file without ca_file"):
        model(cert_file=Path("crt"), key_file=Path("key"))


def test_the_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("pässword \nsecond line\n", "utf-8")
    assert password_of(BrokerConfig(password_file=file)) == "pässword".encode()
    assert password_of(BrokerConfig()) is None
    with pytest.raises(ConfigError, match=r"password_file = .*missing: No such file"):
        password_of(BrokerConfig(password_file=tmp_path / "missing"))


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("no PEM")
    assert tls_of(BrokerConfig()) is None
    with pytest.raises(ConfigError, match=r"mqtt.ca_file = .*ca.crt: .*: expected PEM"):
        tls_of(BrokerConfig(ca_file=file))


def test_a_key_with_a_pass_phrase_is_named_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    """OpenSSL would ask whoever sits at the terminal, and wait."""
    certificates(tmp_path)
    call = [
        "openssl",
        "pkey",
        "-in",
        "device.key",
        "-aes128",
        "-passout",
        "pass:secret",
        "-out",
        "locked.key",
    ]
    subprocess.run(call, cwd=tmp_path, check=True, capture_output=True)
    ours = {"ca_file": tmp_path / "ca.pem", "cert_file": tmp_path / "device.pem"}
    assert tls_of(BrokerConfig(**ours, key_file=tmp_path / "device.key")) is not None
    for key in ("locked.key", "broker.key", "none.key"):
        with pytest.raises(ConfigError, match=rf"{key}: .*without a pass phrase"):
            tls_of(BrokerConfig(**ours, key_file=tmp_path / key))


def test_clients_of_long_names_that_begin_alike_do_not_push_each_other_out() -> None:
    assert client_id_of("d1", "s") == "edgewake-d1-s"
    device = "d" * 64
    found = {client_id_of(device, name) for name in ("speed", "speeds", "s" * 64)}
    assert len(found) == 3
    assert {len(text) for text in found} == {CLIENT_ID_CHARS_MAX}
