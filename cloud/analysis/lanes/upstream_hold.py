"""Holds event time back while a sequencer has unprocessed records. Pure.

While a sequencer is away, the devices of its partitions of `ew.up` appear silent while others go
on, so their readings would be late once it is back. How much is unprocessed is known: the
sequencers' group has each partition's committed offset, and Kafka its end.

A partition whose records have waited for STALLED_MS holds event time at the last moment when it had
none waiting. After HOLD_MS_MAX it is released, and its readings are late. A partition that no
sequencer ever served holds nothing.

A hold lasts only as long as it is checked: after STALE_MS without a check nothing is held, because
nobody knows whether records still wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

STALLED_MS: Final = 10_000
"""A working sequencer passes a record on within a second, and commits every other second."""
HOLD_MS_MAX: Final = 600_000
"""How long event time is held. A takeover takes 15 s; readings from a sequencer that was away for
longer are late, and can be repaired."""

STALE_MS: Final = 10_000
"""How long a check is valid: its interval of two seconds, and two questions that were answered
late. While Kafka answers no questions, lanes get no readings from it either; once it is back, the
next check comes within a second."""


@dataclass
class Sequenced:
    """What is known of the partitions of `ew.up`, check by check; times in ms by one clock."""

    _clear_at: dict[int, int] = field(default_factory=dict)
    """Partition → the latest check whose records have all been passed on by now."""
    _waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition → the first check at which records waited, and its end then."""
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
    """Hold nothing: for readers of streams that no sequencer writes."""


def nothing_to_say(_now_ms: int) -> str:
    """Give no reason: for readers of streams that no sequencer writes."""
    return ""
