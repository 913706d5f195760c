"""Which messages of the cloud were begun and which are done: the state of the inbox's consumer.

Pure.

    unknown ─ begin ─▶ begun ─ end ─▶ done

What is found `begun` at the start of a life was interrupted by the end of the one before.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import orjson

DONE_MAX: Final = 500
"""Messages that are done and remembered, some 20 KB. The cloud has at most a hundred open for a
device and 300 for all things behind it, so one that it sends again is among them."""


class Step(StrEnum):
    """The steps of a message."""

    BEGUN = "begun"
    DONE = "done"


class Ledger:
    """Steps by id, the latest last."""

    def __init__(self, steps: dict[str, Step] | None = None) -> None:
        self._steps = dict(steps or {})

    @classmethod
    def decode(cls, state: bytes | None) -> Ledger:
        """Read what `encode` made; empty without it. Raises ValueError."""
        return cls(
            {str(key): Step(step) for key, step in orjson.loads(state).items()} if state else {}
        )

    def encode(self) -> bytes:
        """Encode the ledger for the log."""
        return orjson.dumps(self._steps)

    def joined(self, other: Ledger) -> Ledger:
        """What either of them knows: the log was damaged and holds an older state, or none."""
        found = Ledger(other._steps | self._steps)
        for key, step in other._steps.items():
            if step is Step.DONE:
                found._steps[key] = step
        return found

    def step(self, key: str) -> Step | None:
        """Its step; None: not begun."""
        return self._steps.get(key)

    def begin(self, key: str) -> None:
        """It is about to be done."""
        self._steps[key] = Step.BEGUN

    def end(self, key: str) -> None:
        """It is done, and must not be done again."""
        self._steps.pop(key, None)
        self._steps[key] = Step.DONE
        done = [one for one, step in self._steps.items() if step is Step.DONE]
        for old in done[: max(0, len(done) - DONE_MAX)]:
            del self._steps[old]
