"""Finds who shows a key or token, and has clients that show wrong ones wait.

Nobody guesses a token that its issuer signed, whatever else is wrong with it: a phone whose token
is expired spends nothing of what its neighbours have. A program that shows a new token every few
minutes is known again by its issuer and subject.
"""

from __future__ import annotations

import logging
from hashlib import sha256

from edgewake.cloud.rights import tokens
from edgewake.cloud.rights.principal import Principal
from edgewake.cloud.rights.rights import CREDENTIAL_BYTES_MAX, Rights
from edgewake.cloud.rights.shown_keys import ShownKeys
from edgewake.cloud.rights.tokens import Lapsed, Refused
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.rights")


class ReaderDoor:
    """Knows who shows a key or token; a client that shows wrong ones has to wait."""

    def __init__(self, rights: Rights, clock: Clock) -> None:
        self._rights = rights
        self._shown = ShownKeys(clock, log, "rights.wrong_key")

    async def find(self, credential: bytes, client: str) -> Principal:
        """The owner of a key or token that a client shows.

        Raises Refused, Unavailable where that is unknown now, and Problem (429) where the client
        showed too many wrong ones.
        """
        word = sha256(credential).digest()
        name = _subject_of(credential) or word
        self._shown.check(client, name, word)
        try:
            found = await self._rights.principal(credential)
        except Lapsed:
            raise
        except Refused:
            self._shown.was_wrong(client, word)
            raise
        self._shown.was_right(client, name)
        return found


def _subject_of(credential: bytes) -> bytes | None:
    """Who a token says that it is of, unchecked, as a digest; None: it is a key."""
    if len(credential) > CREDENTIAL_BYTES_MAX or credential.count(b".") != 2:
        return None
    try:
        claims = tokens.read(credential).claims
    except Refused:
        return None
    issuer, subject = claims.get("iss"), claims.get("sub")
    if not isinstance(issuer, str) or not isinstance(subject, str):
        return None
    return sha256(f"{len(issuer)} {issuer} {subject}".encode("utf-8", "surrogatepass")).digest()
