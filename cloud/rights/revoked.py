"""What is taken back before it expires. Pure.

    jti ID          a token
    sub SUBJECT     all tokens of somebody
    key NAME        a key of the key file; to remove its line does the same

One a line; ` #` begins a comment, and so does a line that begins with `#`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edgewake.cloud.rights.principal import Proof
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.files.comments import without_comment
from edgewake.protocol.ops.proof import Kind

ENTRIES_MAX: Final = 100_000
"""Lines of a file, some 100 bytes of memory each."""
KINDS: Final = ("jti", "sub", "key")


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
        found.add((kind, value.strip()))
    if len(found) > ENTRIES_MAX:
        raise ConfigError(f"{len(found)} lines: expected at most {ENTRIES_MAX}")
    return Revoked(frozenset(found))
