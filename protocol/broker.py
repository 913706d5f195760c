"""The address and credentials of an MQTT broker, as devices and bridges configure them."""

from __future__ import annotations

import ssl
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.plain import Check, ConfigTable, key

CLIENT_ID_CHARS_MAX: Final = 64
"""Characters of a client id: brokers need not take many (MQTT 5, section 3.1.3.1)."""
_MARK_CHARS: Final = 16


def client_id_of(device: str, name: str) -> str:
    """What the client of a source calls itself: two of one name would push each other out.

    Where it is too long its end is a digest of all of it.
    """
    text = f"edgewake-{device}-{name}"
    if len(text) <= CLIENT_ID_CHARS_MAX:
        return text
    mark = sha256(text.encode()).hexdigest()[:_MARK_CHARS]
    return f"{text[: CLIENT_ID_CHARS_MAX - _MARK_CHARS - 1]}-{mark}"


def _host(name: str) -> str:
    """Check a host name completely: one that cannot be looked up would fail at every connection."""
    try:
        is_name = bool(name) and not set(name) & set("/[]@ \t\r\n\0") and name.encode("idna")
    except UnicodeError:
        is_name = False
    if not is_name:
        raise ValueError(
            "expected a name or an address alone, such as broker.example, 192.0.2.7 or 2001:db8::7"
        )
    return name


class BrokerConfig(ConfigTable):
    """The address of the broker and the credentials for it."""

    host: Annotated[str, Check(_host)] = "127.0.0.1"
    """Host name or IP address."""
    port: int = key(default=1883, ge=1, le=65_535)
    """TCP port."""
    username: str | None = None
    """User name; without one the client is anonymous, or its certificate says who it is."""
    password_file: Path | None = None
    """File with the password in its first line, mode 0600: a path, so that the configuration holds
    no secret."""
    ca_file: Path | None = None
    """PEM of the authority that signed the broker's certificate; turns TLS on."""
    cert_file: Path | None = None
    """PEM of our own certificate, for mutual TLS; a device's has the device as its common name."""
    key_file: Path | None = None
    """PEM of the certificate's key."""

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together")
        if self.cert_file is not None and self.ca_file is None:
            raise ValueError(
                "cert_file without ca_file: who shows a certificate must check the broker's"
            )


def tls_of(config: BrokerConfig) -> ssl.SSLContext | None:
    """The TLS context; None for a plain connection.

    Raises ConfigError where a file cannot be used.
    """
    if config.ca_file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"mqtt.ca_file = {config.ca_file}: {error}: expected PEM") from error
    if config.cert_file is None:
        return context
    try:
        # Else OpenSSL would ask for one, and wait.
        context.load_cert_chain(config.cert_file, config.key_file, password=b"")
    except (OSError, ssl.SSLError) as error:
        files = f"mqtt.cert_file = {config.cert_file}, key_file = {config.key_file}"
        raise ConfigError(
            f"{files}: {error}: expected a certificate and its own key, as PEM, without a pass "
            "phrase"
        ) from error
    return context


def password_of(config: BrokerConfig) -> bytes | None:
    """The first line of the password file; None without one. Raises ConfigError."""
    if config.password_file is None:
        return None
    try:
        return config.password_file.read_bytes().partition(b"\n")[0].strip()
    except OSError as error:
        raise ConfigError(
            f"mqtt.password_file = {config.password_file}: {error.strerror}"
        ) from error
