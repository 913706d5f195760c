"""Passwords of devices, in the file that Mosquitto reads: a line `NAME:$7$ROUNDS$SALT$HASH` each.

Only what is made of a password is kept. Pure.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from edgewake.protocol.names import is_device

ROUNDS: Final = 101
"""Rounds of PBKDF2, as many as `mosquitto_passwd` uses: our passwords have 160 random bits, which
more rounds would not strengthen."""
SALT_BYTES: Final = 12
PASSWORD_BYTES: Final = 20
DEVICES_MAX: Final = 20_000
"""Devices with a password, as many as production's broker lets in; one more is refused."""
PARTS: Final = ("bridge", "supervisor")
"""First letters of MQTT client ids of the system's own parts. A device's name is its client id, so
one of that name would throw the part out."""

Bytes = Callable[[int], bytes]
"""Makes that many random bytes."""


class BadName(ValueError):
    """A device cannot be called that."""


def checked(name: str) -> str:
    """A name that a device may have. Raises BadName."""
    if not is_device(name):
        raise BadName(
            f"{name[:80]!r}: expected 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first"
        )
    if name.startswith(PARTS):
        raise BadName(
            f"{name!r}: a name that begins with {' or '.join(PARTS)} is of a part of the system: "
            "expected another one"
        )
    return name


def make(random_bytes: Bytes) -> str:
    """A new password: 32 letters and digits, which survive a copy by double click."""
    return base64.b32encode(random_bytes(PASSWORD_BYTES)).decode().lower()


def entry(password: str, random_bytes: Bytes) -> str:
    """What the file says of a password."""
    salt = random_bytes(SALT_BYTES)
    made = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ROUNDS)
    return f"$7${ROUNDS}${_text(salt)}${_text(made)}"


def is_of(password: str, said: str) -> bool:
    """Does what the file says belong to this password?"""
    try:
        _, _, rounds, salt, made = said.split("$")
        again = hashlib.pbkdf2_hmac(
            "sha512", password.encode(), base64.b64decode(salt), int(rounds)
        )
        return hmac.compare_digest(again, base64.b64decode(made))
    except ValueError:
        return False


def parse(text: str) -> dict[str, str]:
    """Hashes by device; other lines are skipped, as Mosquitto does."""
    found = {}
    for line in text.splitlines():
        name, colon, said = line.strip().partition(":")
        if colon and is_device(name):
            found[name] = said
    return found


def text_of(entries: Mapping[str, str]) -> str:
    """The file."""
    return "".join(f"{name}:{said}\n" for name, said in sorted(entries.items()))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
