"""Checks a broker from outside: does it accept connections, TLS and MQTT? Blocking.

It does not log in: many brokers take a second login for the running agent, and would cut its
connection. A CONNECT of an unknown version is enough: a broker refuses it by a CONNACK or closes
(MQTT 5, section 3.1.2.2), and whatever answers otherwise is not a broker.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

from edgewake.protocol.broker import BrokerConfig, password_of, tls_of
from edgewake.protocol.errors import LocalError

BROKER_S: Final = 5.0
"""Seconds that the broker has for each step."""
ANSWER_BYTES: Final = 64
"""Bytes of the answer that are read: its kind is in the first."""
REFUSED: Final = "the broker refused us: are cert_file and key_file those that it asks for?"
_NO_VERSION: Final = b"\x10\x0d\x00\x04MQTT\x7f\x02\x00\x0a\x00\x00\x00"
"""A CONNECT of version 127."""
_CONNACK: Final = 0x20
_TLS: Final = frozenset({0x15, 0x16})
"""Kinds of TLS records that answer other bytes than TLS: alert, handshake (RFC 8446, section
5.1)."""


def look(broker: BrokerConfig) -> str:
    """Connect to the broker and describe it.

    Raises LocalError with what to do, ConfigError for a file that cannot be used.
    """
    where = f"{broker.host}:{broker.port}"
    tls = tls_of(broker)
    password_of(broker)
    try:
        with socket.create_connection((broker.host, broker.port), timeout=BROKER_S) as raw:
            if tls is None:
                return f"{where} takes connections, without TLS{_answer(where, raw)}"
            with _secured(tls, raw, broker.host) as secured:
                return (
                    f"{where} takes connections, "
                    f"{secured.version()}{_answer_over_tls(where, secured)}"
                )
    except OSError as error:
        raise LocalError(f"{where}: {error}: {_hint(error)}") from error


def _secured(tls: ssl.SSLContext, raw: socket.socket, host: str) -> ssl.SSLSocket:
    """Raises OSError, SSLError before all."""
    try:
        return tls.wrap_socket(raw, server_hostname=host)
    except ConnectionError as error:
        raise ssl.SSLEOFError(f"closed in the middle of the handshake: {error}") from error


def _hint(error: OSError) -> str:
    """The place to look at for such an error."""
    if not isinstance(error, ssl.SSLError):
        return "is the address right, and does the broker run?"
    if isinstance(error, ssl.SSLEOFError) or "WRONG_VERSION_NUMBER" in str(error):
        return "is this its port for TLS?"
    if "ALERT" in str(error).upper():
        return REFUSED
    return "is ca_file its authority's, and the clock right?"


def _answer_over_tls(where: str, channel: ssl.SSLSocket) -> str:
    """Read the answer over TLS. Raises LocalError.

    Only after the handshake, which went well for us, does a server refuse our certificate.
    """
    try:
        return _answer(where, channel)
    except OSError as error:
        raise LocalError(f"{where}: {error}: {REFUSED}") from error


def _answer(where: str, channel: socket.socket) -> str:
    """What it answers to MQTT, in words. Raises LocalError, OSError."""
    # It has closed already: what it said before can still be read.
    with contextlib.suppress(OSError):
        channel.sendall(_NO_VERSION)
    try:
        said = channel.recv(ANSWER_BYTES)
    except TimeoutError as error:
        raise LocalError(
            f"{where}: takes a connection and says nothing: is a broker behind it?"
        ) from error
    except ConnectionError:
        if isinstance(channel, ssl.SSLSocket):
            raise
        said = b""
    if not said:
        return ""
    if said[0] == _CONNACK:
        return ", and speaks MQTT"
    if said[0] in _TLS:
        raise LocalError(f"{where}: speaks TLS: set ca_file, or use its port without TLS")
    raise LocalError(f"{where}: the answer is not MQTT ({said[:24]!r}): is this the broker's port?")
