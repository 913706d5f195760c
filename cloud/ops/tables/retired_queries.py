"""Decides when topics of removed queries and unused name claims are deleted. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from edgewake.protocol import topics
from edgewake.protocol.frames.stream import NameKind, Stream
from edgewake.protocol.ops.query import Registration, claimed_at

KEPT_S: Final = 3600.0
"""Seconds that the results of a removed query can still be read."""
TOPICS_MAX: Final = 50
"""Topics of removed queries; beyond it the oldest go at once, so that registering and removing
fills Kafka with nothing."""
SETTLE_S: Final = 60.0
"""Seconds after a removal before the analysis has surely stopped writing."""
CLAIM_MS: Final = 60_000
"""Milliseconds between the claim of a name and its registration at most; an older claim without one
is dead."""


class RetiredQueries:
    """Remembers since when a topic has been without a registration.

    A restart forgets it: then results stay a little longer.
    """

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def deletable(
        self, names: Collection[str], queries: Mapping[str, Registration], now_s: float
    ) -> list[str]:
        """Topics of results to be deleted now, of all `names` of topics."""
        used = {registration.topic for registration in queries.values()}
        retired = [name for name in names if topics.parse_query_topic(name) and name not in used]
        self._since_s = {name: self._since_s.get(name, now_s) for name in retired}
        by_age = sorted(
            retired, key=lambda name: (self._since_s[name], topics.parse_query_topic(name))
        )
        over = set(by_age[: max(0, len(by_age) - TOPICS_MAX)])
        return [
            name
            for name in by_age
            if now_s - self._since_s[name] >= (SETTLE_S if name in over else KEPT_S)
        ]


def is_dead(row: Stream, queries: Mapping[str, Registration], now_ms: int) -> bool:
    """Is this the claim of a registration that was removed or never came?"""
    registered = queries.get(row.name)
    if row.kind is not NameKind.QUERY or (registered is not None and registered.claim == row.claim):
        return False
    at = claimed_at(row.claim)
    return at is None or now_ms - at > CLAIM_MS
