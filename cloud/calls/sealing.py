"""Seals endpoints: encrypts address, secret and token before they go to Kafka.

The lease's id is authenticated too, so that a sealed endpoint cannot be moved to another lease.
Text: `<key id>.<base64url of nonce and ciphertext>`; the key id is a fingerprint of the key.

The key file has one key of 64 hex digits a line; `#` begins a comment. The *first* key seals, all
open. To change it: add the new key as a second line on every proxy and restart them, then make it
the first and restart them: a proxy seals with it what it takes over, and when all have logged
`push.sealed_anew` the old key can go.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

import orjson
from cryptography.exceptions import InvalidTag

from edgewake.cloud.ciphers import KEY_BYTES, Ciphers, keys_in
from edgewake.protocol.errors import ConfigError, EdgewakeError

PERSON: Final = b"edgewake lease"
CLIENT_BYTES: Final = 6


class UnknownKey(EdgewakeError):
    """Sealed with a key that is not in the key file."""


class Damaged(EdgewakeError):
    """Not what was sealed, or of another lease."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The contents that are sealed."""

    url: str
    secret: str
    """Or two, with a blank between them: the second one is the old one, while it signs, too."""
    token: str
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The owner's own, for each call."""

    @property
    def newest_secret(self) -> str:
        """The one that signs from now on."""
        return self.secret.split()[0]

    def signing(self, old_until: int | None, *, now: int) -> str:
        """The secrets that sign: the old one does until `old_until` (ms since 1970 UTC)."""
        has_two = old_until is not None and now < old_until
        return self.secret if has_two else self.newest_secret


class Sealer:
    """Seals and opens endpoints; the first key seals."""

    def __init__(self, keys: list[bytes], random_bytes: Callable[[int], bytes]) -> None:
        """`random_bytes` makes a nonce for each endpoint. Raises ValueError for a bad key."""
        self._ciphers = Ciphers(keys, PERSON)
        self._sealing = self._ciphers.first.hex()
        self._key_ids = {name.hex(): name for name in self._ciphers.names}
        self._client_key = blake2b(
            keys[0], digest_size=KEY_BYTES, person=b"edgewake client"
        ).digest()
        self._random_bytes = random_bytes

    def seal(self, lease_id: str, endpoint: Endpoint) -> str:
        """The text to store."""
        values = asdict(endpoint)
        if not endpoint.headers:
            del values["headers"]
        content = orjson.dumps(values)
        sealed = self._ciphers.encrypt(lease_id, content, self._random_bytes)
        return f"{self._sealing}.{base64.urlsafe_b64encode(sealed).decode()}"

    def open(self, lease_id: str, text: str) -> Endpoint:
        """What was sealed; raises UnknownKey or Damaged."""
        key_id, _, encoded = text.partition(".")
        if key_id not in self._key_ids:
            raise UnknownKey(
                f"lease {lease_id} is sealed with key {key_id!r}; the key file has "
                f"{', '.join(sorted(self._key_ids))}"
            )
        try:
            sealed = base64.urlsafe_b64decode(encoded)
            opened = self._ciphers.decrypt(self._key_ids[key_id], lease_id, sealed)
            return Endpoint(**orjson.loads(opened))
        except (InvalidTag, binascii.Error, ValueError, TypeError) as error:
            raise Damaged(f"lease {lease_id}: its sealed endpoint is damaged") from error

    def client_of(self, address: str) -> str:
        """Stands for a client's address, and tells it to nobody.

        After a change of the key each client is another one.
        """
        return blake2b(address.encode(), key=self._client_key, digest_size=CLIENT_BYTES).hexdigest()

    def seals_with(self, text: str) -> bool:
        """Is it sealed with the key that seals now?"""
        return key_of(text) == self._sealing

    def knows(self, text: str) -> bool:
        """Is it sealed with a key that we have?"""
        return key_of(text) in self._key_ids


def key_of(text: str) -> str:
    """The fingerprint of the key that sealed `text`."""
    return text.partition(".")[0]


def load(path: Path, random_bytes: Callable[[int], bytes]) -> Sealer:
    """The sealer of a key file. Raises ConfigError."""
    try:
        return Sealer(keys_in(path.read_text("ascii")), random_bytes)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"lease_key_file = {str(path)!r}: cannot be read: {error}") from error
    except ValueError as error:
        raise ConfigError(f"lease_key_file = {str(path)!r}: {error}") from error
