"""The progress of an action: which alert was begun, and what became of those before. Pure.

**At most once.** The position of an alert is durable before the action begins: after a kill at any
moment nothing is done twice. What acts on the world (a siren, a valve, a message to somebody) does
harm when it is done again without need; one that may have been left out is counted as `unknown` and
said, and its alert is still in its stream. What can fail without an effect, the way to a broker or
a server, is tried before, again and again until the alert is too old. The receiver of a webhook or
message gets the alert's id as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import orjson


class Outcome(StrEnum):
    """What became of an alert."""

    DONE = "done"  # the program ended with 0, the server answered 2xx, the broker confirmed
    FAILED = "failed"  # it was begun and did not succeed
    EXPIRED = "expired"  # the alert was older than expire_s before it could be begun
    UNKNOWN = (
        "unknown"  # the agent ended while it was done: perhaps it was, and it is not done again
    )
    MISSED = "missed"  # the log had given the alert up before it was read


@dataclass(frozen=True, slots=True)
class Progress:
    """The state that is committed with the cursor."""

    begun: int | None = None
    """Position of the alert that is being acted on."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts by outcome."""

    def begin(self, position: int) -> Progress:
        """The progress that must be durable before the action begins."""
        return replace(self, begun=position)

    def ended(self, outcome: Outcome, count: int = 1) -> Progress:
        """After it."""
        return Progress(None, dict(Counter(self.counts) + Counter({outcome.value: count})))

    def encode(self) -> bytes:
        """The progress as JSON."""
        return orjson.dumps({"begun": self.begun, "counts": self.counts})


def decode(kept: bytes | None) -> Progress:
    """Read what was committed; a state that cannot be read counts as empty."""
    try:
        found: Any = orjson.loads(kept or b"null")
        return Progress(
            found["begun"],
            {Outcome(name).value: int(count) for name, count in found["counts"].items()},
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return Progress()


def resumed(kept: Progress) -> Progress:
    """At the agent's start: nobody knows about what was begun."""
    return kept if kept.begun is None else kept.ended(Outcome.UNKNOWN)
