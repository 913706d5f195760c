"""Has clients that show wrong keys wait, and nobody else (`tries.py`).

The key by which a client came in before opens whatever others behind its address do: a hostile
neighbour, or a program with an old key, keeps nobody out who works.
"""

from __future__ import annotations

from collections import OrderedDict
from logging import Logger
from math import ceil
from typing import Final

from edgewake.cloud.log_pace import LogPace
from edgewake.cloud.rights.tries import Tries
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.clock import Clock

TOO_MANY_TRIES: Final = 429
"""The status of who showed too many wrong keys."""
KNOWN_MAX: Final = 10_000
"""Pairs of client and key that are remembered, some 200 bytes each; who came longest ago is
forgotten."""


class ShownKeys:
    """Remembers who came in by which key, until the process ends, and counts what was wrong.

    `event`: the name of its lines in `log`.
    """

    def __init__(self, clock: Clock, log: Logger, event: str) -> None:
        self._clock, self._log, self._event = clock, log, event
        self._tries = Tries(clock)
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._pace = LogPace()

    def check(self, client: str, word: bytes) -> None:
        """Raises Problem (429) where a client showed too many wrong ones.

        Before anything is looked at: a guess that is right tells nothing then either. `word`: a
        digest of what is shown.
        """
        if (client, word) in self._known:
            return
        wait_s = self._tries.wait_s(client, word)
        if wait_s > 0:
            raise self._too_many(client, wait_s)

    def was_right(self, client: str, word: bytes) -> None:
        """It came in by this key."""
        known = client, word
        self._known[known] = None
        self._known.move_to_end(known)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def was_wrong(self, client: str, word: bytes) -> None:
        """It showed what nobody has. Raises Problem (429) where that was one too many."""
        self._known.pop((client, word), None)
        wait_s = self._tries.take(client, word)
        if wait_s > 0:
            raise self._too_many(client, wait_s)
        self._say(client, "a key that nobody has")

    def _too_many(self, client: str, wait_s: float) -> Problem:
        self._say(client, "too many wrong keys: it has to wait")
        return too_many(wait_s)

    def _say(self, client: str, what: str) -> None:
        left_out = self._pace.left_out(client, self._clock.monotonic_s())
        if left_out is None:
            return
        more = f" ({left_out} more of these were not logged)" if left_out else ""
        facts = {"event": self._event, "client": client}
        self._log.warning("%s: %s%s", client, what, more, extra=facts)


def too_many(wait_s: float) -> Problem:
    """The answer to who was wrong too often."""
    seconds = ceil(wait_s)
    return Problem(
        TOO_MANY_TRIES,
        "too_many_tries",
        f"too many wrong keys came from your address: try again in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )
