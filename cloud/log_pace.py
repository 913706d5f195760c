"""Says which lines of a log are written that strangers cause: a few of each client, and in all.

Whoever connects can cause a line, as often as they like: a log without a pace fills the disk, and
hides what happens to others. Pure.
"""

from __future__ import annotations

from typing import Final

PER_S: Final = 10.0
"""Seconds in which a client causes one line."""
LINES_MAX: Final = 20
"""Lines in this time of all clients together: 170,000 a day, some 30 MB, whatever happens."""


class LogPace:
    """The pace of one sentence."""

    def __init__(self, per_s: float = PER_S, lines_max: int = LINES_MAX) -> None:
        self._per_s, self._lines_max = per_s, lines_max
        self._since_s = float("-inf")
        self._said: set[str] = set()
        """Clients that caused a line since; at most `lines_max`."""
        self._left_out = 0

    def left_out(self, client: str, now_s: float) -> int | None:
        """How many lines were left out before this one; None: it is left out, too."""
        if now_s - self._since_s >= self._per_s:
            self._since_s = now_s
            self._said.clear()
        if client in self._said or len(self._said) >= self._lines_max:
            self._left_out += 1
            return None
        self._said.add(client)
        found, self._left_out = self._left_out, 0
        return found
