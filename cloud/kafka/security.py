"""The keys under `[kafka.security]`, for each client: authentication of parts and of Kafka.

librdkafka takes files; Java's clients (Spark) take PEM text of a certificate and a PKCS 8 key. A
secret is read when a client is made, goes into that client's settings and nowhere else: not into
logs, not into errors, and Spark redacts it (SPARK_REDACTED).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from pydantic import model_validator

from edgewake.protocol.config import Config
from edgewake.protocol.errors import ConfigError

SPARK_REDACTED: Final = "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key"
"""For `spark.redaction.regex`: Spark's default, and the two options that hold our secrets."""


class SecurityProtocol(StrEnum):
    """What a connection to Kafka is made of."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_SSL = "sasl_ssl"


class SaslMechanism(StrEnum):
    """The way in which user and password are shown."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class SecurityConfig(Config):
    """Encryption and identity of every connection to Kafka."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """plaintext: neither; ssl: TLS, with a certificate of ours where `cert_file` is set; sasl_ssl:
    TLS and a user with a password."""
    ca_file: Path | None = None
    """PEM of the authority that signed the brokers' certificates; none: the system's. Names in the
    certificates are checked."""
    cert_file: Path | None = None
    """PEM of our certificate and its chain, where the brokers ask for one."""
    key_file: Path | None = None
    """PEM of its key, PKCS 8 without a passphrase, mode 0600."""
    mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512
    """With sasl_ssl."""
    username: str | None = None
    """With sasl_ssl."""
    password_file: Path | None = None
    """File with the user's password, one line, mode 0600."""

    @property
    def certificates(self) -> Sequence[Path | None]:
        """The files with certificates that Kafka's clients read."""
        return self.ca_file, self.cert_file

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        given = {
            name
            for name in ("ca_file", "cert_file", "key_file", "username", "password_file")
            if getattr(self, name) is not None
        }
        if self.protocol is SecurityProtocol.PLAINTEXT and given:
            raise ValueError(
                f'protocol is "plaintext", so {", ".join(sorted(given))} would not be used: '
                'expected "ssl" or "sasl_ssl"'
            )
        if len(given & {"cert_file", "key_file"}) == 1:
            raise ValueError("expected cert_file and key_file, both or neither")
        wants_user = self.protocol is SecurityProtocol.SASL_SSL
        if len(given & {"username", "password_file"}) != (2 if wants_user else 0):
            raise ValueError(
                'expected username and password_file with protocol = "sasl_ssl", and only with '
                f'it; found "{self.protocol}"'
            )
        return self


def client_settings(security: SecurityConfig) -> dict[str, str]:
    """Settings of librdkafka. Raises ConfigError where a file cannot be read."""
    if security.protocol is SecurityProtocol.PLAINTEXT:
        return {}
    settings = {"security.protocol": security.protocol.value.upper()}
    for key, name in (
        ("ssl.ca.location", "ca_file"),
        ("ssl.certificate.location", "cert_file"),
        ("ssl.key.location", "key_file"),
    ):
        if (path := getattr(security, name)) is not None:
            _read(path, name)
            settings[key] = str(path)
    if security.protocol is SecurityProtocol.SASL_SSL:
        settings |= {
            "sasl.mechanisms": security.mechanism.value,
            "sasl.username": security.username or "",
            "sasl.password": _password(security),
        }
    return settings


def spark_options(security: SecurityConfig) -> dict[str, str]:
    """Options of Spark's Kafka source and sink, without paths: other machines lack our files.

    Raises ConfigError where a file cannot be read.
    """
    if security.protocol is SecurityProtocol.PLAINTEXT:
        return {}
    options = {"kafka.security.protocol": security.protocol.value.upper()}
    if security.ca_file is not None:
        options |= {
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": _read(security.ca_file, "ca_file"),
        }
    if security.cert_file is not None and security.key_file is not None:
        options |= {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": _read(security.cert_file, "cert_file"),
            "kafka.ssl.keystore.key": _read(security.key_file, "key_file"),
        }
    if security.protocol is SecurityProtocol.SASL_SSL:
        kind = (
            "plain.PlainLoginModule"
            if security.mechanism is SaslMechanism.PLAIN
            else "scram.ScramLoginModule"
        )
        user, password = _quoted(security.username or ""), _quoted(_password(security))
        options |= {
            "kafka.sasl.mechanism": security.mechanism.value,
            "kafka.sasl.jaas.config": (
                f"org.apache.kafka.common.security.{kind} required username={user} "
                f"password={password};"
            ),
        }
    return options


def explain(code: str, text: str, security: SecurityConfig) -> str | None:
    """What librdkafka's error means for our configuration: one sentence that names the key.

    None for an error of another kind.

    `code`: the error's name, e.g. `_AUTHENTICATION`.
    """
    lowered = text.lower()
    if code == "_AUTHENTICATION" and security.protocol is SecurityProtocol.SASL_SSL:
        return (
            f"Kafka refuses user {security.username!r} with {security.mechanism}: expected "
            "kafka.security.username, .password_file and .mechanism as the brokers know them"
        )
    if code not in ("_SSL", "_TRANSPORT", "_AUTHENTICATION"):
        return None
    if (
        "certificate verify failed" in lowered
        or "self-signed" in lowered
        or "self signed" in lowered
    ):
        authority = (
            "the system's authorities" if security.ca_file is None else f"{security.ca_file}"
        )
        return (
            f"the broker's certificate is not signed by kafka.security.ca_file ({authority}), or "
            "is for another name than kafka.bootstrap"
        )
    if "alert" in lowered and "certificate" in lowered:
        return (
            "Kafka refuses our certificate: expected kafka.security.cert_file and .key_file of an "
            "authority that the brokers trust"
        )
    if code == "_SSL":
        return (
            "the TLS connection to kafka.bootstrap fails with kafka.security.protocol = "
            f'"{security.protocol}": {text[:200]}'
        )
    return None


def _password(security: SecurityConfig) -> str:
    assert security.password_file is not None, "checked with the configuration"
    return _read(security.password_file, "password_file").split("\n")[0].rstrip("\r")


def _read(path: Path, key: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"kafka.security.{key} = {path}: cannot be read: {why}") from None


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
