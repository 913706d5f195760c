"""Finds the holder of a key, and has clients that show wrong ones wait."""

from __future__ import annotations

import logging
from hashlib import sha256

from edgewake.cloud.ops.login.keys import Holder, Keys
from edgewake.cloud.rights.shown_keys import ShownKeys
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.ops")


class KeyDoor:
    """Knows the holder of a key; a client that shows wrong ones has to wait."""

    def __init__(self, keys: Keys, clock: Clock) -> None:
        self._keys = keys
        self._shown = ShownKeys(clock, log, "ops.wrong_key")

    @property
    def shown(self) -> ShownKeys:
        """What it counts, for a door beside it."""
        return self._shown

    def find(self, key: bytes, client: str) -> Holder | None:
        """The holder of a key that a client shows; None: nobody.

        Raises Problem (429) where it showed too many wrong ones.
        """
        digest = sha256(key).digest()
        self._shown.check(client, digest)
        holder = self._keys.find(key)
        if holder is None:
            self._shown.was_wrong(client, digest)
        else:
            self._shown.was_right(client, digest)
        return holder
