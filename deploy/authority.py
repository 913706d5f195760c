"""The authority of an installation that is open to a network: its files and its certificate.

Broker, page, push and operations API show that certificate there.

    DATA/authority/ca.crt, ca.key          who is trusted
    DATA/authority/server.crt, server.key  what is shown; made again for another address
    DATA/authority/revoked.pem             what was taken back; written by the operations API
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgewake.deploy import secret_files
from edgewake.protocol.certificates import authority as authorities
from edgewake.protocol.certificates.authority import Authority
from edgewake.protocol.errors import LocalError
from edgewake.protocol.files.durable import sync_directory

AHEAD_MS: Final = 365 * 86_400_000
"""A server's certificate that ends before is made again at the start: a system may run for a year
without one."""


@dataclass(frozen=True, slots=True)
class AuthorityFiles:
    """The paths of the authority's files."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def server_certificate(self) -> Path:
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    @property
    def revoked(self) -> Path:
        return self.folder / "revoked.pem"


def prepare(files: AuthorityFiles, address: str, *, now_ms: int) -> Authority:
    """Make what is missing. Raises LocalError."""
    key = secret_files.ensure(files.key, authorities.new_key())
    try:
        made = authorities.make(key, now_ms=now_ms)
        found = authorities.read(secret_files.ensure(files.certificate, made), key)
        secret_files.ensure(files.revoked, authorities.revocations(found, (), 0))
        server_key = secret_files.ensure(files.server_key, authorities.new_key())
        _ensure_server(files, found, server_key, address, now_ms=now_ms)
    except ValueError as error:
        raise LocalError(
            f"{files.folder}: {error}; restore it from a copy. Without the folder a new authority "
            "is made, and each device must be given a certificate again"
        ) from error
    return found


def read(files: AuthorityFiles) -> Authority:
    """What `prepare` made. Raises OSError, ValueError."""
    return authorities.read(files.certificate.read_text("ascii"), files.key.read_text("ascii"))


def _ensure_server(
    files: AuthorityFiles, found: Authority, key: str, address: str, *, now_ms: int
) -> None:
    text = secret_files.ensure(
        files.server_certificate, authorities.server(found, key, (address,), now_ms=now_ms)
    )
    if authorities.is_good_server(found, text, key, address, until_ms=now_ms + AHEAD_MS):
        return
    new = files.server_certificate.with_suffix(f".{os.getpid()}")
    try:
        new.write_text(authorities.server(found, key, (address,), now_ms=now_ms), "ascii")
        new.chmod(0o600)
        new.replace(files.server_certificate)
        sync_directory(files.folder)
    except OSError as error:
        raise LocalError(f"{files.server_certificate}: {error.strerror}") from error
