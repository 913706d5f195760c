"""Gives devices their passwords or certificates, and revokes them.

It maintains the files that the MQTT broker reads, and the claim codes beside them.

    PASSWORD_FILE      NAME:$7$…, a line a device; `edgewake up` has the broker read what changed
    claims.json        beside it: codes by which devices enrol themselves
    certificates.json  beside it: who has which certificate, and which were revoked
    AUTHORITY_DIR/     ca.crt and ca.key, which sign, and revoked.pem, which the broker reads
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgewake.cloud import passwords
from edgewake.cloud.ops.credentials import claims
from edgewake.cloud.ops.credentials.claims import Claim
from edgewake.protocol.certificates import authority as authorities
from edgewake.protocol.certificates import book as books
from edgewake.protocol.certificates.authority import Authority
from edgewake.protocol.certificates.book import Book
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError, EdgewakeError
from edgewake.protocol.files.durable import sync_directory

CLAIMS: Final = "claims.json"
CERTIFICATE: Final = "ca.crt"
KEY: Final = "ca.key"
REVOKED: Final = "revoked.pem"


class Taken(EdgewakeError):
    """The name belongs to a device that has a password or certificate, or is known without one."""


class NoAuthority(EdgewakeError):
    """The server has no authority that could sign certificates."""


class TooMany(EdgewakeError):
    """A bound on devices or codes is reached."""


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a device: a password, which is shown only once, or a certificate."""

    device: str
    password: str = ""
    certificate: str = ""
    """PEM."""
    until_ms: int = 0
    """When the certificate expires; 0 for a password."""


class CredentialDesk:
    """Issues and revokes credentials; every change is durable when its method returns.

    Only one desk may use a file. Raises ConfigError at the start, OSError where the folder cannot
    be written.
    """

    def __init__(
        self,
        file: Path,
        clock: Clock,
        random_bytes: passwords.Bytes,
        authority_dir: Path | None = None,
    ) -> None:
        self._file, self._claims_file = file, file.with_name(CLAIMS)
        self._book_file = file.with_name(books.FILE)
        self._clock, self._random = clock, random_bytes
        self._authority_dir = authority_dir
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._claims = claims.parse(_read(self._claims_file))
            self._entries = passwords.parse(_read(file))
            self._book = books.parse(_read(self._book_file))
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise ConfigError(f"password_file = {str(file)!r}: {error}") from error
        self._authority = None if authority_dir is None else _authority(authority_dir)
        self._mend_list()

    @property
    def authority(self) -> Authority | None:
        """The authority that signs certificates; None where the broker does not encrypt."""
        return self._authority

    @property
    def devices(self) -> list[str]:
        """Returns the names of devices that have a password, sorted."""
        return sorted(self._entries)

    @property
    def certificates(self) -> dict[str, int]:
        """Returns device → when its certificate expires (ms)."""
        return {device: held.until_ms for device, held in sorted(self._book.held.items())}

    def add(self, names: Iterable[str], *, replace: bool = False) -> list[Credential]:
        """Makes a password for each name, for all or none. Raises BadName, Taken, TooMany.

        With `replace`, an existing password or certificate of a device becomes invalid.
        """
        wanted = [passwords.checked(name) for name in names]
        self._refuse_taken(wanted, replace=replace)
        made = [Credential(name, passwords.make(self._random)) for name in dict.fromkeys(wanted)]
        self._keep(made)
        self._take_back(one.device for one in made)
        return made

    def sign(self, requests: Mapping[str, str], *, replace: bool = False) -> list[Credential]:
        """Issues a certificate for each device by its signing request (PEM), for all or none.

        With `replace`, an existing password or certificate of a device becomes invalid. Raises
        BadName, BadRequest, NoAuthority, Taken, TooMany.
        """
        authority = self._signing()
        checked = {
            passwords.checked(device): authorities.checked_request(pem)
            for device, pem in requests.items()
        }
        self._refuse_taken(list(checked), replace=replace)
        now = self._clock.now_ms()
        book, made = self._book, []
        for device, request in checked.items():
            one = authorities.device(authority, request, device, now_ms=now)
            book = book.given(device, one.serial, one.until_ms, now_ms=now)
            made.append(Credential(device, certificate=one.pem, until_ms=one.until_ms))
        self._check_room(len(self._entries.keys() | book.held))
        if book.is_full:
            raise TooMany(f"{books.REVOKED_MAX} revoked certificates have not expired yet")
        self._write_book(book)
        self._forget_passwords(checked)
        return made

    def revoke(self, device: str) -> bool:
        """Revokes a device's password or certificate. Returns whether it had one."""
        had = device in self._entries or device in self._book.held
        self._forget_passwords([device])
        self._take_back([device])
        return had

    def offer(self, *, count: int, life_s: float, prefix: str = "") -> tuple[str, Claim]:
        """Makes a code for `count` devices. Raises TooMany, BadName."""
        if prefix:
            passwords.checked(prefix)
        now = self._clock.now_ms()
        left = claims.good(self._claims, now=now)
        if len(left) >= claims.CLAIMS_MAX:
            raise TooMany(
                f"{claims.CLAIMS_MAX} codes are unused: use them, or wait until they expire"
            )
        code = claims.make(self._random)
        claim = Claim(claims.digest(code), count, now + round(life_s * 1000), prefix)
        self._write(self._claims_file, claims.text_of([*left, claim]))
        self._claims = [*left, claim]
        return code, claim

    @property
    def claims(self) -> list[Claim]:
        """The codes that still give something, the one that ends first in front."""
        good = claims.good(self._claims, now=self._clock.now_ms())
        return sorted(good, key=lambda one: (one.until, one.id))

    def withdraw(self, claim_id: str) -> bool:
        """Was there such a code that was good? It gives nothing any more."""
        good = claims.good(self._claims, now=self._clock.now_ms())
        left = [one for one in good if one.id != claim_id]
        if len(left) == len(good):
            return False
        self._write(self._claims_file, claims.text_of(left))
        self._claims = left
        return True

    def enrol(
        self, code: str, device: str, is_known: Callable[[str], bool], request: str = ""
    ) -> Credential:
        """Issues a certificate by a device's signing request, else a password, for a code.

        `is_known` says whether there is a device of that name: a code does not take over another's
        name. Raises Unclaimed, BadName, BadRequest, NoAuthority, Taken, TooMany.
        """
        left = claims.used(self._claims, code, device, now=self._clock.now_ms())
        passwords.checked(device)
        if request:
            self._signing()
            authorities.checked_request(request)
        if device in self._entries or device in self._book.held or is_known(device):
            raise Taken(f"{device}: a device of that name exists: choose another name")
        # The use is counted first: a crash in between costs one use and never grants one twice.
        self._write(self._claims_file, claims.text_of(left))
        self._claims = left
        (made,) = self.sign({device: request}) if request else self.add([device])
        return made

    def _signing(self) -> Authority:
        if self._authority is None:
            raise NoAuthority(
                "this server cannot sign certificates: expected authority_dir in ops.toml "
                "(`edgewake up --listen` has it, and not with --plain)"
            )
        return self._authority

    def _refuse_taken(self, wanted: Sequence[str], *, replace: bool) -> None:
        if replace:
            return
        for name in wanted:
            if name in self._entries:
                raise Taken(f"{name}: has a password already; --replace makes a new one")
            if name in self._book.held:
                raise Taken(f"{name}: has a certificate already; --replace revokes it")

    def _check_room(self, count: int) -> None:
        if count > passwords.DEVICES_MAX:
            raise TooMany(
                f"{count} devices: expected at most {passwords.DEVICES_MAX} with a password or a "
                "certificate"
            )

    def _keep(self, made: Sequence[Credential]) -> None:
        entries = self._entries | {
            one.device: passwords.entry(one.password, self._random) for one in made
        }
        self._check_room(len(entries.keys() | self._book.held))
        self._write(self._file, passwords.text_of(entries))
        self._entries = entries

    def _forget_passwords(self, devices: Iterable[str]) -> None:
        gone = self._entries.keys() & set(devices)
        if gone:
            left = {name: said for name, said in self._entries.items() if name not in gone}
            self._write(self._file, passwords.text_of(left))
            self._entries = left

    def _take_back(self, devices: Iterable[str]) -> None:
        """Revokes the certificates of these devices."""
        now, book = self._clock.now_ms(), self._book
        for device in devices:
            book = book.taken(device, now_ms=now)
        if book is not self._book:
            self._write_book(book)

    def _write_book(self, book: Book) -> None:
        """Writes the book before the revocation list, which can be made from it."""
        self._write(self._book_file, books.text_of(book))
        is_taken, self._book = book.number != self._book.number, book
        if is_taken:
            self._publish(book)

    def _mend_list(self) -> None:
        """Completes what a crash between book and list left undone. Raises ConfigError."""
        if self._authority is None or self._authority_dir is None:
            return
        file = self._authority_dir / REVOKED
        try:
            text = _read(file)
            listed = authorities.number_of(text) if text else -1
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file}: {error}") from error
        if listed > self._book.number:
            raise ConfigError(
                f"{self._book_file} lists fewer revocations than {file}: restore it, "
                "because revoked certificates would be valid again"
            )
        if listed < self._book.number:
            self._publish(self._book)

    def _publish(self, book: Book) -> None:
        """Writes the revocation list that the broker reads, if there is an authority."""
        if self._authority is not None and self._authority_dir is not None:
            text = authorities.revocations(self._authority, book.revoked, book.number)
            self._write(self._authority_dir / REVOKED, text)

    def _write(self, path: Path, text: str) -> None:
        """Writes aside, syncs and renames, because the broker may read at any moment."""
        new = path.with_name(f".{path.name}.new")
        with os.fdopen(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync_directory(path.parent)


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except FileNotFoundError:
        return ""


def _authority(folder: Path) -> Authority:
    try:
        return authorities.read(_read(folder / CERTIFICATE), _read(folder / KEY))
    except (OSError, ValueError) as error:
        raise ConfigError(f"authority_dir = {str(folder)!r}: {error}") from error
