"""Claim codes: with one, `count` devices may enrol themselves until it expires. Pure.

Only the SHA-256 of a code is stored.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Final

import orjson

from edgewake.cloud.passwords import Bytes

CODE_BYTES: Final = 15
"""Random bytes of a code: 120 bits cannot be guessed."""
GROUP: Final = 4
ID_CHARS: Final = 12
CLAIMS_MAX: Final = 100
"""The most codes that are valid at the same time; one more is refused."""


class Unclaimed(ValueError):
    """The code is unknown, used up or expired."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one code grants."""

    digest: str
    left: int
    """How many more devices may use it."""
    until: int
    """When the code expires, ms since 1970 UTC."""
    prefix: str = ""
    """The prefix that names of its devices must have."""

    @property
    def id(self) -> str:
        """What people call it by, who do not know the code (any more)."""
        return self.digest[:ID_CHARS]


def make(random_bytes: Bytes) -> str:
    """Makes a code that can be read aloud: six groups of four letters and digits."""
    text = base64.b32encode(random_bytes(CODE_BYTES)).decode()
    return "-".join(text[at : at + GROUP] for at in range(0, len(text), GROUP))


def digest(code: str) -> str:
    """Returns the digest under which a code is stored, independent of case and dashes."""
    return sha256(code.replace("-", "").replace(" ", "").upper().encode()).hexdigest()


def good(claims: Sequence[Claim], *, now: int) -> list[Claim]:
    """Returns the claims that are still valid."""
    return [one for one in claims if one.left > 0 and one.until > now]


def used(claims: Sequence[Claim], code: str, device: str, *, now: int) -> list[Claim]:
    """Returns the claims after `device` used `code`. Raises Unclaimed."""
    left = good(claims, now=now)
    wanted = digest(code)
    found = next((one for one in left if one.digest == wanted), None)
    if found is None:
        raise Unclaimed("this code is unknown, used up or expired: ask for a new one")
    if not device.startswith(found.prefix):
        raise Unclaimed(f"{device!r}: this code requires names that begin with {found.prefix!r}")
    return [replace(one, left=one.left - 1) if one is found else one for one in left]


def parse(text: str) -> list[Claim]:
    """Parses what `text_of` wrote. Raises ValueError."""
    return [Claim(**one) for one in orjson.loads(text or "[]")]


def text_of(claims: Sequence[Claim]) -> str:
    """Writes the claims as the text of their file."""
    return orjson.dumps([asdict(one) for one in claims]).decode()
