"""TLS on the addresses of the network, beside plain HTTP on the loopback."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import NamedTuple

from edgewake.protocol.errors import ConfigError


def context(
    cert_file: Path | None, key_file: Path | None, clients_ca_file: Path | None = None
) -> ssl.SSLContext | None:
    """What a server shows there; None: nothing is encrypted.

    `clients_ca_file`: who signs certificates of clients, which need not show one; another one's is
    refused. Raises ConfigError where only one of the first two is there, or one cannot be used.
    """
    if cert_file is None and key_file is None:
        return None
    if cert_file is None or key_file is None:
        raise ConfigError("also_cert_file and also_key_file belong together")
    made = serving(cert_file, key_file, "also_cert_file", "also_key_file")
    made.set_alpn_protocols(["http/1.1"])
    if clients_ca_file is not None:
        try:
            made.load_verify_locations(clients_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"also_client_ca_file = {str(clients_ca_file)!r}: {error}: expected the "
                "certificate of an authority, as PEM"
            ) from error
        made.verify_mode = ssl.CERT_OPTIONAL
    return made


def serving(cert_file: Path, key_file: Path, cert_name: str, key_name: str) -> ssl.SSLContext:
    """TLS 1.2 and later, of whatever protocol. The names: of the keys that say the files.

    Raises ConfigError.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Else OpenSSL would ask for a pass phrase, and wait.
        made.load_cert_chain(cert_file, key_file, password=b"")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{cert_name} = {str(cert_file)!r}, {key_name} = {str(key_file)!r}: {error}: "
            "expected a certificate and its own key, as PEM, without a pass phrase"
        ) from error
    return made


class Certificate(NamedTuple):
    """What a client showed, and our authority signed."""

    name: str
    """Its common name."""
    serial: str
    """Hexadecimal, in small letters, without leading zeros."""


def certificate_of(transport: asyncio.BaseTransport) -> Certificate | None:
    """The certificate of a client; None: it shows none."""
    shown = transport.get_extra_info("peercert")
    if not shown:
        return None
    pairs = (pair for group in shown.get("subject", ()) for pair in group)
    name = next((value for key, value in pairs if key == "commonName"), "")
    return Certificate(name, str(shown.get("serialNumber", "")).lower().lstrip("0"))
