"""Finds the holder of a key, and has clients that show wrong ones wait (`login/tries.py`).

A key by which a client came in before opens whatever others behind its address do: a hostile
neighbour, or a program with an old key, keeps nobody out who works.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from hashlib import sha256
from math import ceil
from typing import Final

from edgewake.cloud.log_pace import LogPace
from edgewake.cloud.login.tries import Tries
from edgewake.cloud.ops.login.keys import Holder, Keys
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.ops")

TOO_MANY_TRIES: Final = 429
"""The status of who showed too many wrong keys."""
KNOWN_MAX: Final = 1000
"""Pairs of client and key that are remembered as right; who came longest ago is forgotten."""


class KeyDoor:
    """Knows the holder of a key; a client that shows wrong ones has to wait."""

    def __init__(self, keys: Keys, clock: Clock) -> None:
        self._keys, self._clock = keys, clock
        self._tries = Tries(clock)
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._pace = LogPace()

    def find(self, key: bytes, client: str) -> Holder | None:
        """The holder of a key that a client shows; None: nobody.

        Raises Problem (429) where it showed too many wrong ones: nothing is looked at then, so that
        a guess that is right tells nothing either.
        """
        digest = sha256(key).digest()
        known = client, digest
        if known in self._known:
            holder = self._keys.find(key)
            if holder is not None:
                self._known.move_to_end(known)
                return holder
            del self._known[known]
        wait_s = self._tries.take(client, digest)
        if wait_s > 0:
            self._say(client, "too many wrong keys: it has to wait")
            raise too_many(wait_s)
        holder = self._keys.find(key)
        if holder is None:
            self._say(client, "a key that nobody has")
            return None
        self._tries.give_back(client, digest)
        self._known[known] = None
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return holder

    def _say(self, client: str, what: str) -> None:
        left_out = self._pace.left_out(client, self._clock.monotonic_s())
        if left_out is None:
            return
        more = f" ({left_out} more of these were not logged)" if left_out else ""
        facts = {"event": "ops.wrong_key", "client": client}
        log.warning("%s: %s%s", client, what, more, extra=facts)


def too_many(wait_s: float) -> Problem:
    """The answer to who was wrong too often."""
    seconds = ceil(wait_s)
    return Problem(
        TOO_MANY_TRIES,
        "too_many_tries",
        f"too many wrong keys came from your address: try again in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )
