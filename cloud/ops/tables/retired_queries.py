"""Decides when topics of removed queries, and unused claims of names, are deleted. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from edgewake.protocol import topics
from edgewake.protocol.frames.stream import NameKind, Stream
from edgewake.protocol.ops.query import Registration, claimed_at

KEPT_S: Final = 3600.0
"""Seconds for which results of a removed query stay readable."""
TOPICS_MAX: Final = 50
"""The most topics of removed queries; the oldest beyond it are deleted immediately, so that
registering and removing queries cannot fill Kafka."""
SETTLE_S: Final = 60.0
"""Seconds after a removal by which the analysis has certainly stopped writing."""
CLAIM_MS: Final = 60_000
"""The longest time between the claim of a name and its registration, ms; an older claim without one
is unused."""


class RetiredQueries:
    """Remembers since when each topic has had no registration.

    A restart forgets it, and results then stay somewhat longer.
    """

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def deletable(
        self, names: Collection[str], queries: Mapping[str, Registration], now_s: float
    ) -> list[str]:
        """Returns the result topics to delete now, among all `names` of topics."""
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
    """Returns whether a row is the claim of a registration that was removed or never came."""
    registered = queries.get(row.name)
    if row.kind is not NameKind.QUERY or (registered is not None and registered.claim == row.claim):
        return False
    at = claimed_at(row.claim)
    return at is None or now_ms - at > CLAIM_MS
