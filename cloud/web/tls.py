"""TLS on the addresses of the network, beside plain HTTP on the loopback."""

from __future__ import annotations

import ssl
from pathlib import Path

from edgewake.protocol.errors import ConfigError


def context(cert_file: Path | None, key_file: Path | None) -> ssl.SSLContext | None:
    """What a server shows there; None: nothing is encrypted.

    Raises ConfigError where only one of the two is there, or one cannot be used.
    """
    if cert_file is None and key_file is None:
        return None
    if cert_file is None or key_file is None:
        raise ConfigError("also_cert_file and also_key_file belong together")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    try:
        # Else OpenSSL would ask for a pass phrase, and wait.
        made.load_cert_chain(cert_file, key_file, password=b"")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"also_cert_file = {str(cert_file)!r}, also_key_file = {str(key_file)!r}: {error}: "
            "expected a certificate and its own key, as PEM, without a pass phrase"
        ) from error
    return made
