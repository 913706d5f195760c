"""Keys of a secure Kafka: which go together, and what is said where one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.security import SecurityConfig, explain
from edgewake.protocol.config import load
from edgewake.protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('protocol = "ssl"\ncert_file = "a"\n', "cert_file and key_file, both or neither"),
        ('protocol = "sasl_ssl"\nusername = "a"\n', "expected username and password_file"),
        (
            'protocol = "ssl"\nusername = "a"\npassword_file = "b"\n',
            "expected username and password_file",
        ),
        ('ca_file = "a"\n', "ca_file would not be used"),
        ('protocol = "sasl"\n', "kafka.security.protocol = 'sasl'"),
        ('protocol = "ssl"\nca_fil = "a"\n', "did you mean 'ca_file'"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(text: str, expected: str, tmp_path: Path) -> None:
    from edgewake.cloud.bridge.config import BridgeConfig

    file = tmp_path / "bridge.toml"
    file.write_text("[kafka.security]\n" + text)
    with pytest.raises(ConfigError, match=expected):
        load(BridgeConfig, file)


def test_a_file_that_cannot_be_read_is_named_with_its_key(tmp_path: Path) -> None:
    security = SecurityConfig(protocol="ssl", ca_file=tmp_path / "nothing.pem")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError,
        match=r"kafka\.security\.ca_file = .*nothing\.pem: cannot be read: No such file",
    ):
        clients.producer(KafkaConfig(security=security), "test")


def test_other_trouble_is_not_explained_as_one_of_security() -> None:
    assert explain("_TRANSPORT", "connection refused", SecurityConfig()) is None
    assert explain("_ALL_BROKERS_DOWN", "1/1 brokers are down", SecurityConfig()) is None
