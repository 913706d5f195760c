"""The keys of the operations API: who holds one, and what they may do.

The key file has a key a line, so that one can be added before another is removed; a
comment begins with `#`, at the beginning of a line or behind a blank:

    KEY                     a key alone: its holder is called `operator` and may do everything
    NAME ROLE KEY           role `read` (look at everything) or `operate` (change it too); the name
                            stands in the audit log

The file is read again when it changes. One that cannot be used leaves the keys as they were, and
the log says so.
"""

from __future__ import annotations

import hmac
import logging
import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final

from edgewake.cloud.rights.principal import Principal
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.files.changing_file import ChangingFile
from edgewake.protocol.files.comments import without_comment

log = logging.getLogger("edgewake.ops")

KEY_CHARS_MIN: Final = 16
KEYS_MAX: Final = 100
"""Keys in a file; each request is compared with all of them."""
BYTES_MAX: Final = 1 << 20
"""Bytes of a file: KEYS_MAX keys of 10 KB each."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Role(StrEnum):
    """What somebody may do here."""

    READ = "read"
    OPERATE = "operate"
    GRANTS = "grants"
    """What the grants of a principal of `[rights]` say; no key of the key file has this role."""


KEY_ROLES: Final = frozenset[str]({Role.READ, Role.OPERATE})


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a key, a person, or a principal of `[rights]`."""

    name: str
    role: Role
    digest: bytes
    """SHA-256 of the key."""
    principal: Principal | None = None
    """The owner of the grants that count; None: a key of the key file, whose role says all."""

    def reader(self, *, is_change: bool = False) -> Principal | None:
        """The principal to whose grants an answer, or a change, is narrowed; None: to nothing."""
        is_whole = self.role is Role.OPERATE or (self.role is Role.READ and not is_change)
        return None if is_whole else self.principal


def parse(text: str) -> tuple[Holder, ...]:
    """The holders of a key file's keys; raises ConfigError, which never shows a key."""
    holders: list[Holder] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = without_comment(line).split()
        if words:
            holders.append(_holder(words, number))
    if not holders or len(holders) > KEYS_MAX:
        raise ConfigError(f"expected 1 to {KEYS_MAX} keys")
    names = [holder.name for holder in holders]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two keys are named {twice[0]!r}")
    return tuple(holders)


def _holder(words: list[str], line: int) -> Holder:
    name, role, key = words if len(words) == 3 else ("operator", "operate", words[0])
    if len(words) not in (1, 3):
        raise ConfigError(f"line {line}: expected KEY or NAME ROLE KEY")
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"line {line}: name: expected 1 to 64 of A-Z a-z 0-9 . _ -")
    if role not in KEY_ROLES:
        raise ConfigError(f"line {line}: role {role[:20]!r}: expected read or operate")
    if len(key) < KEY_CHARS_MIN or not key.isascii():
        raise ConfigError(f"line {line}: key: expected at least {KEY_CHARS_MIN} ASCII characters")
    if "#" in key:
        raise ConfigError(f"line {line}: key: expected no #; a comment stands behind a blank")
    return Holder(name, Role(role), sha256(key.encode()).digest())


class Keys:
    """The keys of a file. Raises ConfigError where it cannot be used at the start."""

    def __init__(self, path: Path) -> None:
        self._file = ChangingFile(
            path, parse, what="keys", log=log, event="ops.keys", key="key_file", bytes_max=BYTES_MAX
        )

    def find(self, key: bytes) -> Holder | None:
        """Return the holder of this key; None: nobody."""
        digest, found = sha256(key).digest(), None
        for holder in self._file.value:  # all of them, so that the time tells nothing
            if hmac.compare_digest(digest, holder.digest):
                found = holder
        return found

    def is_valid(self, holder: Holder) -> bool:
        """Does the file still have the holder's key, with that name and role?"""
        return holder in self._file.value

    def reload(self) -> None:
        """Read the file again if it changed."""
        if self._file.look():
            names = ", ".join(f"{holder.name} ({holder.role})" for holder in self._file.value)
            log.info("keys read again: %s", names, extra={"event": "ops.keys"})
