"""What is taken back before it expires. Pure.

    jti ID          a token
    sub SUBJECT     all tokens of somebody
    key NAME        a key of the key file; to remove its line does the same

One a line; ` #` begins a comment, and so does a line that begins with `#`. Any other `#` is one of
the id or subject, or was meant to begin a comment: both readings are taken back, and where a blank
stands behind it, or in the name of a key, the line is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.rights.principal import Proof
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.files.comments import without_comment
from edgewake.protocol.ops.proof import Kind

ENTRIES_MAX: Final = 100_000
"""Lines of a file, some 100 bytes of memory each; one with two readings counts twice."""
KINDS: Final = ("jti", "sub", "key")
_UNCLEAR: Final = re.compile(r"#\s")


@dataclass(frozen=True, slots=True)
class Revoked:
    """The revoked token ids, subjects and keys."""

    entries: frozenset[tuple[str, str]] = frozenset()

    def has(self, proof: Proof) -> bool:
        """Is it taken back?"""
        if not self.entries:
            return False
        if proof.kind is Kind.KEY:
            return ("key", proof.key) in self.entries
        return ("jti", proof.token_id) in self.entries or ("sub", proof.subject) in self.entries


def parse(text: str) -> Revoked:
    """Raises ConfigError."""
    found: set[tuple[str, str]] = set()
    for number, line in enumerate(text.splitlines(), 1):
        kind, _, value = without_comment(line).partition(" ")
        if not kind:
            continue
        if kind not in KINDS or not value.strip():
            raise ConfigError(f"line {number}: expected one of {', '.join(KINDS)}, and what")
        whole = value.strip()
        if "#" in whole and (kind == "key" or _UNCLEAR.search(whole)):
            raise ConfigError(f"line {number}: is # part of it? A comment stands behind a blank")
        found.update(((kind, whole), (kind, whole.partition("#")[0])))
    if len(found) > ENTRIES_MAX:
        raise ConfigError(f"{len(found)} entries: expected at most {ENTRIES_MAX}")
    return Revoked(frozenset(found))
