"""The book of issued and revoked certificates, a file beside the passwords. Pure.

The operations API writes it; `edgewake up` reads in it whose connections must be closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import orjson

FILE: Final = "certificates.json"
REVOKED_MAX: Final = 50_000
"""The most revoked certificates that have not expired, 40 bytes each in the broker's list.

Beyond it revoking still works and issuing is refused.
"""


@dataclass(frozen=True, slots=True)
class Held:
    """A valid certificate."""

    serial: str
    """Hexadecimal."""
    until_ms: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """A revoked certificate."""

    serial: str
    device: str
    at_ms: int
    until_ms: int
    """When it expires."""
    number: int
    """The number of the first revocation list that contains it."""


@dataclass(frozen=True, slots=True)
class Book:
    """The content of the book. `number` is that of the latest revocation list."""

    held: Mapping[str, Held] = field(default_factory=dict)
    revoked: tuple[Revoked, ...] = ()
    number: int = 0

    @property
    def is_full(self) -> bool:
        """Returns whether issuing is refused until revoked certificates expire."""
        return len(self.revoked) >= REVOKED_MAX

    def given(self, device: str, serial: str, until_ms: int, *, now_ms: int) -> Book:
        """Returns the book after a device got a certificate; its previous one is revoked."""
        book = self.taken(device, now_ms=now_ms)
        return replace(book, held={**book.held, device: Held(serial, until_ms)})

    def taken(self, device: str, *, now_ms: int) -> Book:
        """Returns the book after a device's certificate was revoked, or itself if it had none."""
        held = self.held.get(device)
        if held is None:
            return self
        number = self.number + 1
        kept = tuple(one for one in self.revoked if one.until_ms > now_ms)
        entry = Revoked(held.serial, device, now_ms, held.until_ms, number)
        left = {name: one for name, one in self.held.items() if name != device}
        return Book(left, (*kept, entry), number)

    def after(self, number: int) -> list[str]:
        """Returns the devices with certificates revoked since the list of this number."""
        return [one.device for one in self.revoked if one.number > number]


def parse(text: str) -> Book:
    """Reads what `text_of` wrote; no text is an empty book. Raises ValueError, TypeError."""
    if not text:
        return Book()
    found: dict[str, Any] = orjson.loads(text)
    return Book(
        {device: Held(**one) for device, one in found["held"].items()},
        tuple(Revoked(**one) for one in found["revoked"]),
        int(found["number"]),
    )


def text_of(book: Book) -> str:
    """Writes the book as the text of its file."""
    return orjson.dumps(
        {
            "number": book.number,
            "held": {device: asdict(one) for device, one in sorted(book.held.items())},
            "revoked": [asdict(one) for one in book.revoked],
        }
    ).decode()
