"""How devices and bridges get into a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.bridge.config import MqttConfig
from edgewake.protocol.broker import BrokerConfig, password_of, tls_of
from edgewake.protocol.errors import ConfigError


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
    with pytest.raises(ConfigError, match="ca_file, cert_file or key_file"):
        tls_of(BrokerConfig(ca_file=file))
