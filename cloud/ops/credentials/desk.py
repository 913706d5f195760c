"""Gives devices their passwords, and revokes them.

It keeps the file that the MQTT broker reads, and the claim codes beside it.

    PASSWORD_FILE  NAME:$7$…, a line a device; `edgewake up` has the broker read what changed
    claims.json    beside it: codes by which devices enrol themselves
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgewake.cloud.ops.credentials import claims, passwords
from edgewake.cloud.ops.credentials.claims import Claim
from edgewake.protocol.clock import Clock
from edgewake.protocol.durable import sync_directory
from edgewake.protocol.errors import ConfigError, EdgewakeError

CLAIMS: Final = "claims.json"


class Taken(EdgewakeError):
    """A device of that name has a password already, or is known without one."""


class TooMany(EdgewakeError):
    """There is no room for that many."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a device is given; its password is shown this once."""

    device: str
    password: str


class CredentialDesk:
    """See the module. One for a file; every change is durable when its method returns.

    Raises ConfigError at the start, OSError where the folder cannot be written.
    """

    def __init__(self, file: Path, clock: Clock, random_bytes: passwords.Bytes) -> None:
        self._file, self._claims_file = file, file.with_name(CLAIMS)
        self._clock, self._random = clock, random_bytes
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._claims = claims.parse(_read(self._claims_file))
            self._entries = passwords.parse(_read(file))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"password_file = {str(file)!r}: {error}") from error

    @property
    def devices(self) -> list[str]:
        """The devices that have a password, by name."""
        return sorted(self._entries)

    def add(self, names: Iterable[str], *, replace: bool = False) -> list[Credential]:
        """Make a password for each name, for all of them or none. Raises BadName, Taken, TooMany.

        `replace`: also for those that have one, which is invalid then.
        """
        wanted = [passwords.checked(name) for name in names]
        taken = [name for name in wanted if name in self._entries]
        if taken and not replace:
            raise Taken(f"{taken[0]}: has a password already; a new one takes the old one's place")
        made = [Credential(name, passwords.make(self._random)) for name in dict.fromkeys(wanted)]
        self._keep(made)
        return made

    def revoke(self, device: str) -> bool:
        """Had it a password?"""
        if device not in self._entries:
            return False
        left = {name: said for name, said in self._entries.items() if name != device}
        self._write(self._file, passwords.text_of(left))
        self._entries = left
        return True

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

    def enrol(self, code: str, device: str, is_known: Callable[[str], bool]) -> Credential:
        """Give a device that has a code its password. Raises Unclaimed, BadName, Taken, TooMany.

        `is_known`: is there a device of that name? Nobody takes another's name by a code.
        """
        left = claims.used(self._claims, code, device, now=self._clock.now_ms())
        passwords.checked(device)
        if device in self._entries or is_known(device):
            raise Taken(f"{device}: there is a device of that name: choose another one")
        # Counted first: a crash between the two costs one use of the code, and gives none twice.
        self._write(self._claims_file, claims.text_of(left))
        self._claims = left
        made = Credential(device, passwords.make(self._random))
        self._keep([made])
        return made

    def _keep(self, made: Sequence[Credential]) -> None:
        entries = self._entries | {
            one.device: passwords.entry(one.password, self._random) for one in made
        }
        if len(entries) > passwords.DEVICES_MAX:
            raise TooMany(
                f"{len(entries)} devices: expected at most {passwords.DEVICES_MAX} with a password"
            )
        self._write(self._file, passwords.text_of(entries))
        self._entries = entries

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
