"""Holds event time back while a sequencer has unprocessed records. Pure.

While a sequencer is away the devices of its partitions of `ew.up` look silent, and those of others
go on; their readings would be late when it is back. What waits is known: the sequencers' group says
how far each partition is, and Kafka where it ends.

A partition in which something has waited for STALLED_MS holds event time where it stood when the
partition was last seen without anything from before; after HOLD_MS_MAX it does so no longer, and
its readings are late. One that no sequencer ever served holds nothing.

What was seen holds for as long as somebody looks: after STALE_MS without a look nobody knows
whether it waits still, and nothing holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

STALLED_MS: Final = 10_000
"""A sequencer that works passes a record on within a second, and says so every other second."""
HOLD_MS_MAX: Final = 600_000
"""How long event time is held. A takeover takes 15 s; what a sequencer that was away for longer
passes on is late, and can be repaired."""

STALE_MS: Final = 10_000
"""How long a look counts: that of one who looks every other second, and of two questions that were
answered late. While Kafka answers no questions it gives no lane readings either; when it is back,
the next look comes within a second."""


@dataclass
class Sequenced:
    """What is known of the partitions of `ew.up`, look by look; times in ms by one clock."""

    _clear_at: dict[int, int] = field(default_factory=dict)
    """Partition → the last look at which all that was there is passed on by now."""
    _waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition → the first look at which something waited, and where the partition ended then."""
    _looked_ms: int = 0

    def look(self, now_ms: int, ends: Mapping[int, int], sequenced: Mapping[int, int]) -> None:
        """`ends`: partition → offset after its last record.

        `sequenced`: the offset of the next one.
        """
        self._looked_ms = now_ms
        for partition, end in ends.items():
            if (passed := sequenced.get(partition)) is None:
                continue
            since, until = self._waiting.get(partition, (now_ms, end))
            if passed < until:
                self._waiting.setdefault(partition, (now_ms, end))
                continue
            self._waiting.pop(partition, None)
            self._clear_at[partition] = now_ms if passed >= end else since
            if passed < end:
                self._waiting[partition] = now_ms, end

    def hold(self, now_ms: int) -> int | None:
        """Event time, ms, that nothing may pass; None where nothing is held."""
        return min(
            (self._clear_at.get(partition, 0) for partition in self._stalled(now_ms)), default=None
        )

    def held_since(self, now_ms: int) -> int | None:
        """Return the time, ms, since when something holds event time back; None: nothing does."""
        return min(
            (self._waiting[partition][0] for partition in self._stalled(now_ms)), default=None
        )

    def _stalled(self, now_ms: int) -> list[int]:
        if now_ms - self._looked_ms > STALE_MS:
            return []
        return [
            partition
            for partition, (since, _) in self._waiting.items()
            if STALLED_MS < now_ms - since <= HOLD_MS_MAX
        ]


def nothing_holds(_now_ms: int) -> None:
    """For whoever reads streams that no sequencer writes."""


def nothing_to_say(_now_ms: int) -> str:
    """Stands for the reason of a hold where nothing is held: no text."""
    return ""
