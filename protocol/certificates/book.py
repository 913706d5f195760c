"""Which device has which certificate, and which were taken back: a file beside the passwords.

The operations API writes it, `edgewake up` reads from it whose connections are to end. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import orjson

FILE: Final = "certificates.json"
REVOKED_MAX: Final = 50_000
"""Certificates that were taken back and are not out of time yet, 40 bytes each in the broker's
list. Taking back is never refused; giving one more is."""


@dataclass(frozen=True, slots=True)
class Held:
    """A certificate that is good."""

    serial: str
    """Hexadecimal."""
    until_ms: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """One that was taken back."""

    serial: str
    device: str
    at_ms: int
    until_ms: int
    """The end of its validity."""
    number: int
    """The number of the first list that has it."""


@dataclass(frozen=True, slots=True)
class Book:
    """See the module. `number` counts the lists of what was taken back."""

    held: Mapping[str, Held] = field(default_factory=dict)
    revoked: tuple[Revoked, ...] = ()
    number: int = 0

    @property
    def is_full(self) -> bool:
        """Is no certificate given any more?"""
        return len(self.revoked) >= REVOKED_MAX

    def given(self, device: str, serial: str, until_ms: int, *, now_ms: int) -> Book:
        """The device has a new one, and the one of before is taken back."""
        book = self.taken(device, now_ms=now_ms)
        return replace(book, held={**book.held, device: Held(serial, until_ms)})

    def taken(self, device: str, *, now_ms: int) -> Book:
        """The device has none any more. As it is where it had none."""
        held = self.held.get(device)
        if held is None:
            return self
        number = self.number + 1
        kept = tuple(one for one in self.revoked if one.until_ms > now_ms)
        entry = Revoked(held.serial, device, now_ms, held.until_ms, number)
        left = {name: one for name, one in self.held.items() if name != device}
        return Book(left, (*kept, entry), number)

    def after(self, number: int) -> list[str]:
        """Devices whose certificates were taken back since the list of this number."""
        return [one.device for one in self.revoked if one.number > number]


def parse(text: str) -> Book:
    """What `text_of` wrote; nothing is an empty book. Raises ValueError, TypeError."""
    if not text:
        return Book()
    found: dict[str, Any] = orjson.loads(text)
    return Book(
        {device: Held(**one) for device, one in found["held"].items()},
        tuple(Revoked(**one) for one in found["revoked"]),
        int(found["number"]),
    )


def text_of(book: Book) -> str:
    """The file."""
    return orjson.dumps(
        {
            "number": book.number,
            "held": {device: asdict(one) for device, one in sorted(book.held.items())},
            "revoked": [asdict(one) for one in book.revoked],
        }
    ).decode()
