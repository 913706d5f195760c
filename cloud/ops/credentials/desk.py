"""Gives devices their passwords or certificates, and revokes them.

It keeps the files that the MQTT broker reads, and the claim codes beside them.

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
    """A device of that name has a password or a certificate already, or is known without one."""


class NoAuthority(EdgewakeError):
    """Nobody signs certificates here."""


class TooMany(EdgewakeError):
    """The register has no room for that many devices."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a device is given: a password, which is shown this once, or a certificate."""

    device: str
    password: str = ""
    certificate: str = ""
    """PEM."""
    until_ms: int = 0
    """When the certificate ends; 0: it is a password."""


class CredentialDesk:
    """See the module. One for a file; every change is durable when its method returns.

    Raises ConfigError at the start, OSError where the folder cannot be written.
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
        """The authority that signs certificates.

        None: there is none, and the broker does not encrypt.
        """
        return self._authority

    @property
    def devices(self) -> list[str]:
        """The devices that have a password, by name."""
        return sorted(self._entries)

    @property
    def certificates(self) -> dict[str, int]:
        """The devices that have a certificate, and when each ends (ms)."""
        return {device: held.until_ms for device, held in sorted(self._book.held.items())}

    def add(self, names: Iterable[str], *, replace: bool = False) -> list[Credential]:
        """Make a password for each name, for all of them or none. Raises BadName, Taken, TooMany.

        `replace`: also for those that have one, or a certificate, which is invalid then.
        """
        wanted = [passwords.checked(name) for name in names]
        self._refuse_taken(wanted, replace=replace)
        made = [Credential(name, passwords.make(self._random)) for name in dict.fromkeys(wanted)]
        self._keep(made)
        self._take_back(one.device for one in made)
        return made

    def sign(self, requests: Mapping[str, str], *, replace: bool = False) -> list[Credential]:
        """Make a certificate for each device by its signing request (PEM), for all of them or none.

        `replace`: also for those that have one, or a password, which is invalid then. Raises
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
            raise TooMany(
                f"{books.REVOKED_MAX} certificates were taken back and are not out of time yet"
            )
        self._write_book(book)
        self._forget_passwords(checked)
        return made

    def revoke(self, device: str) -> bool:
        """Had it a password or a certificate?"""
        had = device in self._entries or device in self._book.held
        self._forget_passwords([device])
        self._take_back([device])
        return had

    def offer(self, *, count: int, life_s: float, prefix: str = "") -> tuple[str, Claim]:
        """A code for `count` devices. Raises TooMany, BadName."""
        if prefix:
            passwords.checked(prefix)
        now = self._clock.now_ms()
        left = claims.good(self._claims, now=now)
        if len(left) >= claims.CLAIMS_MAX:
            raise TooMany(f"{claims.CLAIMS_MAX} codes are not used yet: use them, or wait")
        code = claims.make(self._random)
        claim = Claim(claims.digest(code), count, now + round(life_s * 1000), prefix)
        self._write(self._claims_file, claims.text_of([*left, claim]))
        self._claims = [*left, claim]
        return code, claim

    def enrol(
        self, code: str, device: str, is_known: Callable[[str], bool], request: str = ""
    ) -> Credential:
        """Give a device that has a code a certificate by its signing request, else a password.

        `is_known`: is there a device of that name? Nobody takes another's name by a code. Raises
        Unclaimed, BadName, BadRequest, NoAuthority, Taken, TooMany.
        """
        left = claims.used(self._claims, code, device, now=self._clock.now_ms())
        passwords.checked(device)
        if request:
            self._signing()
            authorities.checked_request(request)
        if device in self._entries or device in self._book.held or is_known(device):
            raise Taken(f"{device}: there is a device of that name: choose another one")
        # Counted first: a crash between the two costs one use of the code, and gives none twice.
        self._write(self._claims_file, claims.text_of(left))
        self._claims = left
        (made,) = self.sign({device: request}) if request else self.add([device])
        return made

    def _signing(self) -> Authority:
        if self._authority is None:
            raise NoAuthority(
                "this server signs no certificates: expected authority_dir in ops.toml "
                "(`edgewake up --listen` has it, and not with --plain)"
            )
        return self._authority

    def _refuse_taken(self, wanted: Sequence[str], *, replace: bool) -> None:
        if replace:
            return
        for name in wanted:
            if name in self._entries:
                raise Taken(f"{name}: has a password already; a new one takes the old one's place")
            if name in self._book.held:
                raise Taken(f"{name}: has a certificate already; --replace takes it back")

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
        """Certificates of these devices."""
        now, book = self._clock.now_ms(), self._book
        for device in devices:
            book = book.taken(device, now_ms=now)
        if book is not self._book:
            self._write_book(book)

    def _write_book(self, book: Book) -> None:
        """The book first: the list can be made of it, and not the other way round."""
        self._write(self._book_file, books.text_of(book))
        is_taken, self._book = book.number != self._book.number, book
        if is_taken:
            self._publish(book)

    def _mend_list(self) -> None:
        """At the start: a crash may have come between book and list. Raises ConfigError."""
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
                f"{self._book_file} knows less than {file} of what was taken back: restore it, "
                "since certificates that were taken back would be good again"
            )
        if listed < self._book.number:
            self._publish(self._book)

    def _publish(self, book: Book) -> None:
        """The list that the broker reads; without an authority it has none."""
        if self._authority is not None and self._authority_dir is not None:
            text = authorities.revocations(self._authority, book.revoked, book.number)
            self._write(self._authority_dir / REVOKED, text)

    def _write(self, path: Path, text: str) -> None:
        """Aside, synced and renamed: the broker may read at any moment."""
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
