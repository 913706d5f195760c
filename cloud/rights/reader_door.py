"""Finds who shows a key or token, and has clients that show wrong ones wait.

Nobody guesses a signature. So a token is always looked at, whatever others behind its address show,
and only a wrong one is counted: what it costs is one verification, as each token that is right
does. Nor is one a guess that its issuer signed, whatever else is wrong with it (it is expired), or
whose key is not known here (its issuer has just changed them).
"""

from __future__ import annotations

import logging
from hashlib import sha256

from edgewake.cloud.rights import tokens
from edgewake.cloud.rights.principal import Principal
from edgewake.cloud.rights.rights import CREDENTIAL_BYTES_MAX, Rights
from edgewake.cloud.rights.shown_keys import ShownKeys
from edgewake.cloud.rights.tokens import Lapsed, Refused, UnknownKey
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.proof import Kind

log = logging.getLogger("edgewake.rights")


class ReaderDoor:
    """Knows who shows a key or token; a client that shows wrong ones has to wait."""

    def __init__(self, rights: Rights, clock: Clock, shown: ShownKeys | None = None) -> None:
        """`shown`: what another door counts, too, at which keys of its own are shown."""
        self._rights = rights
        self._shown = shown or ShownKeys(clock, log, "rights.wrong_key")

    async def find(self, credential: bytes, client: str) -> Principal:
        """The owner of a key or token that a client shows.

        Raises Refused, Unavailable where that is unknown now, and Problem (429) where the client
        showed too many wrong ones.
        """
        word = sha256(credential).digest()
        if not _is_token(credential):
            self._shown.check(client, word)
        try:
            found = await self._rights.principal(credential)
        except (Lapsed, UnknownKey):
            raise
        except Refused:
            self._shown.was_wrong(client, word)
            raise
        if found.proof.kind is Kind.KEY:
            self._shown.check(client, word)  # a key in the form of a token can be guessed
            self._shown.was_right(client, word)
        return found


def _is_token(credential: bytes) -> bool:
    """Has it the form of a token? Nothing of it is checked."""
    if len(credential) > CREDENTIAL_BYTES_MAX or credential.count(b".") != 2:
        return False
    try:
        tokens.read(credential)
    except Refused:
        return False
    return True
