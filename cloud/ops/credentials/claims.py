"""Claim codes: the holder of one may give `count` devices their passwords, until it ends. Pure.

Only a code's SHA-256 is kept.
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
"""120 random bits: nobody finds one by trying."""
GROUP: Final = 4
ID_CHARS: Final = 12
CLAIMS_MAX: Final = 100
"""Codes that are good at the same time; one more is refused."""


class Unclaimed(ValueError):
    """The code grants nothing (any more)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one code is good for."""

    digest: str
    left: int
    """Devices that it may still bring in."""
    until: int
    """ms; after it the code is worth nothing."""
    prefix: str = ""
    """How their names begin."""

    @property
    def id(self) -> str:
        """What people call it by, who do not know the code (any more)."""
        return self.digest[:ID_CHARS]


def make(random_bytes: Bytes) -> str:
    """A code that can be read out: six groups of four letters and digits."""
    text = base64.b32encode(random_bytes(CODE_BYTES)).decode()
    return "-".join(text[at : at + GROUP] for at in range(0, len(text), GROUP))


def digest(code: str) -> str:
    """The digest under which a code is kept; case and dashes do not matter."""
    return sha256(code.replace("-", "").replace(" ", "").upper().encode()).hexdigest()


def good(claims: Sequence[Claim], *, now: int) -> list[Claim]:
    """Those that still give something."""
    return [one for one in claims if one.left > 0 and one.until > now]


def used(claims: Sequence[Claim], code: str, device: str, *, now: int) -> list[Claim]:
    """The claims when `device` came in by `code`. Raises Unclaimed."""
    left = good(claims, now=now)
    wanted = digest(code)
    found = next((one for one in left if one.digest == wanted), None)
    if found is None:
        raise Unclaimed("this code is not known, used up or out of time: ask for a new one")
    if not device.startswith(found.prefix):
        raise Unclaimed(f"{device!r}: by this code names begin with {found.prefix!r}")
    return [replace(one, left=one.left - 1) if one is found else one for one in left]


def parse(text: str) -> list[Claim]:
    """What `text_of` wrote. Raises ValueError."""
    return [Claim(**one) for one in orjson.loads(text or "[]")]


def text_of(claims: Sequence[Claim]) -> str:
    """The file."""
    return orjson.dumps([asdict(one) for one in claims]).decode()
