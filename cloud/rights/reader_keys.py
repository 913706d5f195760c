"""The key file of readers: who holds a key, and in which role. Pure, but for the reading.

    NAME ROLE KEY               e.g. `dashboard everything 4f0c…`
    NAME ROLE KEY DEVICE …      for a role whose grants name the claim `$device`

One key a line, so that one can be added before another is removed; a comment begins
with `#`, at the beginning of a line or behind a blank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from edgewake.cloud.rights.config import DEVICE_CLAIM
from edgewake.cloud.rights.principal import Principal, Proof
from edgewake.cloud.rights.roles import NoRights, Roles
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.files.comments import without_comment
from edgewake.protocol.ops.proof import Kind

KEY_CHARS_MIN: Final = 16
KEYS_MAX: Final = 10_000
"""Keys of a file, each a principal in memory."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def parse(text: str, roles: Roles) -> Mapping[bytes, Principal]:
    """Principals by the SHA-256 of their keys; raises ConfigError, which never shows a key."""
    found: dict[bytes, Principal] = {}
    names: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = without_comment(line).split()
        if not words:
            continue
        principal = _principal(words, number, roles)
        if principal.name in names or principal.proof.digest in found:
            raise ConfigError(
                f"line {number}: a name or key that an earlier line has; expected each once"
            )
        names.add(principal.name)
        found[principal.proof.digest] = principal
    if len(found) > KEYS_MAX:
        raise ConfigError(f"{len(found)} keys: expected at most {KEYS_MAX}")
    return found


def _principal(words: list[str], line: int, roles: Roles) -> Principal:
    if len(words) < 3:
        raise ConfigError(f"line {line}: expected NAME ROLE KEY [DEVICE …]")
    name, role, key, *devices = words
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"line {line}: name: expected 1 to 64 of A-Z a-z 0-9 . _ -")
    if role not in roles:
        raise ConfigError(f"line {line}: role {role[:40]!r}: expected one of [rights.roles]")
    if len(key) < KEY_CHARS_MIN or not key.isascii():
        raise ConfigError(f"line {line}: key: expected at least {KEY_CHARS_MIN} ASCII characters")
    if "#" in key:
        raise ConfigError(f"line {line}: key: expected no #; a comment stands behind a blank")
    proof = Proof(Kind.KEY, sha256(key.encode()).digest(), key=name)
    try:
        grants = roles.grants(role, {DEVICE_CLAIM: devices} if devices else {})
    except NoRights as error:
        raise ConfigError(f"line {line}: role {role!r}: {error}") from error
    return Principal(name, grants, proof, roles.limits(role))
