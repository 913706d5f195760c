"""Decides how many readings a shedding query takes, from how far it lags.

Pure; schedule/shedder.py acts on it.

At *level* n one reading of 2^n is taken. Above the declared lag the level grows by one at a time,
unless the lag would be gone soon anyway. When the lag was below half of that for a while, it goes
back by one; a level that had to be raised again soon after is held twice as long the next time, so
a stream that is always too much settles at one level, but for an occasional try.

A level holds from an offset in the stream on (*zone*), which is written down before anything there
is computed. Whoever computes a reading again, after a crash or from a lost checkpoint, therefore
takes or leaves it as before. Before the oldest zone that is remembered all readings are taken.

What a stream had before the query came is its *back-fill* and does not count as lag: nobody waits
for it. Until the query has caught up with it for the first time, a lag that shrinks is left to go
by itself, however long that takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict

LEVEL_MAX: Final = 6
"""One reading of 64: reading and decoding all of them costs more than computing so few, so less
would save nothing."""
STEP_MS: Final = 3_000
"""The least time from one level up to the next: the effect of the one before must show first."""
RECOVERY_MS: Final = 30_000
"""A lag that will be within what was declared so soon, at its present pace, is left to go by
itself."""
CALM_MS: Final = 10_000
"""How long the lag must be small before a level is lowered by one."""
PATIENCE_MAX: Final = 64
"""Times CALM_MS: the longest that becomes when lower levels prove to be too much again and again.
One try in ten minutes."""
SOON: Final = 10
"""Times the declared lag: a level that has to be raised again within that, and what it was held
for, was lowered too early."""
FILL_MS: Final = 30_000
"""A query that is back-filling must have less lag at the end of each such period than at its
beginning; else it lags."""
CALM_SHARE: Final = 0.5
"""Share of the declared lag below which the lag is small."""
LOOKS_APART_MS_MAX: Final = 60_000
"""The longest time between two checks, s, over which a pace is computed; it is exceeded around an
outage."""
ZONES_MAX: Final = 3
"""Zones that are remembered: a batch is computed again at most one or two changes later. Readings
before them, computed again after a checkpoint was lost, are all taken, which is nearer to the
truth."""
WINDOWS_MAX: Final = 100
"""Windows of a query of which it is remembered how many readings they lack, so that its total is
exact; beyond it the total is too low."""


class Zone(BaseModel):
    """The offsets from which on a level holds."""

    model_config = ConfigDict(frozen=True)

    level: int
    offsets: dict[int, int]


class Shedding(BaseModel):
    """The state of a query's shedding; part of the lane's record."""

    model_config = ConfigDict(frozen=True)

    zones: tuple[Zone, ...] = ()
    """Oldest first."""
    changed_at: int = 0
    """When that was, in ms since 1970 as all times here."""
    lag_ms: int | None = None
    """The lag at the last check."""
    looked_at: int = 0
    calm_since: int | None = None
    calm_lag_ms: int = 0
    """The lag when the level last changed: if it has grown since, the level is just enough."""
    patience: int = 1
    """Times CALM_MS."""
    eased_at: int | None = None
    """When the level last went back."""
    fills_since: int | None = None
    """Beginning of the stretch (FILL_MS) in which it still catches up with what the stream had
    before it came; None where it does not."""
    fill_lag_ms: int = 0
    """The lag then."""
    total: int = 0
    """Readings left out since the query was registered, one for each window that it belongs to."""
    windows: dict[int, int] = {}
    """Window's start → readings left out, of the latest WINDOWS_MAX windows that lack any."""

    @property
    def level(self) -> int:
        """The level from the last zone on."""
        return self.zones[-1].level if self.zones else 0

    @property
    def kept(self) -> float:
        """The share of readings that is taken."""
        return 1 / (1 << self.level)

    @property
    def detail(self) -> str:
        """What is left out and why, for people."""
        return (
            f"computes one of {1 << self.level} readings: "
            f"it was {(self.lag_ms or 0) // 1000} s behind"
            if self.level
            else ""
        )


def lag_ms(
    left: Mapping[int, int] | None, received_at: Mapping[int, int], now_ms: int
) -> int | None:
    """How long ago the next unread record was received, in the partition that is furthest behind.

    None where it is unknown. `left`: partition → unread records, None where Kafka does not say;
    `received_at`: when the latest reading that was read of each partition was received.
    """
    if left is None:
        return None
    unread = {partition for partition, records in left.items() if records}
    if not unread:
        return 0
    return max(
        (
            max(0, now_ms - received_at[partition])
            for partition in unread
            if partition in received_at
        ),
        default=None,
    )


def decided(
    before: Shedding,
    *,
    lag_ms: int,
    above_ms: int,
    now_ms: int,
    offsets: Mapping[int, int],
    registered_at: int = 0,
) -> Shedding:
    """The shedding from `offsets` on. `registered_at`: of the query, ms."""
    fill = _fill(before, lag_ms, above_ms, now_ms, registered_at)
    looked = before.model_copy(update={"lag_ms": lag_ms, "looked_at": now_ms, **fill})
    if looked.fills_since is not None:
        return looked.model_copy(update={"calm_since": None})
    if lag_ms > above_ms * CALM_SHARE:
        looked = looked.model_copy(update={"calm_since": None})
        return (
            _raised(looked, above_ms, now_ms, offsets)
            if _must_rise(before, lag_ms, above_ms, now_ms)
            else looked
        )
    if before.calm_since is None or before.calm_since > now_ms:
        return looked.model_copy(update={"calm_since": now_ms, "calm_lag_ms": lag_ms})
    steps = (now_ms - before.calm_since) // (CALM_MS * before.patience)
    if steps == 0 or before.level == 0:
        return looked
    looked = looked.model_copy(update={"calm_since": now_ms, "calm_lag_ms": lag_ms})
    if lag_ms > before.calm_lag_ms:
        return looked
    return _at_level(looked, max(0, before.level - steps), now_ms, offsets).model_copy(
        update={"eased_at": now_ms}
    )


def _fill(
    before: Shedding, lag_ms: int, above_ms: int, now_ms: int, registered_at: int
) -> Mapping[str, int | None]:
    """Does it still catch up, and since when without being seen to?"""
    if lag_ms > now_ms - registered_at:
        return {"fills_since": now_ms, "fill_lag_ms": lag_ms}
    if before.fills_since is None or lag_ms <= above_ms:
        return {"fills_since": None}
    if 0 <= now_ms - before.fills_since < FILL_MS:
        return {}
    return {"fills_since": now_ms if lag_ms < before.fill_lag_ms else None, "fill_lag_ms": lag_ms}


def _must_rise(before: Shedding, lag_ms: int, above_ms: int, now_ms: int) -> bool:
    if lag_ms <= above_ms or before.level == LEVEL_MAX or 0 <= now_ms - before.changed_at < STEP_MS:
        return False
    apart_ms = now_ms - before.looked_at
    if before.lag_ms is None or not 0 < apart_ms <= LOOKS_APART_MS_MAX:
        return False
    pace = (before.lag_ms - lag_ms) / apart_ms
    return lag_ms - above_ms > pace * RECOVERY_MS


def _raised(looked: Shedding, above_ms: int, now_ms: int, offsets: Mapping[int, int]) -> Shedding:
    patience = looked.patience
    if looked.eased_at is not None:
        was_soon = now_ms - looked.eased_at < SOON * above_ms + CALM_MS * patience
        patience = min(2 * patience, PATIENCE_MAX) if was_soon else 1
    return _at_level(looked, looked.level + 1, now_ms, offsets).model_copy(
        update={"patience": patience, "eased_at": None}
    )


def _at_level(looked: Shedding, level: int, now_ms: int, offsets: Mapping[int, int]) -> Shedding:
    zones = (*looked.zones, Zone(level=level, offsets=dict(offsets)))[-ZONES_MAX:]
    return looked.model_copy(update={"zones": zones, "changed_at": now_ms})


def counted(before: Shedding, windows: Mapping[int, int]) -> Shedding:
    """Update the number of readings left out of each window: start → readings.

    Where a lost state is being computed again, `windows` may have fewer than before.
    """
    first = min(before.windows, default=0) if len(before.windows) >= WINDOWS_MAX else 0
    more = sum(
        max(0, count - before.windows.get(start, 0))
        for start, count in windows.items()
        if start >= first
    )
    most = {start: max(count, before.windows.get(start, 0)) for start, count in windows.items()}
    latest = sorted((before.windows | most).items())[-WINDOWS_MAX:]
    return before.model_copy(update={"total": before.total + more, "windows": dict(latest)})
