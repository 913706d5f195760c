"""A client's credentials (token, headers, certificate), and the authorities that it trusts.

A password in a server's address is sent as HTTP Basic and shown nowhere. Nothing of this is given
to another host: a redirect that leads elsewhere is not followed (`may_follow`).
"""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from edgewake.protocol.clock import Clock

TOKEN_BYTES_MAX: Final = 16 * 1024
"""Bytes of a token file: servers take tokens of 8 KB."""
RENEW_S: Final = 60.0
"""Seconds from the first refusal (401) in which a token that was let in before is not given up,
where it comes from a file: who renews it may be late."""
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""RFC 9110, 5.6.2."""


class TokenFile:
    """A token in a file that another program renews: it is read again for each request.

    While it is being written, what was there before counts. Raises OSError, and ValueError where it
    has no token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        if not self._read():
            raise ValueError(f"{path}: expected a token in printable ASCII")

    def read(self) -> str:
        """The token."""
        with contextlib.suppress(OSError):
            self._read()
        return self._token

    def _read(self) -> bool:
        with self._path.open("rb") as file:
            text = file.read(TOKEN_BYTES_MAX).decode("latin-1").strip()
        is_token = bool(text) and text.isascii() and text.isprintable()
        if is_token:
            self._token = text
        return is_token


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows a server, and which authorities it trusts.

    Raises ValueError for a wrong header, or a file that cannot be used.
    """

    token: str | TokenFile | None = field(default=None, repr=False)
    """Sent as `Authorization: Bearer`; from a file each time what is there then."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None
    """Certificates to trust beside the system's, PEM."""
    cert_file: Path | None = None
    """The client's own certificate, PEM; with its key, or that in `key_file`."""
    key_file: Path | None = None

    def __post_init__(self) -> None:
        for name, value in self.head().items():
            if _NAME.fullmatch(name) is None or not value.isascii() or not value.isprintable():
                raise ValueError(f"header {name[:40]!r}: expected NAME: VALUE in printable ASCII")
        self.context()

    def head(self) -> dict[str, str]:
        """Headers to send."""
        token = self.token.read() if isinstance(self.token, TokenFile) else self.token
        return {**self.headers, **({"Authorization": f"Bearer {token}"} if token else {})}

    @property
    def is_renewed(self) -> bool:
        """May what is shown be another one later?"""
        return isinstance(self.token, TokenFile)

    def context(self) -> ssl.SSLContext:
        """The context for TLS. Raises ValueError."""
        context = ssl.create_default_context()
        try:
            if self.ca_file is not None:
                context.load_verify_locations(self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # an ssl.SSLError too
            raise ValueError(f"{self.cert_file or self.ca_file}: {error}") from error
        return context


class Refusals:
    """Tells whether a token that is refused (401) may be let in later, as another one."""

    def __init__(self, credentials: Credentials, clock: Clock) -> None:
        self._credentials, self._clock = credentials, clock
        self._was_let_in = False
        self._since_s: float | None = None
        """When it was refused first, since it was let in last."""

    def let_in(self) -> None:
        """Note that it was let in."""
        self._was_let_in, self._since_s = True, None

    def may_mend(self, shown: str) -> bool:
        """Is it worth another attempt? `shown`: the header Authorization that was refused.

        One of a file that was never let in is wrong, and nobody waits for another one.
        """
        if not self._credentials.is_renewed:
            return False
        if self._credentials.head()["Authorization"] != shown:
            return True
        now_s = self._clock.monotonic_s()
        self._since_s = now_s if self._since_s is None else self._since_s
        return self._was_let_in and now_s - self._since_s < RENEW_S


def without_password(server: str) -> tuple[str, dict[str, str]]:
    """A server's address without the name and password in it, and the header made of them."""
    parts = urlsplit(server)
    if "@" not in parts.netloc:
        return server, {}
    user, _, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    given = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), {"Authorization": f"Basic {given}"}


def may_follow(origin: str, target: str, *, has_secrets: bool) -> bool:
    """May a redirect be followed?

    Never from https to http; to another host or port only where no secret would go along.
    """
    before, after = urlsplit(origin), urlsplit(target)
    if (
        after.scheme not in ("http", "https")
        or not after.hostname
        or (before.scheme == "https" and after.scheme == "http")
    ):
        return False
    is_upgrade = before.hostname == after.hostname and (before.scheme, after.scheme) == (
        "http",
        "https",
    )
    return (
        not has_secrets
        or is_upgrade
        or (before.scheme, before.netloc) == (after.scheme, after.netloc)
    )
