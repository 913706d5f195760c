"""What sources that ask a web server share: address, trust, credentials, and name in the log."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Final

from edgewake.edge.sources.address import tls_context
from edgewake.edge.sources.mapping import MappedConfig
from edgewake.edge.sources.web.http_client import Request, parse_url
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.plain import Check

TOKEN_CHARS_MAX: Final = 8 * 1024
"""Characters of a token: more than servers take in a header."""


def _http(text: str) -> str:
    parse_url(text)
    return text


def _websocket(text: str) -> str:
    parse_url(text, "ws", "wss")
    return text


class WebConfig(MappedConfig):
    """A server that is asked."""

    url: Annotated[str, Check(_http)]
    """Its address, http:// or https://."""
    token_file: Path | None = None
    """File whose first line is sent as a bearer token to this host and to no other, mode 0600."""
    ca_file: Path | None = None
    """PEM of the authority that signed the server's certificate; none: those that the machine
    trusts."""

    def owns(self) -> str:
        return self.url

    def position_name(self) -> str:
        """Under which the log keeps how far it has read."""
        return f"{self.type}:{self.url}"

    def tls(self) -> ssl.SSLContext | None:
        """For https and wss; None for the others. Raises ConfigError."""
        return tls_context(self.ca_file) if self.url.startswith(("https:", "wss:")) else None

    def request(self, *headers: tuple[str, str]) -> Request:
        """A request with these headers; the token file is read each time, since tokens change.

        Raises ConfigError.
        """
        token = self.token()
        secret = () if token is None else (("Authorization", f"Bearer {token}"),)
        return Request(parse_url(self.url, "http", "https", "ws", "wss"), headers, secret)

    def token(self) -> str | None:
        """The first line of the token file. Raises ConfigError."""
        return None if self.token_file is None else read_token(self.token_file)


class WebSocketAddress(WebConfig):
    """A WebSocket server."""

    url: Annotated[str, Check(_websocket)]
    """Its address, ws:// or wss://."""


def read_token(path: Path) -> str:
    """The first line of a file. Raises ConfigError."""
    try:
        with path.open(encoding="ascii") as file:
            token = file.readline(TOKEN_CHARS_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"token_file = {path}: {error}") from error
    if not token or not token.isprintable():
        raise ConfigError(f"token_file = {path}: its first line is not a token")
    return token
