"""What is done about a reader that takes less than there is. Pure.

    wait      nothing: it is told how far it is behind; what Kafka keeps no longer becomes a gap
    conflate  of all that it has not seen it is given the latest of each thing, until that is all
    skip      it goes on at the live end; a gap says exactly what was left out
    end       its stream ends; it comes again with its cursor when it likes

A reader falls behind when for `after_s` it had as much waiting as its connection, or its credits,
let through, came no nearer to the live end, and the oldest of what it has not seen is older than
that. Who began in the past, and comes nearer, is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from edgewake.cloud.log.following.behind import Behind
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.log.subscription import Positions

WORDS: Final = {
    "wait": "waits",
    "conflate": "is given the latest of each thing alone",
    "skip": "goes on at the live end, with a gap",
    "end": "is ended, and may come again with its cursor",
}
"""What becomes of a slow reader, for people."""
AFTER_S_MIN: Final = 5
"""Shortest time: what a radio does in a tunnel should leave no events out."""
AFTER_S_MAX: Final = 3600
"""Longest time that a client may ask for where `wait` is allowed."""
_SECONDS: Final = re.compile(r"[0-9]{1,4}")


class Policy(StrEnum):
    """What is done about a slow reader, in the order in which a server has them."""

    WAIT = "wait"
    CONFLATE = "conflate"
    SKIP = "skip"
    END = "end"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is done about a client, and after how many seconds."""

    policy: Policy
    after_s: float


@dataclass(frozen=True, slots=True)
class Falling:
    """A reader that came no nearer to the live end than `least` records since `since`.

    `since` is in monotonic seconds.
    """

    since: float
    least: int


def wish(policy: str | None, after: str | None, allowed: Sequence[Policy], after_s: float) -> Wish:
    """What a client asks for, among what the operator allows. Raises RequestError.

    None: it does not say, and gets the first of those that are allowed.
    """
    if policy is not None and policy not in allowed:
        raise RequestError(
            "slow", f"slow={policy[:40]!r}: expected {_listed(allowed)}, as this server allows"
        )
    chosen = allowed[0] if policy is None else Policy(policy)
    return Wish(chosen, after_s if after is None else _seconds(after, allowed, after_s))


def _seconds(text: str, allowed: Sequence[Policy], after_s: float) -> float:
    """Who may wait for ever may also wait for longer than the operator's own time."""
    most = AFTER_S_MAX if Policy.WAIT in allowed else max(AFTER_S_MIN, int(after_s))
    if _SECONDS.fullmatch(text) and AFTER_S_MIN <= int(text) <= most:
        return float(text)
    raise RequestError(
        "slow_after",
        f"slow_after={text[:40]!r}: expected whole seconds from {AFTER_S_MIN} to {most}",
    )


def _listed(policies: Sequence[Policy]) -> str:
    return " or ".join(filter(None, (", ".join(policies[:-1]), policies[-1])))


def observe(before: Falling | None, found: Behind, now: float) -> Falling | None:
    """How it falls behind after a look; None: not at all."""
    if not found.records:
        return None
    if before is None or found.records < before.least:
        return Falling(now, found.records)
    return before


def acts_in(falling: Falling, found: Behind, wished: Wish, now: float) -> float | None:
    """Seconds until its policy acts, at the least, if it comes no nearer; None: it never does."""
    if wished.policy is Policy.WAIT:
        return None
    return max(0.0, wished.after_s - (now - falling.since), wished.after_s - found.seconds)


def told(found: Behind, wished: Wish, next_s: float | None, events: int | None) -> dict[str, Any]:
    """What a reader is told: how far it is behind, and what is done about it, and when."""
    facts: dict[str, Any] = {
        "records": found.records,
        "seconds": round(found.seconds, 3),
        "policy": wished.policy.value,
    }
    if events is not None:
        facts["events"] = events
    if next_s is not None:
        facts["acts_in"] = round(next_s, 1)
    return facts


def likely_events(records: int, shown: int, start: Positions, here: Positions) -> int | None:
    """How many events `records` are to a reader that was shown `shown` between two positions.

    Its filter, and how many readings a record holds, are in it. None where nothing tells.
    """
    passed = sum(
        there[0] - begin[0]
        for row, ends in zip(start, here, strict=True)
        for begin, there in zip(row, ends, strict=True)
    )
    return round(records * shown / passed) if passed > 0 else None
