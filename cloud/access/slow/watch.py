"""Looks after one reader, each second: is it slow, is it to be told, does its policy act?

It is pure but for `behind`, which is asked as seldom as will do.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from edgewake.cloud.access.slow import policy
from edgewake.cloud.access.slow.policy import WORDS, Falling, Policy, Wish
from edgewake.cloud.log.following.behind import Behind

TELL_EVERY_S: Final = 10.0
"""How often a slow reader is told how far it is behind."""
LOOKS: Final = 2
"""Looks in a row that find it full: a client of full speed fills its connection for a moment. After
as many that do not it is slow no more."""
LOOKS_PER_TERM: Final = 5
"""Looks at how far it is behind while its policy's time runs: each costs a step for each
partition."""


class Verdict(Enum):
    """What is to be done."""

    TELL = auto()
    ACT = auto()


class SlowWatch:
    """Judges one reader each second by how far it is behind."""

    def __init__(self, wished: Wish, now: float) -> None:
        """`now` in monotonic seconds."""
        self.wish = wished
        self.slow_since: float | None = None
        """Since when it is slow."""
        self.found: Behind | None = None
        """How far it was behind at the last look, while it is slow."""
        self.acted = 0
        """How often its policy acted."""
        self._falling: Falling | None = None
        self._full, self._free = 0, 0
        self._told_s = now - TELL_EVERY_S
        self._looked_s = now - TELL_EVERY_S
        self._look_s = TELL_EVERY_S
        if wished.policy is not Policy.WAIT:
            self._look_s = min(TELL_EVERY_S, wished.after_s / LOOKS_PER_TERM)

    def look(self, now: float, *, is_full: bool, behind: Callable[[], Behind]) -> Verdict | None:
        """One look, of the second `now`."""
        self._full, self._free = (self._full + 1, 0) if is_full else (0, self._free + 1)
        if self._free >= LOOKS:
            self._forget()
        if self._full < LOOKS or now - self._looked_s < self._look_s:
            return None
        found = behind()
        self._looked_s = now
        self.found, self._falling = found, policy.observe(self._falling, found, now)
        if self._falling is None:
            self._forget()
            return None
        if self.slow_since is None:
            self.slow_since = now
        if self.acts_in(now) == 0:
            return Verdict.ACT
        return Verdict.TELL if now - self._told_s >= TELL_EVERY_S else None

    def acts_in(self, now: float) -> float | None:
        """Seconds until its policy acts, at the least.

        None where it does not, or the reader is not slow.
        """
        if self._falling is None or self.found is None:
            return None
        return policy.acts_in(self._falling, self.found, self.wish, now)

    def told(self, found: Behind, now: float, events: int | None) -> dict[str, Any]:
        """What it is told now."""
        self._told_s, self.found = now, found
        return policy.told(found, self.wish, self.acts_in(now), events)

    def words(self, now: float, *, stall_s: float) -> str:
        """What becomes of it, for people."""
        soon = self.acts_in(now)
        said = WORDS[self.wish.policy]
        if self.wish.policy is not Policy.WAIT:
            said += f" after {self.wish.after_s:g} s" if soon is None else f" in {soon:.0f} s"
        done = f" (done {self.acted} times)" if self.acted else ""
        return (
            f"told how far it is behind; {said}{done}; "
            f"cut off after {stall_s:g} s in which it takes nothing"
        )

    def in_short(self, now: float) -> str:
        """Say what is done about it, e.g. `skip in 12 s`, where it is slow."""
        soon = self.acts_in(now)
        return f"{self.wish.policy.value}{'' if soon is None else f' in {soon:.0f} s'}"

    def told_last(self, now: float) -> dict[str, Any]:
        """What was told at the last look."""
        return {} if self.found is None else self.told(self.found, now, None)

    def has_acted(self) -> None:
        """Its policy acted: its time begins again."""
        self.acted += 1
        self._falling = None

    def _forget(self) -> None:
        self.slow_since = self.found = self._falling = None
